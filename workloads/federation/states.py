"""What a site asks the coordinator: how the round stands, and which model it begins with."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from falaj.workloads.documents import mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation.transport import Link

_MOST_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True)
class State:
    """How the round under way stands for a site.

    Attributes:
        number: of the round.
        answered: whether nothing is waited for from this site.
        session: of secure aggregation, the attempt at the round; else empty.
        stage: likewise, what all sites send now.
        refused: whether the coordinator knows that this site refuses the round.
        asks: noise, clip and fewest sites of the round, as the coordinator says them: unchecked.
    """

    number: int
    answered: bool
    session: str = ""
    stage: str = ""
    refused: bool = False
    asks: Mapping[str, Any] = field(default_factory=dict[str, Any])


def read_state(link: Link, rounds: int) -> State | None:
    """How the round under way stands; None when all ``rounds`` are done.

    Raises:
        WorkloadError: the coordinator refuses, or says what can't be.
        OSError, http.client.HTTPException: it can't be reached.
    """
    status, body = link.ask("GET", "/v1/round")
    if status == http.client.GONE:
        return None
    try:
        value = json.loads(accepted(status, body))
        found = State(
            int(value["round"]), bool(value["answered"]), str(value.get("session", "")),
            str(value.get("stage", "")), bool(value.get("refused", False)),
            mapping(value.get("asks")),
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise WorkloadError(f"the coordinator's round can't be read: {error}") from error
    if not 0 <= found.number < rounds:
        raise WorkloadError(f"the coordinator is in round {found.number} of {rounds}")
    return found


def read_model(link: Link, number: int) -> bytes | None:
    """The model that a round begins with; None where it has ended. Errors as `read_state`."""
    status, body = link.ask("GET", f"/v1/rounds/{number}/model")
    if status in (http.client.CONFLICT, http.client.GONE):
        return None
    return accepted(status, body)


def accepted(status: int, body: bytes) -> bytes:
    """The body of an answer.

    Raises:
        WorkloadError: the coordinator refused, and says why.
    """
    if status == http.client.OK and len(body) <= _MOST_BYTES:
        return body
    raise WorkloadError(f"the coordinator refused: {status} {body[:500].decode(errors='replace')}")
