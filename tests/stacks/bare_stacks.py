"""Stacks of which nothing is up, in the embedded backend of a home of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from falaj.engine.backend import OWN_BACKEND, OWN_PASSPHRASE
from falaj.stacks.command.project import Project, StackFile
from falaj.stacks.command.pulumi import Pulumi


def use_own_backend(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have nothing but a new home below the folder be used; that home."""
    for name in (*OWN_BACKEND, *OWN_PASSPHRASE):
        monkeypatch.delenv(name, raising=False)
    home = folder / "home"
    monkeypatch.setenv("FALAJ_HOME", str(home))
    return home


def bare_stack(folder: Path, name: str, project: str = "shop") -> Pulumi:
    """Write a project with a stack of one machine into the folder; the engine for it."""
    folder.mkdir(exist_ok=True)
    (folder / "Pulumi.yaml").write_text(f"name: {project}\nruntime: python\n")
    (folder / f"Pulumi.{name}.yaml").write_text("config:\n  falaj:platform: local\n")
    return Pulumi(StackFile(name, Project.find(folder)), plugins=False)
