"""The rounds of a federation whose coordinator sees sums of updates alone."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation.coordinator import LateError, Rounds, Rules
from falaj.workloads.federation.plan import Task
from falaj.workloads.federation.secure.collector import Collector
from falaj.workloads.federation.secure.identities import Directory
from falaj.workloads.federation.secure.masking import EXTRA, MaskingError, Reals
from falaj.workloads.federation.secure.messages import MASKED, UNMASKING
from falaj.workloads.federation.secure.sharing import SharingError
from falaj.workloads.federation.updates import MessageError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training.tensors import tensor_of

_REFUSED: Final = (
    "this federation has secure aggregation, and takes no update that it could read: give the "
    "site --secure-aggregation and --site-keys"
)


class SecureRounds(Rounds):
    """As `Rounds`, by sessions of four stages; see `falaj.workloads.federation.secure`.

    A round is summed once. The one after it is written down before sites are asked for what takes
    masks off: a coordinator that dies then, or hears too few, goes on with the next round, as two
    sums of one round would differ by single updates.

    Args:
        task: what the sites learn, by a plan with secure aggregation.
        rules: when a round is over.
        folder: of the run.
        keyring: seals the state; None leaves it plain.
        directory: the sites.
    """

    def __init__(
        self,
        task: Task,
        rules: Rules,
        folder: Path,
        keyring: KeyRing | None,
        *,
        directory: Directory,
    ) -> None:
        super().__init__(task, rules, folder, keyring)
        grid = task.plan.grid
        if grid is None:
            raise ValueError("the plan has no secure aggregation")
        self._grid, self._directory = grid, directory
        self._federation = hashlib.sha256(task.to_bytes()).hexdigest()
        self._collector = self._begun()

    def state(self, site: str) -> dict[str, Any]:
        """As of `Rounds`, with session and stage."""
        with self._changed:
            it = self._collector
            return {
                "round": self.number, "answered": it.answered(site), "session": it.session.id,
                "stage": it.stage, **self._asked_of(site),
            }  # fmt: skip

    def answer(self, number: int, site: str, data: bytes) -> None:
        """Refuse an update that could be read."""
        raise MessageError(_REFUSED)

    def tell(self, number: int, session: str, stage: str, site: str) -> bytes:
        """What a site needs for a stage; errors as `Rounds.tell`."""
        with self._changed:
            return self._under_way(number, session, stage).tell(site)

    def take(self, number: int, session: str, stage: str, site: str, data: bytes) -> None:
        """What a site sends at a stage; errors as `Rounds.take`, and `IdentityError`."""
        with self._changed:
            it = self._under_way(number, session, stage)
            if it.answered(site):
                raise LateError(f"{site} has answered at stage {stage}, or dropped out")
            it.take(site, data)
            self._changed.notify_all()

    def most_bytes(self) -> int:
        """Of what a site sends now."""
        with self._changed:
            return self._collector.most_bytes()

    def advance(self, *, timed_out: bool) -> bool:
        """The next stage of the session; False where too few answered, and after the last."""
        with self._changed:
            it = self._collector
            if it.stage == UNMASKING:
                return False
            if not it.is_enough() or not (it.is_complete() or timed_out):
                return False
            if it.stage == MASKED:
                self._save(self.number + 1)
            it.advance()
            return True

    def close(self, *, timed_out: bool = False) -> dict[str, Any] | None:
        """Take the masks off the sum and open the next round, or begin anew with too few.

        Args:
            timed_out: whether a stage has passed its time.

        Returns:
            As of `Rounds`.

        Raises:
            WorkloadError: the sum can't be, as a site sent what it shouldn't.
        """
        with self._changed:
            it = self._collector
            if it.stage != UNMASKING or not it.is_enough():
                if timed_out:
                    if it.stage == UNMASKING:
                        self.number += 1
                    self._collector = self._begun()
                return None
            sites = it.sites
            try:
                mean, _, loss = self._grid.mean(it.sum(), len(sites))
            except (MaskingError, SharingError, MessageError) as error:
                raise WorkloadError(
                    f"round {self.number + 1} of {', '.join(sites)} has no sum, as one of the "
                    f"sites sent something else than it should: {error}; run it again to go on "
                    "with the next round"
                ) from error
            self._apply(self._shaped(mean))
            self._collector = self._begun()
            told = None if math.isnan(loss) else loss
            return {"round": self.number, "sites": sites, "loss": told}

    def _complete(self) -> bool:
        return self._collector.is_complete()

    def _begun(self) -> Collector:
        numbers = sum(each.numel() for each in self._model.values()) + EXTRA
        return Collector(
            self._federation, self.number, self._directory, self._grid.threshold, numbers
        )

    def _under_way(self, number: int, session: str, stage: str) -> Collector:
        it = self._collector
        if (number, session, stage) != (self.number, it.session.id, it.stage):
            raise LateError(
                f"stage {stage} of session {session} isn't under way: round {self.number} is at "
                f"stage {it.stage} of session {it.session.id}"
            )
        return it

    def _shaped(self, mean: Reals) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        start = 0
        for name, tensor in self._model.items():
            end = start + tensor.numel()
            found[name] = tensor_of(mean[start:end]).reshape(tensor.shape).to(torch.float32)
            start = end
        return found
