"""A folder of pictures: a folder in it for each class, whose name is the class's."""

from __future__ import annotations

import unicodedata
from itertools import islice
from pathlib import Path
from typing import Final

from falaj.workloads import bounds
from falaj.workloads.errors import WorkloadError, some
from falaj.workloads.training.folder_files import files, reading, require_file

SUFFIXES: Final = (".bmp", ".jpeg", ".jpg", ".png", ".webp")
"""Files that are pictures, by the ends of their names."""
LEAST_OF_CLASS: Final = 2
"""Pictures of a class: one to learn from, and one that is held out."""
_SHOWN: Final = 5


def classes(folder: Path) -> dict[str, list[str]]:
    """Return the pictures of each class in the order of their names; folders within count as well.

    Args:
        folder: holds a folder for each class. Pictures are named from it on.

    Raises:
        WorkloadError: it can't be read, has no two classes, pictures outside of them, classes with
            hardly a picture or that can't be called so, or links.
    """
    with reading(folder):
        entries = sorted(
            (each for each in folder.iterdir() if not each.name.startswith(".")),
            key=lambda each: each.name,
        )
        beside = [each.name for each in entries if is_picture(each) and each.is_file()]
        found = {each.name: _pictures(each, folder) for each in entries if each.is_dir()}
    if beside:
        raise WorkloadError(
            f"{folder} has pictures beside its folders ({_some(beside)}): put each into the "
            "folder of its class"
        )
    odd = [name for name in found if _is_odd(name)]
    if odd:
        raise WorkloadError(
            f"{folder} has folders whose names aren't text in UTF-8, or have control characters "
            f"({_some(odd)}): classes are called as their folders are, so rename them"
        )
    filled = [name for name, pictures in found.items() if pictures]
    if len(filled) < 2:
        raise WorkloadError(
            f"{folder} has pictures in {_some(filled) or 'no folder'}: give a folder with a "
            f"folder of {', '.join(SUFFIXES)} files for each class, two at least"
        )
    few = [name for name, pictures in found.items() if len(pictures) < LEAST_OF_CLASS]
    if few:
        raise WorkloadError(
            f"{folder} has less than {LEAST_OF_CLASS} pictures of {_some(few)}: add some, or "
            "remove the class"
        )
    return found


def is_streamed(folder: Path) -> bool:
    """Whether a folder has more pictures than are in memory as a whole.

    Raises:
        WorkloadError: it can't be read.
    """
    most = bounds.PICTURES_IN_MEMORY
    with reading(folder):
        return sum(1 for _ in islice(filter(is_picture, files(folder)), most + 1)) > most


def is_picture(path: Path) -> bool:
    """Whether a file is a picture by its name."""
    return path.suffix.lower() in SUFFIXES


def others(folder: Path) -> int:
    """Return how many files there are that aren't pictures by their names."""
    return sum(not is_picture(each) for each in files(folder))


def _pictures(of_class: Path, folder: Path) -> list[str]:
    """The names of a class's pictures, from the folder of all classes on."""
    _refuse_link(of_class)
    found: list[str] = []
    for path in files(of_class):
        if is_picture(path):
            require_file(path, "picture")
            found.append(str(path.relative_to(folder)))
        else:
            _refuse_link(path)
    return found


def _refuse_link(path: Path) -> None:
    if path.is_symlink() and path.is_dir():
        raise WorkloadError(
            f"{path} is a link to a folder, which isn't followed: put the folder itself there, "
            "or remove the link"
        )


def _is_odd(name: str) -> bool:
    return any(unicodedata.category(each) in {"Cc", "Cs"} for each in name)


def _some(names: list[str]) -> str:
    return some([repr(name) for name in names], _SHOWN)
