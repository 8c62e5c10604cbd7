"""What a stack says, key by key, and where it says it: in its file, the project's, or neither.

Keys may have dots, which lead into sections, and belong to a namespace.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

from falaj.stacks.settings.document import Document, Node, Scalar, Way, resolved, walk
from falaj.stacks.settings.document import Mapping as MappingNode
from falaj.stacks.settings.problems import (
    NAMESPACE,
    Action,
    Drop,
    Finding,
    Path,
    Problem,
    Put,
    Rename,
    command_for,
    dotted,
    format_value,
    key_of,
)
from falaj.stacks.settings.splices import Edit, SpliceError, difference, drop, put, rename, reread
from falaj.stacks.settings.suggestions import closest
from falaj.wire.documents import is_dictionary

#: Configuration by namespaced key, as ``{"falaj:dataset": "digits"}``.
Values: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True)
class Location:
    """Where a namespaced key stands."""

    document: Document
    way: Way
    """Of its value: ``("config", "falaj:dataset")``."""
    key_way: Way = ()
    """Of its key, where the value stands deeper: in a project's file below ``value``."""

    @property
    def key(self) -> Way:
        """Where the key stands."""
        return self.key_way or self.way

    @property
    def offset(self) -> int:
        """Where the key starts, or the item of a list."""
        entry, node = self.document.entry(self.key), self.document.node(self.key)
        return entry.key.start if entry else node.start if node else 0


