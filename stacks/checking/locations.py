"""Where a resource comes from: the key of the stack's file that made it, or a program's line."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from falaj.policies.model import Resource, Stack
from falaj.policies.reports.result import Location
from falaj.stacks.checking.subject import Subject
from falaj.stacks.settings import NAMESPACE

#: Blueprints' components by the section that makes them, where the names differ.
_SECTIONS: Final[Mapping[str, str]] = {"files": "fileSystem"}


@dataclass(frozen=True)
class Locations:
    """Finds the places of one stack's resources."""

    stack: Stack
    root: Path
    program: Path
    base: Path
    """The folder that the engine's positions start from."""
    file: str
    keys: Mapping[str, tuple[str, int]]
    """Keys of the stack's file by their last part: the whole key and its line."""
    is_ours: bool

    @classmethod
    def of(cls, subject: Subject, stack: Stack, base: Path | None = None) -> Locations:
        """For a stack whose resources are known; positions start from ``base``.

        Default: from the program's folder, as in states of stacks that ran there.
        """
        project = subject.stack.project
        return cls(
            stack,
            project.root,
            (project.root / project.main).resolve(),
            (base or project.root / project.main).resolve(),
            subject.stack.shown_path.as_posix(),
            dict(_keys(subject.stack.path)),
            subject.settings is not None,
        )

    def find(self, resource: Resource) -> Location | None:
        """The place that a person would look at first; None where nothing is known."""
        if not self.is_ours:
            return self._program(resource)
        for component in self._ancestors(resource):
            name = _SECTIONS.get(component.name, component.name)
            if name in self.keys:
                key, line = self.keys[name]
                return Location(self.file, line, key)
        key, line = self.keys.get("blueprint", (f"{NAMESPACE}:blueprint", 0))
        return Location(self.file, line, key)

    def _ancestors(self, resource: Resource) -> Iterator[Resource]:
        here: Resource | None = resource
        met: set[str] = set()
        # A state that was written by hand may go round in circles.
        while here is not None and here.urn not in met:
            met.add(here.urn)
            yield here
            here = self.stack.by_urn.get(here.parent)

    def _program(self, resource: Resource) -> Location | None:
        """The line of the program's own that declared it, or the component that holds it."""
        for each in self._ancestors(resource):
            path, _, line = each.source.rpartition(":")
            if not path or not line.isdigit():
                continue
            absolute = Path(os.path.normpath(self.base / path))
            if absolute.is_relative_to(self.program) and ".venv" not in absolute.parts:
                shown = os.path.relpath(absolute, self.root)
                return Location(Path(shown).as_posix(), int(line))
        return None


def _keys(path: Path) -> Iterator[tuple[str, tuple[str, int]]]:
    """Every key of a stack's configuration with its line, from 1; the outer of two wins."""
    document = yaml.compose(path.read_text(encoding="utf-8"), yaml.SafeLoader)
    if not isinstance(document, yaml.MappingNode):
        return
    config = next((value for key, value in document.value if key.value == "config"), None)
    found = list(_below(config, ""))
    yield from reversed(found)


def _below(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, tuple[str, int]]]:
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        whole = f"{prefix}.{key.value}" if prefix else str(key.value)
        last = str(key.value).rpartition(":")[2]
        yield last, (whole, key.start_mark.line + 1)
        yield from _below(value, whole)
