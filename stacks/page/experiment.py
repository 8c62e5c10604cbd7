"""What a server says of an experiment, read without trusting it: how both its versions fare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.stacks.page.form import NOTHING, figure
from falaj.stacks.page.shadow import STATES, number
from falaj.wire.documents import is_mapping, mapping

_MOST_ARMS: Final = 2


@dataclass(frozen=True)
class Arm:
    """Requests whose key belongs to one version.

    Attributes:
        name: ``live`` or ``candidate``.
        requests: how many there were.
        errors: those that were answered with 500 or above.
        refused: those that were answered with 400 to 499.
        seconds: to the answer in the mean; None where there was none.
        labels: what labels say of the answers, in words.
    """

    name: str
    requests: str
    errors: str
    refused: str
    seconds: float | None
    labels: str


@dataclass(frozen=True)
class Experiment:
    """A version that answers a share of the requests.

    Attributes:
        version: its number.
        state: ``starting``, ``ready`` or ``failed``; ``unknown`` for others.
        share: of the key's values that are its, in per cent.
        key: name of the header.
        arms: how both versions fare.
        fallbacks: its requests that the version that serves answered, by the reason, as pairs.
        outside: requests that are in no arm.
        error: why it answers nobody; empty where it does.
        why: the last failure by what it was, as pairs.
    """

    version: str
    state: str
    share: str
    key: str
    arms: tuple[Arm, ...]
    fallbacks: tuple[tuple[str, str], ...]
    outside: str
    error: str
    why: tuple[tuple[str, str], ...]


def experiment_of(found: object) -> Experiment | None:
    """Read what ``state.json`` has of an experiment; None where there is none."""
    if not is_mapping(found):
        return None
    state, arms = found.get("state"), [*mapping(found.get("arms")).items()]
    return Experiment(
        str(found.get("version", "")),
        state if isinstance(state, str) and state in STATES else "unknown",
        figure(found.get("share")),
        str(found.get("key", "")),
        tuple(_arm(name, each) for name, each in arms[:_MOST_ARMS]),
        tuple(
            (name, figure(count))
            for name, count in mapping(found.get("fallbacks")).items()
            if count != 0
        ),
        figure(found.get("outside")),
        str(found.get("error") or ""),
        tuple((name, str(each)) for name, each in mapping(found.get("why")).items()),
    )


def _arm(name: str, found: object) -> Arm:
    said = mapping(found)
    seconds = number(said.get("mean_seconds"))
    requests, errors, refused = (
        figure(said.get(each)) for each in ("requests", "errors", "refused")
    )
    if seconds is not None and seconds < 0:
        seconds = None
    return Arm(name, requests, errors, refused, seconds, _labels(said))


def _labels(said: Mapping[str, Any]) -> str:
    count, wrong, rmse = (number(said.get(each)) for each in ("labelled", "wrong", "rmse"))
    if count is None or count <= 0:
        return NOTHING
    of = f"of {figure(count)} rows"
    if wrong is not None:
        return f"{100 * (wrong / count):.1f} % wrong {of}"
    return f"RMSE {NOTHING if rmse is None else figure(float(f'{rmse:.4g}'))} {of}"
