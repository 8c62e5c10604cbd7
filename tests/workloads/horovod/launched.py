"""Machines of a Horovod job as launchers on this one, each with a loopback address of its own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.ports import free_port

PROGRAM = Path(__file__).with_name("gloo_program.py")


@dataclass
class Job:
    """Launchers and where they write."""

    folder: Path
    nodes: int = 2
    processes: int = 1
    port: int = field(default_factory=free_port)

    def command(self, index: int, *options: str) -> list[str]:
        return [
            sys.executable, "-m", "falaj.workloads.horovod", "run",
            "--nodes", str(self.nodes), "--processes", str(self.processes),
            "--index", str(index), "--rendezvous", f"127.0.0.2:{self.port}",
            "--address", f"127.0.0.{index + 2}", *options,
        ]  # fmt: skip

    def start(self, index: int, *program: str, options: tuple[str, ...] = ()) -> Any:
        """Start one machine; the test's own program unless another is given."""
        words = program or (sys.executable, str(PROGRAM), str(self.folder / "result"))
        if words[0].startswith("--"):
            words = (sys.executable, str(PROGRAM), str(self.folder / "result"), *words)
        with self.log(index).open("w") as log:
            return subprocess.Popen(
                [*self.command(index, *options), "--", *words],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip

    def log(self, index: int) -> Path:
        return self.folder / f"machine-{index}.log"

    def said(self) -> str:
        return "".join(path.read_text() for path in sorted(self.folder.glob("machine-*.log")))