@dataclass(frozen=True, eq=False)
class Given:
    """Configuration with its places."""

    values: Values
    locations: Mapping[str, Location] = field(default_factory=dict[str, Location])
    """Places of the keys that a file says; others come from the engine alone."""
    stack_file: Document | None = None
    """Where a key that is missing would be added."""
    stack: str = ""
    """The stack's name, for commands."""
    problems: tuple[Problem, ...] = ()
    """What is wrong with the files themselves."""
    is_whole: bool = True
    """Whether everything that the files say could be read."""
    secrets: frozenset[str] = frozenset()
    """Keys whose values the engine has decrypted: no message shows them."""

    def __eq__(self, other: object) -> bool:
        # Settings that say the same are the same, wherever they come from.
        return isinstance(other, Given)

    __hash__ = None  # pyright: ignore[reportAssignmentType] - never a key

    def own(self) -> Iterable[tuple[tuple[str, ...], str]]:
        """Falaj's keys: their paths, and as they are written."""
        for key in self.values:
            namespace, _, name = key.partition(":")
            if namespace == NAMESPACE:
                yield tuple(name.split(".")), key

    def location(self, path: Path) -> Location | None:
        """Where a path of the settings stands; None where no file says it."""
        best: tuple[int, Location] | None = None
        for prefix, key in self.own():
            location = self.locations.get(key)
            length = len(prefix)
            if location is None or path[:length] != prefix:
                continue
            way = (*location.way, *path[length:])
            if location.document.node(way) is not None and (best is None or length > best[0]):
                best = (
                    length,
                    location if length == len(path) else Location(location.document, way),
                )
        return best[1] if best else None

    def dotted_locations(self, path: Path) -> list[Location]:
        """Where keys with dots stand that lead to or through a path, the last of a file first."""
        found = [
            location
            for prefix, key in self.own()
            if len(prefix) >= len(path) > 0
            and prefix[: len(path)] == path
            and (location := self.locations.get(key))
        ]
        return sorted(found, key=lambda location: location.offset, reverse=True)

    def place_for(self, path: Path) -> Location | None:
        """Where a path stands, or would be added: below the nearest section that is there."""
        if found := self.location(path):
            return found
        for length in range(len(path) - 1, 0, -1):
            above = self.location(path[:length])
            if above is not None and not _is_plain(above):
                return Location(above.document, (*above.way, *path[length:]))
        if self.stack_file is None or not self.stack_file.is_readable:
            return None
        if any(prefix[0] == path[0] and len(prefix) > 1 for prefix, _ in self.own()):
            # The section is written with dots: go on like that.
            return Location(self.stack_file, ("config", f"{NAMESPACE}:{dotted(path)}"))
        return Location(self.stack_file, ("config", f"{NAMESPACE}:{path[0]}", *path[1:]))

    def scalars(self) -> Iterable[tuple[Path, Scalar]]:
        """Every plain value that a file says, by its path."""
        for prefix, key in self.own():
            location = self.locations.get(key)
            node = location.document.node(location.way) if location else None
            for way, _, inner in walk(node):
                found = resolved(inner)
                if isinstance(found, Scalar):
                    yield (*prefix, *way), found

    def key_scalars(self) -> Iterable[tuple[Path, Scalar]]:
        """Every key below Falaj's own that a file says, by its path."""
        for prefix, key in self.own():
            location = self.locations.get(key)
            node = location.document.node(location.way) if location else None
            for way, entry, _ in walk(node):
                if entry is not None:
                    yield (*prefix, *way), entry.key

    @property
    def has_unclear(self) -> bool:
        """Whether anything without quotes may be read as something else than it looks like."""
        return any(
            not key.quote and not isinstance(key.value, str) for _, key in self.key_scalars()
        ) or any(
            value.value is None or (not value.quote and (value.unclear or value.loses))
            for _, value in self.scalars()
        )

    def problems_of(self, findings: Iterable[Finding]) -> list[Problem]:
        """Findings as a person is told of them, with their lines and the lines as they should be.

        What several findings change in the same lines is shown once, with the last of them.
        """
        located = [(finding, *self._spot(finding), self._mending(finding)) for finding in findings]
        located.sort(key=lambda each: each[2])
        by_lines: dict[tuple[object, int, int], list[Action]] = {}
        for _, document, _, mending in located:
            if mending is not None:
                edit = mending[1]
                by_lines.setdefault((document, edit.first, edit.last), []).append(mending[0])
        problems: list[Problem] = []
        for finding, document, offset, mending in located:
            message = f"{key_of(finding.path)}: {finding.message}"
            if mending is None:
                problems.append(
                    Problem(message, document, offset, hint=self._hint(finding), path=finding.path)
                )
                continue
            action, edit = mending
            together = by_lines[document, edit.first, edit.last]
            shown = edit
            if len(together) > 1:
                whole = self.together(together)
                shown = (whole if action is together[-1] else None) if whole else edit
            problems.append(Problem(message, document, offset, shown, path=finding.path))
        return problems

    def problem(self, finding: Finding) -> Problem:
        """One finding; see `problems_of`."""
        return self.problems_of([finding])[0]

    def together(self, actions: Iterable[Action]) -> Edit | None:
        """The lines that mend several things at once; None where they can't be cut in."""
        document = again = None
        # From the end, so that positions in lists stay what they are.
        placed = sorted(actions, key=lambda each: self._offset(each.path), reverse=True)
        try:
            for action in placed:
                locations = self._locations(action)
                document = document or locations[0].document
                again = _applied(again or document, locations, action)
        except (SpliceError, IndexError):
            return None
        if document is None or again is None or not again.is_readable:
            return None
        return difference(document.text, again.text)

    def _mending(self, finding: Finding) -> tuple[Action, Edit] | None:
        for action in finding.actions:
            edit = self.edit(action)
            if edit is not None:
                return action, edit
        return None

    def _hint(self, finding: Finding) -> str:
        return next(filter(None, (command_for(each, self.stack) for each in finding.actions)), "")

    def _offset(self, path: Path) -> int:
        location = self.location(path)
        return location.offset if location else len(self.stack_file.text) if self.stack_file else 0

    def _locations(self, action: Action) -> list[Location]:
        """Where an action changes something, the last place of a file first."""
        if whole := self.location(action.path):
            return [whole]
        through = self.dotted_locations(action.path)
        if isinstance(action, Put) and not through:
            location = self.place_for(action.path)
            return [location] if location else []
        return through

    def _spot(self, finding: Finding) -> tuple[Document | None, int]:
        path = finding.path
        for length in range(len(path), 0, -1):
            location = self.location(path[:length])
            if location is None:
                through = self.dotted_locations(path[:length])
                if through:
                    return through[-1].document, through[-1].offset
                continue
            node = location.document.node(location.way)
            if node is None or finding.at_key or length < len(path) or _below(node):
                return location.document, location.offset
            return location.document, node.start
        if self.stack_file is None:
            return None, 0
        entry = self.stack_file.entry(("config",))
        return self.stack_file, entry.key.start if entry else 0

    def edit(self, action: Action) -> Edit | None:
        """The lines that mend something; None where no file has it, or it can't be cut in."""
        changed = self.changed(action)
        return difference(changed[0].text, changed[1]) if changed else None

    def changed(self, action: Action) -> tuple[Document, str] | None:
        """A file and its text as it would be; see `edit`."""
        locations = self._locations(action)
        if not locations or len({id(location.document) for location in locations}) > 1:
            return None
        document = locations[0].document
        try:
            again = _applied(document, locations, action)
        except SpliceError:
            return None
        if not again.is_readable or len(again.flaws) > len(document.flaws):
            return None
        if isinstance(action, Put):
            node = again.node(_way(locations[-1], action))
            if node is None or not _same(node.data, action.value):
                return None
        return document, again.text


def _applied(document: Document, locations: list[Location], action: Action) -> Document:
    """A file, which may have changed since it was read, with one thing mended."""
    if isinstance(action, Put):
        *others, first = locations
        for location in others:
            document = reread(document, drop(document, location.key))
        way = _way(first, action)
        if way != first.way:
            key = str(way[len(first.key) - 1])
            document = reread(document, rename(document, first.key, key))
        return reread(document, put(document, way, action.value))
    for location in locations:
        after = (
            drop(document, location.key)
            if isinstance(action, Drop)
            else rename(document, location.key, _renamed(location.key, action))
        )
        document = reread(document, after)
    return document


