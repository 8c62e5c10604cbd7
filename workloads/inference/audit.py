"""Verifying the audit log: the chain of its records, and the access lines that they cover."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson

from falaj.workloads.errors import IntegrityError
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.logs import ACCESS, ACCESS_KEPT, GENESIS, audit_files


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


def words(report: dict[str, Any]) -> str:
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
    return record if isinstance(record, dict) and "hash" in record else None


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
