"""A folder of texts that are streamed to a language model: files at any depth."""

from __future__ import annotations

import stat
from itertools import islice
from pathlib import Path
from typing import Final

from falaj.workloads.bounds import ENDINGS
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import picture_folder

SUFFIXES: Final = ENDINGS["texts"]
_LOOKED_AT: Final = 1_000
"""Files of a folder by which it is told what it holds: there may be millions."""


def holds_texts(folder: Path) -> bool:
    """Whether there are texts in a folder and no pictures, of which notes may lie beside.

    Raises:
        OSError: it can't be read.
    """
    found = False
    for path in islice(picture_folder.files(folder), _LOOKED_AT):
        if picture_folder.is_picture(path):
            return False
        found = found or _is_text(path)
    return found


def find(folder: Path) -> list[Path]:
    """Return the texts below a folder, in the order of their names.

    Hidden files and folders are left out, and files that aren't texts by their names.

    Raises:
        WorkloadError: there are none, one is no file, or the folder can't be read.
    """
    try:
        found = [each for each in picture_folder.files(folder) if _is_text(each)]
        for path in found:
            if not stat.S_ISREG(path.lstat().st_mode):
                raise WorkloadError(
                    f"the text {path} is no file, but a link or something else: put the file "
                    "itself there"
                )
    except OSError as error:
        raise WorkloadError(
            f"{error.filename or folder} can't be read: {error.strerror}"
        ) from error
    if not found:
        raise WorkloadError(f"{folder} has no texts: give a folder of {', '.join(SUFFIXES)} files")
    return found


def others(folder: Path) -> int:
    """Return how many files there are that aren't texts by their names."""
    return sum(not _is_text(each) for each in picture_folder.files(folder))


def _is_text(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES
