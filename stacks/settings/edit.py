"""Reads and changes single keys of a stack file; all else in the file stays as it is.

A change that would make the stack invalid is refused, and the file isn't touched.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, cast

from filelock import FileLock, Timeout

from falaj.engine.files import replace_file
from falaj.stacks.errors import StackError
from falaj.stacks.settings.document import Document, Way, parse, read
from falaj.stacks.settings.given import NAMESPACES, Given, Location, nest
from falaj.stacks.settings.load import ALL, BLUEPRINTS, checked, kinds_on
from falaj.stacks.settings.problems import (
    NAMESPACE,
    Problem,
    Put,
    RefusedSettingsError,
    engine_key,
    is_secret,
    mended_by,
)
from falaj.stacks.settings.problems import Path as KeyPath
from falaj.stacks.settings.shapes import Choice, Keys, Shape, Text, at, choices
from falaj.stacks.settings.source import given_in, shown_path
from falaj.stacks.settings.splices import SpliceError, drop, lines_of, put, reread
from falaj.stacks.settings.suggestions import closest

_PART: Final = re.compile(r"\.?(?:([^.\[\]\"]+)|\[(\d+)\]|\[\"([^\"]*)\"\])")
_WAIT_SECONDS: Final = 10
_ENCRYPTED: Final = (
    "is encrypted; settings are never secrets, because they are read before anything is decrypted"
)


@dataclass(frozen=True)
class Change:
    """What became of a stack's file."""

    label: str
    """The file's path, as people write it."""
    gone: tuple[tuple[int, str], ...]
    """Lines that are no more, with the numbers that they had."""
    come: tuple[tuple[int, str], ...]
    """Lines that are new, with their numbers."""
    wrong: tuple[Problem, ...]
    """What was wrong with the stack before, and still is."""


def key_path(key: str) -> tuple[str, KeyPath]:
    """A key's namespace and the parts of its path, as ``pulumi config set --path`` writes it.

    ``gpuPools.h200.zones[0]`` and ``falaj:queues.pools["h200-mig-1g.18gb"].nodes`` are keys.

    Raises:
        StackError: it is none, or of a namespace that no stack has.
    """
    namespace, colon, rest = key.partition(":")
    if not colon:
        namespace, rest = NAMESPACE, key
    if namespace not in NAMESPACES:
        near = closest(namespace, NAMESPACES)
        hint = f"; did you mean {near}:{rest}?" if near else ""
        raise StackError(
            f"{key}: unknown namespace '{namespace}'; allowed: {', '.join(NAMESPACES)}{hint}"
        )
    if namespace != NAMESPACE:
        return namespace, (rest,)
    parts: KeyPath = ()
    where = 0
    while where < len(rest):
        found = _PART.match(rest, where)
        if found is None or (rest[where] == "." and not parts):
            break
        name, index, quoted = found.groups()
        parts = (*parts, int(index) if index else name if name is not None else quoted)
        where = found.end()
    if where < len(rest) or not parts or isinstance(parts[0], int):
        raise StackError(
            f"{key!r} is no key; allowed: falaj:KEY, with .KEY for what is below it, [0] for an "
            'item and ["…"] for a name with dots'
        )
    return namespace, parts


def value_of(path: Path, root: Path, key: str) -> Any:
    """What a stack's file says for a key: plain Python.

    Raises:
        StackError: there is no such file or key, or its value is encrypted.
    """
    given = given_in(_document(path, root), root)
    location = _location(given, *key_path(key))
    if location is None:
        raise StackError(f"{shown_path(path, root)} doesn't say {key}")
    node = location.document.node(location.way)
    value = node.data if node else None
    _refuse_secrets(key, value)
    return value


def values_of(path: Path, root: Path) -> list[tuple[str, Any]]:
    """Everything that a stack's file and its project's say of ours: each value with its key.

    Sections are taken apart; keys are as `key_path` takes them.

    Raises:
        StackError: there is no such file, or it can't be read.
    """
    given = given_in(_document(path, root), root)
    if not given.is_whole:
        raise RefusedSettingsError(given.problems)
    return [
        (engine_key((*prefix, *way)), value)
        for prefix, key in given.own()
        for way, value in _leaves(given.values[key], ())
    ]


def _leaves(value: Any, way: KeyPath) -> Iterator[tuple[KeyPath, Any]]:
    if isinstance(value, dict) and value and not is_secret(value):
        for key, inner in cast("dict[str, Any]", value).items():
            yield from _leaves(inner, (*way, key))
    else:
        yield way, value


