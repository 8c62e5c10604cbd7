"""Of several processes the one that holds the others up is named, and none where none does."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor

from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.distributed import Team
from falaj.workloads.training.pace import LAG_EPOCHS, Pace
from falaj.workloads.training.snapshot import Dataset

MODEL = """
import os, time
from torch import nn

class Network(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.last = nn.Linear(*inputs, outputs)

    def forward(self, features):
        if self.training and os.environ.get("RANK") == SLOW:
            time.sleep(0.05)
        return self.last(features)
"""


def trained(dataset: Dataset, folder: Path, slow: str, processes: int) -> list[dict[str, Any]]:
    """The events of a training in which a process needs 50 ms more for each step."""
    (folder / "mine").mkdir(parents=True)
    (folder / "mine" / "network.py").write_text(MODEL.replace("SLOW", repr(slow)))
    path = datasets.write(dataset, folder / "datasets", None)
    done = subprocess.run(
        [sys.executable, "-m", "falaj.workloads.training", "run", "--dataset", str(path),
         "--output", str(folder / "run"), "--device", "cpu", "--model", "mine.network:Network",
         "--code", str(folder), "--epochs", "5", "--patience", "9", "--batch-size", "32",
         "--threads", "1", "--processes", str(processes), "--progress", "json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def epochs(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()
    ]


def test_a_slow_process_is_named_once_with_what_it_costs(
    mixed_dataset: Dataset, tmp_path: Path
) -> None:
    said = [
        each for each in trained(mixed_dataset, tmp_path, "1", 2) if each["event"] == "straggler"
    ]
    assert len(said) == 1
    assert said[0]["process"] == 1
    assert said[0]["epoch"] == LAG_EPOCHS
    assert said[0]["step_seconds"] >= 0.05
    assert 0.3 < said[0]["share_lost"] <= 1
    assert "process 1 on " in said[0]["message"]
    for line in epochs(tmp_path):
        assert line["slowest_process"] == 1
        assert line["slowest_ratio"] > 2
        assert 0 <= line["rows_share"] < 1


def test_one_process_waits_for_nobody(mixed_dataset: Dataset, tmp_path: Path) -> None:
    said = trained(mixed_dataset, tmp_path, "none", 1)
    assert not [each for each in said if each["event"] == "straggler"]
    for line in epochs(tmp_path):
        assert 0 <= line["rows_share"] < 1
        assert "slowest_process" not in line


@dataclass
class Others:
    """A team whose other processes are said to need so many seconds of a step."""

    seconds: Sequence[float]
    processes: int = 4
    rank: int = 0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def gather(self, value: Tensor) -> Tensor:
        if value.dtype == torch.uint8:
            return torch.stack([value] * self.processes)
        return torch.tensor(self.seconds, dtype=torch.float64)[:, None]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that pass at each look at the clock, from the first on."""
    now = [0.0, 0.0]

    def look() -> float:
        now[0] += now[1]
        return now[0]

    monkeypatch.setattr("time.perf_counter", look)
    return now


def epoch(pace: Pace, clock: list[float], step: float = 1.0) -> str | None:
    """An epoch of two steps, each so many seconds long; who is named after it."""
    pace.begin_epoch()
    for _ in range(2):
        pace.begin_step()
        pace.has_rows()
        pace.exchanges()
        clock[0] += step
    pace.end_epoch()
    found = pace.straggler()
    return str(found) if found else None


def named(seconds: Sequence[Sequence[float]], clock: list[float], step: float) -> list[bool]:
    """In which epochs somebody is named, by the seconds of each process in each."""
    team = Others(seconds[0])
    pace = Pace(cast(Team, team))
    said: list[bool] = []
    for each in seconds:
        team.seconds = each
        said.append(epoch(pace, clock, step) is not None)
    return said


EVEN, SLOW = (0.2, 0.2, 0.2, 0.2), (0.2, 0.2, 0.6, 0.2)


@pytest.mark.parametrize(
    ("seconds", "step", "said"),
    [
        pytest.param([EVEN] * 4, 1.0, [False] * 4, id="even"),
        pytest.param([SLOW] * 4, 1.0, [False, True, False, False], id="slow: named once"),
        pytest.param([SLOW, EVEN] * 2, 1.0, [False] * 4, id="slow now and then"),
        pytest.param(
            [SLOW, (0.6, 0.2, 0.2, 0.2)] * 2, 1.0, [False] * 4, id="another one each time"
        ),
        pytest.param([(0.2, 0.2, 0.24, 0.2)] * 3, 1.0, [False] * 3, id="hardly slower"),
        pytest.param([SLOW] * 3, 20.0, [False] * 3, id="slower in what hardly counts"),
        pytest.param(
            [SLOW, SLOW, (0.6, 0.2, 0.2, 0.2), (0.6, 0.2, 0.2, 0.2)],
            1.0, [False, True, False, True], id="then another",
        ),
        pytest.param([(0.0, 0.0, 0.0, 0.0)] * 3, 1.0, [False] * 3, id="too short to time"),
    ],
)  # fmt: skip
def test_who_is_named(
    clock: list[float], seconds: Sequence[Sequence[float]], step: float, said: list[bool]
) -> None:
    assert named(seconds, clock, step) == said


def test_an_epoch_without_steps_names_nobody(clock: list[float]) -> None:
    pace = Pace(cast(Team, Others(SLOW)))
    clock[1] = 1.0
    pace.begin_epoch()
    assert set(pace.end_epoch()) == {"rows_share"}
    assert pace.straggler() is None
