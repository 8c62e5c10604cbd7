"""Which records of aliases this machine has seen, so that no registry can go back behind them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from falaj.engine.files import data_home
from falaj.stacks.errors import StackError
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import locked, make_private_folder, read_json, write_json_atomic
from falaj.workloads.registry.alias_record import AliasRecord


@contextmanager
def _marks() -> Generator[tuple[Path, dict[str, int]]]:
    """The file of the highest numbers that this machine has seen, and what is in it."""
    folder = make_private_folder(data_home() / "models")
    path = folder / "seen.json"
    with locked(folder / ".lock"):
        seen: Any = read_json(path, "the records that were seen") if path.exists() else {}
        if not isinstance(seen, dict) or not all(
            isinstance(each, int) for each in cast("dict[str, Any]", seen).values()
        ):
            raise WorkloadError(f"{path} is damaged: remove it, then run again")
        yield path, cast("dict[str, int]", seen)


def _name(signer: str, model: str, alias: str) -> str:
    # By who signs, not by registry: a copy that is behind is behind wherever it stands.
    return f"{signer} {model} {alias}"


class SeenHere:
    """A `falaj.workloads.registry.aliases.Seen` that is kept in Falaj's own folder."""

    def highest(self, signer: str, model: str, alias: str) -> int:
        """The highest number of an alias's records that this machine has seen; 0 for none."""
        with _marks() as (_, seen):
            return seen.get(_name(signer, model, alias), 0)

    def note(self, repository: str, record: AliasRecord, *, older: bool = False) -> None:
        """Hold a record's number against the highest that was seen, and keep it.

        Raises:
            StackError: it is behind.
        """
        name = _name(record.signer, record.model, record.alias)
        with _marks() as (path, seen):
            highest = seen.get(name, 0)
            if record.number < highest and not older:
                raise StackError(
                    f"{repository} has record {record.number} of {record.alias}, this machine has "
                    f"seen {highest}: the registry is behind, or somebody went back\n"
                    "  ask the registry that is ahead, or copy from it with `falaj models copy`; "
                    "if it is lost, take this one with --older"
                )
            if record.number > highest:
                write_json_atomic(path, {**seen, name: record.number})
