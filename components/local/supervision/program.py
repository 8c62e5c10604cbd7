"""What a supervisor keeps running, and what it can say about it."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from falaj.components.local.machine import processes

_LAUNCHER: Final = Path(__file__).with_name("launch.py")

REFUSED: Final = 2
"""Exit status of a program that can't work with what it was given: it is not started again."""


@dataclass(frozen=True)
class Program:
    """A program that is to be kept running.

    Attributes:
        name: short name; with `folder` it is unique on the machine.
        folder: where the supervisor keeps its own files; private to the program.
        command: absolute executable and arguments; never a secret.
        directory: working directory.
        stop_seconds: how long it may take to leave after SIGTERM.
        process_marks: what the command line of its process holds, by which it is recognised.
        environment: environment of the process.
    """

    name: str
    folder: Path
    command: tuple[str, ...]
    directory: Path
    stop_seconds: int
    process_marks: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def files(self) -> Path:
        """Folder of the supervisor's own files."""
        return self.folder / "supervisor"

    @property
    def label(self) -> str:
        """A name that no other program of the machine has."""
        digest = hashlib.sha256(str(self.folder).encode()).hexdigest()[:8]
        return f"falaj-{digest}-{self.name}"

    @property
    def throttled_command(self) -> tuple[str, ...]:
        """The command behind the launcher that slows down repeated failures."""
        starts = str(self.files / "starts")
        return (sys.executable, "-I", str(_LAUNCHER), starts, *self.command)

    def end_orphans(self) -> None:
        """End processes of this program that no supervisor looks after any more.

        Raises:
            LocalError: one doesn't end.
        """
        for pid in processes.find(self.process_marks):
            processes.end(pid, self.process_marks, patience_s=self.stop_seconds)


@dataclass(frozen=True)
class Status:
    """What a supervisor says about a program.

    Attributes:
        running: whether the process is there (or is about to be started again).
        pid: its process id, if it is there.
        exit_status: with which status it ended, if it did and stays so.
        detail: in words.
    """

    running: bool
    pid: int | None = None
    exit_status: int | None = None
    detail: str = ""


class Supervisor(Protocol):
    """Keeps programs running: starts them again when they end, but not after exit status 2."""

    kind: str

    def start(self, program: Program) -> None:
        """Keep a program running from now on; one that runs already with these settings stays.

        Raises:
            LocalError: it can't be started.
        """
        ...

    def restart(self, program: Program) -> None:
        """Stop the program and start it again.

        Raises:
            LocalError: it can't be stopped or started.
        """
        ...

    def status(self, program: Program) -> Status:
        """What is true now; never raises for a supervisor that is gone."""
        ...

    def remove(self, program: Program) -> None:
        """Stop the program and forget it; nothing of either is left, and gone is fine.

        Raises:
            LocalError: it can't be stopped.
        """
        ...
