"""How long each process works at a step, and which one the others wait for.

Processes exchange their gradients in each step, so all go at the pace of the slowest. What a
process does alone is timed: from the beginning of a step until it goes back through the last part
of its batch, where the exchange begins. What follows is work and waiting in one, and isn't told
apart; so a share of time that is called lost here is the least that it can be.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from falaj.workloads.training.distributed import Team
from falaj.workloads.training.tensors import numbers_of

SLOW: Final = 1.25
"""Times the others' median: what is less comes and goes on any machine."""
LOST: Final = 0.05
"""Share of an epoch's time: what is less isn't worth a word."""
LAG_EPOCHS: Final = 2
"""Epochs one after another in which a process lags before it is named."""

_NAME_BYTES: Final = 64


@dataclass(frozen=True)
class Straggler:
    """The process that the others wait for.

    Attributes:
        rank: its number.
        machine: the host name of its machine.
        seconds: of a step until gradients are exchanged.
        usual: the median of the others', in seconds.
        lost: the least share of the epoch's time that the others wait for it.
    """

    rank: int
    machine: str
    seconds: float
    usual: float
    lost: float

    def __str__(self) -> str:
        return (
            f"process {self.rank} on {self.machine} needs {1000 * self.seconds:.3g} ms of a step "
            f"for what takes the others {1000 * self.usual:.3g} ms: they wait for it for at least "
            f"{100 * self.lost:.0f} % of the time; look at that machine (other work, heat, a "
            "slower disk or processor), or leave it out"
        )


class Pace:
    """Times the steps of this process, and compares them with those of its team.

    All processes of a team make one, and close each epoch.
    """

    def __init__(self, team: Team) -> None:
        self._team = team
        self._on_gpu = team.device.type == "cuda"
        self._machines = _machines(team)
        self._marks: list[tuple[Any, Any]] = []
        self._rows_seconds = 0.0
        self._begun: Any = None
        self._epoch_begun = self._step_begun = time.perf_counter()
        self._found: Straggler | None = None
        self._lagging: dict[int, int] = {}
        self._told: set[int] = set()

    def begin_epoch(self) -> None:
        """An epoch, or the rest of one, begins."""
        self._marks.clear()
        self._rows_seconds = 0.0
        self._epoch_begun = time.perf_counter()

    def begin_step(self) -> None:
        """A step begins."""
        self._step_begun = time.perf_counter()
        self._begun = self._mark()

    def has_rows(self) -> None:
        """The step's rows are there."""
        self._rows_seconds += time.perf_counter() - self._step_begun

    def exchanges(self) -> None:
        """What this process does alone is done."""
        self._marks.append((self._begun, self._mark()))

    def end_epoch(self) -> dict[str, float]:
        """Close the epoch; all processes must.

        Returns:
            ``rows_share``, the share of the epoch's time in which this process waited for rows;
            of several processes ``slowest_process``, its number, and ``slowest_ratio``, its
            seconds of a step to the median of the others'. The same everywhere, but for the first.
        """
        seconds = max(time.perf_counter() - self._epoch_begun, 1e-9)
        found = self._found = self._slowest(seconds)
        figures = {"rows_share": round(self._rows_seconds / seconds, 4)}
        if found is not None:
            ratio = found.seconds / max(found.usual, 1e-9)
            figures |= {"slowest_process": found.rank, "slowest_ratio": round(ratio, 3)}
        return figures

    def straggler(self) -> Straggler | None:
        """Return who has held the others up in the last epochs, once for each process."""
        found = self._found
        if found is None or found.seconds <= SLOW * found.usual or found.lost <= LOST:
            self._lagging.clear()
            return None
        self._lagging = {found.rank: self._lagging.get(found.rank, 0) + 1}
        if self._lagging[found.rank] < LAG_EPOCHS or found.rank in self._told:
            return None
        self._told.add(found.rank)
        return found

    def _slowest(self, epoch_seconds: float) -> Straggler | None:
        if self._team.processes == 1 or not self._marks:
            return None
        steps = len(self._marks)
        own = sum(self._spans()) / steps
        each = self._team.gather(torch.tensor([own], dtype=torch.float64)).flatten()
        rank = int(each.argmax())
        others = torch.cat((each[:rank], each[rank + 1 :]))
        usual = float(others.quantile(0.5))
        seconds = float(each[rank])
        lost = (seconds - usual) * steps / epoch_seconds
        return Straggler(rank, self._machines[rank], seconds, usual, lost)

    def _mark(self) -> Any:
        """A point in time: on a GPU, in the order of its work."""
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _spans(self) -> list[float]:
        if not self._on_gpu:
            return [end - start for start, end in self._marks]
        torch.cuda.synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in self._marks]


def _machines(team: Team) -> list[str]:
    """The host name of each process's machine."""
    name = socket.gethostname().encode("ascii", "replace")[:_NAME_BYTES].ljust(_NAME_BYTES)
    every: Tensor = team.gather(torch.tensor(list(name), dtype=torch.uint8))
    return [bytes(numbers_of(each)).decode("ascii").rstrip() for each in every]
