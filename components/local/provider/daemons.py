"""Programs of a site that supervisors keep running beside its services: their files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from falaj.components.local import machine, supervision
from falaj.components.local.provider import workloads
from falaj.components.local.provider.handler import Context, Site
from falaj.components.local.supervision import Program, Supervisor
from falaj.wire.documents import is_sequence


def say_what_ends_it(context: Context, supervisor: Supervisor) -> None:
    """Say so where what is kept running ends with the user's session."""
    if supervisor.kind == "systemd" and not supervision.survives_logout():
        context.say("it ends when you log out; `loginctl enable-linger` keeps it running")


@dataclass(frozen=True)
class DaemonFiles:
    """Where the files of a daemon are.

    Attributes:
        folder: the daemon's own folder.
    """

    folder: Path

    @property
    def record(self) -> Path:
        """What is to run, for whoever has to end it."""
        return self.folder / "daemon.json"

    @property
    def log(self) -> Path:
        """What it prints."""
        return self.folder / "logs" / f"{self.folder.name}.log"

    def write(self, command: tuple[str, ...], stop_seconds: int) -> None:
        """Note what is to run.

        Raises:
            LocalError: it can't be written.
        """
        machine.make_folder(self.folder)
        machine.write_json(self.record, {"command": list(command), "stopSeconds": stop_seconds})

    def program(self) -> Program:
        """What the supervisor is to keep running, as it was noted."""
        found = machine.read_json(self.record) or {}
        listed = found.get("command")
        command = tuple(map(str, listed)) if is_sequence(listed) else ()
        return Program(
            name=self.folder.name,
            folder=self.folder,
            command=command,
            directory=self.folder,
            stop_seconds=int(found.get("stopSeconds") or 0),
            # The whole line: parts of it are parts of others' as well.
            process_marks=("\0".join(command) or str(self.folder),),
            environment=workloads.environment(),
            log_name=self.log.name,
        )


def daemons(site: Site) -> list[DaemonFiles]:
    """Every daemon that has a folder in the site."""
    if not site.daemons.is_dir():
        return []
    return [DaemonFiles(each) for each in sorted(site.daemons.iterdir()) if each.is_dir()]
