"""What the coordinator tells the sites: the model's form, how to prepare rows, how to train."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from torch import nn

from falaj.workloads import bounds
from falaj.workloads.documents import is_sequence
from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation.secure.masking import Grid
from falaj.workloads.training import models
from falaj.workloads.training.batches import PreparedData
from falaj.workloads.training.language import FAMILY
from falaj.workloads.training.models import Architecture, TablePreprocessing
from falaj.workloads.training.snapshot import Dataset

FORMAT = "falaj.federation/1"


def _asked(what: str) -> str:
    return f"the {what} of the coordinator's plan"


@dataclass(frozen=True)
class Aggregation:
    """Of a federation with secure aggregation, which `falaj.workloads.federation.secure` tells.

    Attributes:
        sites: names of all, in order.
        threshold: fewest of a sum.
        noise: noise multiplier of the sum, which the sites add.
    """

    sites: tuple[str, ...]
    threshold: int
    noise: float

    @classmethod
    def from_json(cls, value: Any) -> Aggregation | None:
        """Of the plan's JSON; None where the plan has none.

        Raises:
            KeyError, TypeError: it is something else.
            WorkloadError: a value isn't allowed.
        """
        if value is None:
            return None
        names: Any = value["sites"]
        if not is_sequence(names):
            raise TypeError("the sites of its secure aggregation are no list")
        bounds.FEDERATION["secure_sites"].check(_asked("number of sites"), len(names))
        for name in names:
            bounds.FORMS["federation"]["site"].check(_asked("name of a site"), name)
        if len(set(names)) < len(names):
            raise WorkloadError(f"the coordinator's plan names a site twice: {', '.join(names)}")
        bounds.Bound(1, len(names)).check(_asked("threshold"), value["threshold"])
        bounds.FEDERATION["noise"].check(_asked("noise"), value["noise"])
        return cls(tuple(names), value["threshold"], float(value["noise"]))


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
        secure: how updates are summed without being seen; None: they are seen.
    """

    rounds: int
    epochs: int
    batch_size: int
    learning_rate: float
    clip: float
    equal: bool
    seed: int
    secure: Aggregation | None = None

    @property
    def grid(self) -> Grid | None:
        """How updates become whole numbers, of a plan with secure aggregation.

        Raises:
            WorkloadError: its limits can't be.
        """
        if self.secure is None:
            return None
        if not (0 < self.clip < math.inf and 0 <= self.secure.noise < math.inf):
            raise WorkloadError(
                f"the coordinator's limits can't be: clip {self.clip}, noise {self.secure.noise}"
            )
        return Grid(
            len(self.secure.sites), self.secure.threshold, self.clip, self.secure.noise,
            not self.equal,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        """As JSON; what a plan without secure aggregation says is as it was before there was any,
        since federations are named by it."""
        found = asdict(self)
        if self.secure is None:
            del found["secure"]
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Plan:
        """What `to_json` made, by whomever: a plan comes from another machine.

        Raises:
            KeyError, TypeError: it is something else.
            WorkloadError: a value isn't allowed; says what is.
        """
        for name in ("rounds", "epochs", "batch_size", "learning_rate", "clip", "seed"):
            bounds.FEDERATION[name].check(_asked(name.replace("_", " ")), value[name])
        if not isinstance(value["equal"], bool):
            raise TypeError("its 'equal' is neither true nor false")
        found: dict[str, Any] = {**value, "secure": Aggregation.from_json(value.get("secure"))}
        return cls(**found)


@dataclass(frozen=True, kw_only=True)
class Learned:
    """What is learned by several: all that they have to know of one's model and rows.

    Attributes:
        architecture: the model's form.
        preprocessing: the table's recipe; it comes from reference rows, so that nobody's own
            statistics are told.
        target_scale: likewise, of a regression's target.
        task: ``classification``, ``regression`` or ``language``.
        classes: names in order, None for a regression.
        inputs: names of the columns.
    """

    architecture: Architecture
    preprocessing: TablePreprocessing | None
    target_scale: dict[str, float] | None
    task: str
    classes: list[str] | None
    inputs: list[str]

    def build(self) -> nn.Module:
        """A module of the form, with fresh weights."""
        return models.build(self.architecture)

    def to_json(self) -> dict[str, Any]:
        """All of this as plain JSON values, in this order: federations are named by it."""
        return {
            "architecture": self.architecture.to_json(),
            "preprocessing": self.preprocessing.to_json() if self.preprocessing else None,
            "target_scale": self.target_scale,
            "task": self.task,
            "classes": self.classes,
            "inputs": self.inputs,
        }

    @staticmethod
    def arguments(value: Mapping[str, Any]) -> dict[str, Any]:
        """What `to_json` made of it, as the arguments of this class."""
        found = {each.name: value[each.name] for each in fields(Learned)}
        recipe = value["preprocessing"]
        found["architecture"] = Architecture.from_json(value["architecture"])
        found["preprocessing"] = TablePreprocessing.from_json(recipe) if recipe else None
        return found


@dataclass(frozen=True, kw_only=True)
class Task(Learned):
    """What is learned, and how.

    Attributes:
        plan: how.
    """

    plan: Plan

    def to_bytes(self) -> bytes:
        """As JSON."""
        return json.dumps(
            {"format": FORMAT, "plan": self.plan.to_json(), **self.to_json()}
        ).encode()

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
            return cls(plan=Plan.from_json(value["plan"]), **cls.arguments(value))
        except (KeyError, TypeError, ValueError) as error:
            raise WorkloadError(f"the coordinator's task can't be read: {error}") from error


def learned_from(dataset: Dataset, prepared: PreparedData) -> Learned:
    """What a reference dataset tells of the model and rows."""
    return Learned(
        architecture=prepared.architecture,
        preprocessing=prepared.preprocessing,
        target_scale=prepared.target_scale,
        task=dataset.task,
        classes=dataset.classes,
        inputs=sorted(dataset.inputs),
    )


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
    return Task(plan=plan, **vars(learned_from(dataset, prepared)))


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
