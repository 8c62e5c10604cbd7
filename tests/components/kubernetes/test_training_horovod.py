"""Horovod's jobs: what differs from PyTorch's, and that its pods run as they are rendered."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.training.jobs import MOST_PROCESSES
from falaj.components.kubernetes.training.pods import RENDEZVOUS_PORT, RESERVED
from falaj.workloads.horovod import command, world
from tests.components.kubernetes.cluster_parts import difference, same_as_golden
from tests.components.kubernetes.pod_processes import Machine, finish
from tests.components.kubernetes.training_jobs import (
    CPU,
    HOROVOD,
    LAUNCHER_DIGEST,
    PLACES,
    REGISTRY,
    container_of,
    env_of,
    findings,
    job,
    pod_of,
    shown,
    the,
)
from tests.ports import free_port

PROGRAM = Path("tests/workloads/horovod/gloo_program.py").resolve()
ATTEMPT = {"jobset.sigs.k8s.io/restart-attempt": "0"}


def test_the_launcher_is_told_the_processes_and_which_pod_this_is() -> None:
    manifests = job(**HOROVOD, nodes=4, gpus_per_node=8)
    assert container_of(manifests)["command"] == [
        "python3", "/launcher/horovod.pyz", "run", "--nodes", "4", "--processes", "8",
        "--index", "$(NODE_RANK)", "--rendezvous", "fraud-node-0-0.fraud:29400",
        "--address", "$(POD_IP)", "--attempt", "$(RESTART_ATTEMPT)",
        "--grace-seconds", "$(FALAJ_GRACE_SECONDS)", "--", "python", "-m", "team.train",
    ]  # fmt: skip
    words = container_of(manifests)["command"]
    names = {entry["name"] for entry in container_of(manifests)["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(words))) <= names


def test_the_launcher_comes_from_an_image_of_falaj_by_its_digest() -> None:
    pod = pod_of(job(**HOROVOD))["spec"]
    (before,) = pod["initContainers"]
    assert before["image"] == f"{REGISTRY}/falaj/inference:0.1.0@{LAUNCHER_DIGEST}"
    assert before["securityContext"]["readOnlyRootFilesystem"] is True
    (main,) = pod["containers"]
    assert {"name": "launcher", "mountPath": "/launcher", "readOnly": True} in main["volumeMounts"]
    assert main["image"].startswith(f"{REGISTRY}/team/horovod@")


def test_what_tunes_horovod_is_the_users() -> None:
    tuned = {"HOROVOD_FUSION_THRESHOLD": "0", "HOROVOD_GLOO_TIMEOUT_SECONDS": "60"}
    found = env_of(job(**HOROVOD, env=tuned))
    assert {name: found[name] for name in tuned} == tuned


def test_both_sides_agree() -> None:
    assert MOST_PROCESSES == world.MOST_PROCESSES
    assert RENDEZVOUS_PORT == command.PORT
    ours = {**world.meeting("10.0.0.1", 1, "eth0"), **world.World(1, 1, 0).environment(0)}
    assert ours.keys() - {"HOROVOD_GLOO_IFACE"} <= RESERVED


@pytest.mark.parametrize("place", PLACES)
def test_every_policy_pack_is_met(place: str) -> None:
    assert findings(job(place, **HOROVOD, nodes=2, gpus_per_node=8)) == []


def test_a_job_differs_from_pytorchs_as_reviewed() -> None:
    size: dict[str, Any] = {"nodes": 2, "gpus_per_node": 8, "telemetry": False}
    plain = {**HOROVOD, "framework": "pytorch"}
    here, there = (shown([the("JobSet", job(**each, **size))]) for each in (plain, HOROVOD))
    same_as_golden("training-horovod.diff", difference(here, there))


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    names = {"29400": str(free_port()), "fraud-node-0-0.fraud": "127.0.0.2"}
    return Machine(tmp_path, names)


def two_pods(*program: str, **changes: Any) -> list[Manifest]:
    words = [sys.executable, str(PROGRAM), "/runs/result", *program]
    own: dict[str, Any] = {
        **HOROVOD,
        **CPU,
        "program": words,
        "dataset": None,
        "cpus": 1,
        "nodes": 2,
    }
    own |= {"processes_per_node": 2, "grace_seconds": 20, **changes}
    return job(**own)


@pytest.mark.slow
def test_two_pods_of_two_processes_train_one_model(machine: Machine) -> None:
    template = pod_of(two_pods())
    processes = [machine.start(template, index, ATTEMPT) for index in (1, 0)]
    assert finish(processes) == [0, 0], _said(machine)
    found = sorted((machine.folder / "runs").glob("result.*"))
    results = [json.loads(path.read_text()) for path in found]
    assert [(each["rank"], each["size"]) for each in results] == [(rank, 4) for rank in range(4)]
    assert [each["weight"] for each in results] == pytest.approx([3.0] * 4, abs=1e-3)


@pytest.mark.slow
def test_a_pod_that_is_evicted_ends_all_with_a_checkpoint(machine: Machine) -> None:
    more = ("--pause", "0.1", "--steps", "2000", "--checkpoint", "/runs/checkpoint")
    template = pod_of(two_pods(*more))
    processes = [machine.start(template, index, ATTEMPT) for index in (0, 1)]
    try:
        until = time.monotonic() + 60
        while "step 3" not in _said(machine):
            assert time.monotonic() < until, _said(machine)
            time.sleep(0.1)
        processes[1].send_signal(signal.SIGTERM)
        assert finish(processes) == [75, 75], _said(machine)
    finally:
        finish(processes)
    assert json.loads((machine.folder / "runs/checkpoint").read_text())["step"] >= 3


@pytest.mark.parametrize(
    ("right", "wrong", "reason"),
    [
        ("--nodes", "--nods", "unrecognized arguments: --nods"),
        ("$(NODE_RANK)", "$(NODE_RANKS)", "invalid int value"),
        ("$(POD_IP)", "$(POD_PI)", "allowed is an IPv4 address of this machine"),
        ("$(FALAJ_GRACE_SECONDS)", "0", "allowed are 1 to 86400"),
        ("fraud-node-0-0.fraud:29400", "fraud:port", "allowed is host:port"),
    ],
)
def test_a_wrong_flag_or_variable_is_found(
    machine: Machine, right: str, wrong: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As in the pod, but in this process: it ends before anything is started."""
    template = json.loads(json.dumps(pod_of(two_pods())))
    (container,) = template["spec"]["containers"]
    assert right in container["command"]
    container["command"] = [wrong if word == right else word for word in container["command"]]
    words, _ = machine.program(template, 0, ATTEMPT)
    assert words[0].endswith("/horovod.pyz")
    try:
        code = command.main(words[1:])
    except SystemExit as ended:  # argparse's own way
        code = ended.code
    assert code == 2
    assert reason in capsys.readouterr().err


def _said(machine: Machine) -> str:
    return "".join(path.read_text() for path in sorted(machine.folder.glob("pod-*.log")))
