"""Advisory locks between processes, shared or exclusive; the kernel frees them when one dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Generator
from pathlib import Path

from falaj.workloads.files import PRIVATE_FILE, storage_errors


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Generator[None, None, None]:
    """Hold flock(2) on the file ``path`` (made if missing), waiting until it is free.

    ``shared`` holders get in together and keep exclusive ones out. Not re-entrant: the holder of
    an exclusive lock that asks again waits for itself.

    Raises:
        WorkloadError: the lock file can't be made or opened.
    """
    with storage_errors(path):
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX)
        except BaseException:
            os.close(descriptor)
            raise
    try:
        yield
    finally:
        # Closing alone would leave the lock to a child that was forked meanwhile.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        # Reading is enough for flock(2), so a read-only mount with a lock file in it works.
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, PRIVATE_FILE)
