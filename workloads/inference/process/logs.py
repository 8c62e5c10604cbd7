"""The access log and the hash-chained audit log, written by the master alone, and its check.

`access.jsonl` has a line per request. `audit.jsonl` has a record per event (start, version,
reload, refused callers) and per batch of access lines, which it covers by their SHA-256: a
changed, added or missing access line, or audit record, breaks the chain (see `verify`).
Nothing here may stop the server: what can't be written is counted, told once, and noted in the
audit log as soon as the disk takes it again.
"""

from __future__ import annotations

import hashlib
import os
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from falaj.workloads.documents import is_dictionary
from falaj.workloads.errors import IntegrityError
from falaj.workloads.files import make_private_folder
from falaj.workloads.inference.errors import InferenceError

ACCESS = "access.jsonl"
AUDIT = "audit.jsonl"
ACCESS_BYTES = 128 * 1024 * 1024
ACCESS_KEPT = 4
"""Older access files than this are removed: at most 5 x 128 MiB of the disk."""
AUDIT_BYTES = 64 * 1024 * 1024
"""Then the file is set aside under the number of its last record; none is ever removed."""
GENESIS = "0" * 64
_TAIL_BYTES = 1024 * 1024


class LineFile:
    """A file that only grows: whole lines or nothing, and no exception when the disk is full."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.dropped = 0
        self._descriptor = -1
        self._told = False

    def append(self, lines: bytes, *, sync: bool = False) -> bool:
        """Append lines in one write; tell whether they are in the file."""
        start = -1
        try:
            if self._descriptor < 0:
                flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._descriptor = os.open(self.path, flags, 0o600)
            start = os.fstat(self._descriptor).st_size
            view = memoryview(lines)
            while view:
                view = view[os.write(self._descriptor, view) :]
            if sync:
                os.fdatasync(self._descriptor)
        except OSError as error:
            self.dropped += lines.count(b"\n")
            self._undo(start)
            if not self._told:
                self._told = True
                print(
                    f"warning: can't write {self.path}: {error.strerror}; serving goes on, lines "
                    "are dropped and counted until it can be written again",
                    file=sys.stderr,
                    flush=True,
                )
            return False
        self._told = False
        return True

    def _undo(self, size: int) -> None:
        if self._descriptor < 0:
            return
        try:
            if size >= 0:
                os.ftruncate(self._descriptor, size)
        except OSError:
            # Opened anew for the next lines; a torn line is what `audit.verify` tolerates least,
            # so it must not be hidden either.
            self.close()

    def size(self) -> int:
        """Return the file's size in bytes."""
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Logs:
    """Both logs of a service in its folder (mode 0700).

    Raises:
        WorkloadError: the folder can't be made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = make_private_folder(folder)
        self._access = LineFile(folder / ACCESS)
        self._audit = LineFile(folder / AUDIT)
        self._sequence, self._previous, torn = _last_record(folder)
        self._told_dropped = 0
        if torn:
            # Ends a line that a power cut left half written.
            self._audit.append(b"\n")
            self.event("recovered", reason="the last record was cut short")

    @property
    def dropped(self) -> int:
        """Lines lost because they could not be written."""
        return self._access.dropped + self._audit.dropped

    def access(self, lines: bytes, **fields: Any) -> None:
        """Append access lines, and their digest with ``fields`` to the audit log."""
        if self._access.size() > ACCESS_BYTES:
            self._rotate_access()
        written = bool(lines) and self._access.append(lines)
        if written:
            fields |= {
                "lines": lines.count(b"\n"),
                "bytes": len(lines),
                "sha256": hashlib.sha256(lines).hexdigest(),
            }
        self.event("requests", **fields)

    def event(self, name: str, **fields: Any) -> None:
        """Append one record to the audit log."""
        if self._told_dropped != (dropped := self.dropped):
            fields["dropped_lines"] = dropped - self._told_dropped
        record = {
            "sequence": self._sequence + 1,
            "time": datetime.now(UTC).isoformat(timespec="microseconds"),
            "event": name,
            **fields,
            "previous": self._previous,
        }
        line = seal(record)
        if self._audit.append(line + b"\n", sync=True):
            self._sequence += 1
            self._previous = str(orjson.loads(line)["hash"])
            self._told_dropped = dropped
        if self._audit.size() > AUDIT_BYTES:
            self._set_audit_aside()

    def _rotate_access(self) -> None:
        self._access.close()
        try:
            for number in range(ACCESS_KEPT, 0, -1):
                newer = f"{ACCESS}.{number - 1}" if number > 1 else ACCESS
                source = self.folder / newer
                if source.exists():
                    source.replace(self.folder / f"{ACCESS}.{number}")
        except OSError as error:
            print(f"warning: can't rotate {ACCESS}: {error.strerror}", file=sys.stderr, flush=True)

    def _set_audit_aside(self) -> None:
        self._audit.close()
        try:
            self._audit.path.replace(self.folder / f"audit-{self._sequence:012d}.jsonl")
        except OSError as error:
            print(f"warning: can't rotate {AUDIT}: {error.strerror}", file=sys.stderr, flush=True)

    def close(self) -> None:
        """Close the files."""
        self._access.close()
        self._audit.close()


def seal(record: dict[str, Any]) -> bytes:
    """Return the record as a line with its own hash: SHA-256 over the line without it."""
    body = orjson.dumps(record)
    digest = hashlib.sha256(body).hexdigest()
    return body[:-1] + b',"hash":"' + digest.encode() + b'"}'


def audit_files(folder: Path) -> list[Path]:
    """Return the audit files in the order of their records."""
    files = sorted(folder.glob("audit-*.jsonl"))
    current = folder / AUDIT
    return [*files, current] if current.exists() else files


def _last_record(folder: Path) -> tuple[int, str, bool]:
    """Return the last record's number and hash, and whether the file ends within a line."""
    for index, path in enumerate(reversed(audit_files(folder))):
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            tail = file.read()
        torn = index == 0 and bool(tail) and not tail.endswith(b"\n")
        for line in reversed(tail.split(b"\n")):
            try:
                record = orjson.loads(line)
                return int(record["sequence"]), str(record["hash"]), torn
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
                continue
    return 0, GENESIS, False


