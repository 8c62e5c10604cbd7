"""Which versions the master's workers are to have of further models, and what became of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.process.pointer import Pointer
from falaj.workloads.inference.settings import FurtherSettings, Settings, of_further

Report = Mapping[str, Mapping[str, Any]]
"""What a worker says of each: version, error, bytes, memory and what drift is judged by
(`falaj.workloads.inference.further`)."""


@dataclass(frozen=True)
class Asked:
    """What is wanted of one further model.

    Attributes:
        version: that its alias stands for, as far as that could last be told; None: it never
            could.
        before: the version that is served now; None: none is.
        error: why it can't be told now.
    """

    version: int | None
    before: int | None
    error: str | None


class FurtherModels:
    """Follows the aliases of all further models.

    Args:
        seen: the highest numbers of lists of aliases that a master before this one has seen, by
            registry and model. None: none.
    """

    def __init__(self, seen: object) -> None:
        known = cast("dict[str, object]", seen) if isinstance(seen, dict) else {}
        self._seen: dict[str, object] = dict(known)
        self._pointers: dict[tuple[Path, str], Pointer] = {}
        self._served: dict[str, tuple[FurtherSettings, Mapping[str, Any]]] = {}
        """What serves now, and by which settings."""
        self._asked: dict[str, Asked] = {}

    @property
    def numbers(self) -> dict[str, Any]:
        """The highest numbers seen, to be kept."""
        found: dict[str, Any] = dict(self._seen)
        for (registry, _), pointer in self._pointers.items():
            before = found.get(str(registry))
            kept = cast("dict[str, Any]", before) if isinstance(before, dict) else {}
            found[str(registry)] = kept | pointer.numbers
        return found

    def ask(self, wanted: Settings) -> dict[str, Asked]:
        """Return what is wanted of each by these settings. A list of aliases that isn't what was
        signed, or is older than one seen, is told of, and changes nothing."""
        found: dict[str, Asked] = {}
        for name, own in wanted.models.items():
            by, served = self._served.get(name, (None, cast("Mapping[str, Any]", {})))
            before = served.get("version") if by == own else None
            last = self._asked.get(name) if by == own else None
            try:
                version = self._pointer(own.registry, name).version(of_further(wanted, name))
                found[name] = Asked(version, before, None)
            except WorkloadError as error:
                # What was trusted last still is: nothing changes.
                version = last.version if last is not None else None
                found[name] = Asked(version, before, str(error))
        self._asked = found
        return found

    def _pointer(self, registry: Path, model: str) -> Pointer:
        pointer = self._pointers.get((registry, model))
        if pointer is None:
            pointer = self._pointers[registry, model] = Pointer(self._seen.get(str(registry)))
        return pointer

    def switched(self, to: Settings, reports: list[Report]) -> None:
        """Take note of what the workers have that serve from now on."""
        self._served = {name: (own, _of_all(name, reports)) for name, own in to.models.items()}
        self._asked = {
            name: replace(each, before=self._served[name][1]["version"])
            for name, each in self._asked.items()
            if name in self._served
        }

    def watchable(self) -> dict[str, tuple[int, Mapping[str, Any]]]:
        """Return the version of each that can be asked, and what its package says that drift is
        judged by."""
        return {
            name: (report["version"], report["manifest"])
            for name, (_, report) in self._served.items()
            if report["version"] is not None
        }

    def facts(self) -> dict[str, dict[str, Any]]:
        """Return what is true of each that is served: version, state, why, the bytes of its graph
        and those that it takes of each worker."""
        found: dict[str, dict[str, Any]] = {}
        for name, (own, report) in self._served.items():
            asked = self._asked.get(name)
            version = report["version"]
            error = (asked.error if asked is not None else None) or report["error"]
            found[name] = {
                "version": version,
                "state": "unavailable" if version is None else "serving",
                "error": error,
                "registry": str(own.registry),
                "bytes": report["bytes"],
                "memory_bytes": report["memory_bytes"],
            }
        return found


def _of_all(name: str, reports: list[Report]) -> Mapping[str, Any]:
    """What holds of a model that each worker has loaded for itself: one that can't ends it."""
    every = [report[name] for report in reports if name in report]
    failed = [each for each in every if each["version"] is None]
    if not every:
        return {
            "version": None,
            "error": "no worker says anything of it",
            "bytes": 0,
            "memory_bytes": 0,
            "manifest": {},
        }
    return failed[0] if failed else every[0]
