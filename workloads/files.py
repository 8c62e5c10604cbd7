"""Files that are either wholly there or not there, private, and removable for good.

Also advisory locks between processes, which the kernel frees when one dies, and whether a folder
lies in memory, as plain models must.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, BinaryIO

from falaj.workloads.errors import StorageFullError, WorkloadError

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700
TEMPORARY_PREFIX = ".tmp-"
"""Files that an interrupted write left behind start with this; they may always be removed."""

# EFBIG: the process's file size limit (RLIMIT_FSIZE) or the file system's.
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_SHRED_BLOCK = 1 << 20
_IN_MEMORY = frozenset({"tmpfs", "ramfs"})
_MOUNTS = Path("/proc/self/mountinfo")
_ESCAPE = re.compile(r"\\([0-7]{3})")


@contextlib.contextmanager
def storage_errors(path: Path) -> Generator[None, None, None]:
    """Turn a fault of the disk while ``path`` is written into an error that a person can act on.

    Raises:
        StorageFullError: the disk, the quota or the file size limit ended the write.
        WorkloadError: any other fault of the operating system (permission, read-only, …).
    """
    try:
        yield
    except OSError as error:
        if error.errno in _FULL:
            message = (
                f"no space left while writing {path} ({error.strerror}); free space and run again"
            )
            raise StorageFullError(message) from error
        raise WorkloadError(f"can't write {path}: {error.strerror or error}") from error


def sync_folder(path: Path) -> None:
    """Make the names in a folder (new, replaced, removed files) survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes | bytearray | memoryview, mode: int = 0o600) -> None:
    """Write ``data`` to ``path`` so that readers see the old content or the new, never a part.

    The bytes go to a temporary file in the same folder, are forced to the disk and renamed over
    ``path``. The folder must exist.

    Raises:
        StorageFullError: no space; the old content is untouched and nothing is left behind.
        WorkloadError: the folder is missing or can't be written.
    """
    with replacing(path, mode) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(
    path: Path, mode: int = PRIVATE_FILE, *, stage: Path | None = None
) -> Generator[BinaryIO, None, None]:
    """As :func:`write_atomic`, for content that is written piece by piece in the block.

    Args:
        path: the file.
        mode: its mode. Default: 0600.
        stage: where it grows, a folder of the same file system. Default: the file's own, where
            a process that is killed may leave something behind.

    Raises:
        StorageFullError: no space; the old content is untouched and nothing is left behind.
        WorkloadError: the folder is missing or can't be written.
    """
    with storage_errors(path):
        descriptor, name = tempfile.mkstemp(prefix=TEMPORARY_PREFIX, dir=stage or path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                os.fchmod(file.fileno(), mode)
                yield file
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)


@contextlib.contextmanager
def replacing_folder(path: Path) -> Generator[Path, None, None]:
    """Give a folder to fill, which becomes ``path`` in the end: whole, or not at all.

    Args:
        path: the folder; one that is there is replaced. The one above it has to be there.

    Raises:
        StorageFullError: no space; nothing half written stays.
        WorkloadError: the folder above can't be written.
    """
    with storage_errors(path):
        stage = Path(tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=path.parent))
    try:
        yield stage
        with storage_errors(path):
            if path.exists():
                shutil.rmtree(path)
            stage.replace(path)
            sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(stage, ignore_errors=True)
        raise


def write_json_atomic(
    path: Path, value: object, mode: int = PRIVATE_FILE, *, stage: Path | None = None
) -> None:
    """Write ``value`` as indented JSON, atomically; NaN and infinity are refused.

    ``stage`` is as :func:`replacing` takes it.

    Raises:
        WorkloadError: ``value`` can't be said in JSON, or see :func:`write_atomic`.
    """
    try:
        text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise WorkloadError(f"can't write {path} as JSON: {error}") from error
    with replacing(path, mode, stage=stage) as file:
        file.write((text + "\n").encode())


@contextlib.contextmanager
def reading_errors(path: Path, what: str) -> Generator[None, None, None]:
    """Turn the operating system's errors into `WorkloadError`: the block reads ``path``.

    ``what`` names its role in the error ("the manifest").

    Raises:
        WorkloadError: it is missing or can't be read.
    """
    try:
        yield
    except FileNotFoundError as error:
        raise WorkloadError(f"{what} is missing: there is no file {path}") from error
    except OSError as error:
        raise WorkloadError(f"can't read {what} {path}: {error.strerror or error}") from error


def read_bytes(path: Path, what: str) -> bytes:
    """Return a file's content; ``what`` names its role in the error.

    Raises:
        WorkloadError: it is missing or can't be read.
    """
    with reading_errors(path, what):
        return path.read_bytes()


