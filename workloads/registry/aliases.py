"""Aliases of a model: names such as ``production`` that point at one version and remember."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json, write_json_atomic
from falaj.workloads.registry.names import check_alias

ALIASES = "aliases.json"
MAX_HISTORY = 100
"""Versions that an alias remembers; older ones are forgotten."""


@dataclass(frozen=True, slots=True)
class Alias:
    """Where an alias points.

    Attributes:
        version: the version it stands for.
        history: versions it stood for before, oldest first; a rollback takes the last.
        changed: when, ISO 8601, UTC.
    """

    version: int
    history: tuple[int, ...]
    changed: str

    @property
    def previous(self) -> int | None:
        """The version that a rollback goes to, if there is one."""
        return self.history[-1] if self.history else None

    def promoted(self, version: int) -> Alias:
        """Return the alias pointing at ``version``, its own version remembered."""
        return Alias(version, (*self.history, self.version)[-MAX_HISTORY:], _now())

    def rolled_back(self, exists: Callable[[int], bool]) -> Alias | None:
        """Return the alias one step back, past versions that were pruned; None if none is left."""
        history = [version for version in self.history if exists(version)]
        while history:
            version = history.pop()
            if version != self.version:
                return Alias(version, tuple(history), _now())
        return None

    @classmethod
    def first(cls, version: int) -> Alias:
        """Return an alias that has never pointed anywhere else."""
        return cls(version, (), _now())


def read_aliases(folder: Path) -> dict[str, Alias]:
    """Return a model's aliases by name; none if nothing was promoted yet.

    Raises:
        WorkloadError: the file is damaged.
    """
    path = folder / ALIASES
    if not path.exists():
        return {}
    document: Any = read_json(path, "the list of aliases")
    if not isinstance(document, dict):
        raise WorkloadError(f"{path} isn't a list of aliases: restore it or promote again")
    entries = cast(dict[str, Any], document)
    return {check_alias(name): _alias(path, name, value) for name, value in entries.items()}


def write_aliases(folder: Path, aliases: Mapping[str, Alias]) -> None:
    """Replace a model's aliases atomically; the caller holds the model's lock."""
    document = {
        name: {"version": alias.version, "history": list(alias.history), "changed": alias.changed}
        for name, alias in sorted(aliases.items())
    }
    write_json_atomic(folder / ALIASES, document)


def _alias(path: Path, name: str, value: object) -> Alias:
    match value:
        case {"version": int(version), "history": [*history], "changed": str(changed)}:
            entries = cast(list[object], history)
            versions = [entry for entry in entries if isinstance(entry, int) and entry > 0]
            if version > 0 and len(versions) == len(entries):
                return Alias(version, tuple(versions), changed)
        case _:
            pass
    raise WorkloadError(f"{path}: the alias {name!r} is malformed; restore it or promote again")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