def set_values(path: Path, root: Path, values: Mapping[str, Any]) -> Change:
    """Set keys in a stack's file, all or none; sections that lead to them are made.

    Args:
        path: the stack's file.
        root: the project's folder.
        values: plain Python by key, see `key_path`. A text is read as what the key takes: ``5`` as
            a number, ``[a, b]`` as a list.

    Returns:
        The lines that changed; none where the file said it already.

    Raises:
        StackError: there is no such file, a key or value is refused, a value is encrypted, or
            somebody else is writing the file.
    """
    return _changed(path, root, [partial(_set, key, value) for key, value in values.items()])


def remove_values(path: Path, root: Path, keys: Sequence[str]) -> Change:
    """Remove keys from a stack's file, all or none; see `set_values`. An encrypted one may go.

    A section goes with all that is below it, however that is written.

    Raises:
        StackError: as `set_values`; or there is no such key in the file.
    """
    return _changed(path, root, [partial(_remove, key) for key in keys])


def _set(key: str, value: Any, given: Given, document: Document) -> str:
    namespace, parts = key_path(key)
    location = _location(given, namespace, parts)
    before = location.document.node(location.way) if location else None
    _refuse_secrets(key, before.data if before else None)
    _refuse_secrets(key, value)
    try:
        if namespace != NAMESPACE:
            return put(document, ("config", f"{namespace}:{parts[0]}"), value)
        new = _read_as(_shape(given, parts), value) if isinstance(value, str) else value
        return put(document, *_place(given, document, parts, new))
    except SpliceError as error:
        raise StackError(f"{key}: {error}") from None


def _remove(key: str, given: Given, document: Document) -> str:
    namespace, parts = key_path(key)
    location = _location(given, namespace, parts)
    found = [location] if location else _below(given, parts) if namespace == NAMESPACE else []
    if not found:
        raise StackError(f"{document.label} doesn't say {key}; nothing was removed")
    for each in found:
        if each.document is not document:
            raise StackError(
                f"{key} is said by {each.document.label}, not by {document.label}; edit that file"
            )
    changed = document
    for each in found:
        changed = reread(changed, drop(changed, each.key))
    return changed.text


def _below(given: Given, parts: KeyPath) -> list[Location]:
    """Where a section's keys are that stand with their whole paths, as `_place` writes them."""
    return [
        given.locations[key] for prefix, key in given.own() if prefix[: len(parts)] == parts
    ]  # fmt: skip


def _changed(
    path: Path, root: Path, changes: Sequence[Callable[[Given, Document], str]]
) -> Change:
    """Change a file as a whole or not at all."""
    target = path.resolve()
    with _lock(target):
        document = _document(path, root)
        before = given_in(document, root)
        problems = _problems(before, root)
        if not document.is_readable:
            raise RefusedSettingsError(before.problems)
        changed, after = document, before
        for change in changes:
            changed = reread(document, change(after, changed))
            after = given_in(changed, root)
        if changed.text == document.text:
            return Change(document.label, (), (), tuple(problems))
        left = _no_worse(problems, after, root)
        _write(target, document.text, changed.text)
    gone, come = _lines(document.text, changed.text)
    return Change(document.label, gone, come, tuple(left))


_Numbered: TypeAlias = tuple[tuple[int, str], ...]


def _lines(before: str, after: str) -> tuple[_Numbered, _Numbered]:
    """Lines that went and came, with their numbers in the text that has them."""
    old, new = lines_of(before), lines_of(after)
    steps = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = [each for each in steps if each[0] != "equal"]
    return (
        tuple((n + 1, old[n]) for _, first, end, _, _ in changed for n in range(first, end)),
        tuple((n + 1, new[n]) for _, _, _, first, end in changed for n in range(first, end)),
    )


def _document(path: Path, root: Path) -> Document:
    try:
        return read(path, shown_path(path, root))
    except FileNotFoundError:
        name = path.stem.removeprefix("Pulumi.")
        raise StackError(
            f"there is no stack file {shown_path(path, root)}\n"
            f"  make one with: falaj new --stack {name}"
        ) from None


def _problems(given: Given, root: Path) -> list[Problem]:
    """Everything that is wrong with a stack, its components' refusals among it."""
    try:
        settings = checked(given, root)
        if settings.platform != "local":
            # What a local stack needs is loaded for no other, and the other way round.
            from falaj.stacks.validation import ask_components  # noqa: PLC0415

            ask_components(settings, root)
    except RefusedSettingsError as error:
        return list(error.problems)
    return []


