"""The registry of a stack on this machine with two versions of a model, of which 2 serves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.command.project import Project, StackFile
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from tests.workloads.inference import models


def make_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **section: Any) -> Store:
    """Make it in a home of its own; ``section`` is what its server's settings have besides."""
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path))
    monkeypatch.delenv("PULUMI_STACK", raising=False)
    site = StackFile("local", Project.find(None)).site
    keyring = KeyRing.create(site / "keyring")
    found = Store(site / "registry", keyring)
    content = models.echo({"x": 1})
    for run in ("one", "two"):
        made = found.publish(
            "digits", {"model.onnx": content}, models.fields(content, run), keyring
        )
        found.promote("digits", made.version)
    folder = site / "service" / "digits"
    folder.mkdir(parents=True)
    document = {
        "registry": str(found.root), "keyring": str(site / "keyring"), "model": "digits",
        "alias": "production", "state": str(folder / "state.json"), **section,
    }  # fmt: skip
    (folder / "service.json").write_text(json.dumps(document))
    return found


def aliases_of(store: Store) -> dict[str, int]:
    """What each alias of the model stands for."""
    return {name: alias.version for name, alias in store.aliases("digits").items()}
