"""Clear the locks of engines that were killed before they could.

Pulumi's file backend locks a stack with a file `.pulumi/locks/…/<stack>/<uuid>.json` that names
the process, the host and the time (pulumi/pulumi, pkg/backend/diy/lock.go). An engine that was
killed leaves it behind, and every later operation is refused.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil

from falaj.engine.errors import explain_os_error
from falaj.engine.progress import Report, to_stderr

CLOCK_SLACK_SECONDS = 10.0
"""A lock is written right after its process starts; clocks may be set back a little in between."""


@dataclass(frozen=True)
class Lock:
    """What a lock file says: `written` is seconds since the epoch."""

    pid: int
    host: str
    written: float

    @classmethod
    def parse(cls, text: str) -> Lock:
        """Read a lock file's content; ValueError when it is anything else."""
        try:
            data = json.loads(text)
            written = datetime.fromisoformat(data["timestamp"]).timestamp()
            pid, host = data["pid"], data["hostname"]
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ValueError(f"not a lock: {error}") from error
        if (
            isinstance(pid, bool)
            or not isinstance(pid, int)
            or pid <= 0
            or not isinstance(host, str)
        ):
            raise ValueError("not a lock: no process or host")
        return cls(pid, host, written)

    def is_stale(self) -> bool:
        """Whether its process, on this host, is certainly gone; a doubt means no."""
        if not self.host or self.host != socket.gethostname():
            return False
        try:
            process = psutil.Process(self.pid)
            # The same number, but started after the lock was written: another process. One that
            # ended but was not yet waited for does nothing any more.
            later = process.create_time() > self.written + CLOCK_SLACK_SECONDS
            return later or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return True
        except psutil.Error:
            return False


def clear_stale_locks(backend_url: str, report: Report = to_stderr) -> int:
    """Remove the locks below a `file://` backend whose process is gone; return how many.

    Other backends are left alone, and so is every lock of a living process, of another host, or
    that cannot be read. Raises EngineError when a stale lock cannot be removed.
    """
    folder = _lock_folder(backend_url)
    if folder is None:
        return 0
    cleared = 0
    try:
        for path in sorted(folder.rglob("*.json")):
            try:
                lock = Lock.parse(path.read_text(encoding="utf-8"))
            except (ValueError, FileNotFoundError):
                continue
            if lock.is_stale():
                path.unlink(missing_ok=True)
                stack = path.parent.relative_to(folder).as_posix()
                report(
                    f"removed the lock that a killed pulumi (process {lock.pid}) left on {stack}"
                )
                cleared += 1
    except OSError as error:
        raise explain_os_error(error, f"clearing stale locks in {folder}") from error
    return cleared


def _lock_folder(backend_url: str) -> Path | None:
    parts = urlsplit(backend_url)
    if parts.scheme != "file":
        return None
    # Pulumi takes file://~ as the home folder, and anything else as a path.
    path = Path(os.path.expanduser(unquote(parts.netloc + parts.path)))  # noqa: PTH111
    return path / ".pulumi" / "locks"
