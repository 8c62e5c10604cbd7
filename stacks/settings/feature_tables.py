"""Feature tables of a stack, and their check against the files that are there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from falaj.components.local.arguments.dataset import DatasetArgs, FeatureTableArgs
from falaj.components.local.machine import TABLES
from falaj.components.specification.arguments import SameAs
from falaj.components.specification.property_names import camel
from falaj.components.specification.workload_bounds import form
from falaj.stacks.settings.derived import arguments, local_section
from falaj.stacks.settings.paths import Named, is_file, not_there, resolved
from falaj.stacks.settings.problems import Drop, Finding, Put, format_value
from falaj.stacks.settings.problems import Path as KeyPath
from falaj.stacks.settings.section import Section
from falaj.stacks.settings.suggestions import closest, similar_files
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.header import read_header

_ABOVE: Final = ("features",)
_SHOWN: Final = 20


class FeatureTableSettings(local_section(FeatureTableArgs)):
    """A table of what was known of whom a row of the dataset is about, and since when: a row gets
    the latest row of its keys that was known by its time. A date without a time of the day counts
    here from the end of the day on, and in the dataset from its beginning, so that nothing of the
    same day is taken that came later."""

    source: Annotated[Named, SameAs(FeatureTableArgs, "source")]
    """A relative path starts at the project's folder."""


class FeaturesSettings(Section):
    """Tables from which each row of a table gets further columns."""

    time: Annotated[Named | None, SameAs(DatasetArgs, "feature_time")] = None
    tables: Annotated[
        dict[Annotated[str, form("features", "table")], FeatureTableSettings], Field(min_length=1)
    ]
    """The feature tables, by names that their columns are called with."""

    def arguments(self, root: Path) -> dict[str, FeatureTableArgs]:
        """The tables as the dataset's component takes them; ``root`` is the project's folder."""
        return {
            name: {
                **arguments(each, FeatureTableArgs),
                "source": str(resolved(each.source, root)),
            }
            for name, each in self.tables.items()
        }

    def options(self, root: Path) -> list[str]:
        """The same, as the training's commands take it."""
        from falaj.components.local.provider.workloads import features_options  # noqa: PLC0415

        tables = {
            name: {camel(key): value for key, value in each.items()}
            for name, each in self.arguments(root).items()
        }
        return features_options(self.time, tables)


def check_features(
    features: FeaturesSettings, dataset: Path | None, target: str | None, root: Path
) -> list[Finding]:
    """What of feature tables isn't there, or can't be joined.

    Args:
        features: the section.
        dataset: the table that they are joined to; None: the dataset is no table.
        target: the column to predict.
        root: the project's folder.
    """
    if dataset is None:
        message = (
            f"given, but the dataset is no {' or '.join(TABLES)} file that columns are given to"
        )
        return [Finding(_ABOVE, message, (Drop(_ABOVE),))]
    try:
        columns = read_header(dataset)
    except (WorkloadError, OSError):  # told of the dataset
        return []
    asking = _Header(dataset, columns)
    time = (*_ABOVE, "time")
    found = [*asking.lacks(features.time, time), *_target(features.time, target, time)]
    for name, table in features.tables.items():
        above = (*_ABOVE, "tables", name)
        for place, key in enumerate(table.keys):
            path = (*above, "keys", place)
            found += [*asking.lacks(key, path), *_target(key, target, path)]
        found += _check_once(table, above)
        found += _check_times(features, name, table)
        found += _check_file(table, above, asking, root)
    return found


def _check_times(
    features: FeaturesSettings, name: str, table: FeatureTableSettings
) -> list[Finding]:
    if table.time is not None:
        message = (
            f"missing; the rows of {name} have a time, so name the column of the dataset that "
            "says of which moment a row is"
        )
        return [Finding((*_ABOVE, "time"), message)] if features.time is None else []
    given = {"withinDays": table.within_days is not None, "delayHours": bool(table.delay_hours)}
    message = "given, but it is of rows that have a time; name its column (time)"
    paths = ((*_ABOVE, "tables", name, key) for key, is_given in given.items() if is_given)
    return [Finding(path, message, (Drop(path),)) for path in paths]


def _check_file(
    table: FeatureTableSettings, above: KeyPath, asking: _Header, root: Path
) -> list[Finding]:
    path = (*above, "source")
    source = resolved(table.source, root)
    actions = tuple(Put(path, each) for each in similar_files(table.source, root, TABLES)[:1])
    if source.suffix.lower() not in TABLES:
        what = f"given {format_value(table.source)}; allowed: a {' or '.join(TABLES)} file"
        return [Finding(path, what, actions)]
    if not is_file(source):
        return [Finding(path, not_there(source), actions)]
    try:
        own = _Header(source, read_header(source))
    except (WorkloadError, OSError) as error:
        return [Finding(path, f"its columns can't be read: {error}")]
    found = own.lacks(table.time, (*above, "time"))
    for place, key in enumerate(table.keys):
        if key in asking.columns:  # else it is told of the dataset
            found += own.lacks(key, (*above, "keys", place))
    for place, each in enumerate(table.columns or ()):
        at = (*above, "columns", place)
        if each in (*table.keys, table.time):
            message = f"given {format_value(each)}, but rows are found by it, so it is no input"
            found.append(Finding(at, message, (Drop(at),)))
        else:
            found += own.lacks(each, at)
    return found


def _check_once(table: FeatureTableSettings, above: KeyPath) -> list[Finding]:
    found: list[Finding] = []
    listed: tuple[tuple[str, list[str]], ...] = (
        ("keys", table.keys), ("columns", table.columns or []),
    )  # fmt: skip
    for key, names in listed:
        for place, each in enumerate(names):
            if each in names[:place]:
                at = (*above, key, place)
                message = f"given {format_value(each)} twice; allowed is once"
                found.append(Finding(at, message, (Drop(at),)))
    return found


@dataclass(frozen=True)
class _Header:
    """Columns of a table."""

    path: Path
    columns: Sequence[str]

    def lacks(self, given: str | None, path: KeyPath) -> list[Finding]:
        """A column that isn't there, with the one that may be meant."""
        if given is None or given in self.columns:
            return []
        listed = ", ".join(self.columns[:_SHOWN]) + (" …" if len(self.columns) > _SHOWN else "")
        meant = closest(given, self.columns)
        hint = "" if meant is None else f"; did you mean {meant}?"
        message = f"given {format_value(given)}, but {self.path.name} has the columns {listed}"
        return [Finding(path, message + hint, () if meant is None else (Put(path, meant),))]


def _target(given: str | None, target: str | None, path: KeyPath) -> list[Finding]:
    if given is None or given != target:
        return []
    return [Finding(path, f"given {format_value(given)}, but that is what is predicted (target)")]
