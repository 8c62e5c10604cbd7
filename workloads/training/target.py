"""What the model is to predict: the target column as classes or as a number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.columns import Column

TASKS = ("auto", "classification", "regression")

MAXIMUM_CLASSES = 1_000
_FEW_WHOLE_NUMBERS = 20
"""A numeric target with up to this many different whole numbers is taken for classes."""


@dataclass(frozen=True)
class Target:
    """The labels of the rows that have one.

    Attributes:
        task: ``classification`` or ``regression``.
        labels: int64 class numbers or float64 values, shape (rows kept,).
        classes: the classes' names in order, None for a regression.
        kept: which rows of the table have a target, shape (rows,).
    """

    task: str
    labels: NDArray[np.generic]
    classes: list[str] | None
    kept: NDArray[np.bool_]


def interpret_target(column: Column, task: str) -> Target:
    """Decide the task and number the classes.

    With ``auto`` a text target, and one of up to 20 different whole numbers, is classified;
    any other number is regressed.

    Raises:
        WorkloadError: the target is constant, looks like an identifier, or is text where a
            regression was asked for.
    """
    kept = ~column.missing
    present = column.values[kept]
    name = column.name
    if len(present) == 0:
        raise WorkloadError(f"the target column {name!r} has no value in any row")
    distinct, counts = np.unique(present, return_counts=True)
    if len(distinct) < 2:
        raise WorkloadError(
            f"the target column {name!r} is constant: every row says {distinct[0]!r}; there is "
            "nothing to learn. Choose another target, or rows with different values"
        )
    whole = column.kind == "numeric" and bool(np.all(distinct == np.round(distinct)))
    chosen = task
    if task == "auto":
        few = whole and len(distinct) <= _FEW_WHOLE_NUMBERS
        chosen = "classification" if column.kind == "text" or few else "regression"
    if chosen == "regression":
        if column.kind == "text":
            raise WorkloadError(
                f"the target column {name!r} holds text ({distinct[0]!r}, for instance), which "
                "can't be regressed: use --task classification, or a target of numbers"
            )
        return Target(chosen, present.astype(np.float64), None, kept)
    _check_classes(name, distinct, counts)
    classes = [_class_name(value) for value in distinct]
    return Target(chosen, np.searchsorted(distinct, present).astype(np.int64), classes, kept)


def _check_classes(name: str, distinct: NDArray[np.generic], counts: NDArray[np.integer]) -> None:
    single = int((counts == 1).sum())
    if single > 0.5 * int(counts.sum()) or len(distinct) == single:
        raise WorkloadError(
            f"the target column {name!r} has {len(distinct):,} different values in "
            f"{int(counts.sum()):,} rows, {single:,} of them once only: it looks like an "
            "identifier. Choose another target, or --task regression for a measured number"
        )
    if len(distinct) > MAXIMUM_CLASSES:
        raise WorkloadError(
            f"the target column {name!r} has {len(distinct):,} classes; at most "
            f"{MAXIMUM_CLASSES:,} are allowed: group them, or use --task regression for numbers"
        )


def _class_name(value: object) -> str:
    if isinstance(value, str):
        return value
    number = float(str(value))
    return str(int(number)) if number.is_integer() else repr(number)
