"""What a person probably meant: the values to write in place of one that was refused."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from falaj.components.nearest import nearest
from falaj.components.specification.limits import Between
from falaj.stacks.settings.document import decimal
from falaj.stacks.settings.shapes import (
    Choice,
    Either,
    Flag,
    Items,
    Key,
    Number,
    Shape,
    Text,
    choices,
    example,
)
from falaj.wire.documents import is_mapping, is_sequence

_T = TypeVar("_T", str, int)
#: What people and YAML 1.1 write for truth values.
_TRUTHS: Final = {
    **dict.fromkeys(("true", "yes", "y", "on", "1", "enabled"), True),
    **dict.fromkeys(("false", "no", "n", "off", "0", "disabled"), False),
}
#: Above this, letters that differ are a slip of the pen.
_ALIKE: Final = 0.7
#: Folders that hold no file of a person's, and how far it is looked.
_PASSED_OVER: Final = frozenset(("node_modules", "__pycache__", "venv"))
_DEEPEST: Final = 4
_MOST: Final = 5_000
_APART: Final = re.compile(r"[\s_.-]+")


def closest(given: object, allowed: Iterable[_T]) -> _T | None:
    """The one of ``allowed`` that was meant; None where none is near.

    Another case, blanks, dashes and underscores make no difference: ``UAE North`` is ``uaenorth``.
    """
    by_text = {str(each): each for each in allowed}
    text = str(given)
    near = [each for each in by_text if alike(each, text)]
    if not near:
        folded = {each.casefold(): each for each in by_text}
        found = nearest(text.casefold(), folded, alike=_ALIKE)
        near = [folded[each] for each in found]
    return by_text[near[0]] if near else None


def alike(one: str, other: str) -> bool:
    """Whether two texts differ in case, blanks, dashes and the like alone."""
    return _squeezed(one) == _squeezed(other)


def _squeezed(text: str) -> str:
    return _APART.sub("", text).casefold()


def meant(shape: Shape, given: Any) -> Iterator[Any]:
    """Values of a shape that a wrong one may stand for, the likeliest first."""
    for each in choices(shape):
        match each:
            case Choice(values):
                found = closest(given, [str(value) for value in values])
                yield from (value for value in values if str(value) == found)
            case Flag():
                text = closest(str(given).strip().casefold(), _TRUTHS)
                if not (is_mapping(given) or is_sequence(given)) and text is not None:
                    yield _TRUTHS[text]
            case Number(whole, limits):
                yield from _numbers(given, whole, limits)
            case Text(rule, _):
                yield from _texts(given, rule.allows if rule else bool)
            case Items(of) if not (is_mapping(given) or is_sequence(given)) and given is not None:
                yield [given]
                yield from ([inner] for inner in meant(of, given))
            case _:
                pass


def instead(key: Key | None, shape: Shape, given: Any, name: str = "") -> Iterator[Any]:
    """As `meant`, and after that what is allowed at all: the default, then an example."""
    yield from meant(shape, given)
    if key is not None and key.default is not None and not isinstance(shape, Either):
        yield key.default
    if key is None or key.required:
        yield key.example if key and key.example else example(shape, name)


def _numbers(given: Any, whole: bool, limits: Between | None) -> Iterator[int | float]:
    number = given if isinstance(given, int | float) and not isinstance(given, bool) else None
    if isinstance(given, str):
        number = decimal(given.strip().replace(",", ""))
    if number is None or number != number:  # noqa: PLR0124 - no NaN
        return
    if limits is not None:
        number = min(max(number, limits.low), limits.high)
        if limits.above and number <= limits.low:
            return
    if abs(number) < float("inf"):
        yield round(number) if whole or float(number).is_integer() else number


def _texts(given: Any, allows: Any) -> Iterator[str]:
    """Texts of the form that come from another spelling."""
    if is_mapping(given) or is_sequence(given) or given is None:
        return
    text = str(given).strip()
    lower = text.lower()
    dashed = re.sub(r"[^a-z0-9]+", "-", lower).strip("-")
    for each in (text, lower, dashed, re.sub(r"[^a-z0-9]", "", lower)):
        if each and allows(each):
            yield each


def similar_files(path: str, root: Path, suffixes: Sequence[str]) -> list[str]:
    """Paths from the project's folder, the most similar first.

    Args:
        path: as it was given.
        root: the project's folder.
        suffixes: of the files that could be meant, in lower case.
    """
    candidates = list(_files(root, suffixes))
    by_name = {Path(each).name: each for each in candidates}
    found = nearest(path, candidates, alike=0.7)
    names = nearest(Path(path).name, by_name, alike=0.8)
    return list(dict.fromkeys([*found, *(by_name[name] for name in names)]))


def _files(root: Path, suffixes: Sequence[str]) -> Iterator[str]:
    seen = 0
    for folder, below, files in os.walk(root):
        here = Path(folder).relative_to(root)
        below[:] = (
            []
            if len(here.parts) >= _DEEPEST
            else sorted(
                each for each in below if not each.startswith(".") and each not in _PASSED_OVER
            )
        )
        for name in sorted(files):
            seen += 1
            if seen > _MOST:
                return
            if Path(name).suffix.lower() in suffixes:
                yield (here / name).as_posix()
