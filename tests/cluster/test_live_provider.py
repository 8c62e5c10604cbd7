"""Stacks with a real engine on a real API server: refused, held, late, and killed on the way."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from engine.controlplane import ControlPlane
from tests.cluster.live import (
    LiveProject,
    config_map,
    definition,
    deployment,
    entry,
    widget,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def live(cluster: ControlPlane, tmp_path: Path) -> LiveProject:
    return LiveProject(tmp_path, cluster.kubeconfig)


def get(cluster: ControlPlane, kind: str, name: str, namespace: str = "") -> Any:
    version = {"Deployment": "apps/v1"}.get(kind, "v1")
    return cluster.objects.get(version, kind, name, namespace or None)


def test_what_the_api_server_refuses_fails_the_preview(
    cluster: ControlPlane, live: LiveProject, namespace: str
) -> None:
    group = "strict.falaj.test"
    cluster.apply([definition(group), config_map("theirs", namespace)])
    time.sleep(1)
    live.declare(
        entry("misspelt", widget(group, namespace, sizes=3)),
        entry("taken", config_map("theirs", namespace)),
    )
    for failed in (live.preview(code=None), live.up(code=None)):
        assert ".spec.sizes: field not declared in schema" in failed
        assert f"ConfigMap {namespace}/theirs is already there and wasn't made by this" in failed
        assert "Traceback" not in failed

    # What is there can be taken over, and then belongs to the stack.
    live.declare(entry("taken", config_map("theirs", namespace), import_=f"{namespace}/theirs"))
    assert "= 1 imported" in live.up()
    live.up("--expect-no-changes")
    live.declare()
    live.up()
    assert get(cluster, "ConfigMap", "theirs", namespace) is None

    live.declare(entry("nowhere", {**widget("none.falaj.test", namespace), "kind": "Nothing"}))
    assert "the control plane serves no Nothing of none.falaj.test/v1" in live.preview(code=None)


def test_finalizer_that_nobody_removes_is_named(
    cluster: ControlPlane, live: LiveProject, namespace: str
) -> None:
    held = config_map(
        "held",
        namespace,
        finalizers=["example.org/hold"],
        annotations={"pulumi.com/timeoutSeconds": "2"},
    )
    live.declare(entry("held", held))
    live.up()
    failed = live.destroy(code=None)
    assert "isn't gone after 2 s: finalizers hold it: example.org/hold" in failed
    cluster.objects.patch("v1", "ConfigMap", "held", {"metadata": {"finalizers": None}}, namespace)
    live.destroy()
    assert get(cluster, "ConfigMap", "held", namespace) is None


def test_object_that_does_not_get_ready_says_why_and_is_mended(
    cluster: ControlPlane, live: LiveProject, namespace: str
) -> None:
    cluster.nodes("cpu=1")
    stuck = deployment(
        "stuck",
        namespace,
        pod={"nodeSelector": {"nowhere": "1"}},
        metadata={"annotations": {"pulumi.com/timeoutSeconds": "4"}},
    )
    live.declare(entry("stuck", stuck))
    failed = live.up(code=None)
    assert "it wasn't ready within 4 s: 0 of 1 pods are available" in failed
    assert "PodScheduled: Unschedulable" in failed
    assert live.state()["stuck"]["initErrors"]
    del stuck["spec"]["template"]["spec"]["nodeSelector"]
    live.declare(entry("stuck", stuck))
    live.up()
    assert "initErrors" not in live.state()["stuck"]
    waiting = deployment(
        "waiting",
        namespace,
        pod={"nodeSelector": {"nowhere": "1"}},
        metadata={"annotations": {"pulumi.com/skipAwait": "true"}},
    )
    live.declare(entry("stuck", stuck), entry("waiting", waiting))
    assert "+ 1 created" in live.up()
    live.destroy()


def test_killed_run_is_resumed(cluster: ControlPlane, live: LiveProject, namespace: str) -> None:
    slow = deployment("slow", namespace, pod={"nodeSelector": {"nowhere": "1"}})
    names = [f"c{number}" for number in range(5)]
    after = [entry(name, config_map(name, namespace), depends_on=["slow"]) for name in names]
    live.declare(entry("slow", slow), *after)
    process = live.project.start("up", "--yes", "--skip-preview", "-s", "dev")
    deadline = time.monotonic() + 60
    while get(cluster, "Deployment", "slow", namespace) is None:
        assert time.monotonic() < deadline, "the run made nothing"
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    uid = get(cluster, "Deployment", "slow", namespace)["metadata"]["uid"]

    live.project.run("cancel", "--yes", "-s", "dev")
    slow["metadata"]["annotations"] = {"pulumi.com/skipAwait": "true"}
    live.declare(entry("slow", slow), *after)
    live.up()
    assert get(cluster, "Deployment", "slow", namespace)["metadata"]["uid"] == uid
    assert all(get(cluster, "ConfigMap", name, namespace) for name in names)
    live.destroy()
    assert get(cluster, "Deployment", "slow", namespace) is None
