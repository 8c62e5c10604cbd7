"""What the coordinator tells the sites: the model's form, how to prepare rows, how to train."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from torch import nn

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import models
from falaj.workloads.training.batches import PreparedData
from falaj.workloads.training.language import FAMILY
from falaj.workloads.training.models import Architecture, TablePreprocessing
from falaj.workloads.training.snapshot import Dataset

FORMAT = "falaj.federation/1"


@dataclass(frozen=True)
class Plan:
    """The same for all sites and rounds.

    Attributes:
        rounds: how often models are averaged.
        epochs: passes of a site over its rows in each round.
        batch_size: rows of a step.
        learning_rate: of AdamW.
        clip: largest L2 norm of a site's update; 0: as it is.
        equal: whether all sites count the same, which privacy of a site needs.
        seed: of the first model and the order of rows.
    """

    rounds: int
    epochs: int
    batch_size: int
    learning_rate: float
    clip: float
    equal: bool
    seed: int


@dataclass(frozen=True)
class Task:
    """What is learned, and how.

    Attributes:
        plan: how.
        architecture: the model's form.
        preprocessing: the table's recipe; it comes from the coordinator's reference rows, so that
            no site's own statistics are told.
        target_scale: likewise, of a regression's target.
        task: ``classification`` or ``regression``.
        classes: names in order, None for a regression.
        inputs: names of the columns.
    """

    plan: Plan
    architecture: Architecture
    preprocessing: TablePreprocessing | None
    target_scale: dict[str, float] | None
    task: str
    classes: list[str] | None
    inputs: list[str]

    def build(self) -> nn.Module:
        """A module of the form, with fresh weights."""
        return models.build(self.architecture)

    def to_bytes(self) -> bytes:
        """As JSON."""
        value = {
            "format": FORMAT,
            "plan": asdict(self.plan),
            "architecture": self.architecture.to_json(),
            "preprocessing": self.preprocessing.to_json() if self.preprocessing else None,
            "target_scale": self.target_scale,
            "task": self.task,
            "classes": self.classes,
            "inputs": self.inputs,
        }
        return json.dumps(value).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Task:
        """What `to_bytes` wrote.

        Raises:
            WorkloadError: it isn't that.
        """
        try:
            value: dict[str, Any] = json.loads(data)
            if value["format"] != FORMAT:
                raise WorkloadError(f"the coordinator speaks {value['format']!r}, not {FORMAT}")
            recipe = value["preprocessing"]
            return cls(
                Plan(**value["plan"]),
                Architecture.from_json(value["architecture"]),
                TablePreprocessing.from_json(recipe) if recipe else None,
                value["target_scale"],
                value["task"],
                value["classes"],
                value["inputs"],
            )
        except (KeyError, TypeError, ValueError) as error:
            raise WorkloadError(f"the coordinator's task can't be read: {error}") from error


def task_of(dataset: Dataset, prepared: PreparedData, plan: Plan) -> Task:
    """The task that a reference dataset sets.

    Raises:
        WorkloadError: it is a text, whose vocabulary would be that of one side.
    """
    if dataset.family == FAMILY:
        raise WorkloadError(
            "a federation learns from images and tables: this dataset is a text, and each site's "
            "has a vocabulary of its own"
        )
    return Task(
        plan,
        prepared.architecture,
        prepared.preprocessing,
        prepared.target_scale,
        dataset.task,
        dataset.classes,
        sorted(dataset.inputs),
    )


class Learned(Protocol):
    """What rows have to fit: a federation's `Task`, say."""

    @property
    def task(self) -> str:
        """``classification``, ``regression`` or ``language``."""
        ...

    @property
    def inputs(self) -> list[str]:
        """Names of the columns."""
        ...

    @property
    def classes(self) -> list[str] | None:
        """Names in order; None of a regression."""
        ...

    @property
    def architecture(self) -> Architecture:
        """The model's form."""
        ...


def check_fit(
    task: Learned, dataset: Dataset, others: str = "federation", own: str = "site"
) -> None:
    """Refuse a dataset that the model isn't for.

    Args:
        task: what is learned.
        dataset: the rows.
        others: who says what is learned, for people.
        own: whose rows they are, for people.

    Raises:
        WorkloadError: says what differs; no value of a row is in it.
    """
    for what, there, here in (
        ("task", task.task, dataset.task),
        ("columns", task.inputs, sorted(dataset.inputs)),
        ("classes", task.classes, dataset.classes),
        ("kind of data", task.architecture.family, dataset.family),
    ):
        if there != here:
            raise WorkloadError(
                f"the {others}'s {what} and this {own}'s differ: there {there}, here {here}; "
                "make the snapshot from the same columns, with every class in it"
            )
