"""A folder of texts that are streamed to a language model: files at any depth."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Final

from falaj.workloads.bounds import ENDINGS
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.folder_files import files, reading, require_file
from falaj.workloads.training.picture_folder import is_picture

SUFFIXES: Final = ENDINGS["texts"]
_LOOKED_AT: Final = 1_000
"""Files of a folder by which it is told what it holds: there may be millions."""


def holds_texts(folder: Path) -> bool:
    """Whether there are texts in a folder and no pictures, of which notes may lie beside.

    Raises:
        OSError: it can't be read.
    """
    found = False
    for path in islice(files(folder), _LOOKED_AT):
        if is_picture(path):
            return False
        found = found or _is_text(path)
    return found


def find(folder: Path) -> list[Path]:
    """Return the texts below a folder, in the order of their names.

    Hidden files and folders are left out, and files that aren't texts by their names.

    Raises:
        WorkloadError: there are none, one is no file, or the folder can't be read.
    """
    with reading(folder):
        found = [each for each in files(folder) if _is_text(each)]
        for path in found:
            require_file(path, "text")
    if not found:
        raise WorkloadError(f"{folder} has no texts: give a folder of {', '.join(SUFFIXES)} files")
    return found


def others(folder: Path) -> int:
    """Return how many files there are that aren't texts by their names."""
    return sum(not _is_text(each) and not each.is_dir() for each in files(folder))


def _is_text(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES
