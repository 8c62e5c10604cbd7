"""Ways round admission: nulls, deletion without end, paths; and what controllers need of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from falaj.components.kubernetes.residency import check, manifests
from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import SIDE_BY_SIDE, wait_for
from tests.cluster.residency_cases import PLAIN, RESIDENCY, cases, in_kind, merged
from tests.cluster.residency_cluster import install, refusal
from tests.cluster.tenancy import refused

pytestmark = pytest.mark.cluster

SERVICE: dict[str, Any] = {
    "apiVersion": "v1", "kind": "Service",
    "metadata": {"name": "kept", "namespace": "acme-serving",
                 "finalizers": ["example.ae/kept"]},
    "spec": {"selector": {"app": "x"}, "ports": [{"port": 443}]},
}  # fmt: skip

NO_FINALIZERS: dict[str, Any] = {"metadata": {"finalizers": []}}


@pytest.fixture
def plane(residency_plane: ControlPlane) -> ControlPlane:
    return residency_plane


@pytest.fixture
def leaving(plane: ControlPlane) -> Iterator[str]:
    """A service that is being deleted, which its finalizer keeps."""
    plane.apply([SERVICE])
    plane.objects.delete("v1", "Service", "kept", "acme-serving")
    found = plane.objects.get("v1", "Service", "kept", "acme-serving")
    assert found
    assert found["metadata"]["deletionTimestamp"]
    yield "kept"
    _change(plane, "kept", NO_FINALIZERS)


def _change(plane: ControlPlane, service: str, change: dict[str, Any]) -> None:
    plane.objects.patch("v1", "Service", service, change, "acme-serving")


@pytest.mark.parametrize(
    ("change", "by"),
    [
        ({"spec": {"externalIPs": ["8.8.8.8"]}}, "claims addresses of others"),
        ({"spec": {"type": "NodePort"}}, "opens a port on every node"),
        (
            {"spec": {"type": "ExternalName", "externalName": "out.example.com", "selector": None,
                      "clusterIP": None, "clusterIPs": None}},
            "stands for a host elsewhere",
        ),
        ({"spec": {"type": "LoadBalancer"}}, "the load balancer would be public"),
    ],
    ids=["external-ips", "node-port", "external-name", "load-balancer"],
)  # fmt: skip
def test_what_is_being_deleted_is_judged_like_all_else(
    plane: ControlPlane, leaving: str, change: dict[str, Any], by: str
) -> None:
    assert by in refused(lambda: _change(plane, leaving, change))


def test_what_was_wrong_before_may_still_lose_its_finalizers(plane: ControlPlane) -> None:
    """The policies must not keep alive what they would refuse today."""
    old = {**SERVICE, "metadata": {**SERVICE["metadata"], "name": "old"}}
    for each in manifests(check("residency", RESIDENCY)):
        if each["metadata"]["name"] == "falaj-services":
            plane.objects.delete(each["apiVersion"], each["kind"], "falaj-services")
    wrong = merged(old, {"spec": {"type": "NodePort"}})
    wait_for(lambda: refusal(plane, wrong, real=True) == "", "the policy to be gone", 20)
    install(plane, RESIDENCY)
    wait_for(
        lambda: refusal(plane, merged(wrong, {"metadata": {"name": "new"}})), "its return", 20
    )
    plane.objects.delete("v1", "Service", "old", "acme-serving")
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert "opens a port" in refused(lambda: _change(plane, "old", labels))
    _change(plane, "old", NO_FINALIZERS)
    assert plane.objects.get("v1", "Service", "old", "acme-serving") is None


@pytest.fixture
def served(plane: ControlPlane) -> Iterator[str]:
    """A deployment whose pods run behind the service ``web``."""
    made = in_kind(
        "Deployment", "acme-serving", merged(PLAIN, {"serviceAccountName": "server"}), {}
    )
    account = {"apiVersion": "v1", "kind": "ServiceAccount",
               "metadata": {"name": "server", "namespace": "acme-serving"}}  # fmt: skip
    service = merged(SERVICE, {"metadata": {"name": "web", "finalizers": None}})
    plane.apply([account, merged(made, {"spec": {"replicas": 2}}), service])
    wait_for(lambda: len(_addresses(plane)) == 2, "two addresses behind the service", 60)
    yield "case"
    for version, kind, name in (("apps/v1", "Deployment", "case"), ("v1", "Service", "web")):
        plane.objects.delete(version, kind, name, "acme-serving")
    wait_for(lambda: not _pods(plane), "the pods to go with their deployment", 60)


def _pods(plane: ControlPlane) -> dict[str, Any]:
    return {
        each["metadata"]["name"]: each
        for each in plane.objects.list("v1", "Pod", "acme-serving", "app=x")
    }


def _addresses(plane: ControlPlane) -> list[str]:
    slices = plane.objects.list(
        "discovery.k8s.io/v1", "EndpointSlice", "acme-serving", "kubernetes.io/service-name=web"
    )
    return [
        address
        for each in slices
        for endpoint in each.get("endpoints") or []
        for address in endpoint["addresses"]
    ]


def test_a_service_scaled_to_zero_has_no_addresses(plane: ControlPlane, served: str) -> None:
    """A slice without endpoints has null in their place, and the controller has to write it."""
    plane.objects.patch("apps/v1", "Deployment", served, {"spec": {"replicas": 0}}, "acme-serving")
    wait_for(lambda: not _addresses(plane), "the last address to go", 60)


def test_a_deployment_is_rolled_under_the_policies(plane: ControlPlane, served: str) -> None:
    before = set(_pods(plane))
    note = {"spec": {"template": {"metadata": {"annotations": {"example.ae/turn": "2"}}}}}
    plane.objects.patch("apps/v1", "Deployment", served, note, "acme-serving")

    def is_rolled() -> bool:
        now = _pods(plane)
        return len(now) == 2 and not before & set(now) and len(_addresses(plane)) == 2

    wait_for(is_rolled, "new pods in the place of the old", 90)


def test_a_node_is_drained_under_the_policies(plane: ControlPlane, served: str) -> None:
    """Pods are evicted, and their controller makes others elsewhere."""
    name, pod = next(iter(_pods(plane).items()))
    node = pod["spec"]["nodeName"]
    plane.objects.patch("v1", "Node", node, {"spec": {"unschedulable": True}})
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": name, "namespace": "acme-serving"}}  # fmt: skip
    path = f"/api/v1/namespaces/acme-serving/pods/{name}/eviction"
    plane.objects.request("POST", path, eviction)

    def is_elsewhere() -> bool:
        now = _pods(plane)
        placed = [each for each in now.values() if "nodeName" in each["spec"]]
        return len(placed) == 2 and name not in now

    wait_for(is_elsewhere, "another pod in its place", 90)
    plane.objects.patch("v1", "Node", node, {"spec": {"unschedulable": None}})


def _secret(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret",
        "metadata": {"name": "stolen", "namespace": "acme-serving"},
        "spec": {"secretStoreRef": {"kind": "ClusterSecretStore", "name": "falaj"}, **spec},
    }  # fmt: skip


def _entry(key: str) -> dict[str, Any]:
    return {"data": [{"secretKey": "k", "remoteRef": {"key": key}}]}


GENERATOR = {"apiVersion": "generators.external-secrets.io/v1alpha1", "kind": "Webhook",
             "name": "out"}  # fmt: skip


@pytest.mark.parametrize(
    "spec",
    [
        _entry("acme-bank/model-keys"),
        _entry("acme/../bank/model-keys"),
        _entry("acme/./model-keys"),
        _entry("acme//model-keys"),
        _entry("acme/"),
        _entry("acme"),
        _entry("/acme/model-keys"),
        _entry("acme/model-keys/.."),
        _entry("acme-model-keys"),
        _entry("ACME/model-keys"),
        {"dataFrom": [{"extract": {"key": "acme-bank/all"}}]},
        {"dataFrom": [{"find": {"name": {"regexp": ".*"}}}]},
        {"dataFrom": [{"sourceRef": {"generatorRef": GENERATOR}}]},
        {"data": [{"secretKey": "k", "remoteRef": {"key": "acme/a"},
                   "sourceRef": {"generatorRef": GENERATOR}}]},
    ],
    ids=str,
)  # fmt: skip
def test_secrets_of_others_by_their_paths(plane: ControlPlane, spec: dict[str, Any]) -> None:
    assert "secrets that aren't the tenant's are read" in refusal(plane, _secret(**spec))


@pytest.mark.parametrize("key", ["acme/a", "acme/models/credit.v2", "acme/model_keys@1"])
def test_secrets_of_ones_own(plane: ControlPlane, key: str) -> None:
    assert refusal(plane, _secret(**_entry(key))) == ""
    assert refusal(plane, _secret(dataFrom=[{"extract": {"key": key}}])) == ""


def _nulled(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The same with one key at a time null, empty, or said twice, at any depth; and what it is."""
    if isinstance(value, dict):
        for key, each in value.items():
            at = f"{path}.{key}"
            yield f"{at} null", {**value, key: None}
            if isinstance(each, dict | list | str):
                yield f"{at} empty", {**value, key: type(each)()}
            for what, inner in _nulled(each, at):
                yield what, {**value, key: inner}
    elif isinstance(value, list):
        yield f"{path} twice", [*value, *value]
        for index, each in enumerate(value):
            for what, inner in _nulled(each, f"{path}[]"):
                yield what, [*value[:index], inner, *value[index + 1 :]]


#: In how many cases a change is tried: more differ in a field elsewhere alone.
CASES_OF_A_CHANGE = 3
#: What an expression that fails is told by; a clear refusal, or an invalid object's, is none.
ERRORS = ("resulted in error", "no such overload", "no such key", "failed to evaluate")


def test_no_expression_fails_on_what_is_null_or_empty(plane: ControlPlane) -> None:
    seen: Counter[tuple[str, str]] = Counter()
    tried: list[tuple[str, dict[str, Any]]] = []
    for case in (*cases("forbidden/pods.yaml"), *cases("forbidden/objects.yaml"),
                 *cases("permitted/tenants.yaml")):  # fmt: skip
        about = {key: case.manifest[key] for key in ("apiVersion", "kind", "metadata")}
        rest = {key: each for key, each in case.manifest.items() if key not in about}
        for what, changed in _nulled(rest):
            seen[case.manifest["kind"], what] += 1
            if seen[case.manifest["kind"], what] <= CASES_OF_A_CHANGE:
                tried.append((f"{case}: {what}", {**about, **changed}))
    assert len(seen) > 500
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        answers = list(pool.map(lambda each: refusal(plane, each[1], create=True), tried))
    assert any("ValidatingAdmissionPolicy" in said for said in answers)
    failed = {
        what: said
        for (what, _), said in zip(tried, answers, strict=True)
        if "ValidatingAdmissionPolicy" in said and any(each in said for each in ERRORS)
    }
    assert not failed
