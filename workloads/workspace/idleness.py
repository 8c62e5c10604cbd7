"""When a workspace ends: nobody uses it, or it has run for as long as it may.

Jupyter Server's own settings don't say this. ``ServerApp.shutdown_no_activity_timeout`` counts any
request as activity, so that a browser's tab which polls keeps a server for ever, and it waits
while a kernel or terminal is there; ``TerminalManager`` counts what a terminal prints. Here
counts what a person does: code that runs in a kernel, input of a terminal, a document saved.
Source: jupyter_server 2.21.1, `ServerApp.shutdown_no_activity` and `last_activity` of its web
application; jupyter_server_terminals 0.5.4, `TerminalManager.pre_pty_read_hook`.

Who has the workspace can write a program that looks like use, or change this process, which runs
as the same user. What holds then is the pod's deadline (``activeDeadlineSeconds``), which the
kubelet enforces and which nobody can raise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

BUSY = "busy"
"""State of a kernel that runs something:
https://jupyter-client.readthedocs.io/en/stable/messaging.html#kernel-status"""


@dataclass(frozen=True)
class Kernel:
    """What is known of a kernel."""

    state: str
    last_used: datetime
    """When it last ran something."""


@dataclass(frozen=True)
class Limits:
    """How long a server may be there."""

    idle_seconds: float
    """Unused."""
    most_seconds: float
    """At all, used or not."""


def end_reason(
    limits: Limits,
    started: datetime,
    now: datetime,
    kernels: Iterable[Kernel],
    uses: Iterable[datetime],
) -> str:
    """Why the server has to end now; empty where it may go on.

    Args:
        limits: how long it may be there.
        started: when it started, which counts as a use.
        now: the time.
        kernels: those that are there.
        uses: when terminals had input and documents were saved.
    """
    if (now - started).total_seconds() >= limits.most_seconds:
        return f"it has run for {_time(limits.most_seconds)}, which is the most"
    there = list(kernels)
    if any(each.state == BUSY for each in there):
        return ""
    last = max([started, *uses, *(each.last_used for each in there)])
    if (now - last).total_seconds() >= limits.idle_seconds:
        return f"nobody used it for {_time(limits.idle_seconds)}"
    return ""


def _time(seconds: float) -> str:
    return f"{seconds / 3600:g} hours" if seconds >= 7200 else f"{seconds / 60:g} minutes"