def _way(location: Location, action: Put) -> Way:
    """Where a value goes: at its location, or by its own key where dots in that lead below."""
    *above, last = location.key
    _, colon, name = str(last).rpartition(":")
    if colon and len(above) <= 1 and len(name.split(".")) > len(action.path):
        return (*above, f"{NAMESPACE}:{dotted(action.path)}", *location.way[len(location.key) :])
    return location.way


def _is_plain(location: Location) -> bool:
    node = resolved(location.document.node(location.way))
    return isinstance(node, Scalar) and node.value is not None


def _below(node: Node | None) -> bool:
    """Whether a value starts on another line than its key."""
    found = resolved(node)
    return isinstance(found, MappingNode) and not found.in_flow


def _renamed(way: Way, action: Rename) -> str:
    """The new key as it is written; at the top with its namespace and the dots around it."""
    old = str(way[-1])
    if len(way) > len(("config", "key")):
        return action.name
    namespace, colon, name = old.rpartition(":")
    parts = name.split(".")
    parts[len(action.path) - 1] = action.name
    return f"{namespace}{colon}{'.'.join(parts)}"


def _same(one: Any, other: Any) -> bool:
    if is_dictionary(one) and is_dictionary(other):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return type(one) is type(other) and one == other


# Dotted keys: ``falaj:budget.monthlyUsd: 500`` is ``falaj:budget: {monthlyUsd: 500}``. Prompts of
# ``pulumi new`` and lines of ``pulumi config set`` can only give keys at the top.


def nest(given: Given) -> tuple[dict[str, Any], list[Finding]]:
    """Falaj's own values with those of dotted keys where they belong; and what contradicts.

    A value that is given twice counts as the section says.
    """
    nested: dict[str, Any] = {}
    found: list[Finding] = []
    # Shorter keys first: a whole section is there before a dotted key adds to it.
    for path, key in sorted(given.own(), key=lambda pair: len(pair[0])):
        problem = _add(nested, path, given.values[key])
        if problem:
            found.append(Finding(path, problem + _lines(given, path), (Drop(path),), at_key=True))
    return nested, found


def _add(nested: dict[str, Any], path: Path, value: Any) -> str:
    """Put a value where it belongs; returns why it can't be, else nothing."""
    *way, last = path
    section = nested
    for depth, part in enumerate(way):
        inner = section.setdefault(str(part), {})
        if inner is None:
            inner = section[str(part)] = {}
        if not isinstance(inner, dict):
            return (
                f"{key_of(path[: depth + 1])} is given as {format_value(inner)}, a value without "
                "keys below it; remove one of the two"
            )
        section = cast("dict[str, Any]", inner)
    if str(last) in section:
        return "given twice, as a dotted key and inside a section; keep one of the two"
    section[str(last)] = _copy(value)
    return ""


def _lines(given: Given, path: Path) -> str:
    """Which lines contradict each other, where files say them."""
    places = [
        location.document.place(location.offset)
        for length in range(1, len(path))
        if (location := given.location(path[:length]))
    ]
    return f" (the other is at {places[0]})" if places else ""


def _copy(value: Any) -> Any:
    """A copy of sections, so that what belongs to the caller isn't changed."""
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list):
        return [_copy(item) for item in cast("list[Any]", value)]
    return value


# Namespaces: whose keys a stack file may hold, and mistakes in what stands before the colon.

#: Ours, the engine's, and those of the clouds' providers.
NAMESPACES: Final = (NAMESPACE, "pulumi", "aws", "azure-native", "kubernetes")


def foreign(given: Given) -> list[Problem]:
    """Keys such as ``falja:dataset``."""
    return [
        _problem(key, given) for key in given.values if key.partition(":")[0] not in NAMESPACES
    ]


def as_meant(given: Given) -> Given:
    """What a stack says, with the keys whose namespace was meant to be ours among ours.

    What is told of them is `foreign`'s; this keeps them from being told as missing as well.
    """
    values, locations = dict(given.values), dict(given.locations)
    for key in given.values:
        namespace, _, name = key.partition(":")
        meant = f"{NAMESPACE}:{name}"
        if namespace in NAMESPACES or closest(namespace, NAMESPACES) != NAMESPACE:
            continue
        if meant in values:
            continue
        values[meant] = values.pop(key)
        if key in locations:
            locations[meant] = locations.pop(key)
    return dataclasses.replace(given, values=values, locations=locations)


def _problem(key: str, given: Given) -> Problem:
    namespace, _, name = key.partition(":")
    near = closest(namespace, NAMESPACES)
    hint = f"; did you mean {near}:{name}?" if near else ""
    message = f"{key}: unknown namespace '{namespace}'; allowed: {', '.join(NAMESPACES)}{hint}"
    location = given.locations.get(key)
    if location is None:
        return Problem(message)
    edit = None
    if near:
        after = rename(location.document, location.key, f"{near}:{name}")
        edit = difference(location.document.text, after)
    return Problem(message, location.document, location.offset, edit)
