"""Version numbers that never come twice, and what interrupted writers leave behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json, shred, storage_errors, write_json_atomic
from falaj.workloads.registry.package import KEYS

COUNTER = "counter.json"
STAGING = ".staging-"
REMOVED = ".removed-"


def next_version(folder: Path, existing: Iterable[int]) -> int:
    """Return the number after the highest that was ever used; the model's lock is held.

    Raises:
        WorkloadError: the counter is damaged.
    """
    return max([_last_used(folder), *existing]) + 1


def note_used(folder: Path, version: int) -> None:
    """Remember that ``version`` was used, so that it isn't given again once it is removed."""
    last = _last_used(folder)
    if version > last:
        write_json_atomic(folder / COUNTER, {"last": version})


def make_staging(folder: Path) -> Path:
    """Make an empty private folder in which a version is prepared, on the same file system."""
    with storage_errors(folder):
        return Path(tempfile.mkdtemp(prefix=STAGING, dir=folder))


def remove_leftovers(folder: Path) -> None:
    """Remove what interrupted publications and prunings left; the model's lock is held."""
    for entry in folder.iterdir():
        if entry.is_symlink() or not entry.name.startswith((STAGING, REMOVED)):
            continue
        # Without its wrapped keys, what is left of a package can't be read any more.
        shred(entry / KEYS)
        with storage_errors(entry):
            shutil.rmtree(entry)


def _last_used(folder: Path) -> int:
    path = folder / COUNTER
    if not path.exists():
        return 0
    match read_json(path, "the version counter"):
        case {"last": int(number)} if number >= 0:
            return number
        case _:
            message = f"{path} is malformed; restore it, or write the highest version ever used"
            raise WorkloadError(f'{message} as {{"last": N}}')
