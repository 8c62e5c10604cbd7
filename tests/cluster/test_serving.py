"""Inference services on a real control plane: admission, schemas, rollouts, spread, rights."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from falaj.engine.controlplane import ControlPlane, start
from tests.cluster.tenancy import SITE, eventually, members, refused, tenant_objects
from tests.components.kubernetes.serving_services import DIGEST, GPU, OVERFLOW, by_key, service

pytestmark = pytest.mark.cluster
NAMESPACE = "acme-serving"
FIRST = {"version": 7, "weight": 100, "package_digest": DIGEST, "keys_digest": DIGEST}
SECOND = {**FIRST, "version": 8, "weight": 20, "header": "next"}
PLACE = {
    "region": SITE.region,
    "zones": list(SITE.zones),
    "cpus": 1,
    "memory_mib": 512,
    "model_mib": 64,
}
APPS = "apps/v1"
DEFINITIONS = (
    "gateway-api", "cert-manager", "prometheus-operator", "keda", "external-secrets", "istio",
)  # fmt: skip
#: Of those definitions: what a service declares.
DECLARED = (
    "AuthorizationPolicy", "BackendTLSPolicy", "Certificate", "ExternalSecret", "HTTPRoute",
    "PeerAuthentication", "PodMonitor", "PrometheusRule", "ScaledObject",
)  # fmt: skip
#: Every second machine stands in the other zone.
ZONES = replace(SITE, nodes_in_rack=1, racks_in_block=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[ControlPlane]:
    """Machines in two zones, and a tenant that may serve on GPUs."""
    with start(nodes="l4=2,cpu=4", controllers=(), site=ZONES) as found:
        found.define(*DEFINITIONS, kinds=DECLARED)
        found.apply([_priority(), _monitoring()])
        tenant = tenant_objects("acme", serving={"devices": {"nvidia.com/gpu": 4}})
        # Services aren't queued, so Kueue isn't here.
        found.apply([each for each in tenant if "kueue" not in each["apiVersion"]])
        eventually("the quota is counted", lambda: _is_counted(found))
        yield found


def _priority() -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
        "metadata": {"name": "falaj-high"}, "value": 10_000, "preemptionPolicy": "Never",
    }  # fmt: skip


def _monitoring() -> dict[str, Any]:
    """Where the tenant's alerts go; the platform makes it."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "monitoring"}}


def _is_counted(cluster: ControlPlane) -> bool:
    quotas = cluster.objects.list("v1", "ResourceQuota", NAMESPACE)
    return bool(quotas) and all(each.get("status", {}).get("hard") for each in quotas)


def replicas(cluster: ControlPlane, name: str, count: int) -> list[dict[str, Any]]:
    """Set the number of replicas, as the autoscaler would; returns them once they run."""
    cluster.objects.patch(APPS, "Deployment", name, {"spec": {"replicas": count}}, NAMESPACE)

    def ready() -> bool:
        found = cluster.objects.get(APPS, "Deployment", name, NAMESPACE) or {}
        status = found.get("status", {})
        seen = status.get("observedGeneration", 0) >= found.get("metadata", {}).get(
            "generation", 1
        )
        counts = {status.get(each) for each in ("replicas", "updatedReplicas", "readyReplicas")}
        # None of before: a change that is still being rolled out has more of them for a while.
        return seen and counts == {count} and len(pods_of(cluster, name)) == count

    eventually(f"{count} replicas of {name} are ready", ready)
    return pods_of(cluster, name)


def pods_of(cluster: ControlPlane, name: str) -> list[dict[str, Any]]:
    base, _, version = name.rpartition("-v")
    labels = f"app.kubernetes.io/name={base},falaj.io/version={version}"
    found = cluster.objects.list("v1", "Pod", NAMESPACE, labels)
    return [each for each in found if not each["metadata"].get("deletionTimestamp")]


def zones_of(cluster: ControlPlane, pods: list[dict[str, Any]]) -> Counter[str]:
    nodes = {
        each["metadata"]["name"]: each["metadata"]["labels"]
        for each in cluster.objects.list("v1", "Node")
    }
    return Counter(nodes[each["spec"]["nodeName"]]["topology.kubernetes.io/zone"] for each in pods)


def test_both_tiers_apply_strictly_and_again_without_a_change(cluster: ControlPlane) -> None:
    tiers = [
        *service(**PLACE, versions=[FIRST], overflow=OVERFLOW, mesh=True),
        *service("credit-risk-gpu", **{**PLACE, "cpus": 2}, **GPU, versions=[FIRST]),
    ]
    before = cluster.apply(tiers)
    after = cluster.apply(tiers)
    spoken = [[each["metadata"]["generation"] for each in run if "generation" in each["metadata"]]
              for run in (before, after)]  # fmt: skip
    assert spoken[0] == spoken[1]


def test_a_field_that_a_definition_lacks_is_refused(cluster: ControlPlane) -> None:
    """So that what was applied above is known to have been looked at."""
    for kind, path in (
        ("ScaledObject", "pollInterval"), ("HTTPRoute", "weights"), ("PodMonitor", "bearer"),
        ("ExternalSecret", "store"), ("AuthorizationPolicy", "principals"),
        ("Certificate", "keySize"), ("BackendTLSPolicy", "tls"), ("PeerAuthentication", "tls"),
    ):  # fmt: skip
        manifest = next(
            copy.deepcopy(dict(each))
            for each in service(**PLACE, versions=[FIRST]) if each["kind"] == kind
        )  # fmt: skip
        manifest["spec"][path] = "x"
        with pytest.raises(ApiException) as caught:
            cluster.apply([manifest], dry_run=True)
        assert path in str(caught.value.body)


def test_replicas_spread_over_zones_and_nodes(cluster: ControlPlane) -> None:
    cluster.apply(service(**PLACE, versions=[FIRST]))
    pods = replicas(cluster, "credit-risk-v7", 4)
    assert sorted(zones_of(cluster, pods).values()) == [2, 2]
    assert len({each["spec"]["nodeName"] for each in pods}) == 4
    for each in pods:
        assert each["spec"]["serviceAccountName"] == "inference"
        assert not any("projected" in volume for volume in each["spec"]["volumes"])


def test_the_gpu_tier_lands_on_machines_of_its_flavor(cluster: ControlPlane) -> None:
    cluster.apply(service("credit-risk-gpu", **{**PLACE, "cpus": 2}, **GPU, versions=[FIRST]))
    pods = replicas(cluster, "credit-risk-gpu-v7", 2)
    nodes = {each["metadata"]["name"]: each for each in cluster.objects.list("v1", "Node")}
    for each in pods:
        labels = nodes[each["spec"]["nodeName"]]["metadata"]["labels"]
        assert labels["falaj.io/flavor"] == "l4"


def test_a_second_version_leaves_the_first_alone_and_rolls_back(cluster: ControlPlane) -> None:
    cluster.apply(service(**PLACE, versions=[FIRST]))
    stable = {each["metadata"]["uid"] for each in replicas(cluster, "credit-risk-v7", 2)}
    cluster.apply(service(**PLACE, versions=[{**FIRST, "weight": 80}, SECOND]))
    replicas(cluster, "credit-risk-v8", 2)
    assert {each["metadata"]["uid"] for each in pods_of(cluster, "credit-risk-v7")} == stable
    assert _shares(cluster) == {"credit-risk-v7": 80, "credit-risk-v8": 20}
    cluster.apply(service(**PLACE, versions=[FIRST, {**SECOND, "weight": 0}]))
    assert _shares(cluster) == {"credit-risk-v7": 100, "credit-risk-v8": 0}
    # What was scaled stays as the autoscaler left it.
    assert {each["metadata"]["uid"] for each in pods_of(cluster, "credit-risk-v7")} == stable
    assert len(pods_of(cluster, "credit-risk-v8")) == 2


