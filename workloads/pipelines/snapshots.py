"""Which snapshot of a dataset a run is to train on: the newest whose name begins as is said."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json

_DESCRIPTION: Final = "dataset.json"
"""As `falaj.workloads.training.snapshot` calls it; that one needs more than a starter has."""
_AHEAD: Final = datetime.timedelta(minutes=5)
"""By how much another machine's clock may be ahead of this one's."""
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Snapshot:
    """A dataset as it once was."""

    path: str
    """Below the folder of all datasets."""
    digest: str
    """SHA-256, in hex, by which it calls itself; who trains on it checks it."""
    made: datetime.datetime = field(compare=False)
    """When, as it says."""


def newest(
    data: Path,
    pattern: str,
    say: Callable[[str], None],
    now: datetime.datetime | None = None,
) -> Snapshot | None:
    """The newest snapshot by the time at which it was made; None where there is none.

    A folder without a description isn't done: snapshots appear whole. Of several that may be
    taken, one whose description can't be used is left out, and likewise one that would be of a
    time to come, which would be the newest for as long.

    Args:
        data: the folder of all datasets.
        pattern: a path below it. With ``*`` at its end: the beginning of the paths that it may be.
        say: is told what is left out, and why.
        now: Default: the clock's.

    Raises:
        WorkloadError: the folder can't be read, or the description of a snapshot that is named
            without ``*`` says something that can't be.
    """
    above, _, beginning = pattern.rpartition("/")
    if not pattern.endswith("*"):
        return _described(data, pattern)
    try:
        names = sorted(each.name for each in (data / above).iterdir())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WorkloadError(
            f"can't read the folder of datasets {data / above}: {error.strerror}"
        ) from error
    here = now or datetime.datetime.now(datetime.UTC)
    of_these: list[Snapshot] = []
    for name in names:
        if not name.startswith(beginning[:-1]) or not _NAME.fullmatch(name):
            continue
        path = f"{above}/{name}" if above else name
        try:
            found = _described(data, path)
        except WorkloadError as error:
            say(f"left out: {error}")
            continue
        if found is None:
            continue
        if found.made > here + _AHEAD:
            say(
                f"left out: {data / path / _DESCRIPTION} says that it was made at "
                f"{found.made.isoformat()}, which is still to come: here it is "
                f"{here.isoformat(timespec='seconds')}. One of the two clocks is wrong; set that "
                "of this machine, or that of the one that made it and make the dataset again"
            )
            continue
        of_these.append(found)
    return max(of_these, key=lambda each: (each.made, each.path), default=None)


def _described(data: Path, path: str) -> Snapshot | None:
    """The snapshot at a path; None where none is, or not yet."""
    file = data / path / _DESCRIPTION
    try:
        if not file.is_file():
            return None
    except OSError as error:
        raise WorkloadError(f"can't read {file}: {error.strerror}") from error
    found: object = read_json(file, "the dataset description")
    header = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
    digest, created = header.get("digest"), header.get("created")
    try:
        made = datetime.datetime.fromisoformat(str(created))
    except ValueError:
        made = None
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest) or made is None:
        raise WorkloadError(
            f"{file}: given digest {digest!r} and created {created!r}; allowed: 64 digits of "
            "SHA-256, and a time such as 2026-10-01T03:00:00+00:00; make the dataset again, or "
            "remove its folder"
        )
    return Snapshot(path, digest, made if made.tzinfo else made.replace(tzinfo=datetime.UTC))
