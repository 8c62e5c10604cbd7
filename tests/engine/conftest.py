"""A throw-away Pulumi project with its own backend, for tests with the real engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.install import Engine, ensure_engine
from falaj.engine.launch import additions

DATA = Path(__file__).with_name("data")

PROGRAM = """
import pulumi

class Note(pulumi.CustomResource):
    def __init__(self, name, text, place="here"):
        super().__init__("tiny:index:Note", name, {"text": text, "place": place})

config = pulumi.Config()
Note("note", config.get("text") or "hello", config.get("place") or "here")
pulumi.export("project", pulumi.get_project())
"""


def write_program(folder: Path, text: str) -> None:
    """Write a program, and forget what an earlier one of this second and this length became."""
    shutil.rmtree(folder / "__pycache__", ignore_errors=True)
    (folder / "__main__.py").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class Project:
    """A project in `folder` with the stack `dev`; `log` is what the provider wrote."""

    folder: Path
    env: dict[str, str]
    executable: Path

    def start(self, *args: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [str(self.executable), *args, "--non-interactive", "--color=never"],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, *args: str, code: int | None = 0) -> str:
        """What `pulumi ARGS` prints; `code` is the exit code to expect (None: any but 0)."""
        process = self.start(*args)
        output, _ = process.communicate(timeout=120)
        if code is None:
            assert process.returncode != 0, output
        else:
            assert process.returncode == code, output
        return output

    def config(self, **values: str) -> None:
        for name, value in values.items():
            self.run("config", "set", name, value, "-s", "dev")

    def program(self, text: str) -> None:
        write_program(self.folder, text)

    def events(self) -> list[dict[str, Any]]:
        path = Path(self.env["TINY_LOG"])
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        return [json.loads(line) for line in text.splitlines()]

    def event_names(self) -> list[str]:
        """What was done, in order; without "cancel", which the engine also says at its end."""
        return [event["event"] for event in self.events() if event["event"] != "cancel"]


@pytest.fixture(scope="session")
def engine() -> Engine:
    """The engine of this machine, got as `make up` gets it."""
    return ensure_engine()


@pytest.fixture
def project(tmp_path: Path, engine: Engine) -> Project:
    """A project with a provider by path, a virtual environment and an empty stack `dev`."""
    base = {key: value for key, value in os.environ.items() if not key.startswith("PULUMI_")}
    base |= {
        "FALAJ_HOME": str(tmp_path / "data"),
        "PULUMI_HOME": str(tmp_path / "pulumi"),
        "TINY_LOG": str(tmp_path / "tiny.jsonl"),
    }
    folder = tmp_path / "project"
    folder.mkdir()
    # Relative, as people write it: it is looked up from the folder of Pulumi.yaml.
    (folder / "environment").symlink_to(sys.prefix)
    (folder / "Pulumi.yaml").write_text(
        "name: tiny\n"
        "runtime: {name: python, options: {virtualenv: environment}}\n"
        f"plugins: {{providers: [{{name: tiny, path: {DATA / 'provider'}}}]}}\n",
        encoding="utf-8",
    )
    made = Project(folder, {**base, **additions(engine, base)}, engine.path)
    made.program(PROGRAM)
    made.run("stack", "init", "dev")
    return made
