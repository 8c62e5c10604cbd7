"""Have the control plane's binaries: built once from pinned Go modules into the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from engine.errors import EngineError, explain_os_error
from engine.exclusive import exclusive
from engine.folders import cache_home
from engine.gobuild import GoModule, compile_commands
from engine.progress import Report, to_stderr
from engine.versions import Version

MODULES = Path(__file__).with_name("modules")
CORE = "kubernetes"
#: The Go release that the modules' `go` lines ask for.
TOOLCHAIN = Version(1, 26, 0)
_TEMPORARY = "unfinished-"


@dataclass(frozen=True)
class Built:
    """A module that commands are built from."""

    name: str
    version: str
    what: str
    commands: dict[str, str]
    variables: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def module(self) -> GoModule:
        """The Go module that pins it."""
        return GoModule(
            MODULES / self.name, f"{self.what} {self.version}", TOOLCHAIN, self.variables
        )

    @property
    def home(self) -> Path:
        """Its folder in the user's cache: another one for every change of what is pinned."""
        digest = hashlib.sha256(repr((self.commands, self.variables)).encode())
        for name in ("go.mod", "go.sum"):
            digest.update((MODULES / self.name / name).read_bytes())
        key = f"{self.name}-{self.version}-{digest.hexdigest()[:12]}"
        return cache_home() / "controlplane" / key

    @property
    def is_there(self) -> bool:
        """Whether it was built: its folder appears whole or not at all."""
        return all(os.access(self.home / name, os.X_OK) for name in self.commands)


@cache
def built() -> dict[str, Built]:
    """Everything that can be built, by name."""
    rows: dict[str, dict[str, Any]] = yaml.safe_load(
        (MODULES / "modules.yaml").read_text(encoding="utf-8")
    )
    return {name: Built(name, **row) for name, row in rows.items()}


def ensure(names: Sequence[str], report: Report = to_stderr) -> dict[str, str]:
    """Build what is not there yet; return the folder of commands of each name.

    Two runs at once build once, and an interrupted one leaves nothing that looks built.
    Raises EngineError: an unknown name, no usable Go, modules that cannot be had, a compilation
    that fails.
    """
    known = built()
    if unknown := [name for name in names if name not in known]:
        raise EngineError(
            f"no {', '.join(unknown)} can be run beside the control plane; known are "
            f"{', '.join(name for name in known if name != CORE)}"
        )
    for each in (known[name] for name in names):
        if each.is_there:
            continue
        try:
            with exclusive(each.home.with_name(f"{each.home.name}.lock"), report, each.what):
                if not each.is_there:
                    _build(each, report)
        except OSError as error:
            raise explain_os_error(error, f"building {each.what} into {each.home}") from error
    return {name: str(known[name].home) for name in names}


def _build(each: Built, report: Report) -> None:
    for left in each.home.parent.glob(f"{_TEMPORARY}{each.name}-*"):  # the lock is ours
        shutil.rmtree(left, ignore_errors=True)
    shutil.rmtree(each.home, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f"{_TEMPORARY}{each.name}-", dir=each.home.parent))
    try:
        commands = work / "commands"
        commands.mkdir()
        compile_commands(each.module, each.commands, commands, report)
        commands.rename(each.home)
    finally:
        shutil.rmtree(work, ignore_errors=True)
