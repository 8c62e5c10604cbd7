"""What a local stack says of its data, against the file that is there."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from falaj.components.nearest import nearest
from falaj.stacks.settings.local import DIGITS, TABLES, LocalSettings
from falaj.stacks.settings.problems import Action, Drop, Finding, Put, format_value
from falaj.stacks.settings.suggestions import similar_files
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.header import read_header

#: Most columns that a message names.
_SHOWN: Final = 12


def check_combinations(settings: LocalSettings, root: Path) -> list[Finding]:
    """Keys that contradict each other, a dataset that is not there, a column it doesn't have."""
    if settings.dataset == DIGITS:
        return _digits(settings)
    source = Path(settings.dataset_source(root))
    if source.suffix.lower() not in TABLES:
        said = (
            f"given {format_value(settings.dataset)}; allowed: {DIGITS}, or the path of a "
            f"{' or '.join(TABLES)} file"
        )
        return [Finding(("dataset",), said, _other_files(settings, root))]
    if not source.is_file():
        said = f"there is no file {source}; a relative path starts at the project's folder"
        return [Finding(("dataset",), said, _other_files(settings, root))]
    try:
        columns = read_header(source)
    except (WorkloadError, OSError) as error:
        return [Finding(("dataset",), f"its columns can't be read: {error}")]
    named = [column for column in columns if column]
    if settings.target is not None and settings.target in named:
        return []
    return [_target(settings, named)]


def _digits(settings: LocalSettings) -> list[Finding]:
    found: list[Finding] = []
    if settings.target is not None:
        said = (
            f"given {format_value(settings.target)}, but the dataset {DIGITS} has a target of its "
            "own"
        )
        found.append(Finding(("target",), said, (Drop(("target",)),)))
    if settings.task == "regression":
        said = f"given 'regression', but the dataset {DIGITS} is a classification"
        found.append(Finding(("task",), said, (Drop(("task",)),)))
    return found


def _target(settings: LocalSettings, columns: list[str]) -> Finding:
    """A column to predict that is missing, or isn't in the table."""
    listed = ", ".join(columns[:_SHOWN]) + (" …" if len(columns) > _SHOWN else "")
    has = f"{settings.dataset} has the columns {listed}"
    given = settings.target
    if given is None:
        said = f"missing; the dataset {settings.dataset} needs the column to predict; {has}"
        return Finding(("target",), said, (Put(("target",), columns[-1]),))
    folded = {column.casefold(): column for column in reversed(columns)}
    near = nearest(given.strip().casefold(), folded)
    hint = f"; did you mean {folded[near[0]]}?" if near else ""
    meant = folded[near[0]] if near else columns[-1]
    return Finding(
        ("target",), f"given {format_value(given)}, but {has}{hint}", (Put(("target",), meant),)
    )


def _other_files(settings: LocalSettings, root: Path) -> tuple[Action, ...]:
    """The file that was meant, else the data that need none."""
    near = similar_files(settings.dataset, root, TABLES)
    if near:
        return (Put(("dataset",), near[0]),)
    return (Put(("dataset",), DIGITS),)


CHECKS: Final = (check_combinations,)
