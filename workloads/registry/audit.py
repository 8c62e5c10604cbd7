"""The registry's log of changes: JSON lines, each holding the digest of the line before it.

A line that was changed, removed from the middle or inserted breaks the chain. Cutting off the end
isn't seen by the file alone: copy the last digest elsewhere to see that too.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from falaj.workloads.errors import IntegrityError
from falaj.workloads.files import PRIVATE_FILE, locked, read_bytes, storage_errors

AUDIT = "audit.jsonl"
FIRST = "0" * 64
"""What the first line gives as the digest before it."""


def append(root: Path, action: str, details: Mapping[str, Any]) -> None:
    """Append one line to ``<root>/audit.jsonl`` and force it to the disk.

    Args:
        root: the registry's folder, which exists.
        action: "publish", "promote", "rollback" or "prune".
        details: plain JSON values; ``time``, ``user`` and ``previous_digest`` are added.

    Raises:
        StorageFullError: no space; the log is as it was.
    """
    path = root / AUDIT
    with locked(root / ".audit.lock"), storage_errors(path):
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, PRIVATE_FILE)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            lines = file.read().splitlines(keepends=True)
            # A write that a power cut ended halfway never counted: its change was not made.
            if lines and not lines[-1].endswith(b"\n"):
                lines.pop()
            size = sum(map(len, lines))
            event = {
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "user": _user(),
                "action": action,
                **details,
                "previous_digest": hashlib.sha256(lines[-1]).hexdigest() if lines else FIRST,
            }
            text = json.dumps(event, separators=(",", ":"), ensure_ascii=False) + "\n"
            _write(file.fileno(), size, text.encode())


def read(root: Path) -> list[dict[str, Any]]:
    """Return the events, oldest first, after checking the chain; none if there is no log yet.

    Raises:
        IntegrityError: a line was changed, removed or added.
    """
    path = root / AUDIT
    if not path.exists():
        return []
    events: list[dict[str, Any]] = []
    previous = FIRST
    for number, line in enumerate(read_bytes(path, "the audit log").splitlines(keepends=True), 1):
        try:
            event: Any = json.loads(line)
            fits = line.endswith(b"\n") and event["previous_digest"] == previous
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise IntegrityError(f"line {number} of {path} isn't an event: {error!r}") from error
        if not fits:
            message = f"line {number} of {path} doesn't follow from the line before it"
            raise IntegrityError(f"{message}: the log was changed")
        previous = hashlib.sha256(line).hexdigest()
        events.append(event)
    return events


def _write(descriptor: int, size: int, line: bytes) -> None:
    """Put ``line`` at offset ``size``, wholly or not at all."""
    try:
        os.ftruncate(descriptor, size)
        written = 0
        while written < len(line):
            written += os.pwrite(descriptor, line[written:], size + written)
        os.fsync(descriptor)
    except OSError:
        os.ftruncate(descriptor, size)
        raise


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in containers
        return str(os.getuid())
