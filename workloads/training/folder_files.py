"""Files of folders that datasets are made of: in one order, none a link, with one digest."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from falaj.workloads.errors import WorkloadError


def files(folder: Path) -> Iterator[Path]:
    """Files below a folder in order, those that are hidden left out.

    Links to folders, which could lead in circles, aren't followed: they come as files do.

    Raises:
        OSError: a folder can't be read.
    """

    def fail(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=fail):
        seen = sorted(each for each in folders if not each.startswith("."))
        links = {each for each in seen if Path(place, each).is_symlink()}
        folders[:] = [each for each in seen if each not in links]
        shown = {each for each in names if not each.startswith(".")}
        yield from (Path(place, each) for each in sorted(shown | links))


@contextmanager
def reading(folder: Path) -> Generator[None]:
    """Turn the operating system's errors into `WorkloadError`: the block reads ``folder``.

    Raises:
        WorkloadError: a file or a folder in it can't be read; names it.
    """
    try:
        yield
    except OSError as error:
        raise WorkloadError(
            f"{error.filename or folder} can't be read: {error.strerror}"
        ) from error


def require_file(path: Path, what: str) -> os.stat_result:
    """Return what the system says of a file, which is one itself.

    Raises:
        WorkloadError: it is a link, a folder or something else; ``what`` says what it should be.
        OSError: nothing is there, or it can't be read.
    """
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode):
        raise WorkloadError(
            f"the {what} {path} is no file, but a link, a folder or something else: put the file "
            "itself there"
        )
    return found


def digest_of_all(named: Iterable[tuple[str, bytes]]) -> str:
    """Return one SHA-256 (hex) over the names and digests of files, in the order they come in."""
    every = hashlib.sha256()
    for name, digest in named:
        encoded = name.encode(errors="replace")
        every.update(len(encoded).to_bytes(8, "little") + encoded + digest)
    return every.hexdigest()


def links(folder: Path) -> int:
    """Return how many links to folders there are, which aren't followed."""
    return sum(each.is_dir() for each in files(folder))
