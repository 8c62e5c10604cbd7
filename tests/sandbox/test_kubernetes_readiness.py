"""When objects are ready, and what is said of those that aren't."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from falaj.engine.errors import EngineError
from falaj.sandbox.cluster import readiness
from falaj.sandbox.cluster.connection import ApiError
from falaj.sandbox.cluster.objects import Address, ServedKind
from falaj.sandbox.cluster.readiness import state


def made(kind: str, spec: Any = None, status: Any = None, **metadata: Any) -> dict[str, Any]:
    versions = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1",
                "Job": "batch/v1", "CustomResourceDefinition": "apiextensions.k8s.io/v1",
                "Ingress": "networking.k8s.io/v1", "Widget": "example.org/v1"}  # fmt: skip
    return {
        "apiVersion": versions.get(kind, "v1"),
        "kind": kind,
        "metadata": {"name": "x", "generation": 2, **metadata},
        "spec": spec or {},
        "status": status or {},
    }


def conditions(**given: str) -> dict[str, Any]:
    return {"conditions": [{"type": key, "status": value} for key, value in given.items()]}


SEEN = {"observedGeneration": 2}
FULL = {**SEEN, "replicas": 2, "updatedReplicas": 2, "availableReplicas": 2, "readyReplicas": 2}


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (made("Deployment", {"replicas": 2}, {"observedGeneration": 1}), "hasn't seen"),
        (
            made("Deployment", {"replicas": 2}, {**FULL, "updatedReplicas": 1}),
            "1 of 2 pods are",
        ),
        (made("Deployment", {"replicas": 2}, {**FULL, "replicas": 3}), "1 pods of an older"),
        (made("Deployment", {"replicas": 2}, {**FULL, "availableReplicas": 0}), "0 of 2 pods are"),
        (made("Deployment", {"replicas": 2}, FULL), ""),
        (made("Deployment", {"replicas": 0}, SEEN), ""),
        (
            made("StatefulSet", {"replicas": 2}, {**FULL, "readyReplicas": 1}),
            "1 of 2 pods",
        ),
        (
            made("StatefulSet", {"replicas": 2}, {**FULL, "updateRevision": "b"}),
            "2 of 2 pods are of the newest",
        ),
        (
            made(
                "StatefulSet",
                {"replicas": 2, "updateStrategy": {"type": "OnDelete"}},
                {**FULL, "updateRevision": "b"},
            ),
            "",
        ),
        (made("DaemonSet", {}, {**SEEN, "desiredNumberScheduled": 1}), "0 of 1 pods"),
        (made("DaemonSet", {}, {**SEEN, "desiredNumberScheduled": 0}), ""),
        (made("Job", {"suspend": True}), "it is suspended"),
        (made("Job", {"completions": 3}, {"active": 1}), "0 of 3 completions, 1 pods active"),
        (made("Job", {}, conditions(Complete="True")), ""),
        (made("Namespace", {}, {"phase": "Terminating"}), "its phase is Terminating"),
        (made("PersistentVolumeClaim", {}, {"phase": "Pending"}), "its phase is Pending"),
        (made("Service", {"type": "LoadBalancer"}), "no load balancer was assigned"),
        (made("Service", {"type": "ClusterIP"}), ""),
        (made("Ingress", {"ingressClassName": "nginx"}), "no controller of class nginx has said"),
        (made("Ingress"), "no controller (it names no class) has said where it is reached"),
        (made("Ingress", {}, {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}}), ""),
        (made("CustomResourceDefinition"), "isn't established"),
        (made("CustomResourceDefinition", {}, conditions(Established="True")), ""),
        (made("Pod", {}, {"phase": "Pending"}), "its phase is Pending"),
        (made("Pod", {}, {"phase": "Succeeded"}), ""),
        (made("Widget"), ""),
    ],
)
def test_state_of_each_kind(found: dict[str, Any], reason: str) -> None:
    told = state(found)
    assert told.ready is (reason == "")
    assert reason in told.reason


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (made("Job", {}, conditions(Failed="True")), "it failed"),
        (
            made(
                "Deployment",
                {},
                {**SEEN, "conditions": [
                    {"type": "Progressing", "reason": "ProgressDeadlineExceeded",
                     "message": "late"}
                ]},
            ),
            "late",
        ),
        (made("Pod", {}, {"phase": "Failed", "message": "evicted"}), "evicted"),
        (made("CustomResourceDefinition", {}, conditions(NamesAccepted="False")), "names"),
    ],
)  # fmt: skip
def test_what_will_not_become_ready_is_told_at_once(found: dict[str, Any], reason: str) -> None:
    told = state(found)
    assert told.failed
    assert reason in told.reason


@pytest.mark.parametrize(
    ("wish", "ready"),
    [
        ("condition=Ready", True),
        ("condition=Ready=false", False),
        ("condition=Other", False),
        ("jsonpath={.status.items[0].name}=a", True),
        ("jsonpath={.status.items[0].name}", True),
        ("jsonpath={.status.items[1].name}", False),
        ("jsonpath={.status.phase}=Running", False),
        ('["condition=Ready", "jsonpath={.status.items[0].name}=a"]', True),
        ('["condition=Ready", "condition=Other"]', False),
        ("soon", False),
        ("[soon", False),
    ],
)
def test_annotation_says_for_what_is_waited(wish: str, ready: bool) -> None:
    status = {**conditions(Ready="True"), "items": [{"name": "a"}]}
    found = made("Widget", {}, status, annotations={"pulumi.com/waitFor": wish})
    assert readiness.is_awaited(found)
    assert state(found).ready is ready
    assert state(found).failed is (wish in ("soon", "[soon"))


def test_a_pods_problems_name_its_containers() -> None:
    status = {
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
             "message": "0/3 nodes are available"},
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady"},
        ],
        "containerStatuses": [
            {"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no"}}}
        ],
    }  # fmt: skip
    assert readiness.pod_problems(made("Pod", {}, status)) == [
        "PodScheduled: Unschedulable: 0/3 nodes are available",
        "container c: ImagePullBackOff: no",
    ]


class Plane:
    """Answers with services and their slices, by name."""

    def __init__(self, services: dict[str, Any], slices: list[str]) -> None:
        self.cancelled = threading.Event()
        self.asked = 0
        self._services, self._slices = services, slices

    def get(self, path: str, **query: str) -> Any:
        self.asked += 1
        name = query.get("labelSelector", "").partition("=")[2]
        if path.endswith("/endpointslices"):
            return {"items": [{}] if name in self._slices else []}
        name = path.rpartition("/services/")[2]
        if "/services/" in path and name not in self._services:
            raise ApiError(404, "NotFound", "no such service")
        return self._services[name] if "/services/" in path else self.ingress

    ingress: Any = None


@pytest.mark.parametrize(
    ("services", "slices", "asked"),
    [
        ({}, ["web"], 1),
        ({"web": {"spec": {"type": "ExternalName"}}}, [], 2),
        # It may never be there: after a while an ingress goes on without.
        ({}, [], 3),
        ({"web": {"spec": {"type": "ClusterIP"}}}, [], 3),
    ],
)
def test_an_ingress_waits_a_while_for_its_services(
    monkeypatch: pytest.MonkeyPatch, services: dict[str, Any], slices: list[str], asked: int
) -> None:
    monkeypatch.setattr(readiness, "_SETTLING_SECONDS", 0.2)
    backend = {"service": {"name": "web", "port": {"number": 80}}}
    paths = [{"path": "/", "backend": backend}, {"path": "/x", "backend": {"resource": {}}}]
    found = made(
        "Ingress", {"rules": [{"http": {"paths": paths}}, {"host": "a"}]},
        {"loadBalancer": {"ingress": [{"ip": "10.0.0.9"}]}},
    )  # fmt: skip
    plane: Any = Plane(services, slices)
    plane.ingress = found
    kind = ServedKind("networking.k8s.io/v1", "Ingress", "ingresses", namespaced=True)
    address = Address(kind, "team", "x")
    assert readiness.until_ready(plane, address, found, 5) == (found, "")
    assert plane.asked >= asked
    assert (plane.asked > 2) is (asked > 2)


@pytest.mark.parametrize("text", ["soon", "-1", "0", "nan", "inf"])
def test_time_out_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(EngineError, match=r"timeoutSeconds: .* is no number of seconds above 0"):
        readiness.limit({"metadata": {"annotations": {"pulumi.com/timeoutSeconds": text}}}, 0)


def test_time_out_of_the_resource_comes_before_the_annotation() -> None:
    annotated = {"metadata": {"annotations": {"pulumi.com/timeoutSeconds": "30"}}}
    assert readiness.limit(annotated, 7) == 7
    assert readiness.limit(annotated, 0) == 30
    assert readiness.limit({}, 0) == 600


@pytest.mark.parametrize(
    ("status", "text", "passing", "immutable"),
    [
        (500, 'Internal error: failed calling webhook "x"', True, False),
        (500, "a bug", False, False),
        (503, "starting", True, False),
        (422, "spec.selector: Invalid value: field is immutable", False, True),
        (403, "denied: field is immutable", False, False),
    ],
)
def test_what_may_pass_and_what_never_will(
    status: int, text: str, passing: bool, immutable: bool
) -> None:
    error = ApiError(status, "", text)
    assert (error.is_passing, error.is_immutable) == (passing, immutable)


def test_answer_that_is_no_status_is_told_as_it_is() -> None:
    assert str(ApiError.of(502, b"<html>bad gateway</html>")) == "<html>bad gateway</html>"
    assert str(ApiError.of(502, b"[1]")) == "[1]"
    assert str(ApiError.of(500, b"")) == "HTTP status 500"


def test_field_that_a_kind_does_not_have_is_a_refusal() -> None:
    text = "failed to create typed patch object: .spec.sizes: field not declared in schema"
    assert ApiError(500, "InternalError", text).is_refusal
    assert ApiError(422, "Invalid", "spec.x: Invalid value").is_refusal
    assert not ApiError(422, "Invalid", "field is immutable").is_refusal
    assert not ApiError(404, "NotFound", "namespaces not found").is_refusal
