"""From rows that shift to a model that learned from them, while callers notice nothing.

A real engine trains and serves a small table; its watch runs under the supervisor that the stack
has. What callers send shifts, the server reports it, a table with labelled rows comes in, and the
watch brings the stack up with it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.stacks.client import Client, mint
from tests.stacks.conftest import Project, wait_for

pytestmark = [
    pytest.mark.engine, pytest.mark.slow, pytest.mark.thorough, pytest.mark.timeout(1_200)
]  # fmt: skip

PATIENCE = 600.0


def write_table(path: Path, middle: float, rows: int, seed: int) -> None:
    """Customers who leave where they pay more than most."""
    source = random.Random(seed)
    lines = ["amount,visits,left"]
    for _ in range(rows):
        amount = source.gauss(middle, 10)
        lines.append(f"{amount:.2f},{source.randrange(12)},{'yes' if amount > middle else 'no'}")
    staged = path.with_suffix(".part")
    staged.parent.mkdir(exist_ok=True)
    staged.write_text("\n".join(lines) + "\n")
    # Written a while ago: what is a moment old may still be growing.
    old = time.time() - 60
    os.utime(staged, (old, old))
    staged.rename(path)


@dataclass
class Callers:
    """Programs that send shifted rows all the while, on kept and on fresh connections."""

    config: dict[str, Any]
    token: str
    seen: list[str] = field(default_factory=list[str])
    failures: list[str] = field(default_factory=list[str])
    _stop: threading.Event = field(default_factory=threading.Event)

    def _send(self, rows: int, fresh: bool, seed: int) -> None:
        client, source = Client(self.config, self.token), random.Random(seed)
        while not self._stop.wait(0.05):
            amounts = [source.gauss(80, 10) for _ in range(rows)]
            visits = [float(source.randrange(12)) for _ in range(rows)]
            try:
                answer = client.infer(
                    ("amount", "FP32", [rows, 1], amounts), ("visits", "FP32", [rows, 1], visits)
                )
                self.seen.append(str(answer["version"]))
            except Exception as error:
                self.failures.append(repr(error))
            if fresh:
                client.close()
        client.close()

    @contextmanager
    def calling(self) -> Generator[None]:
        threads = [
            threading.Thread(target=self._send, args=each)
            for each in ((100, False, 1), (1, True, 2))
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()


def remembered(project: Project) -> dict[str, Any]:
    path = project.site / "watch" / "memory.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def test_data_shift_and_a_new_version_takes_over(project: Project) -> None:
    folder = project.home.parent / "tables"
    write_table(folder / "2026-10.csv", 40, 800, 1)
    arriving = project.home.parent / "arriving"
    arriving.mkdir()
    project.configure(
        dataset=str(folder / "2026-10.csv"), target="left", model="shop",
        training={"epochs": 20, "batchSize": 128}, optimization={"accept": "better"},
        watch={"steps": ["tell", "retrain"], "intervalSeconds": 2, "data": str(arriving)},
    )  # fmt: skip
    try:
        project.up()
        _shift(project, arriving)
    finally:
        project.down()
    assert not project.processes()
    assert not project.site.exists()


def _shift(project: Project, arriving: Path) -> None:
    config = json.loads((project.site / "service/shop/service.json").read_text())
    callers = Callers(config, mint(config))
    with callers.calling():
        wait_for(lambda: remembered(project).get("told"), "drift to be told", PATIENCE)
        told = remembered(project)
        assert "input amount" in told["told"]["names"]
        waits = wait_for(lambda: remembered(project)["waiting"].get("retrain"), "why it waits")
        assert "holds no .csv" in waits
        assert told["served"] == 1
        # A second watch has nothing to say here.
        second = project.falaj("watch", "--once")
        assert second.returncode == 2
        assert "another watch looks after stack local" in second.stdout
        write_table(arriving / "2026-11.csv", 80, 800, 2)
        wait_for(lambda: project.state().get("version") == 2, "version 2 to serve", PATIENCE)
        wait_for(lambda: callers.seen[-1] == "2", "its answers")
        wait_for(lambda: "version 2" in remembered(project)["last"]["outcome"], "the step's end")
    assert callers.failures == []
    assert set(callers.seen) == {"1", "2"}
    # It is the stack's own: its file says it, and its `up` has nothing to do.
    said = yaml.safe_load(project.file.read_text())["config"]
    assert said["falaj:dataset"] == str(arriving / "2026-11.csv")
    assert "unchanged" in project.up().partition(" resources: ")[2].partition("\n")[0]
    status = project.falaj("status")
    assert status.returncode == 0
    assert "version 2 serves, in the place of version 1" in status.stdout
    logs = project.site / "watch" / "logs"
    audit = subprocess.run(
        [sys.executable, "-m", "falaj.workloads.inference", "audit", "--logs", str(logs)],
        env=project.environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert audit.stdout.startswith("intact: "), audit.stderr
    steps = [json.loads(line)["event"] for line in (logs / "audit.jsonl").read_text().splitlines()]
    assert steps.index("drift") < steps.index("retrain") < steps.index("retrained")
    assert steps.count("retrain") == 1