def _shares(cluster: ControlPlane) -> dict[str, int]:
    route = cluster.objects.get(
        "gateway.networking.k8s.io/v1", "HTTPRoute", "credit-risk", NAMESPACE
    )
    assert route is not None
    return {each["name"]: each["weight"] for each in route["spec"]["rules"][-1]["backendRefs"]}


def test_one_replica_at_a_time_may_be_evicted(cluster: ControlPlane) -> None:
    cluster.apply(service(**PLACE, versions=[FIRST]))
    replicas(cluster, "credit-risk-v7", 4)

    def allowed() -> bool:
        budget = cluster.objects.get(
            "policy/v1", "PodDisruptionBudget", "credit-risk-v7", NAMESPACE
        )
        status = (budget or {}).get("status", {})
        return (status.get("expectedPods"), status.get("disruptionsAllowed")) == (4, 1)

    eventually("the budget allows one of four", allowed)


def test_a_new_image_never_takes_a_ready_replica_away_first(cluster: ControlPlane) -> None:
    cluster.apply(service(**PLACE, versions=[FIRST]))
    replicas(cluster, "credit-risk-v7", 2)
    other = f"sha256:{'9' * 64}"
    cluster.apply(
        service(**PLACE, versions=[FIRST], images={"falaj-inference": other, "triton": DIGEST})
    )
    least = 2

    def rolled() -> bool:
        nonlocal least
        status = (cluster.objects.get(APPS, "Deployment", "credit-risk-v7", NAMESPACE) or {}).get(
            "status", {}
        )
        least = min(least, status.get("availableReplicas", 0))
        pods = pods_of(cluster, "credit-risk-v7")
        return len(pods) == 2 and all(
            other in each["spec"]["containers"][0]["image"] for each in pods
        )

    eventually("both replicas are of the new image", rolled)
    assert least == 2


def test_deployers_change_versions_and_neither_doors_nor_keys(cluster: ControlPlane) -> None:
    objects = by_key(service(**PLACE, versions=[{**FIRST, "weight": 80}, SECOND]))
    deployer = members(cluster, "acme", "deployers")
    for name in ("Deployment/credit-risk-v8", "Service/credit-risk-v8", "HTTPRoute/credit-risk",
                 "ScaledObject/credit-risk-v8", "PodDisruptionBudget/credit-risk-v8"):  # fmt: skip
        deployer.apply([objects[name]])
    for name in ("NetworkPolicy/credit-risk", "AuthorizationPolicy/credit-risk",
                 "PeerAuthentication/credit-risk", "ExternalSecret/credit-risk-keys"):  # fmt: skip
        assert "forbidden" in refused(lambda name=name: deployer.apply([objects[name]]))
    trainer = members(cluster, "acme", "trainers")
    assert "forbidden" in refused(lambda: trainer.apply([objects["Deployment/credit-risk-v8"]]))
    stranger = members(cluster, "rival", "deployers")
    said = refused(lambda: stranger.get("v1", "Secret", "credit-risk-keys", NAMESPACE))
    assert "forbidden" in said


def test_a_replica_that_asks_for_more_rights_is_not_admitted(cluster: ControlPlane) -> None:
    pod = by_key(service(**PLACE, versions=[FIRST]))["Deployment/credit-risk-v7"]["spec"][
        "template"
    ]
    for change in (
        {"hostNetwork": True}, {"securityContext": {}},
        {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]},
    ):  # fmt: skip
        spec = {**pod["spec"], **change}
        if "volumes" in change:
            spec["volumes"] = [*pod["spec"]["volumes"], *change["volumes"]]
        one = {"apiVersion": "v1", "kind": "Pod", "spec": spec,
               "metadata": {"name": "bold", "namespace": NAMESPACE}}  # fmt: skip
        said = refused(lambda one=one: cluster.objects.create(one))
        assert "violates PodSecurity" in said
