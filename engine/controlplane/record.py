"""What a control plane was asked for, and how it is: two JSON files in its folder."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import psutil

from falaj.engine.controlplane.processes import Files, write_private
from falaj.engine.errors import EngineError
from falaj.wire.documents import is_mapping

State = Literal["ready", "away", "failed"]
HOST = "falaj.engine.controlplane.host"


@dataclass(frozen=True)
class Settings:
    """What to run."""

    binaries: dict[str, str]
    """Folder of built commands by module."""
    lifeline: bool
    """Whether it ends with its caller."""
    controllers: tuple[str, ...] = ()
    webhooks: bool = True
    """Whether webhooks are called."""
    definitions: tuple[str, ...] = ()
    """Modules whose CRDs are installed."""
    controller_settings: dict[str, dict[str, Any]] = field(
        default_factory=dict[str, dict[str, Any]]
    )
    real: int = 0
    """How many real machines."""
    real_labels: dict[str, str] = field(default_factory=dict[str, str])
    """Of their nodes."""
    real_registry: str = ""
    """What the registry is called by images of the cluster's own; it answers to every name."""
    network: dict[str, str] | None = None
    """Names and addresses of the network that real machines need."""

    @staticmethod
    def path(files: Files) -> Path:
        """Where they are written."""
        return files.folder / "settings.json"

    def write(self, files: Files) -> None:
        """Write them into the folder."""
        write_private(self.path(files), asdict(self))

    @classmethod
    def read(cls, files: Files) -> Self:
        """Read them. Raises EngineError when they are not there or damaged."""
        return cls(**_load(cls.path(files), cls.__dataclass_fields__))


@dataclass(frozen=True)
class Record:
    """How it is: the host's process, its state, why it failed, and the processes by name.

    `away`: its processes were killed, and its data waits for them.
    """

    pid: int
    state: State
    reason: str = ""
    processes: dict[str, int] = field(default_factory=dict[str, int])
    registry: str = ""
    """Address of the registry that real machines get images from, as it is reached from here."""

    @staticmethod
    def path(files: Files) -> Path:
        """Where it is written, once the control plane is ready or has failed."""
        return files.folder / "state.json"

    def write(self, files: Files) -> None:
        """Write it whole or not at all."""
        write_private(self.path(files), asdict(self))

    @classmethod
    def read(cls, files: Files) -> Self | None:
        """Read it; None when there is none. Raises EngineError when it is damaged."""
        if not cls.path(files).exists():
            return None
        return cls(**_load(cls.path(files), cls.__dataclass_fields__))

    @property
    def is_running(self) -> bool:
        """Whether its host lives: a process of that number that is one."""
        try:
            process = psutil.Process(self.pid)
            return process.status() != psutil.STATUS_ZOMBIE and HOST in process.cmdline()
        except psutil.Error:
            return False


def _load(path: Path, fields: Collection[str]) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} can't be read ({error}); run `falaj cluster down`") from error
    if not is_mapping(found) or set(found) != set(fields):
        raise EngineError(f"{path} is not of this version; run `falaj cluster down`")
    return found