def verify(folder: Path) -> dict[str, Any]:
    """Check every record of the audit log, oldest first, and every access line still there.

    Access files are rotated and the oldest removed: batches before the first one that is still
    there are counted as removed. Returns counts: records, access_lines, removed_lines.

    Raises:
        InferenceError: there is no audit log, or it can't be read.
        IntegrityError: a record or an access line was changed, added or taken out.
    """
    files = audit_files(folder)
    if not files:
        raise InferenceError(f"there is no audit log in {folder}")
    previous, sequence = GENESIS, 0
    batches: list[dict[str, Any]] = []
    torn: str | None = None
    for path in files:
        try:
            lines = path.read_bytes().splitlines()
        except OSError as error:
            raise InferenceError(f"can't read {path}: {error.strerror}") from error
        for number, line in enumerate(lines, 1):
            where = f"{path.name} line {number}"
            record = _record(line)
            if record is None:
                # A line that a power cut left half written is followed by its explanation.
                torn = where
                continue
            if torn is not None and record.get("event") != "recovered":
                raise IntegrityError(f"{torn} is not a record of the audit log")
            torn = None
            _check_link(record, line, previous, sequence, where)
            previous, sequence = str(record["hash"]), int(record["sequence"])
            if "sha256" in record:
                batches.append(record)
    if torn is not None:
        raise IntegrityError(f"{torn} is not a record of the audit log")
    covered, removed = _check_access(folder, batches)
    return {"records": sequence, "access_lines": covered, "removed_lines": removed}


def format_report(report: dict[str, Any]) -> str:
    """Return the report of `verify` as a sentence."""
    return (
        f"intact: {report['records']} audit records cover {report['access_lines']} access lines "
        f"({report['removed_lines']} older lines were rotated away)"
    )


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        record = orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
    return record if is_dictionary(record) and "hash" in record else None


def _check_link(
    record: dict[str, Any], line: bytes, previous: str, sequence: int, where: str
) -> None:
    body, _, rest = line.rpartition(b',"hash":"')
    digest = hashlib.sha256(body + b"}").hexdigest()
    if rest != digest.encode() + b'"}':
        raise IntegrityError(f"{where} was changed: its hash doesn't fit its content")
    if record.get("previous") != previous or record.get("sequence") != sequence + 1:
        raise IntegrityError(f"{where} doesn't follow the record before it: one is missing or new")


def _check_access(folder: Path, batches: list[dict[str, Any]]) -> tuple[int, int]:
    """Compare the access files with the batches' digests, newest first."""
    names = [f"{ACCESS}.{number}" for number in range(ACCESS_KEPT, 0, -1)] + [ACCESS]
    content = b"".join((folder / name).read_bytes() for name in names if (folder / name).exists())
    end = len(content)
    covered = removed = 0
    for batch in reversed(batches):
        size = int(batch["bytes"])
        if end == 0:
            removed += int(batch["lines"])
            continue
        part = content[max(0, end - size) : end]
        if hashlib.sha256(part).hexdigest() != batch["sha256"]:
            raise IntegrityError(
                f"the access lines of audit record {batch['sequence']} ({batch['time']}) were "
                "changed, or lines stand among them that the server didn't write"
            )
        covered += int(batch["lines"])
        end -= size
    if end:
        raise IntegrityError(f"{end} bytes of access lines are covered by no audit record")
    return covered, removed