def read_json(path: Path, what: str) -> Any:
    """Return the value of a JSON file; ``what`` names its role in the error ("the key ring").

    Raises:
        WorkloadError: the file is missing, can't be read or isn't JSON in UTF-8.
    """
    data = read_bytes(path, what)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise WorkloadError(f"{what} {path} isn't valid JSON: {error}") from error


def fingerprint(path: Path) -> tuple[int, int, int] | None:
    """What is another once a file was replaced or written to; None where it can't be seen."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def make_missing_folders(path: Path) -> None:
    """Make a folder and those above it, as far as they are missing, each with mode 0700.

    `Path.mkdir` gives those above what the umask leaves, and who may write to one of them could
    put another folder in the place of the private one.
    """
    for each in (*reversed(path.parents), path):
        if each == path or not each.exists():
            each.mkdir(mode=PRIVATE_FOLDER, exist_ok=True)


def make_private_folder(path: Path) -> Path:
    """Make a folder, and missing ones above it, that only its owner can enter (mode 0700).

    An existing folder gets the mode too. Returns ``path``.

    Raises:
        StorageFullError: no space. WorkloadError: a file stands there, or no permission.
    """
    with storage_errors(path):
        make_missing_folders(path)
        if stat.S_IMODE(path.stat().st_mode) != PRIVATE_FOLDER:
            path.chmod(PRIVATE_FOLDER)
    return path


def shred(path: Path) -> None:
    """Overwrite a file with random bytes, force them to the disk and remove it.

    A missing file is fine; a symbolic link is removed and what it points to is left alone.
    Overwriting reaches the blocks of ordinary file systems; copy-on-write file systems and flash
    may keep old ones, which is why everything of value is encrypted as well.

    Raises:
        WorkloadError: ``path`` is a folder, or it can't be removed.
    """
    with storage_errors(path):
        try:
            found = path.lstat()
        except FileNotFoundError:
            return
        if stat.S_ISDIR(found.st_mode):
            raise WorkloadError(f"can't shred {path}: it is a folder, not a file")
        if stat.S_ISREG(found.st_mode):
            # The owner may have taken away the write permission (mode 0400).
            path.chmod(PRIVATE_FILE)
            with path.open("r+b", buffering=0) as file:
                left = found.st_size
                while left > 0:
                    left -= file.write(secrets.token_bytes(min(left, _SHRED_BLOCK)))
                os.fsync(file.fileno())
        path.unlink()
        sync_folder(path.parent)


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False) -> Generator[None, None, None]:
    """Hold flock(2) on the file ``path`` (made if missing), waiting until it is free.

    ``shared`` holders get in together and keep exclusive ones out. Not re-entrant: the holder of
    an exclusive lock that asks again waits for itself.

    Raises:
        WorkloadError: the lock file can't be made or opened.
    """
    with storage_errors(path):
        descriptor = _open_lock(path)
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


def _open_lock(path: Path) -> int:
    try:
        # Reading is enough for flock(2), so a read-only mount with a lock file in it works.
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(path, flags, PRIVATE_FILE)


def file_system_of(path: Path) -> str:
    """Return the type of the file system that ``path`` is, or would be, in.

    Raises:
        WorkloadError: the system doesn't say.
    """
    place = path.absolute()
    while not place.exists():
        place = place.parent
    place = place.resolve()
    found = ""
    try:
        lines = _MOUNTS.read_text().splitlines()
    except OSError as error:
        raise WorkloadError(f"can't read {_MOUNTS}: {error.strerror}") from error
    longest = -1
    for line in lines:
        # proc_pid_mountinfo(5): the mount point is the fifth field, the type follows " - ".
        front, _, back = line.partition(" - ")
        point = Path(_ESCAPE.sub(lambda hit: chr(int(hit[1], 8)), front.split(" ")[4]))
        # Of two mounts on one point the later one covers the earlier.
        if place.is_relative_to(point) and len(point.parts) >= longest:
            longest, found = len(point.parts), back.split(" ")[0]
    if not found:
        raise WorkloadError(f"can't tell which file system {path} is in")
    return found


def require_memory(path: Path) -> None:
    """Refuse a folder that isn't in a memory file system.

    Raises:
        WorkloadError: it is on a disk.
    """
    kind = file_system_of(path)
    if kind not in _IN_MEMORY:
        raise WorkloadError(
            f"{path} is in a file system of type {kind}, and a model may be written in plain to "
            f"memory only ({', '.join(sorted(_IN_MEMORY))}): mount one there, or give --allow-disk"
        )
