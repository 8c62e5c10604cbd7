"""What a run has done, kept beside its output until it is whole: one file a part.

::

    OUTPUT.partial/
        job.json          what the parts are of
        000000.part       three lengths | header (JSON) | bad rows (JSON lines) | results

A part is written at once or not at all, sealed where the output is, each under a key of its own.
The parts that are there from the first one on without a gap are what was done.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import struct
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, cast

from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.files import (
    TEMPORARY_PREFIX,
    make_private_folder,
    read_json,
    reading_errors,
    shred,
    storage_errors,
    write_json_atomic,
)
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import SUFFIX as SEALED
from falaj.workloads.registry.sealed import artifact_path, read_artifact, write_artifact
from falaj.workloads.training.snapshot import digest

FORMAT: Final = "falaj.batch/1"
SUFFIX: Final = ".partial"
_JOB: Final = "job.json"
_LENGTHS: Final = struct.Struct(">III")


@dataclass(frozen=True)
class Done:
    """What one part has: chunks up to ``chunks`` (counted over all files), and how many rows."""

    chunks: int
    rows: int
    bad: int
    escaped: int


class Parts:
    """The parts of one job.

    Args:
        output: the file that they will become.
        job: what decides the results; another one's parts are refused.
        keyring: seals them; None leaves them plain.
        say: is told what of them can't be used.
    """

    def __init__(
        self,
        output: Path,
        job: Mapping[str, Any],
        keyring: KeyRing | None,
        say: Callable[[str], None],
    ) -> None:
        self.folder = output.with_name(output.name + SUFFIX)
        self._job = {"format": FORMAT, **job}
        self.identity = digest(self._job)
        self._keyring = keyring
        self._say = say
        self.done: list[Done] = []
        self.went_on = False
        """Whether a run of this job had been begun that wasn't whole, as the lock was taken."""

    def is_begun(self) -> bool:
        """Whether the folder is that of a run of this job, which may write its output."""
        try:
            return self._kept_job() == self._job
        except WorkloadError:
            return False

    @contextlib.contextmanager
    def opened(self, *, anew: bool, replace: bool = False) -> Generator[None, None, None]:
        """Hold the folder, made where it is missing, and learn what was done.

        Args:
            anew: begin from the first row, whatever was done.
            replace: throw parts of another job away. Default: refuse them.

        Raises:
            WorkloadError: another run holds it, it is of another job, or it can't be read.
        """
        descriptor = self._hold()
        try:
            self.went_on = self.is_begun()
            if anew:
                self._clear()
            self._learn(replace=replace)
            yield
        finally:
            os.close(descriptor)

    def _hold(self) -> int:
        """Lock the folder, made where it is missing, and return its descriptor."""
        while True:
            if self.folder.is_symlink():
                raise WorkloadError(f"{self.folder} is a symbolic link: remove it")
            make_private_folder(self.folder)
            with contextlib.ExitStack() as stack, contextlib.suppress(FileNotFoundError):
                descriptor = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
                stack.callback(os.close, descriptor)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise WorkloadError(
                        f"another run writes the same output ({self.folder}): wait for its end, "
                        "or give another --output"
                    ) from None
                # A run that came to its end may have removed it meanwhile.
                if os.path.samestat(os.fstat(descriptor), self.folder.stat()):
                    stack.pop_all()
                    return descriptor

    def _learn(self, *, replace: bool) -> None:
        path = self.folder / _JOB
        for left in self.folder.glob(f"{TEMPORARY_PREFIX}*"):
            self._remove(left)  # of a run that was killed: the lock says that none is at it
        if not path.exists():
            write_json_atomic(path, self._job)
            return
        kept = self._kept_job()
        if kept != self._job:
            if replace:
                self._clear()
                self._learn(replace=False)
                return
            different = [
                key for key, value in self._job.items()
                if key != "format" and kept.get(key) != value
            ]  # fmt: skip
            raise WorkloadError(
                f"{self.folder} holds parts of another job: {', '.join(different) or 'format'} "
                "changed since. Give --restart to begin anew, or another --output to keep both"
            )
        while True:
            try:
                if not self._is_there(len(self.done)):
                    return
                self.done.append(self.read(len(self.done))[0])
            except IntegrityError as error:
                self._say(
                    f"{error}: of what an earlier run has done, the part {len(self.done) + 1} and "
                    "those behind it are made again"
                )
                self._drop(len(self.done))
            except WorkloadError as error:
                raise WorkloadError(
                    f"{error}: what an earlier run has done is kept. See to it that it can be "
                    "read and run again, or give --restart to begin anew"
                ) from error

    def _is_there(self, number: int) -> bool:
        path = artifact_path(self._path(number), self._keyring)
        with reading_errors(path, "the part"):
            return path.exists()

    def _kept_job(self) -> dict[str, Any]:
        path, what = self.folder / _JOB, "the job of the kept parts"
        try:
            kept = read_json(path, what)
            if not isinstance(kept, dict):
                raise WorkloadError(f"{what} {path} isn't a JSON object")
            return cast("dict[str, Any]", kept)
        except WorkloadError as error:
            raise WorkloadError(
                f"{error}. Give --restart to begin anew, or another --output to keep what is there"
            ) from error

    def _drop(self, first: int) -> None:
        """Remove a part and those behind it, which would follow on what isn't there any more."""
        with storage_errors(self.folder):
            # The last goes first: what is behind a gap would follow on what fills it.
            for each in sorted(self.folder.glob("*.part*"), reverse=True):
                if int(each.name.partition(".")[0]) >= first:
                    self._remove(each)

    def add(self, done: Done, bad: bytes, results: bytes) -> None:
        """Keep a part for good.

        Raises:
            StorageFullError: no space; what was kept before stays.
        """
        about = json.dumps(asdict(done)).encode()
        data = _LENGTHS.pack(len(about), len(bad), len(results)) + about + bad + results
        number = len(self.done)
        write_artifact(self._path(number), data, self._keyring, self._context(number))
        self.done.append(done)

    def read(self, number: int) -> tuple[Done, bytes, bytes]:
        """A part: what it has, its bad rows, its results.

        Raises:
            IntegrityError: it isn't what was written.
        """
        data = read_artifact(self._path(number), self._keyring, self._context(number))
        try:
            about, bad, results = _LENGTHS.unpack_from(data)
            start = _LENGTHS.size
            if len(data) != start + about + bad + results:
                raise ValueError("cut short")  # which sealed ones say themselves
            done = Done(**json.loads(data[start : start + about]))
        except (struct.error, ValueError, TypeError) as error:
            raise IntegrityError(
                f"{self._path(number)} isn't what was written: give --restart to begin anew"
            ) from error
        return done, data[start + about : start + about + bad], data[start + about + bad :]

    def results(self) -> Iterator[bytes]:
        """The results of all parts, in order."""
        for number in range(len(self.done)):
            yield self.read(number)[2]

    def bad_rows(self) -> Iterator[bytes]:
        """The bad rows of all parts, in order."""
        for number in range(len(self.done)):
            yield self.read(number)[1]

    def sweep(self) -> None:
        """Remove what a run of this job left that was killed once its output was whole."""
        if not self.folder.is_dir() or self.folder.is_symlink():
            return
        if (self.folder / _JOB).exists() and not self.is_begun():
            return
        with self.opened(anew=True):
            self.discard()

    def discard(self) -> None:
        """Remove all parts, and their folder."""
        self._clear()
        with storage_errors(self.folder):
            self.folder.rmdir()

    def _clear(self) -> None:
        self.done.clear()
        with storage_errors(self.folder):
            # The job goes last: parts without it would be of nothing.
            for each in sorted(self.folder.iterdir(), key=lambda path: path.name == _JOB):
                self._remove(each)

    def _remove(self, path: Path) -> None:
        """Remove a file; what a plain run left is shredded where the output is sealed now."""
        if self._keyring is None or path.suffix == SEALED:
            path.unlink()
        else:
            shred(path)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:06d}.part"

    def _context(self, number: int) -> bytes:
        return f"batch:{self.identity}:part:{number}".encode()
