"""A site in a federation with secure aggregation: it joins, and answers stage by stage."""

from __future__ import annotations

import hashlib
import http.client
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation.plan import Plan
from falaj.workloads.federation.secure import messages
from falaj.workloads.federation.secure.identities import Directory, Identity
from falaj.workloads.federation.secure.masking import Grid, Numbers
from falaj.workloads.federation.secure.messages import (
    KEYS,
    MASKED,
    SHARES,
    UNMASKING,
    Session,
)
from falaj.workloads.federation.secure.participant import Participant
from falaj.workloads.federation.states import State, accepted, read_model
from falaj.workloads.federation.transport import Link
from falaj.workloads.federation.updates import Update

_PAUSE_SECONDS: Final = 0.5
_STAGE_PAUSE_SECONDS: Final = 0.1
"""All sites go through the stages after the keys together."""
_KEY_BYTES: Final = 32


@dataclass(frozen=True)
class Member:
    """Who a site is to the others of its federation.

    Attributes:
        who: the site.
        directory: all sites, by its own settings.
    """

    who: Identity
    directory: Directory


class SecureSite:
    """A site's rounds with secure aggregation.

    Args:
        plan: with secure aggregation.
        grid: of the plan.
        member: who it is.
        federation: digest of the task.
        train: from a round's number and model to what this site learned.

    Raises:
        WorkloadError: what the coordinator says of the sites is otherwise than this site's own
            settings, or the threshold is too low.
    """

    def __init__(
        self,
        plan: Plan,
        grid: Grid,
        member: Member,
        federation: str,
        train: Callable[[int, bytes], Update],
    ) -> None:
        self._member, self._grid, self._weighs = member, grid, not plan.equal
        self._federation, self._train = federation, train
        self._participant = Participant(member.who, member.directory, grid.threshold)
        self._session: Session | None = None
        self._sent = ("", b"")
        self._made: Numbers = np.zeros(0, np.uint64)
        self._made_of = (-1, b"")

    @property
    def told(self) -> str:
        """What is done to this site's updates, for people."""
        noise = "no noise"
        if self._grid.noise:
            noise = f"noise of deviation {self._grid.deviation:.4g} added by each site"
        return (
            f"secure aggregation: {self._grid.sites} sites, sums of at least "
            f"{self._grid.threshold}, updates of a norm of at most {self._grid.clip:g}, {noise}"
        )

    @property
    def pause_seconds(self) -> float:
        """Until the coordinator is asked again."""
        waits = self._sent[0] in ("", KEYS, UNMASKING)
        return _PAUSE_SECONDS if waits else _STAGE_PAUSE_SECONDS

    def answer(self, link: Link, state: State) -> bool:
        """Send what the stage waits for; whether that was this site's update.

        Raises:
            WorkloadError: the coordinator refuses, or asks for what a site doesn't tell.
            OSError, http.client.HTTPException: it can't be reached.
        """
        if state.answered:
            return False
        if self._session is None or self._session.id != state.session:
            if state.stage != KEYS:  # this session began without this site
                return False
            if not self._prepare(link, state.number):
                return False
            self._session = Session(self._federation, state.number, state.session)
            self._sent = (KEYS, self._participant.begin(self._session))
        path = f"/v1/rounds/{state.number}/{state.session}/{state.stage}"
        if self._sent[0] != state.stage:
            status, body = link.ask("GET", path)
            if status in (http.client.CONFLICT, http.client.GONE):
                return False
            message = self._message(self._session, state.stage, accepted(status, body))
            # Kept until it has arrived: no stage is answered in two ways.
            self._sent = (state.stage, message)
        status, body = link.ask("POST", path, self._sent[1])
        if status in (http.client.CONFLICT, http.client.GONE):
            return False
        accepted(status, body)
        return state.stage == MASKED

    def _message(self, session: Session, stage: str, body: bytes) -> bytes:
        if stage == SHARES:
            return self._participant.share(session, body)
        if stage == MASKED:
            return messages.encode_numbers(self._participant.mask(session, body, self._made))
        if stage == UNMASKING:
            return self._participant.open(session, body)
        raise WorkloadError(f"the coordinator is at a stage that there isn't: {stage!r}")

    def _prepare(self, link: Link, number: int) -> bool:
        """Train, and make a vector of what was learned, noise and all: the same in each session of
        a round. False where the round has ended."""
        data = read_model(link, number)
        if data is None:
            return False
        key = (number, hashlib.sha256(data).digest())
        if self._made_of != key:
            update = self._train(number, data)
            flat = np.concatenate(
                [each.double().reshape(-1).numpy() for each in update.tensors.values()]
            )
            rows = update.rows if self._weighs else 1
            noise = secrets.token_bytes(_KEY_BYTES)
            self._made = self._grid.whole(flat, rows, update.loss, noise)
            self._made_of = key
        return True


def join(
    plan: Plan, member: Member | None, task: bytes, train: Callable[[int, bytes], Update]
) -> SecureSite | None:
    """A site's side of secure aggregation; None where neither side asks for it.

    Args:
        plan: of the coordinator.
        member: who the site is, where it takes part in secure aggregation alone.
        task: the coordinator's, as it came.
        train: see `SecureSite`.

    Raises:
        WorkloadError: both sides don't say the same.
    """
    grid = plan.grid
    if plan.secure is None or grid is None:
        if member is None:
            return None
        raise WorkloadError(
            "this site takes part in secure aggregation alone (--secure-aggregation), and the "
            "coordinator would see its updates: both sides must say the same"
        )
    if member is None:
        raise WorkloadError(
            "the coordinator's federation has secure aggregation and this site hasn't: both sides "
            "must say the same; give --secure-aggregation and --site-keys"
        )
    own = sorted(member.directory.pins)
    if sorted(plan.secure.sites) != own:
        raise WorkloadError(
            f"the coordinator's sites are {', '.join(sorted(plan.secure.sites))}, this site's "
            f"--site-keys names {', '.join(own)}: both sides must say the same"
        )
    return SecureSite(plan, grid, member, hashlib.sha256(task).hexdigest(), train)
