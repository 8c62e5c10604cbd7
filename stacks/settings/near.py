"""Files of the project whose paths are like one that isn't there."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

#: Folders that hold no file of a person's, and how far it is looked.
_PASSED_OVER: Final = frozenset(("node_modules", "__pycache__", "venv"))
_DEEPEST: Final = 4
_MOST: Final = 5_000


def similar_files(path: str, root: Path, suffixes: Sequence[str]) -> list[str]:
    """Paths from the project's folder, the most similar first.

    Args:
        path: as it was given.
        root: the project's folder.
        suffixes: of the files that could be meant, in lower case.
    """
    candidates = list(_files(root, suffixes))
    by_name = {Path(each).name: each for each in candidates}
    found = difflib.get_close_matches(path, candidates, n=1, cutoff=0.7)
    names = difflib.get_close_matches(Path(path).name, by_name, n=1, cutoff=0.8)
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
