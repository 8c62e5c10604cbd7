"""The rounds of a federation: which model is out, who answered, and what becomes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation import updates
from falaj.workloads.federation.plan import Task
from falaj.workloads.federation.updates import Update
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import artifact_path
from falaj.workloads.training import checkpoint
from falaj.workloads.training.snapshot import digest

STATE = "federation"


class LateError(WorkloadError):
    """An update for a round that isn't open, or a second one of the same site."""


@dataclass(frozen=True)
class Rules:
    """When a round is over, and what protects a site.

    Attributes:
        sites: names of all sites.
        least: fewest that must answer.
        seconds: how long a round waits for the others once that many did.
        noise: standard deviation of the noise in the mean, in units of ``clip / sites``; 0: none.
    """

    sites: frozenset[str]
    least: int
    seconds: float
    noise: float


class Rounds:
    """The state of a federation, which threads share; kept on disk after each round.

    Args:
        task: what is learned.
        rules: when a round is over.
        folder: of the run.
        keyring: seals the state; None leaves it plain.
    """

    def __init__(self, task: Task, rules: Rules, folder: Path, keyring: KeyRing | None) -> None:
        self._task, self._rules = task, rules
        self._path, self._keyring = folder / STATE, keyring
        self._changed = threading.Condition()
        self._answers: dict[str, Update] = {}
        torch.manual_seed(task.plan.seed)
        module = task.build()
        self._model = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        self._context = f"federation:{digest(task.to_bytes().decode())}".encode()
        self.number = 0
        self.resumed = artifact_path(self._path, keyring).exists()
        if self.resumed:
            self._restore()
        self._message = updates.encode(self._model)

    @property
    def model(self) -> Mapping[str, Tensor]:
        """The model of the round under way."""
        return self._model

    def open(self) -> int | None:
        """Number of the round under way; None when all are done."""
        with self._changed:
            return self.number if self.number < self._task.plan.rounds else None

    def answered(self, site: str) -> bool:
        """Whether a site's update of the round under way is here: one sent to a coordinator that
        died is not."""
        with self._changed:
            return site in self._answers

    def message(self, number: int) -> bytes:
        """The model that a round starts with.

        Raises:
            LateError: that round isn't open.
        """
        with self._changed:
            if number != self.number:
                raise LateError(f"round {number} isn't open: {self.number} is")
            return self._message

    def answer(self, number: int, site: str, data: bytes) -> None:
        """Take a site's update.

        Raises:
            MessageError: it isn't the model's tensors.
            LateError: the round is over, or the site has answered.
        """
        tensors, numbers = updates.decode(data, self._model)
        rows, loss = updates.numbers_of(numbers)
        if not self._task.plan.equal and rows == 0:
            raise updates.MessageError("an update without rows can't be counted by them")
        # A site can't weigh more than the rules let it, whatever it sends.
        tensors = updates.clipped(tensors, self._task.plan.clip)
        update = Update(tensors, 0 if self._task.plan.equal else rows, loss)
        with self._changed:
            if number != self.number:
                raise LateError(f"round {number} isn't open: {self.number} is")
            if site in self._answers:
                raise LateError(f"{site} has answered in round {number}")
            self._answers[site] = update
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; whether the round under way can be closed."""
        until = time.monotonic() + seconds
        with self._changed:
            while not self._complete():
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            return self._complete()

    def close(self, *, timed_out: bool = False) -> dict[str, Any] | None:
        """Average what was sent and open the next round.

        Args:
            timed_out: whether the fewest sites are enough.

        Returns:
            Round, sites and mean loss; None where too few have answered.
        """
        with self._changed:
            enough = self._complete() or (timed_out and len(self._answers) >= self._rules.least)
            if not enough:
                return None
            sites = sorted(self._answers)
            answers = [self._answers[site] for site in sites]
            change = updates.mean(answers)
            if self._rules.noise > 0:
                deviation = self._rules.noise * self._task.plan.clip / len(answers)
                # From the system's entropy: whoever knew the seed could take the noise out.
                generator = torch.Generator()
                generator.seed()
                change = updates.noised(change, deviation, generator)
            self._model = {
                name: tensor + change[name].to(tensor.dtype)
                for name, tensor in self._model.items()
            }
            self._answers = {}
            self.number += 1
            self._message = updates.encode(self._model)
            self._save()
            loss = sum(each.loss for each in answers) / len(answers)
            return {"round": self.number, "sites": sites, "loss": loss}

    def _complete(self) -> bool:
        return len(self._answers) == len(self._rules.sites)

    def _save(self) -> None:
        state = {"number": self.number, "model": self._model}
        checkpoint.save(self._path, state, self._keyring, self._context)

    def _restore(self) -> None:
        """Go on after the last round that was closed; a changed task is another federation.

        Raises:
            WorkloadError: the state is of another task, damaged, or sealed with other keys.
        """
        state = checkpoint.load(self._path, self._keyring, self._context)
        if {n: t.shape for n, t in state["model"].items()} != {
            n: t.shape for n, t in self._model.items()
        }:
            raise WorkloadError(
                f"{self._path} is of a federation with another model: choose another --output"
            )
        self.number, self._model = int(state["number"]), dict(state["model"])
