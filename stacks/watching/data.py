"""The data that a stack could learn from anew: only from where its file says, and only whole."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from falaj.components.local.machine import TABLES
from falaj.stacks.settings.paths import resolved
from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.header import read_header
from falaj.workloads.watching.ladder import NoDataError

SETTLED_SECONDS: Final = 5.0
"""A file that was changed more lately may still be written."""


@dataclass(frozen=True)
class Table:
    """A file with rows.

    Attributes:
        path: absolute.
        digest: SHA-256 of the file.
        given: what ``falaj:dataset`` has to say for it; None: it does already.
    """

    path: Path
    digest: str
    given: str | None = None


def newest(root: Path, dataset: Path, folder: str | None, now: float) -> Table:
    """The table that could be learned from.

    Args:
        root: the project's folder.
        dataset: the stack's own table, absolute.
        folder: where further tables come to (``falaj:watch.data``); None: the stack's own grows.
        now: Unix time in seconds.

    Raises:
        NoDataError: there is none, it is still being written, or it lacks columns.
    """
    if folder is None:
        return Table(dataset, _whole(dataset, now))
    place = resolved(folder, root)
    try:
        names = sorted(
            each.name for each in os.scandir(place)
            if each.is_file() and not each.name.startswith(".")
            and Path(each.name).suffix.lower() in TABLES
        )  # fmt: skip
    except OSError as error:
        raise NoDataError(f"falaj:watch.data: {place} can't be read: {error.strerror}") from None
    if not names:
        raise NoDataError(f"falaj:watch.data: {place} holds no {' or '.join(TABLES)} file")
    path = place / names[-1]
    digest = _whole(path, now)
    if path == dataset:
        return Table(path, digest)
    _require_columns(path, dataset)
    given = path.relative_to(root) if path.is_relative_to(root) else path
    return Table(path, digest, str(given))


def _whole(path: Path, now: float) -> str:
    """A file's digest, once nobody writes to it any more."""
    try:
        before = path.stat()
        if now - before.st_mtime < SETTLED_SECONDS:
            raise NoDataError(f"{path} was changed just now; it is looked at again")
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        after = path.stat()
    except OSError as error:
        raise NoDataError(f"{path} can't be read: {error.strerror}") from None
    if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise NoDataError(f"{path} is being written to; it is looked at again")
    return found


def _require_columns(path: Path, dataset: Path) -> None:
    """Refuse a table that isn't of the kind that the model takes now."""
    try:
        has, needs = read_header(path), read_header(dataset)
    except (WorkloadError, OSError) as error:
        raise NoDataError(f"the columns of {path} can't be compared: {error}") from None
    if missing := [each for each in needs if each and each not in has]:
        raise NoDataError(f"{path} lacks the columns {', '.join(missing[:12])} of {dataset}")
