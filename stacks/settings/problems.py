"""What is wrong with a stack's settings: where, what was given, what is allowed, what to write.

A problem is found at a path of the settings. What it becomes for a person depends on where the
value comes from: a line of a file, or the engine alone.
"""

from __future__ import annotations

import copy
import dataclasses
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias, cast

from falaj.components.specification.given_values import without_user
from falaj.stacks.errors import SettingsError
from falaj.stacks.settings.document import Document, Flaw, Way, bare_enough, written
from falaj.stacks.settings.splices import Edit, difference, drop_entry, reread
from falaj.wire.documents import is_dictionary, is_sequence

#: Where in the settings something is: ``("gpuPools", "h200", "maxNodes")``.
Path: TypeAlias = tuple[str | int, ...]
NAMESPACE: Final = "falaj"
_LONGEST: Final = 80
#: Digits of the largest line number that is expected, so that lines stand below each other.
_DIGITS: Final = 4


@dataclass(frozen=True)
class Put:
    """Mended by giving a value."""

    path: Path
    value: Any


@dataclass(frozen=True)
class Drop:
    """Mended by leaving something out."""

    path: Path


@dataclass(frozen=True)
class Rename:
    """Mended by another key before the same value."""

    path: Path
    name: str


Action: TypeAlias = Put | Drop | Rename


@dataclass(frozen=True)
class Finding:
    """A problem of the settings, wherever they come from."""

    path: Path
    message: str
    actions: tuple[Action, ...] = ()
    """What would mend it, the best first."""
    at_key: bool = False
    """Whether the key itself is wrong, not its value."""


@dataclass(frozen=True)
class Problem:
    """A problem as a person is told of it."""

    text: str
    document: Document | None = None
    offset: int = 0
    edit: Edit | None = None
    """The lines as they should be."""
    hint: str = ""
    """What to do, where no line can be shown."""
    path: Path = field(default=(), compare=False)
    """Of the settings; empty where the file itself is wrong."""

    @property
    def line(self) -> int | None:
        """The line, from 1; None where no file says it."""
        return self.document.line(self.offset) if self.document else None

    def __str__(self) -> str:
        place = f"{self.document.place(self.offset)}: " if self.document else ""
        lines = [place + self.text]
        if self.edit is not None:
            lines += _corrected(self.edit)
        elif self.hint:
            lines.append(f"  {self.hint}")
        return "\n".join(lines)


class Teller(Protocol):
    """Knows where settings come from."""

    def problems_of(self, findings: Iterable[Finding]) -> list[Problem]:
        """Findings as a person is told of them."""
        ...


class RefusedSettingsError(SettingsError):
    """Settings were refused; every problem is known, with its place."""

    def __init__(
        self,
        problems: Iterable[Problem] = (),
        findings: Iterable[Finding] = (),
        given: Teller | None = None,
        mended: Any = None,
    ) -> None:
        """What was refused.

        Args:
            problems: of the files themselves.
            findings: of what they say.
            given: what they say, with its places.
            mended: the settings as they would be without the problems, where they would be
                settings: what else is wrong with them can be told at once.
        """
        self.of_files = tuple(problems)
        self.findings = tuple(findings)
        self.given = given
        self.mended = mended
        found = given.problems_of(self.findings) if given else []
        self.problems = tuple(in_order([*self.of_files, *found]))
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def of(cls, given: Teller, findings: Iterable[Finding]) -> RefusedSettingsError:
        """The refusal of what settings say."""
        return cls((), findings, given)

    def and_also(self, other: RefusedSettingsError) -> RefusedSettingsError:
        """Both refusals as one; what the other says of the same places is left out."""
        known = {finding.path for finding in self.findings}
        # What is missing where something was left out is only missing because of that.
        thinned = {path[:-1] for path in map(_left_out, self.findings) if len(path) > 1}
        more = [
            each
            for each in other.findings
            if each.path not in known and each.path[:-1] not in thinned
        ]
        return RefusedSettingsError(self.of_files, [*self.findings, *more], self.given)


def _left_out(finding: Finding) -> Path:
    """What is left out to mend a finding; empty where something else mends it."""
    first = finding.actions[0] if finding.actions else Drop(finding.path)
    return first.path if isinstance(first, Drop) else ()


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Problems in the order of the files, each once; those that no file says come last."""
    once = list(dict.fromkeys(problems))
    documents = list(dict.fromkeys(each.document for each in once if each.document))

    def place(problem: Problem) -> tuple[int, int]:
        if problem.document is None:
            return len(documents), 0
        return documents.index(problem.document), problem.offset

    return sorted(once, key=place)


def dotted(path: Sequence[str | int]) -> str:
    """A path as it is written: ``gpuPools.h200.zones[0]``."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def key_of(path: Sequence[str | int]) -> str:
    """A path with the namespace: ``falaj:gpuPools.h200``."""
    return f"{NAMESPACE}:{dotted(path)}"


def format_value(value: Any) -> str:
    """A value that was given, for a message: short, and no secret."""
    if value is None:
        return "nothing"
    if is_secret(value):
        return "an encrypted value"
    text = f"'{value}'" if isinstance(value, str) else _structure(value)
    text = without_user("".join(each if each.isprintable() else "�" for each in text))
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _structure(value: Any) -> str:
    try:
        return written(value)
    except (TypeError, ValueError):
        return repr(value)


