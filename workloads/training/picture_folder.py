"""A folder of pictures: a folder in it for each class, whose name is the class's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from falaj.workloads.errors import WorkloadError, some

SUFFIXES: Final = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
"""Files that are pictures, by the ends of their names."""
MOST_FILES: Final = 50_000
"""Pictures of a folder, which are in memory as a whole."""
LEAST_OF_CLASS: Final = 2
"""Pictures of a class: one to learn from, and one that is held out."""
_SHOWN: Final = 5


def classes(folder: Path) -> dict[str, list[Path]]:
    """Return the pictures of each class in the order of their names; folders within count as well.

    Args:
        folder: holds a folder for each class.

    Raises:
        WorkloadError: it can't be read, has no two classes, pictures outside of them, classes with
            hardly a picture, or too many pictures.
    """
    try:
        entries = sorted(_seen(folder), key=lambda each: each.name)
        beside = [each.name for each in entries if is_picture(each) and each.is_file()]
        found = {each.name: sorted(_pictures(each)) for each in entries if each.is_dir()}
    except OSError as error:
        raise WorkloadError(
            f"{error.filename or folder} can't be read: {error.strerror}"
        ) from error
    if beside:
        raise WorkloadError(
            f"{folder} has pictures beside its folders ({_some(beside)}): put each into the "
            "folder of its class"
        )
    found = {name: paths for name, paths in found.items() if paths}
    if len(found) < 2:
        raise WorkloadError(
            f"{folder} has pictures in {_some(list(found)) or 'no folder'}: give a folder with a "
            f"folder of {', '.join(SUFFIXES)} files for each class, two at least"
        )
    few = [name for name, paths in found.items() if len(paths) < LEAST_OF_CLASS]
    if few:
        raise WorkloadError(
            f"{folder} has less than {LEAST_OF_CLASS} pictures of {_some(few)}: add some, or "
            "remove the class"
        )
    count = sum(map(len, found.values()))
    if count > MOST_FILES:
        raise WorkloadError(
            f"{folder} has {count:,} pictures; {MOST_FILES:,} are allowed: take a part of them"
        )
    return found


def is_picture(path: Path) -> bool:
    """Whether a file is a picture by its name."""
    return path.suffix.lower() in SUFFIXES


def others(folder: Path) -> int:
    """Return how many files there are that aren't pictures by their names."""
    return sum(not is_picture(each) for each in files(folder))


def _pictures(folder: Path) -> Iterator[Path]:
    return filter(is_picture, files(folder))


def files(folder: Path) -> Iterator[Path]:
    """Files below a folder in order, those that are hidden left out.

    Links to folders, which could lead in circles, aren't followed.

    Raises:
        OSError: a folder can't be read.
    """

    def fail(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        yield from (Path(place, each) for each in sorted(names) if not each.startswith("."))


def links(folder: Path) -> int:
    """Return how many links to folders there are, which `files` doesn't follow."""
    return sum(
        Path(place, each).is_symlink()
        for place, folders, _ in os.walk(folder)
        for each in folders
        if not each.startswith(".")
    )


def _seen(folder: Path) -> Iterator[Path]:
    return (each for each in folder.iterdir() if not each.name.startswith("."))


def _some(names: list[str]) -> str:
    return some([repr(name) for name in names], _SHOWN)
