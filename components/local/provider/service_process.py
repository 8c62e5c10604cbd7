"""An inference service as it is on the machine: its files, its process, what it says of itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.components.local.machine import files, processes
from falaj.components.local.provider import workloads
from falaj.components.local.provider.site import Site
from falaj.components.local.supervision.program import Program

#: Time beyond the drain in which the master ends its workers and leaves.
_LEAVE_S: Final = 10


@dataclass(frozen=True)
class ServiceFiles:
    """Where the files of a service are.

    Attributes:
        folder: the service's own folder.
    """

    folder: Path

    @property
    def config(self) -> Path:
        """What the server reads."""
        return self.folder / "service.json"

    @property
    def state(self) -> Path:
        """What the server says of itself."""
        return self.folder / "state.json"

    @property
    def logs(self) -> Path:
        """Folder of its logs."""
        return self.folder / "logs"

    def read_config(self) -> dict[str, Any]:
        """The configuration as written; empty when there is none."""
        return files.read_json(self.config) or {}

    def read_state(self) -> dict[str, Any]:
        """What the server last said; empty when it never did."""
        return files.read_json(self.state) or {}

    def master(self) -> int | None:
        """Process id of the server, if it lives."""
        pid = self.read_state().get("pid")
        found = pid if isinstance(pid, int) else None
        return found if processes.is_running(found, self.process_marks) else None

    @property
    def process_marks(self) -> tuple[str, ...]:
        """What the server's command line holds."""
        return ("falaj.workloads.inference", "serve", str(self.config))

    def program(self) -> Program:
        """What the supervisor is to keep running."""
        limits = self.read_config().get("limits")
        drain = limits.get("drain_seconds", 10) if isinstance(limits, Mapping) else 10
        command = (sys.executable, "-P", "-m", "falaj.workloads.inference", "serve", "--config")
        return Program(
            name=self.folder.name,
            folder=self.folder,
            command=(*command, str(self.config)),
            directory=self.folder,
            stop_seconds=int(drain) + _LEAVE_S,
            process_marks=self.process_marks,
            environment=workloads.environment(),
        )


def services(site: Site) -> list[ServiceFiles]:
    """Every service that has a folder in the site."""
    if not site.services.is_dir():
        return []
    return [ServiceFiles(folder) for folder in sorted(site.services.iterdir()) if folder.is_dir()]
