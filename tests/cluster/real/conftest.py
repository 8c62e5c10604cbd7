"""Real machines: kubelets with containers of our own images, in namespaces of this computer.

Where the computer can't run them, these tests are left out, and the run says at its end what it
lacks (pytest's ``-rs``); where ``CI`` is set, that is a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.controlplane import ControlPlane, prerequisites
from falaj.sandbox.activation import CLUSTER_VARIABLE
from tests.cluster.real.platform import (
    Platform,
    workloads,
)
from tests.cluster.real.realm import Realm, realm_with, wait_for
from tests.cluster.real.team import (
    AUDIT,
    SERVING,
    TEAM,
    TRAINING,
    TRIALS,
    delivered,
    events,
    gang,
    of_publication,
    said_by,
    sweep_of,
    told_in,
)
from tests.newcomer import documents
from tests.newcomer.machine import newcomer
from tests.ports import free_port
from tests.stacks.conftest import Project

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    own = [each for each in items if each.path.is_relative_to(HERE)]
    if not own or os.environ.get("CI"):
        return
    lacking = prerequisites.lacking()
    left_out = own if lacking else []
    if shutil.which(prerequisites.BUILDER) is None:
        lacking.append(f"the command {prerequisites.BUILDER}, which builds images for them")
        left_out = left_out or [
            each for each in own if "platform" in getattr(each, "fixturenames", ())
        ]
    for each in left_out:
        each.add_marker(pytest.mark.skip(reason="no real machines: " + "; ".join(lacking)))


@pytest.fixture(scope="package")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Generator[Realm]:
    """A control plane with two real machines, on which nothing of a platform runs."""
    with realm_with(tmp_path_factory.mktemp("realm") / "plane", machines=2) as made:
        yield made


@pytest.fixture(scope="package")
def platform(
    tmp_path_factory: pytest.TempPathFactory, judged: Callable[[ControlPlane], None]
) -> Generator[Platform]:
    """What the page about real machines has one type, in an environment that it made itself."""
    start, up, *_, end = documents.commands("real")
    folder = tmp_path_factory.mktemp("platform")
    with newcomer(folder) as machine, pytest.MonkeyPatch.context() as patched:
        # As in tests/cluster/test_platform_life.py: of whole charts it is megabytes.
        machine.variables["PULUMI_SKIP_CHECKPOINTS"] = "true"
        patched.setenv("PULUMI_SKIP_CHECKPOINTS", "true")
        printed = machine.run(start)
        assert "real machines: real-1, real-2" in printed
        assert "5 digests written to" in printed
        assert "ready: export KUBECONFIG=" in printed
        plane = ControlPlane(machine.data / "cluster")
        patched.setenv(CLUSTER_VARIABLE, str(plane.kubeconfig))
        assert re.search(r"\d{3} created", machine.run(up))
        assert machine.clean_status() == ""
        project = Project(machine.clone, machine.data, "local", free_port())
        yield Platform(Realm(plane), machine, project, folder)
        judged(plane)
        assert "ended" in machine.run(end)
        assert machine.processes() == []


@pytest.fixture(scope="package")
def ring(platform: Platform) -> Path:
    """A key ring of the team's, outside of the cluster; `dataset` makes it."""
    return platform.machine.home / "acme-ring"


@pytest.fixture(scope="package")
def dataset(platform: Platform, ring: Path) -> str:
    """A sealed snapshot in the claim `data`; its folder's name. The team's keys are there, too."""
    bring = documents.commands("real")[2]
    assert "real-workloads" in platform.machine.run(bring)
    assert ring.is_dir()
    _watched(platform)
    [job] = platform.read(TEAM)["falaj:trainingJobs"].values()
    return str(job["dataset"])


