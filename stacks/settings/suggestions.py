"""What a person probably meant: the allowed word, or the file, that is nearest to a wrong one."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

from falaj.components.nearest import nearest

_T = TypeVar("_T", str, int)
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
