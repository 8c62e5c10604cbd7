"""Publishes small packages, and runs the command as people type it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.command.__main__ import main
from falaj.workloads.registry import rotation
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.store import Store

MODEL = "credit"


class Publisher:
    """A site that publishes: its key ring, its registry's folder."""

    def __init__(self, root: Path) -> None:
        self.keyring = KeyRing.create(root / "keyring")
        self.store = Store(root / "registry", self.keyring)
        self.verify_key = str(self.keyring.path / "signing.pub.pem")

    def publish(self, run: str, content: bytes = b"weights", model: str = MODEL) -> int:
        """A version of two files, promoted; its number."""
        fields: dict[str, Any] = {
            "dataset": {"digest": "d" * 64},
            "lineage": {"run": run},
            "inputs": [],
            "outputs": [],
            "metrics": {"accuracy": 0.9},
        }
        files = {"model.onnx": content + run.encode(), "card.md": b"# credit\n"}
        done = self.store.publish(model, files, fields, self.keyring)
        self.store.promote(model, done.version)
        return done.version

    def package(self, version: int, model: str = MODEL) -> Package:
        return self.store.load(model, version, self.keyring, self.keyring.verify_key())

    def rotate(self) -> None:
        """Wrap every key anew, and forget what they were wrapped under."""
        rotation.rotate(self.keyring, [self.store.root])

    def push(self, registry: str, model: str = MODEL, *more: str) -> int:
        return run(
            "push", registry, model, "--from", str(self.store.root),
            "--keyring", str(self.keyring.path), *more,
        )  # fmt: skip

    def forget(self, version: int, model: str = MODEL) -> None:
        """Remove a version, and that its number was used."""
        shutil.rmtree(self.store.path(model, version))
        (self.store.root / model / "counter.json").unlink()


def run(*arguments: str) -> int:
    """``falaj models``; its exit status."""
    return main(["models", *arguments])


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    """The JSON that a command prints."""
    capsys.readouterr()
    assert run(*arguments, "--json") == status, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)
