"""Paths that a stack's file names, from the project's folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from falaj.components.local.arguments import NOT_EMPTY

Named = Annotated[str, NOT_EMPTY]
"""A path, or a name."""


def resolved(path: str, root: Path) -> Path:
    """A path of the stack's file, absolute; ``root`` is the project's folder.

    Links that lead in a circle stay as they are: no file is found there.
    """
    found = root / Path(path).expanduser()
    try:
        return found.resolve()
    except (OSError, RuntimeError, ValueError):  # which one a circle is depends on Python
        return Path(os.path.abspath(found))  # noqa: PTH100 - `absolute` would keep the dots


def is_file(path: Path) -> bool:
    """Whether there is a file; where that can't be told, as of a name that is too long: no."""
    return os.path.isfile(path)  # noqa: PTH113 - `Path.is_file` raises there


def is_folder(path: Path) -> bool:
    """Whether there is a folder, as `is_file`."""
    return os.path.isdir(path)  # noqa: PTH112 - as above


def not_there(place: Path, what: str = "file") -> str:
    """Say that a path of the stack's file, absolute, leads nowhere, and where it starts."""
    return f"there is no {what} {place}; a relative path starts at the project's folder"
