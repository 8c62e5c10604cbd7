"""A copy of the project with a home of its own, in which whole stacks are brought up and down."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
#: Commands that leave a stack as it is.
LOOKING = ("demo", "publish", "models", "status", "preview", "token", "unseal")


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 60) -> Any:
    """Poll until the condition holds; fails with ``what`` when it does not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.1)
    pytest.fail(f"waited {seconds:.0f} s in vain for {what}")


@pytest.fixture
def state_at_each_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """State is written at each run's end, not after every step: test_wheel.py has the other."""
    monkeypatch.setenv("PULUMI_SKIP_CHECKPOINTS", "true")


@dataclass
class Project:
    """A copy of the project, its home folder, and one stack in it."""

    root: Path
    home: Path
    stack: str
    port: int
    standing: str = ""
    """The stack's file as it was last brought up; empty where something may have changed since."""

    @property
    def site(self) -> Path:
        return self.home / "stacks" / self.stack

    @property
    def file(self) -> Path:
        return self.root / "stacks" / f"Pulumi.{self.stack}.yaml"

    @property
    def environment(self) -> dict[str, str]:
        kept = dict(os.environ)
        kept.pop("PYTHONDONTWRITEBYTECODE", None)  # copies may: each run is some ten processes
        return {
            **kept,
            "FALAJ_HOME": str(self.home),
            "PYTHONPATH": str(self.root),
            "PULUMI_HOME": str(self.home.parent / "pulumi"),
        }

    def configure(self, **values: Any) -> None:
        """Write the stack file; ``training={"epochs": 2}`` stands for falaj:training."""
        config: dict[str, Any] = {
            "falaj:platform": "local",
            "falaj:service": {"port": self.port, "drainSeconds": 3},
            "pulumi:disable-default-providers": ["*"],
        }
        if "training" in values:
            # Trained shortly on purpose: one of them may be worse than another that served.
            config["falaj:optimization"] = {"accept": "any"}
        document: dict[str, Any] = {}
        if self.file.exists():
            document = yaml.safe_load(self.file.read_text())
            # Rotation counts upwards only: keep what an earlier test has rotated to.
            config["falaj:keys"] = {"rotation": self.rotation}
        document["config"] = config | {f"falaj:{key}": value for key, value in values.items()}
        self.file.write_text(yaml.safe_dump(document))

    def configure_cloud(self, config: dict[str, Any]) -> None:
        """Write the stack file of a stack in a cloud."""
        self.file.write_text(yaml.safe_dump({"config": config}))

    @property
    def rotation(self) -> int:
        """How often the stack's file has asked for other keys."""
        config = yaml.safe_load(self.file.read_text())["config"]
        return int(config.get("falaj:keys", {}).get("rotation", 0))

    def start(self, *arguments: str, folder: Path | None = None) -> subprocess.Popen[str]:
        """Start a falaj command in a process group of its own; ``stack`` empty names none."""
        self.standing = self.standing if arguments[0] in LOOKING else ""
        named = "--stack" in arguments or not self.stack
        chosen = [] if named else ["--stack", self.stack]
        return subprocess.Popen(
            [sys.executable, "-m", "falaj.stacks.command", *arguments, *chosen],
            cwd=folder or self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )

    def falaj(self, *arguments: str, seconds: float = 280) -> subprocess.CompletedProcess[str]:
        """Run a falaj command to its end; output and errors together in stdout."""
        return self.falaj_in(self.root, *arguments, seconds=seconds)

    def falaj_in(
        self, folder: Path, *arguments: str, seconds: float = 280
    ) -> subprocess.CompletedProcess[str]:
        """Run a falaj command in another project's folder."""
        process = self.start(*arguments, folder=folder)
        try:
            printed, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate()
            pytest.fail(f"falaj {' '.join(arguments)} did not end:\n{printed}")
        assert "Traceback" not in printed, printed
        return subprocess.CompletedProcess(process.args, process.returncode, printed)

    def pulumi(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run plain pulumi as in `falaj shell`; output and errors together in stdout."""
        return self._run(["pulumi", *arguments])

    def shell(self, text: str) -> str:
        """Run pasted text in a shell; it must succeed."""
        done = self._run(["sh", "-ec", text])
        assert done.returncode == 0, done.stdout
        return done.stdout

    def sandbox(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Look at the sandbox's cloud, or change it."""
        return self._run([sys.executable, "-m", "falaj.sandbox", *arguments])

    def in_sandbox(self, folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in another folder, with the variables of the sandbox."""
        program = (
            "import sys, subprocess; from falaj.engine import launch; "
            "from falaj.sandbox import activation; sys.exit(subprocess.run(sys.argv[1:], "
            "env=activation.activated(launch.environment())).returncode)"
        )
        return self._run([sys.executable, "-c", program, *command], folder)

    def run_in(self, folder: Path, command: list[str]) -> subprocess.CompletedProcess[str]:
        """Run a command in another folder, with the variables of `falaj shell`."""
        return self._run(command, folder)

    def _run(
        self, command: list[str], folder: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        program = (
            "import sys, subprocess; from falaj.engine import launch; "
            "sys.exit(subprocess.run(sys.argv[1:], env=launch.environment()).returncode)"
        )
        return subprocess.run(
            [sys.executable, "-c", program, *command],
            cwd=folder or self.root,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=280,
            check=False,
        )

    def up(self) -> str:
        """`falaj up`, which must succeed; returns what it printed."""
        done = self.falaj("up")
        assert done.returncode == 0, done.stdout
        self.standing = self.file.read_text()
        return done.stdout

    def stands(self) -> bool:
        """Whether it is up as its file says, so that `falaj up` would find nothing to do."""
        is_as_said = self.standing == self.file.read_text()
        return is_as_said and psutil.pid_exists(self.state().get("pid", -1))

    def down(self) -> str:
        """`falaj down`, which must succeed; returns what it printed."""
        done = self.falaj("down")
        assert done.returncode == 0, done.stdout
        return done.stdout

    def state(self) -> dict[str, Any]:
        """The server's own account of itself."""
        path = next(iter(self.site.glob("service/*/state.json")), None)
        return json.loads(path.read_text()) if path else {}

    def processes(self) -> list[psutil.Process]:
        """Processes that were started from this copy or work in its home."""
        found: list[psutil.Process] = []
        for process in psutil.process_iter():
            try:
                text = " ".join(process.cmdline())
                if str(self.home) in text or str(self.root) in text:
                    found.append(process)
            except (psutil.NoSuchProcess, psutil.AccessDenied):
                continue
        return found

    def sweep(self) -> None:
        """End what a failed test may have left running."""
        for process in self.processes():
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue


def copy_project(target: Path) -> Path:
    """Copy what git would commit, without the stack files that a person has made."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split("\0")
    for name in filter(None, listed):
        source = ROOT / name
        if (source.is_file() or source.is_symlink()) and not name.startswith("tests/"):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    (target / ".venv").symlink_to(Path(sys.prefix))
    return target


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A fresh copy for each module; whatever is left running at its end is ended."""
    folder = tmp_path_factory.mktemp("falaj")
    (folder / "home").mkdir()
    made = Project(copy_project(folder / "project"), folder / "home", "local", free_port())
    yield made
    made.sweep()