def is_secret(value: Any) -> bool:
    """Whether the engine has encrypted it."""
    return isinstance(value, dict) and set(cast("dict[str, Any]", value)) == {"secure"}


def command_for(action: Action, stack: str) -> str:
    """What mends it where no file is at hand: a command of the engine's."""
    flag = "--path " if len(action.path) > 1 else ""
    key = shlex.quote(engine_key(action.path))
    if isinstance(action, Put) and not isinstance(action.value, dict | list):
        value = action.value if isinstance(action.value, str) else written(action.value)
        return f"set it with: pulumi config set {flag}{key} {shlex.quote(value)} -s {stack}"
    if isinstance(action, Drop):
        return f"remove it with: pulumi config rm {flag}{key} -s {stack}"
    return ""


def engine_key(path: Path) -> str:
    """A path as ``pulumi config set --path`` takes it: parts with dots in quotes."""
    first, *rest = path
    text = f"{NAMESPACE}:{first}"
    for part in rest:
        if isinstance(part, int):
            text += f"[{part}]"
        elif bare_enough(part) and "." not in part and "/" not in part:
            text += f".{part}"
        else:
            text += f'["{part}"]'
    return text


def flaw_problem(document: Document, flaw: Flaw) -> Problem:
    """A flaw of a file itself, told to a person."""
    if flaw.twice is None:
        edit = None
        if flaw.line_as is not None:
            line = document.line(flaw.offset)
            edit = Edit(line, line, (flaw.line_as,))
        return Problem(flaw.message, document, flaw.offset, edit)
    first, second = flaw.twice
    way = document.way_to(second.key.start)
    mapping = document.node(way)
    lines = document.line(first.key.start), document.line(second.key.start)
    key = _key_in(way, second.name)
    message = (
        f"{key}: given twice, in line {lines[0]} as {format_value(first.value.data)} and in line "
        f"{lines[1]} as {format_value(second.value.data)}; keep one of the two"
    )
    after = drop_entry(document, way, cast("Any", mapping), second)
    edit = difference(document.text, after) if reread(document, after).is_readable else None
    return Problem(message, document, second.key.start, edit)


def _key_in(way: Way, name: str) -> str:
    """A key of the file as people call it, without the section ``config`` that all are in."""
    inside = (*way, name)
    return dotted(inside[1:] if inside[0] == "config" and len(inside) > 1 else inside)


def _corrected(edit: Edit) -> list[str]:
    first, last = edit.first, edit.last
    if edit.inserts:
        where = f"after line {last}" if last else "at the beginning"
        head = f"  add {where}:"
    else:
        span = f"line {first}" if last == first else f"lines {first} to {last}"
        if not edit.lines:
            return [f"  remove {span}"]
        head = f"  write {span} as:"
    return [head, *(f"  {first + n:{_DIGITS}} | {line}" for n, line in enumerate(edit.lines))]


# Values as they would be with a correction, so that one mistake doesn't hide the others.


def mended(own: dict[str, Any], finding: Finding) -> dict[str, Any]:
    """Nested values with the first thing that mends a finding; as they are where nothing does."""
    if not finding.actions:
        return mended_by(own, Drop(finding.path))
    return mended_by(own, finding.actions[0])


def before(finding: Finding, renames: Iterable[Rename]) -> Finding:
    """A finding about values with corrected keys, by the keys that were given."""

    def back(path: Path) -> Path:
        for rename in renames:
            length = len(rename.path)
            if path[:length] == (*rename.path[:-1], rename.name):
                return (*rename.path, *path[length:])
        return path

    actions = tuple(dataclasses.replace(each, path=back(each.path)) for each in finding.actions)
    return dataclasses.replace(finding, path=back(finding.path), actions=actions)


def is_there(own: Any, path: Path) -> bool:
    """Whether nested values have a path, or what it lies in where something is missing there."""
    here = own
    for part in path:
        if is_dictionary(here) and part in here:
            here = cast("dict[Any, Any]", here)[part]
        elif is_sequence(here) and isinstance(part, int) and part < len(here):
            here = here[part]
        else:
            return False
    return True


def mended_by(own: dict[str, Any], action: Action) -> dict[str, Any]:
    """Nested values with one thing changed; those that were given stay as they are."""
    whole = copy.deepcopy(own)
    parent = _parent(whole, action.path, make=isinstance(action, Put))
    last = action.path[-1]
    if isinstance(parent, dict):
        section = cast("dict[Any, Any]", parent)
        if isinstance(action, Put):
            section[last] = action.value
        elif last in section:
            value = section.pop(last)
            if isinstance(action, Rename):
                section.setdefault(action.name, value)
    elif is_sequence(parent) and isinstance(last, int):
        if isinstance(action, Put) and last <= len(parent):
            parent[last : last + 1] = [action.value]
        elif isinstance(action, Drop) and last < len(parent):
            del parent[last]
    return whole


def _parent(whole: Any, path: Path, *, make: bool) -> Any:
    here = whole
    for part in path[:-1]:
        if isinstance(here, dict):
            section = cast("dict[Any, Any]", here)
            if make and section.get(part) is None:
                section[part] = {}
            here = section.get(part)
        elif is_sequence(here) and isinstance(part, int):
            here = here[part] if part < len(here) else None
    return here
