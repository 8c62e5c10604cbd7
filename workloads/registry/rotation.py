"""Rotation: new keys of every kind, and every data key wrapped anew.

Packages and tokens that the former keys signed go on for a while, which is what makes a rotation
something that can be done at any time. After a theft nothing of them is to be believed: then
``distrust`` ends it at once.

Only wrapped keys are rewritten, each file atomically. The old key-encryption keys go last, when
all that was found opens under the new one; until then everything stays readable, so that a
rotation that was interrupted is completed by running it again.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from falaj.workloads.errors import (
    IntegrityError,
    RetiredKeyError,
    StorageFullError,
    WorkloadError,
)
from falaj.workloads.files import TEMPORARY_PREFIX, storage_errors
from falaj.workloads.registry.alias_list import ALIASES, read_list
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.layout import MANIFEST
from falaj.workloads.registry.package import FILES, KEYS, SIGNATURE, rewrap_package_keys
from falaj.workloads.registry.sealed import SUFFIX, rewrap
from falaj.workloads.registry.store import REMOVED, STAGING

_SHOWN_PROBLEMS = 10


@dataclass(frozen=True, slots=True)
class Rotation:
    """What was done.

    Attributes:
        primary: the new one.
        rewrapped: how many files were.
        retired: versions.
        damaged: files that were passed over, each with the reason.
    """

    primary: str
    rewrapped: int
    retired: list[str]
    damaged: list[str] = field(default_factory=list[str])


def rotate(
    keyring: KeyRing,
    folders: Sequence[Path] = (),
    *,
    expiring: Sequence[Path] = (),
    distrust: bool = False,
) -> Rotation:
    """Make new keys; if folders are given, re-wrap all below them and retire older keys.

    A key ring that doesn't sign, as a pod's, gets a new key-encryption key alone.

    Writers and readers of keys wait meanwhile. What is wrapped under an old key and lies outside
    of ``folders`` can't be read afterwards; without folders no key is retired.

    Args:
        keyring: the key ring.
        folders: below them, every ``keys.json`` of a package and every ``*.sealed`` file is
            re-wrapped. A former signing key is trusted while a package there is signed by it,
            and the one before the new one in any case.
        expiring: likewise folders, of what goes by itself, as jobs: a file there that no key
            opens any more is told and passed over, where elsewhere it keeps every old key.
        distrust: trust no former key: what they signed has to be published, promoted and minted
            again. Default: False.

    Raises:
        StorageFullError: no space; nothing is lost: free space and run again.
        WorkloadError: a folder is missing, or a file can't be re-wrapped. Then the others were
            re-wrapped and every old key is kept.
    """
    folders, expiring = tuple(folders), tuple(expiring)
    for folder in (*folders, *expiring):
        if not folder.is_dir():
            raise WorkloadError(f"there is no folder {folder} to re-wrap; no key was changed")
    with keyring.exclusive():
        primary = keyring.rotate_locked()
        if keyring.signs:
            keyring.rotate_signing_locked(
                set(_signers(folders)).__contains__ if folders else lambda _: True,
                datetime.now(UTC),
            )
            if distrust:
                keyring.distrust_former_locked()
        if not folders + expiring:
            return Rotation(primary, 0, [])
        damaged: dict[Path, str] = {}
        rewrapped = _rewrap_all(keyring, folders, expiring, damaged)
        retired = [version for version in keyring.versions if version != primary]
        for version in retired:
            keyring.retire_locked(version)
        keyring.shred_unlisted()
    return Rotation(primary, rewrapped, retired, [*damaged.values()])


def _signers(folders: Sequence[Path]) -> Iterator[str]:
    """The ids of the keys that signed packages and aliases in the folders, as they say it."""
    for folder in folders:
        for path in folder.rglob(SIGNATURE):
            with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
                yield str(json.loads(path.read_bytes())["key_id"])
        for path in folder.rglob(ALIASES):
            with contextlib.suppress(WorkloadError, OSError, ValueError, LookupError, TypeError):
                yield str(json.loads(read_list(path.parent).signature or b"")["key_id"])


def _rewrap_all(
    keyring: KeyRing,
    folders: Sequence[Path],
    expiring: Sequence[Path],
    damaged: dict[Path, str],
) -> int:
    total = 0
    while True:
        # Again until a pass finds nothing: a folder that was renamed during one pass (a finished
        # training run, say) may have been missed by it. Nobody can wrap anything new meanwhile.
        done, problems = _rewrap_once(keyring, folders)
        more, further = _rewrap_once(keyring, expiring, damaged)
        done, problems = done + more, problems + further
        total += done
        if problems:
            shown = "\n".join(f"  {problem}" for problem in problems[:_SHOWN_PROBLEMS])
            message = f"{len(problems)} files can't be re-wrapped, so every old key is kept:"
            advice = "restore or remove them and run the rotation again"
            raise WorkloadError(f"{message}\n{shown}\n{advice}")
        if not done:
            return total


def _rewrap_once(
    keyring: KeyRing, folders: Sequence[Path], damaged: dict[Path, str] | None = None
) -> tuple[int, list[str]]:
    done = 0
    problems: list[str] = []
    for folder in folders:
        for path in _wrapped_files(folder):
            try:
                if path.is_symlink():
                    raise IntegrityError(f"{path} is a symbolic link")
                done += _rewrap_file(path, keyring)
            except StorageFullError:
                raise
            except WorkloadError as error:
                if not (path.is_symlink() or path.exists()):
                    continue  # it was removed meanwhile
                if damaged is not None and isinstance(error, IntegrityError | RetiredKeyError):
                    damaged[path] = f"{path}: {error}"
                else:
                    problems.append(str(error))
    return done, problems


def _rewrap_file(path: Path, keyring: KeyRing) -> bool:
    if path.name != KEYS:
        return rewrap(path, keyring)
    for leftover in path.parent.glob(f"{TEMPORARY_PREFIX}*"):
        # Of a rotation that was killed; only rotations write into a published package.
        with storage_errors(leftover):
            leftover.unlink(missing_ok=True)
    return rewrap_package_keys(path, keyring)


def _wrapped_files(folder: Path) -> Iterator[Path]:
    def refuse(error: OSError) -> None:
        if isinstance(error, FileNotFoundError):
            return  # removed meanwhile
        raise WorkloadError(f"can't look into {error.filename}: {error.strerror}") from error

    for parent, folders, names in os.walk(folder, onerror=refuse):
        # What an interrupted publication or pruning left is never read again.
        folders[:] = [name for name in folders if not name.startswith((STAGING, REMOVED))]
        # Any trace of a package counts: one that lost a file may be restored, its keys may not.
        is_package = FILES in folders or MANIFEST in names or SIGNATURE in names
        for name in sorted(names):
            if name.endswith(SUFFIX) or (name == KEYS and is_package):
                yield Path(parent) / name