def _watched(platform: Platform) -> None:
    """Have somebody look at what the service's replicas say of drift, and judge its canaries."""
    platform.plane.apply([
        {
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": AUDIT, "namespace": SERVING},
            "spec": {
                "accessModes": ["ReadWriteMany"], "storageClassName": "falaj-files",
                "resources": {"requests": {"storage": "1Gi"}},
            },
        }
    ])  # fmt: skip
    config = platform.read(TEAM)
    [service] = config["falaj:inferenceServices"].values()
    [job] = config["falaj:trainingJobs"].values()
    service |= {
        "auditClaim": AUDIT, "drift": {"windowRows": 200},
        "watch": {"steps": ["tell"], "intervalSeconds": 2},
    }  # fmt: skip
    access = {
        key: job["publish"][key] for key in ("keySecret", "registryCidrs", "registryAuthority")
    }
    # Versions answer black pictures each in its way, and times of shared cores say little of them.
    lenient = {"leastLikeness": 0, "mostLatencyRise": 10_000}
    judge = {**access, **lenient, "windowMinutes": 1, "leastRequests": 100}
    service["canary"] |= {"steps": [40], "judge": judge}
    platform.write(TEAM, config)


@pytest.fixture(scope="package")
def trained(platform: Platform, dataset: str) -> dict[str, Any]:
    """Two pods train, one of them is taken away, the gang goes on, and version 1 is delivered.

    All of it while one `up` of the team's stack goes on, which then serves it.
    """
    up = platform.machine.start(documents.commands("real")[3])
    try:
        found = _carried_on(platform, up)
        printed, _ = up.communicate(timeout=400)
    finally:
        if up.poll() is None:
            os.killpg(up.pid, signal.SIGKILL)
            up.communicate()
    assert up.returncode == 0, printed
    assert "waiting for the first version" in printed
    assert "version 1 of digits (candidate) has all requests" in printed
    return {**found, "printed": printed}


def _carried_on(platform: Platform, up: subprocess.Popen[str]) -> dict[str, Any]:
    def epoch(attempt: int) -> int:
        return max(
            (each["epoch"] for each in events(platform, gang(platform, attempt))), default=0
        )

    def trained() -> bool:
        assert up.poll() is None, up.communicate()[0]
        states = [
            platform.realm.pod(each, TRAINING).get("status", {}) for each in gang(platform, 0)
        ]
        assert not [each for each in states if each.get("phase") == "Failed"], states
        return epoch(0) >= 3

    wait_for(trained, "three epochs are done", 400)
    pods = gang(platform, 0)
    assert len(set(pods.values())) == 2, pods
    [second] = [each for each in pods if each.startswith("digits-node-0-1-")]
    reached = epoch(0)
    assert of_publication(platform) == []
    platform.realm.api.delete_namespaced_pod(second, TRAINING, grace_period_seconds=0)

    def finished() -> bool:
        told = events(platform, gang(platform, 1))
        return bool(told) and told[-1]["event"] == "finished"

    wait_for(finished, "the gang is done", 300)
    told = events(platform, gang(platform, 1))
    return {"reached": reached, "told": told, "version": delivered(platform, 1)}


@pytest.fixture(scope="package")
def swept(platform: Platform, dataset: str, trained: dict[str, Any]) -> dict[str, Any]:
    """What a sweep came to, by the log of its pods: the standing that its last trial told."""
    platform.write("real-sweep", workloads(platform, sweeps={"rates": sweep_of(dataset)}))
    platform.up("real-sweep")

    def standing() -> dict[str, Any]:
        told = told_in(said_by(platform, "rates"), "study")
        return max(told, key=lambda each: each["trials"]["complete"], default={})

    def ended() -> bool:
        return standing().get("trials", {}).get("complete") == TRIALS

    try:
        wait_for(ended, "all trials have ended", 300)
    except TimeoutError as error:
        said = said_by(platform, "rates")[-3000:]
        raise AssertionError(f"{error}\n{said}\n{platform.realm.events(TRAINING)}") from error
    return standing()


@pytest.fixture(scope="package")
def served(platform: Platform, ring: Path, trained: dict[str, Any]) -> dict[str, Any]:
    """Version 1, which the cluster trained and published, is served; its service's settings."""
    [service] = platform.read(TEAM)["falaj:inferenceServices"].values()
    [version] = service["versions"]
    assert (version["version"], version["weight"]) == (1, 100)
    assert version["packageDigest"] == trained["version"]["packageDigest"]
    account = {"name": "scoring", "namespace": SERVING}
    platform.plane.apply([{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": account}])
    return service
