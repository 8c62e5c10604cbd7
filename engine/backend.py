"""Pulumi's backend on this disk: where state is, how secrets are encrypted, stale locks.

All of it unless the person decided otherwise.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import psutil

from falaj.engine.errors import EngineError, explain_os_error
from falaj.engine.files import data_home, make_private
from falaj.engine.progress import Report, to_stderr

OWN_BACKEND = ("PULUMI_BACKEND_URL", "PULUMI_ACCESS_TOKEN")
"""A person who set one of these chose their own backend."""
OWN_PASSPHRASE = ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE")

PASSPHRASE_BYTES = 32


def ensure_backend(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that name the backend and the passphrase file, both made on first use.

    Empty where the person chose their own backend by PULUMI_BACKEND_URL or PULUMI_ACCESS_TOKEN:
    its secrets are theirs as well. Without PULUMI_CONFIG_PASSPHRASE_FILE where they gave a
    passphrase. The passphrase itself is never returned: 256 random bits in a file of mode 0600.
    Raises EngineError when the data folder cannot be used.
    """
    given = os.environ if environ is None else environ
    if any(name in given for name in OWN_BACKEND):
        return {}
    home = data_home(given)
    try:
        make_private(home)
        folder = make_private(home / "backend")
        found = {"PULUMI_BACKEND_URL": folder.as_uri()}
        if not any(name in given for name in OWN_PASSPHRASE):
            found["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(ensure_passphrase(home / "passphrase"))
    except OSError as error:
        raise explain_os_error(error, f"preparing the backend in {home}") from error
    return found


def ensure_passphrase(path: Path) -> Path:
    """Make the passphrase file unless it is there; of two runs at once, one file wins whole."""
    if path.exists():
        _check_passphrase(path)
        return path
    handle, temporary = tempfile.mkstemp(prefix=".passphrase-", dir=path.parent)  # mode 0600
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(secrets.token_urlsafe(PASSPHRASE_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(temporary, path)  # unlike a rename, never replaces one that is in use
        except FileExistsError:
            _check_passphrase(path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def _check_passphrase(path: Path) -> None:
    if not path.is_file() or path.stat().st_size == 0:
        raise EngineError(
            f"{path} should hold the passphrase of your stacks, but is empty or no file; "
            "restore it from a backup, or remove it if you have no stacks yet"
        )
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


# Clear the locks of engines that were killed before they could.
#
# Pulumi's file backend locks a stack with a file `.pulumi/locks/…/<stack>/<uuid>.json` that names
# the process, the host and the time (pulumi/pulumi, pkg/backend/diy/lock.go). An engine that was
# killed leaves it behind, and every later operation is refused.

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


def is_locked(backend_url: str, project: str, stack: str) -> bool:
    """Whether a run works on a stack of a `file://` backend; of others nobody knows, so no.

    What isn't a lock, or is one of a killed engine, counts for nothing.
    """
    folder = _lock_folder(backend_url)
    if folder is None:
        return False
    for path in sorted(folder.glob(f"*/{project}/{stack}/*.json")):
        try:
            lock = Lock.parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if not lock.is_stale():
            return True
    return False


def salt_of(backend_url: str, project: str, stack: str) -> str | None:
    """The salt of the passphrase that a stack's state in a `file://` backend is encrypted with.

    None where the state has none, or can't be read here.
    """
    folder = _folder(backend_url)
    if folder is None:
        return None
    try:
        text = (folder / "stacks" / project / f"{stack}.json").read_text(encoding="utf-8")
        found: Any = json.loads(text)["checkpoint"]["latest"]["secrets_providers"]["state"]["salt"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, str) else None


def _lock_folder(backend_url: str) -> Path | None:
    folder = _folder(backend_url)
    return folder / "locks" if folder is not None else None


def _folder(backend_url: str) -> Path | None:
    parts = urlsplit(backend_url)
    if parts.scheme != "file":
        return None
    # Pulumi takes file://~ as the home folder, and anything else as a path.
    path = Path(os.path.expanduser(unquote(parts.netloc + parts.path)))  # noqa: PTH111
    return path / ".pulumi"
