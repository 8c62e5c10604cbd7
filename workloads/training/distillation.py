"""Knowledge distillation: a network learns what another one answers, beside the truth.

Hinton, Vinyals, Dean, 2015, https://arxiv.org/abs/1503.02531.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import models
from falaj.workloads.training import record as records
from falaj.workloads.training.checkpoint import Trained, load_trained, weights_digest
from falaj.workloads.training.language import IGNORED, counted
from falaj.workloads.training.options import DISTILLATION, Requested
from falaj.workloads.training.snapshot import Dataset


@dataclass(frozen=True)
class Teacher:
    """A finished run's model, whose answers are learned.

    Attributes:
        trained: the run.
        digest: the SHA-256 over its weights and its run's identity.
    """

    trained: Trained
    digest: str

    @property
    def is_own(self) -> bool:
        """Whether it is a team's own model, which its own code answers for."""
        return self.trained.record["model"]["architecture"].get("own") is not None

    def to_json(self) -> dict[str, Any]:
        """Return what a record says of it."""
        record = self.trained.record
        return {
            "digest": self.digest,
            "run": record["identity"],
            "kept": record["model"]["choice"]["kept"],
            "parameters": models.parameter_count(self.trained.module),
            **records.headline(record),
        }


def open_teacher(path: Path, keyring: KeyRing | None, dataset: Dataset) -> Teacher:
    """Return the model of a finished run, if it can teach on these rows.

    Args:
        path: the run's folder.
        keyring: that it is sealed with, the same as this run's.
        dataset: that is learned from.

    Raises:
        WorkloadError: there is no finished run, it can't be read, or it learned from other data:
            it would answer something else, or has seen rows that are held out here.
    """
    try:
        trained = load_trained(path, keyring)
    except WorkloadError as error:
        raise WorkloadError(f"--teacher {path}: {error}") from error
    for what, given, wanted in (
        ("data", trained.family, dataset.family),
        ("task", trained.task, dataset.task),
        ("classes", trained.classes, dataset.classes),
    ):
        if given != wanted:
            raise WorkloadError(
                f"--teacher {path} is of other {what} ({_shown(given)}) than this dataset "
                f"({_shown(wanted)}): name a run that was trained on this dataset"
            )
    known = trained.record["dataset"]["digest"]
    if known != dataset.digest:
        raise WorkloadError(
            f"--teacher {path} was trained on the dataset {known[:16]}, and this one is "
            f"{dataset.digest[:16]}: it may have learned from rows that are held out here, so "
            "that the score would be too good; name a run that was trained on this dataset"
        )
    identity = trained.record["identity"]
    state = hashlib.sha256(f"{identity}\n{weights_digest(trained.module)}".encode())
    return Teacher(trained, state.hexdigest())


def _shown(value: str | list[str] | None) -> str:
    if value is None:
        return "a number"
    if isinstance(value, str):
        return value
    more = " …" if len(value) > _MOST_SHOWN else ""
    return ", ".join(value[:_MOST_SHOWN]) + more


_MOST_SHOWN = 5


def check_options(requested: Requested, task: str) -> None:
    """Refuse what goes without a teacher, and what goes with one no way.

    Args:
        requested: what a person asked for.
        task: of the dataset.

    Raises:
        WorkloadError: names the option, and what to do.
    """
    given = [
        f"--{name.replace('_', '-')}"
        for name in DISTILLATION
        if getattr(requested, name) is not None
    ]
    if requested.teacher is None:
        if given:
            raise WorkloadError(
                f"{given[0]} is of a teacher's answers, and none is named: name one (--teacher), "
                "or leave it out"
            )
        return
    if requested.code is not None:
        raise WorkloadError(
            f"--teacher {requested.teacher}: {requested.model} is a model of your own, whose loss "
            "is its own matter; let it take the answers itself, or have one of Falaj's models "
            "learn them"
        )
    if task == "regression" and requested.distil_temperature is not None:
        raise WorkloadError(
            f"--distil-temperature {requested.distil_temperature:g} softens probabilities, and "
            "this dataset's target is a number: leave it out"
        )


class Distillation:
    """Mixes a teacher's answers into the loss.

    Args:
        teacher: answers.
        device: that rows lie on.
        task: ``classification``, ``regression`` or ``language``.
        temperature: T, of classes and characters.
        weight: w, the teacher's share of the loss.
    """

    def __init__(
        self, teacher: nn.Module, device: torch.device, task: str, *, temperature: float,
        weight: float,
    ) -> None:  # fmt: skip
        self._teacher = teacher.to(device).eval().requires_grad_(False)
        self._task, self._temperature, self._weight = task, temperature, weight

    def losses(
        self, losses: Tensor, inputs: Tensor, outputs: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        """Return each row's loss (N,), of the truth and of the teacher.

        Args:
            losses: of the truth, (N,).
            inputs: of the rows, as the network was given them.
            outputs: of the network, float32.
            labels: of a text's rows, of which what isn't learned is `IGNORED`. Default: all is.

        Returns:
            (1 - w) · losses + w · those of the teacher: T² · KL(teacher ‖ network) of the
            probabilities at temperature T, of a text the mean over a window's characters; or the
            squared difference of standardised values.
        """
        with torch.no_grad():
            answers = self._teacher(inputs).float()
        taught = self._differences(outputs, answers, labels)
        return (1 - self._weight) * losses + self._weight * taught

    def _differences(self, outputs: Tensor, answers: Tensor, labels: Tensor | None) -> Tensor:
        if self._task == "regression":
            return (outputs - answers).squeeze(1) ** 2
        logarithms = functional.log_softmax(outputs / self._temperature, dim=-1)
        wanted = functional.log_softmax(answers / self._temperature, dim=-1)
        found = functional.kl_div(logarithms, wanted, reduction="none", log_target=True).sum(-1)
        # Of a text each row has one for every token.
        found = found.reshape(len(found), -1)
        if labels is None or self._task != records.LANGUAGE:
            return self._temperature**2 * found.mean(1)
        return self._temperature**2 * (found * (labels != IGNORED)).sum(1) / counted(labels)
