"""Stacks with a real engine on a real API server: made, changed, repaired, refused, removed."""

from __future__ import annotations

import base64
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.controlplane import ControlPlane
from tests.cluster.live import (
    LiveProject,
    config_map,
    definition,
    deployment,
    entry,
    ingress,
    patch,
    widget,
)

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture
def live(cluster: ControlPlane, tmp_path: Path) -> LiveProject:
    return LiveProject(tmp_path, cluster.kubeconfig)


def get(cluster: ControlPlane, kind: str, name: str, namespace: str = "") -> Any:
    version = {"Deployment": "apps/v1"}.get(kind, "v1")
    return cluster.objects.get(version, kind, name, namespace or None)


def test_stack_is_made_changed_repaired_and_removed(
    cluster: ControlPlane, live: LiveProject, namespace: str
) -> None:
    cluster.nodes("cpu=1")
    group = "life.falaj.test"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": namespace},
        "stringData": {"password": "hunter2"},
    }
    web = deployment("web", namespace)
    unnamed = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": {"l": "1"}}}
    kind = entry("kind", definition(group))
    made = entry("widget", widget(group, namespace, size=3), depends_on=["kind"])
    others = [entry("secret", secret), entry("space", unnamed), kind, made]
    live.declare(entry("web", web), *others)
    assert "+ 6 to create" in live.preview()  # the widget's kind isn't served yet
    assert "+ 6 created" in live.up()
    state = live.state()
    assert state["web"]["outputs"]["status"]["availableReplicas"] == 1
    assert state["web"]["id"] == f"{namespace}/web"
    assert state["space"]["id"].startswith("space-")
    live.up("--expect-no-changes")
    assert "6 unchanged" in live.refresh()
    for states in (state, live.state()):
        assert "hunter2" not in str(states)
        assert "aHVudGVyMg" not in str(states)  # nor in base64
    live.up("--expect-no-changes")

    web["metadata"]["labels"] = {"tier": "one"}
    live.declare(entry("web", web), *others)
    assert "~ 1 updated" in live.up()
    assert get(cluster, "Deployment", "web", namespace)["metadata"]["labels"] == {"tier": "one"}

    uid = get(cluster, "Deployment", "web", namespace)["metadata"]["uid"]
    web["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    web["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    live.declare(entry("web", web), *others)
    assert "+-1 replaced" in live.up()
    assert get(cluster, "Deployment", "web", namespace)["metadata"]["uid"] != uid

    # Somebody changes what the stack has set, and adds what it hasn't.
    cluster.objects.patch(
        "apps/v1", "Deployment", "web",
        {"metadata": {"labels": {"tier": "drifted", "theirs": "1"}}}, namespace,
    )  # fmt: skip
    assert "~ 1 updated" in live.refresh()
    refused = live.up(code=None)
    assert "conflict" in refused
    assert 'take them over with the annotation pulumi.com/patchForce: "true"' in refused
    web["metadata"]["annotations"] = {"pulumi.com/patchForce": "true"}
    live.declare(entry("web", web), *others)
    live.up()
    labels = get(cluster, "Deployment", "web", namespace)["metadata"]["labels"]
    assert labels == {"tier": "one", "theirs": "1"}

    cluster.objects.delete("v1", "Secret", "s", namespace)
    assert "- 1 deleted" in live.refresh()
    assert "+ 1 created" in live.up()
    assert "- 6 deleted" in live.destroy()
    assert get(cluster, "Deployment", "web", namespace) is None
    assert get(cluster, "Namespace", state["space"]["id"]) is None


def test_a_patch_of_what_comes_with_another_object(
    cluster: ControlPlane, live: LiveProject
) -> None:
    """A namespace brings its default service account; a stack says how that is."""
    account = {
        "apiVersion": "v1", "kind": "ServiceAccount",
        "metadata": {"name": "default", "namespace": "patched"},
        "automountServiceAccountToken": False,
    }  # fmt: skip
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "patched"}}
    live.declare(entry("space", space), patch("account", account, depends_on=["space"]))
    assert "+ 3 to create" in live.preview()  # with the stack itself
    assert "+ 3 created" in live.up()
    live.up("--expect-no-changes")
    found = get(cluster, "ServiceAccount", "default", "patched")
    assert found["automountServiceAccountToken"] is False

    live.declare(entry("space", space))
    live.up()
    left = get(cluster, "ServiceAccount", "default", "patched")
    assert left["metadata"]["uid"] == found["metadata"]["uid"]
    assert "automountServiceAccountToken" not in left
    live.destroy()


def test_texts_of_a_secret_that_somebody_changed_are_seen(
    cluster: ControlPlane, live: LiveProject, namespace: str
) -> None:
    """They are never given back as they were written; what was made of them is."""
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "s", "namespace": namespace},
        "stringData": {"user": "amina", "password": "hunter2"},
    }
    live.declare(entry("secret", secret))
    live.up()
    assert "2 unchanged" in live.refresh()  # with the stack itself
    stolen = base64.b64encode(b"stolen").decode()
    more = base64.b64encode(b"theirs").decode()
    change = {"data": {"password": stolen, "more": more}}
    cluster.objects.patch("v1", "Secret", "s", change, namespace)
    assert "~ 1 updated" in live.refresh()
    state = live.state()
    assert "stolen" not in str(state)
    assert stolen not in str(state)
    assert "+-1 replaced" in live.up()
    data = get(cluster, "Secret", "s", namespace)["data"]
    assert base64.b64decode(data["password"]) == b"hunter2"
    assert base64.b64decode(data["user"]) == b"amina"
    live.up("--expect-no-changes")
    cluster.objects.patch("v1", "Secret", "s", {"data": {"user": None}}, namespace)
    assert "~ 1 updated" in live.refresh()
    live.destroy()


def test_an_ingress_waits_for_its_address(
    cluster: ControlPlane, live: LiveProject, namespace: str
) -> None:
    """As with the vendor's provider; here nobody gives one, unless somebody says otherwise."""
    quick = {"pulumi.com/timeoutSeconds": "3"}
    live.declare(entry("web", ingress("web", namespace, annotations=quick)))
    failed = live.up(code=None)
    assert "wasn't ready within 3 s: no controller of class nginx has said where" in failed
    assert "pulumi.com/skipAwait" in failed
    assert live.state()["web"]["initErrors"]
    skipped = ingress("web", namespace, annotations={"pulumi.com/skipAwait": "true"})
    live.declare(entry("web", skipped))
    live.up()
    assert "initErrors" not in live.state()["web"]
    status = {"status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}}}
    cluster.objects.patch("networking.k8s.io/v1", "Ingress", "web", status, namespace,
                          part="status")  # fmt: skip
    live.declare(entry("web", ingress("web", namespace, annotations=quick)))
    live.up()
    (address,) = live.state()["web"]["outputs"]["status"]["loadBalancer"]["ingress"]
    assert address["ip"] == "10.0.0.9"
    live.destroy()


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
