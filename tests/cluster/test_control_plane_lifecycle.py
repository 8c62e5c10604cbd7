"""Control planes start, end, and leave nothing behind."""

from __future__ import annotations

import base64
import functools
import os
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from falaj.engine.commands import run
from falaj.engine.controlplane import start, stop
from falaj.engine.controlplane.objects import wait_for
from falaj.engine.controlplane.processes import Files
from falaj.engine.controlplane.record import Record
from falaj.engine.errors import EngineError
from falaj.stacks.command.cluster import cluster

#: One command as a person gives it; returns its exit status.
main = functools.partial(run, cluster, "falaj cluster")

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

START = "import sys; from pathlib import Path; from falaj.engine.controlplane import start; "
#: A caller that holds a control plane, as a test session does.
CALLER = f"{START}start(Path(sys.argv[1])); print('ready', flush=True); sys.stdin.read()"


@pytest.fixture
def folder(tmp_path: Path) -> Generator[Path]:
    folder = tmp_path / "cluster"
    yield folder
    stop(folder)


def record(folder: Path) -> Record:
    found = Record.read(Files(folder))
    assert found is not None
    return found


def alive(pids: list[int]) -> list[int]:
    """Those that run; whose parent was killed may wait for its entry to be collected."""
    found: list[int] = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                found.append(pid)
    return found


def test_nothing_runs_after_the_caller_was_killed(folder: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CALLER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == "ready\n"
        processes = record(folder).processes
        assert alive(list(processes.values())) == list(processes.values())
        caller.kill()
    wait_for(lambda: not alive(list(processes.values())), "every process has ended", 60)
    wait_for(lambda: not folder.exists(), "its files are gone", 30)


def test_nothing_runs_after_the_host_was_killed(folder: Path) -> None:
    plane = start(folder)
    processes = plane.record.processes
    os.kill(plane.record.pid, signal.SIGKILL)
    wait_for(lambda: not alive(list(processes.values())), "every process has ended", 60)
    with pytest.raises(EngineError, match="no control plane runs"):
        type(plane)(folder)
    assert not stop(folder)
    assert not folder.exists()


def test_up_status_down(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--folder", str(folder)]
    assert main(["up", "--bare", "--nodes", "cpu=1", *at]) == 0
    assert f"export KUBECONFIG={folder / 'kubeconfig'}" in capsys.readouterr().out
    assert main(["status", *at]) == 0
    assert '"state": "ready"' in capsys.readouterr().out
    assert main(["up", "--bare", *at]) == 2
    assert "a control plane runs already in" in capsys.readouterr().err
    processes = list(record(folder).processes.values())
    assert main(["down", *at]) == 0
    assert not alive(processes)
    assert not folder.exists()
    assert main(["status", *at]) == 1
    assert main(["kubeconfig", *at]) == 1
    assert main(["down", *at]) == 0
    assert "no control plane ran" in capsys.readouterr().out


def test_an_api_that_nobody_answers_keeps_no_namespace(folder: Path) -> None:
    """A chart's own API, whose pods are simulated where webhooks aren't called."""
    api: dict[str, Any] = {
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.visibility.falaj.test"},
        "spec": {
            "group": "visibility.falaj.test", "version": "v1", "groupPriorityMinimum": 100,
            "versionPriority": 100, "caBundle": base64.b64encode(b"nobody's").decode(),
            "service": {"namespace": "space", "name": "nobody"},
        },
    }  # fmt: skip
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "space"}}
    with start(folder, webhooks=False) as plane:
        assert "service" not in plane.apply([space, api])[1]["spec"]
        plane.objects.delete("v1", "Namespace", "space")
        wait_for(
            lambda: plane.objects.get("v1", "Namespace", "space") is None, "it is deleted", 60
        )
        assert plane.objects.get(api["apiVersion"], api["kind"], api["metadata"]["name"])


def test_a_process_that_ends_takes_the_others_along_and_says_why(folder: Path) -> None:
    plane = start(folder)
    processes = plane.record.processes
    os.kill(processes["kube-scheduler"], signal.SIGKILL)
    failed = wait_for(
        lambda: (now := record(folder)).state == "failed" and now, "the failure is noted"
    )
    assert "kube-scheduler ended with exit code -9" in failed.reason
    wait_for(lambda: not alive(list(processes.values())), "every process has ended", 60)