def _no_worse(before: list[Problem], after: Given, root: Path) -> list[Problem]:
    """What is wrong after a change. Raises StackError for what wasn't before."""
    known = {_without_lines(problem) for problem in before}
    problems = _problems(after, root)
    new = [_with_what_lacks(each) for each in problems if _without_lines(each) not in known]
    if new:
        name = after.stack_file.label if after.stack_file else "the stack's file"
        raise StackError("\n".join([*new, f"  {name} was not changed"]))
    return problems


def _with_what_lacks(problem: Problem) -> str:
    """The problem; with the lines that would mend it where they are further ones.

    Others stand in what was given, which the reader has before him.
    """
    if problem.edit is None or not problem.edit.inserts:
        return problem.text
    lines = [f"    {line}" for line in problem.edit.lines]
    return "\n".join([problem.text, "  with it in the file, this would do:", *lines])


def _without_lines(problem: Problem) -> tuple[KeyPath, str]:
    return problem.path, re.sub(r"\d+", "", problem.text)


def _location(given: Given, namespace: str, parts: KeyPath) -> Location | None:
    if namespace != NAMESPACE:
        return given.locations.get(f"{namespace}:{parts[0]}")
    return given.location(parts)


def _place(given: Given, document: Document, parts: KeyPath, value: Any) -> tuple[Way, Any]:
    """Where a value goes in the stack's file, and what goes there.

    What the project's file says is said anew in the stack's, whole and by the same key: the engine
    takes a key of the one or of the other.
    """
    for prefix, key in given.own():
        location = given.locations[key]
        if location.document is not document and parts[: len(prefix)] == prefix:
            rest = parts[len(prefix) :]
            whole = {key: given.values[key]}
            return ("config", key), mended_by(whole, Put((key, *rest), value))[key]
    place = given.place_for(parts)
    if place is not None and place.document is document:
        return place.way, value
    return ("config", f"{NAMESPACE}:{parts[0]}", *parts[1:]), value


def _shape(given: Given, parts: KeyPath) -> Shape | None:
    """What a key takes in this stack; None where that isn't known."""
    own, _ = nest(given)
    platform, blueprint = own.get("platform"), own.get("blueprint")
    if parts == ("platform",):
        return Text()
    if platform == "local":
        model = ALL["local"]
    else:
        kinds = kinds_on(platform)
        if blueprint not in kinds:
            return Choice(tuple(BLUEPRINTS)) if parts == ("blueprint",) else None
        model = kinds[cast("str", blueprint)]
    return at(Keys(model), parts)


def _read_as(shape: Shape | None, text: str) -> Any:
    """A text from a command line as what a key takes."""
    if shape is None or any(isinstance(each, Text | Choice) for each in choices(shape)):
        plain = shape is None or not any(not isinstance(e, Text | Choice) for e in choices(shape))
        if not plain or shape is None:
            return _yaml(text)
        numbers = [v for e in choices(shape) if isinstance(e, Choice) for v in e.values]
        return next((v for v in numbers if str(v) == text), text)
    found = _yaml(text)
    return text if found is None and text else found


def _yaml(text: str) -> Any:
    document = parse(text, Path("value"), "the value")
    if not document.is_readable or document.flaws:
        return text
    return document.root.data if document.root else None


def _refuse_secrets(key: str, value: Any) -> None:
    if is_secret(value):
        raise StackError(
            f"{key} {_ENCRYPTED}\n"
            f"  remove it with: falaj config rm {key}; then set it as plain text"
        )
    inner: list[Any] = []
    if isinstance(value, dict):
        inner = list(cast("dict[str, Any]", value).values())
    elif isinstance(value, list):
        inner = cast("list[Any]", value)
    for each in inner:
        _refuse_secrets(key, each)


@contextmanager
def _lock(target: Path) -> Generator[None]:
    """Only one of us changes a file at a time; the lock lies where it is in nobody's way."""
    digest = hashlib.sha256(os.fsencode(target)).hexdigest()[:16]
    lock = FileLock(Path(tempfile.gettempdir()) / f"falaj-{os.getuid()}-{digest}.lock")
    try:
        with lock.acquire(timeout=_WAIT_SECONDS):
            yield
    except Timeout:
        raise StackError(f"{target.name} is being changed by somebody else; try again") from None


def _write(target: Path, before: str, after: str) -> None:
    """Replace a file's text if it still is what was read."""
    try:
        if target.read_bytes() != before.encode("utf-8"):
            raise StackError(
                f"{target.name} was changed meanwhile; nothing was written\n  run it again"
            )
        replace_file(target, after)
    except OSError as error:
        raise StackError(f"{target.name} can't be written: {error.strerror}") from None
