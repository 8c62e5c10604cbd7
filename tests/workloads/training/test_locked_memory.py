"""Networks between GPUs need locked memory: a machine that allows too little is refused."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from falaj.workloads.errors import REFUSED, WorkloadError
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training import hardware
from falaj.workloads.training.snapshot import Dataset

#: What systemd allows a service by default, and so a container runtime its containers.
SYSTEMD = 8 * 2**20
POD = {
    "PET_NNODES": "2", "PET_NODE_RANK": "0", "PET_NPROC_PER_NODE": "1",
    "PET_RDZV_ENDPOINT": "127.0.0.1:1", "PET_RDZV_ID": "fraud-0",
}  # fmt: skip


def _allow(locked: int) -> None:
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (locked, locked))


@pytest.mark.slow
def test_training_by_infiniband_is_refused_where_little_may_be_locked(
    mixed_dataset: Dataset, tmp_path: Path
) -> None:
    snapshot = datasets.write(mixed_dataset, tmp_path / "datasets", None)
    training = [sys.executable, "-m", "falaj.workloads.training", "run"]
    done = subprocess.run(
        [*training, "--dataset", str(snapshot), "--output", str(tmp_path / "run")],
        env={**os.environ, **POD, "FALAJ_FABRIC": "infiniband"},
        preexec_fn=lambda: _allow(SYSTEMD),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == REFUSED, done.stderr
    for part in ("infiniband", f"allows {SYSTEMD} bytes", "LimitMEMLOCK=infinity", "fabric away"):
        assert part in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("hard", [resource.RLIM_INFINITY, 2**50])
def test_what_allows_more_than_there_is_will_do(
    monkeypatch: pytest.MonkeyPatch, hard: int
) -> None:
    raised: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (65536, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: raised.append(limits))
    hardware.require_locked_memory({"FALAJ_FABRIC": "efa"})
    assert raised == [(hard, hard)]


def test_without_such_a_network_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (SYSTEMD, SYSTEMD))
    hardware.require_locked_memory({})
    with pytest.raises(WorkloadError, match="efa, which needs locked memory"):
        hardware.require_locked_memory({"FALAJ_FABRIC": "efa"})
