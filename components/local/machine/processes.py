"""Processes left behind by an interrupted deployment: found by pid file, verified, ended."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

from falaj.components.local.machine.errors import LocalError


def read_pid(path: Path) -> int | None:
    """The process id in a file; None when there is none."""
    try:
        pid = int(path.read_text(encoding="utf-8").split()[0])
    except (OSError, ValueError, IndexError):
        return None
    return pid if pid > 1 else None


def is_running(pid: int | None, words: Sequence[str]) -> bool:
    """Whether this process lives and its command line holds all of these words.

    The check of the command line keeps us from taking a stranger that got the same id for ours.
    """
    if pid is None:
        return False
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return False
        line = "\0".join(process.cmdline())
    except psutil.Error:
        return False
    return all(word in line for word in words)


def find(words: Sequence[str]) -> list[int]:
    """Processes of this user whose command line holds all of these words."""
    found: list[int] = []
    for process in psutil.process_iter(["pid", "uids"]):
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.uids().real == os.getuid():
                line = "\0".join(process.cmdline())
                if all(word in line for word in words):
                    found.append(process.pid)
    return found


def end(pid: int, words: Sequence[str], *, patience_s: float, group: bool = False) -> None:
    """End a process gracefully, by SIGTERM and then by SIGKILL; one that is gone is fine.

    Args:
        pid: the process; for `group` the leader of its process group.
        words: what its command line must hold; a stranger is left alone.
        patience_s: how long it may take to leave by itself, in seconds.
        group: signal the whole group.

    Raises:
        LocalError: it belongs to someone else, or doesn't end.
    """
    for number, limit in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
        if not is_running(pid, words):
            return
        try:
            if group:
                os.killpg(pid, number)
            else:
                os.kill(pid, number)
        except ProcessLookupError:
            return
        except PermissionError:
            raise LocalError(
                f"process {pid} ({' '.join(words)}) belongs to another user and can't be ended; "
                "end it and run again"
            ) from None
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            if not is_running(pid, words):
                return
            time.sleep(0.05)
    raise LocalError(f"process {pid} ({' '.join(words)}) doesn't end; end it and run again")
