"""Paths that a stack's file names, from the project's folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from falaj.components.local.arguments import NOT_EMPTY

Named = Annotated[str, NOT_EMPTY]
"""A path, or a name."""


def resolved(path: str, root: Path) -> Path:
    """A path of the stack's file, absolute; ``root`` is the project's folder."""
    return (root / Path(path).expanduser()).resolve()


def not_there(place: Path, what: str = "file") -> str:
    """Say that a path of the stack's file, absolute, leads nowhere, and where it starts."""
    return f"there is no {what} {place}; a relative path starts at the project's folder"
