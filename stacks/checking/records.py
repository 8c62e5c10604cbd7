"""From what packs wrote while they judged to the parts of a result, with their places."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falaj.policies.model import Resource, Stack
from falaj.policies.reports.result import Location, Outcome, ResourceResult, WaiverUse
from falaj.stacks.checking.subject import Subject
from falaj.stacks.settings.given import Given
from falaj.stacks.settings.origins import section_of
from falaj.stacks.settings.problems import Path as KeyPath
from falaj.stacks.settings.problems import key_of
from falaj.stacks.settings.source import given_in_files

# Places: the key of the stack's file that made a resource, or a line of its program.


@dataclass(frozen=True)
class Locations:
    """Finds the places of one stack's resources."""

    stack: Stack
    root: Path
    program: Path
    base: Path
    """The folder that the engine's positions start from."""
    file: str
    given: Given
    """What the stack's file says, with its places."""
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
            given_in_files(subject.stack.path, project.root, namespace=project.name),
            subject.settings is not None,
        )

    def find(self, resource: Resource) -> Location | None:
        """The place that a person would look at first; None where nothing is known."""
        if not self.is_ours:
            return self._program(resource)
        for component in self._ancestors(resource):
            section = section_of(component.type.rpartition(":")[2], component.name)
            place = self._place(section) if section else None
            if place is not None:
                return place
        blueprint: KeyPath = ("blueprint",)
        return self._place(blueprint) or Location(self.file, 0, key_of(blueprint))

    def _place(self, section: KeyPath) -> Location | None:
        """Where a section stands: the innermost key of it that its stack's file has."""
        for length in range(len(section), 0, -1):
            path = section[:length]
            location = self.given.location(path)
            locations = [location] if location else self.given.dotted_locations(path)
            for each in locations:
                if each.document is self.given.stack_file:
                    return Location(self.file, each.document.line(each.offset), key_of(path))
        return None

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


def resources_of(
    records: Iterable[Mapping[str, Any]],
    stack: Stack,
    subject: Subject | None,
    base: Path | None = None,
) -> Iterator[ResourceResult]:
    """The resources that were judged, each once, with the rules of all packs."""
    locations = Locations.of(subject, stack, base) if subject else None
    merged: dict[str, dict[str, Any]] = {}
    for each in records:
        if each["kind"] == "resource":
            entry = merged.setdefault(each["urn"], {**each, "judged": []})
            entry["judged"] += each["judged"]
    for urn, entry in merged.items():
        place = stack.by_urn.get(urn)
        location = locations.find(place) if locations and place else None
        yield ResourceResult(
            urn,
            entry["type"],
            entry["name"],
            entry["place"],
            entry["encryption"],
            entry["dataClass"],
            location,
            tuple(entry["judged"]),
        )


def outcomes_of(records: Iterable[Mapping[str, Any]]) -> Iterator[Outcome]:
    """The findings, as the packs decided them."""
    for each in records:
        if each["kind"] != "resource":
            continue
        for found in each["outcomes"]:
            waiver = found["waiver"]
            yield Outcome(
                found["rule"],
                each["urn"],
                found["path"],
                found["findingKind"],
                found["reason"],
                found["status"],
                found["severity"],
                WaiverUse(**waiver) if waiver else None,
                found["note"],
            )
