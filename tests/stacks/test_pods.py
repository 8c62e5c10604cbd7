"""Logs and states of a team's pods: which are a workload's, what is said of them, and refusals."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Generator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml

from falaj.components.kubernetes._objects import Manifest
from falaj.stacks.command import kubeconfig, pods
from falaj.stacks.command.pods import Cluster, Workload
from falaj.stacks.errors import StackError
from falaj.stacks.settings.in_cluster import WorkloadsSettings
from tests.components.kubernetes import (
    test_batch_inference,
    test_canary,
    test_federated_training,
    test_pipeline,
    test_sweep,
    test_training_publication,
    test_watch,
    workspaces,
)

FOUND = {
    "training_jobs": ("fraud", test_training_publication.publishing),
    "sweeps": ("tuning", lambda: test_sweep.rendered(search=test_sweep.SEARCH)),
    "federated_trainings": (
        "claims", lambda: test_federated_training.rendered(**test_federated_training.SITE),
    ),
    "batch_inferences": ("scores", test_batch_inference.rendered),
    "pipelines": ("credit", test_pipeline.rendered),
    "inference_services": ("credit-risk", test_canary.tried),
    "workspaces": ("alice", workspaces.rendered),
}  # fmt: skip


def settings(**sections: Any) -> WorkloadsSettings:
    empty: dict[str, Any] = {key: {} for key in FOUND}
    return cast("WorkloadsSettings", SimpleNamespace(tenant="acme", **{**empty, **sections}))


def templates(value: object) -> Iterator[dict[str, Any]]:
    """Pods, and templates of pods, wherever they are."""
    if isinstance(value, dict):
        found = cast("dict[str, Any]", value)
        if "containers" in found.get("spec", {}) and "metadata" in found:
            yield found
        for each in found.values():
            yield from templates(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from templates(each)


@pytest.mark.parametrize(
    ("section", "found"),
    [*FOUND.items(), ("inference_services", ("credit-risk", test_watch.watched))],
    ids=[*FOUND, "watch"],
)
def test_a_workload_s_pods_are_found_by_their_labels(
    section: str, found: tuple[str, Callable[..., list[Manifest]]]
) -> None:
    name, rendered = found
    objects: list[Manifest] = rendered()
    [workload] = pods.workloads(settings(**{section: {name: SimpleNamespace(namespace=None)}}))
    made = [
        (each["metadata"]["namespace"], pod) for each in objects for pod in templates(dict(each))
    ]
    assert made
    for namespace, pod in made:
        assert namespace == workload.namespace
        labels = pod["metadata"]["labels"]
        assert all(labels[key] in values for key, values in workload.labels.items()), labels


def test_a_name_that_is_not_there_is_refused_with_the_nearest() -> None:
    found = pods.workloads(settings(sweeps={"rates": SimpleNamespace(namespace="team")}))
    assert pods.named(found, None, Path("f")) == found
    assert found[0].namespace == "team"
    with pytest.raises(StackError, match=r"given 'rate', .*allowed: rates; did you mean 'rates'"):
        pods.named(found, "rate", Path("stacks/Pulumi.dev.yaml"))


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "rates-0"}, "status": status}


def test_what_keeps_a_pod_from_writing_is_said() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such digest"}}
    failed = {"terminated": {"exitCode": 2, "reason": "Error"}}
    turn = {"waiting": {"reason": "PodInitializing"}}
    done = {"terminated": {"exitCode": 0, "reason": "Completed"}}
    found = pods.containers(
        pod(
            initContainerStatuses=[
                {"name": "keys", "state": done}, {"name": "package", "state": failed},
            ],
            containerStatuses=[
                {"name": "train", "state": turn}, {"name": "side", "state": waiting},
            ],
        )
    )  # fmt: skip
    assert [(each.name, each.state, each.has_begun) for each in found] == [
        ("package", "ended with status 2 (Error)", True),
        ("side", "waits: ImagePullBackOff: no such digest", False),
    ]
    unplaced = {"type": "PodScheduled", "status": "False", "message": "0/2 nodes are available"}
    assert pods.unplaced(pod(conditions=[unplaced])) == "0/2 nodes are available"


def test_pods_are_counted_by_their_state() -> None:
    ready = {"type": "Ready", "status": "True"}
    assert pods.summary([
        pod(phase="Succeeded"), pod(phase="Succeeded"), pod(phase="Running", conditions=[ready]),
        pod(phase="Running", conditions=[]),
    ]) == "1 Running, 1 Running and not ready, 2 Succeeded"  # fmt: skip


@pytest.fixture
def refusing() -> Generator[tuple[str, list[tuple[int, str]]]]:
    """An API server that refuses with a status and a message; its address."""
    answers = [(403, "pods is forbidden")]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, message = answers[0]
            said = json.dumps({"kind": "Status", "message": message}).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", answers
        server.shutdown()


def written(folder: Path, server: str) -> Path:
    file = folder / "config"
    file.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1", "kind": "Config", "current-context": "one",
                "clusters": [{"name": "one", "cluster": {"server": server}}],
                "users": [{"name": "one", "user": {}}],
                "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
            }
        )
    )  # fmt: skip
    return file


WORKLOAD = Workload("sweep", "rates", "acme-training", {"a": ("b",)}, "rates")


def test_refusals_and_silence_are_explained(
    tmp_path: Path, refusing: tuple[str, list[tuple[int, str]]]
) -> None:
    server, answers = refusing
    cluster = Cluster(pods.client_of_file(str(written(tmp_path, server)), "one"))
    with pytest.raises(StackError, match=r"pods is forbidden \(status 403\)\n .*falaj:tenants"):
        cluster.pods(WORKLOAD)
    # A login by a program that failed: the client asks as nobody.
    for answer in ((401, "Unauthorized"), (403, 'forbidden: User "system:anonymous" cannot list')):
        answers[0] = answer
        with pytest.raises(StackError, match="log in again"):
            cluster.why_it_waits(WORKLOAD)
    dead = Cluster(pods.client_of_file(str(written(tmp_path, "http://127.0.0.1:1")), "one"))
    with pytest.raises(StackError, match="doesn't answer about the pods of sweep rates"):
        dead.pods(WORKLOAD)
    with pytest.raises(StackError, match=r"context other.*\n.*falaj:context"):
        pods.client_of_file(str(written(tmp_path, server)), "other")


def test_kubectl_of_the_shell_goes_to_the_stack_s_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/given")
    of: Any = SimpleNamespace(cluster=None, context="abudhabi-dc1", kubeconfig=None)
    stack: Any = None
    with kubeconfig.variables(stack, of, sandbox=False) as found:
        first, second = found["KUBECONFIG"].split(os.pathsep)
        assert yaml.safe_load(Path(first).read_text())["current-context"] == "abudhabi-dc1"
        assert Path(first).stat().st_mode & 0o777 == 0o600
        assert second == "/given"
    assert not Path(first).exists()
    # As `kubectl` needs it, which expands nothing and begins elsewhere.
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    for path, there in (("~/prod", tmp_path / "home/prod"), ("site/prod", tmp_path / "site/prod")):
        of.kubeconfig = path
        with kubeconfig.variables(stack, of, sandbox=False) as found:
            assert found["KUBECONFIG"].split(os.pathsep)[1] == str(there)
    of.kubeconfig = None
    monkeypatch.setenv("FALAJ_SANDBOX_CLUSTER", str(tmp_path))
    with kubeconfig.variables(stack, of, sandbox=True) as found:
        assert found == {"KUBECONFIG": str(tmp_path)}
    monkeypatch.delenv("FALAJ_SANDBOX_CLUSTER")
    with kubeconfig.variables(stack, of, sandbox=True) as found:
        assert found == {"KUBECONFIG": os.devnull}, "and not the one below home"
