"""What a tenant's namespaces admit: quotas, priorities, standards, kinds of GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import wait_for
from tests.cluster.tenancy import (
    FORBIDDEN,
    GPU,
    counted,
    eventually,
    members,
    platform_of,
    pod,
    pod_spec,
    refused,
    tenant_objects,
)
from tests.components.kubernetes import test_gateway, test_storage_classes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

WORKLOAD = "kueue.x-k8s.io/v1beta2"
TRAINING, SERVING = "limits-training", "limits-serving"
GIVEN: dict[str, Any] = {
    "training": {
        "cpu": 32, "memory_gib": 128, "pods": 8, "devices": {GPU: 8},
        "storage_gib": {"falaj-block": 10, "falaj-files": 20}, "largest_pod_memory_gib": 64,
    },
    "serving": {"devices": {"nvidia.com/mig-1g.18gb": 2}},
    "egress": {"file-system": {"cidrs": ["10.20.0.0/20"], "ports": [988]}},
}  # fmt: skip
SMALL = {"cpu": "1", "memory": "1Gi"}


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with platform_of(control_plane) as found:
        found.apply(tenant_objects("limits", **GIVEN))
        eventually("quotas are counted", lambda: counted(found, TRAINING, SERVING))
        eventually("policies hold", lambda: _policies_hold(found))
        yield found


def _policies_hold(cluster: ControlPlane) -> bool:
    """Whether the tenant's admission policies are asked: a moment after they came."""
    foreign = pod(TRAINING, "probe", {**SMALL, "nvidia.com/gpu.shared": "1"})
    urgent = pod(TRAINING, "probe", SMALL)
    urgent["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": "unknown"}
    # A quota refuses the first as well.
    for each, said in ((foreign, "was given nvidia.com/gpu"), (urgent, "has the priorities")):
        try:
            cluster.apply([each], dry_run=True)
        except ApiException as error:
            assert error.status == FORBIDDEN, error.body
            if said not in str(error.body):
                return False
        else:
            return False
    return True


def test_a_tenant_applies_and_applies_again_without_a_change(cluster: ControlPlane) -> None:
    """Strictly: no field that the installed definitions don't know."""
    objects = tenant_objects("limits", **GIVEN)
    before = cluster.apply(objects)
    after = cluster.apply(objects)
    assert [_given(each) for each in after] == [_given(each) for each in before]


def _given(found: dict[str, Any]) -> dict[str, Any]:
    """An object without what controllers say of it meanwhile, its version included."""
    kept = {key: value for key, value in found.items() if key != "status"}
    changing = ("resourceVersion", "managedFields")
    about = {key: value for key, value in found["metadata"].items() if key not in changing}
    return {**kept, "metadata": about}


@pytest.mark.parametrize(
    ("resources", "reason"),
    [
        ({**SMALL, "cpu": "33"}, "exceeded quota: compute"),
        ({**SMALL, "memory": "65Gi"}, "maximum memory usage per Pod is 64Gi"),
        ({**SMALL, GPU: "9"}, "exceeded quota: compute"),
        ({**SMALL, "nvidia.com/gpu.shared": "1"}, "was given nvidia.com/gpu"),
        ({**SMALL, "nvidia.com/mig-3g.71gb": "1"}, "was given nvidia.com/gpu"),
    ],
)
def test_what_is_more_than_was_given_is_refused(
    cluster: ControlPlane, resources: dict[str, str], reason: str
) -> None:
    said = refused(lambda: cluster.objects.create(pod(TRAINING, "greedy", resources)))
    assert reason in said


def test_serving_has_its_own_kinds_of_gpus(cluster: ControlPlane) -> None:
    changes = {"serviceAccountName": "inference"}
    slices = {**SMALL, "nvidia.com/mig-1g.18gb": "2"}
    cluster.objects.create(pod(SERVING, "slices", slices, **changes))
    said = refused(lambda: cluster.objects.create(pod(SERVING, "more", slices, **changes)))
    assert "exceeded quota: compute" in said
    whole = {**SMALL, GPU: "1"}
    said = refused(lambda: cluster.objects.create(pod(SERVING, "whole", whole, **changes)))
    assert "exceeded quota: compute" in said
    cluster.objects.delete("v1", "Pod", "slices", SERVING, 0)


@pytest.mark.parametrize("name", ["falaj-urgent", "system-node-critical"])
def test_priorities_that_were_not_given_are_refused(cluster: ControlPlane, name: str) -> None:
    value = 100_000 if name == "falaj-urgent" else None
    if value:
        about = {"name": name}
        cluster.apply([{
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": about,
            "value": value, "preemptionPolicy": "PreemptLowerPriority", "globalDefault": False,
        }])  # fmt: skip
    urgent = pod(TRAINING, "urgent", SMALL, priorityClassName=name)

    def said_of_priority() -> str:
        said = refused(lambda: cluster.objects.create(urgent))
        # Admission hears of a new class a moment later.
        return "" if "no PriorityClass" in said else said

    assert "falaj-low, falaj-normal, falaj-high only" in wait_for(said_of_priority, "class")
    labelled = pod(TRAINING, "urgent", SMALL)
    labelled["metadata"]["labels"] = {"kueue.x-k8s.io/priority-class": name}
    said = refused(lambda: cluster.objects.create(labelled))
    assert "limits has the priorities falaj-low, falaj-normal, falaj-high only" in said


@pytest.mark.parametrize(
    "change",
    [
        {"priority": 1_000_000},
        {"priorityClassRef": {
            "group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "falaj-urgent",
        }},
        {"queueName": "other"},
    ],
    ids=["priority", "class", "queue"],
)  # fmt: skip
def test_admins_stop_what_is_queued_and_bring_it_no_further(
    cluster: ControlPlane, change: dict[str, Any]
) -> None:
    """Kueue lets whoever may change a workload give it any priority while it waits."""
    template = {"spec": pod_spec(SMALL, restartPolicy="Never")}
    cluster.apply([{
        "apiVersion": WORKLOAD, "kind": "Workload",
        "metadata": {"name": "queued", "namespace": TRAINING},
        "spec": {"queueName": "default", "priority": 0,
                 "podSets": [{"name": "main", "count": 1, "template": template}]},
    }])  # fmt: skip
    admin = members(cluster, "limits", "admins")
    said = refused(lambda: admin.patch(WORKLOAD, "Workload", "queued", {"spec": change}, TRAINING))
    assert "admins of limits only stop and start" in said
    for active in (False, True):
        admin.patch(WORKLOAD, "Workload", "queued", {"spec": {"active": active}}, TRAINING)
    cluster.objects.delete(WORKLOAD, "Workload", "queued", TRAINING)


def _service(kind: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "way-in", "namespace": SERVING},
        "spec": {"type": kind, "selector": {"a": "b"}, "ports": [{"port": 80}]},
    }


@pytest.mark.parametrize("kind", ["LoadBalancer", "NodePort"])
def test_no_way_in_past_the_gateway(cluster: ControlPlane, kind: str) -> None:
    said = refused(lambda: cluster.objects.create(_service(kind)))
    assert "exceeded quota: objects" in said


def _claim(name: str, gib: int, storage_class: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": TRAINING},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": storage_class,
            "resources": {"requests": {"storage": f"{gib}Gi"}},
        },
    }


def test_storage_is_counted_by_class(cluster: ControlPlane) -> None:
    said = refused(lambda: cluster.objects.create(_claim("large", 11, "falaj-block")))
    assert "exceeded quota: storage" in said
    said = refused(lambda: cluster.objects.create(_claim("huge", 21, "falaj-files")))
    assert "maximum storage usage per PersistentVolumeClaim is 20Gi" in said
    cluster.objects.create(_claim("fits", 10, "falaj-block"))
    said = refused(lambda: cluster.objects.create(_claim("more", 1, "falaj-block")))
    assert "exceeded quota: storage" in said
    cluster.objects.delete("v1", "PersistentVolumeClaim", "fits", TRAINING)


@pytest.mark.parametrize(
    "changes",
    [
        {"hostNetwork": True},
        {"hostPID": True},
        {"securityContext": {}},
        {"volumes": [{"name": "node", "hostPath": {"path": "/"}}]},
        {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "Unconfined"}}},
    ],
)
def test_pods_meet_the_restricted_standard(cluster: ControlPlane, changes: dict[str, Any]) -> None:
    for namespace, account in ((TRAINING, "trainer"), (SERVING, "inference")):
        bad = pod(namespace, "bad", SMALL, **{"serviceAccountName": account, **changes})
        said = refused(lambda one=bad: cluster.objects.create(one))
        assert 'violates PodSecurity "restricted:v1.35"' in said


def test_pods_get_no_token_and_sizes_where_they_name_none(cluster: ControlPlane) -> None:
    bare = pod(TRAINING, "bare", {})
    del bare["spec"]["automountServiceAccountToken"]
    del bare["spec"]["serviceAccountName"]
    del bare["spec"]["containers"][0]["resources"]
    made = cluster.objects.create(bare)
    assert made["spec"]["serviceAccountName"] == "default"
    assert not any("projected" in each for each in made["spec"].get("volumes", []))
    resources = made["spec"]["containers"][0]["resources"]
    sizes = {"memory": "256Mi", "ephemeral-storage": "1Gi"}
    assert resources["requests"] == {"cpu": "100m", **sizes}
    assert resources["limits"] == sizes
    cluster.objects.delete("v1", "Pod", "bare", TRAINING, 0)


@pytest.mark.parametrize("place", test_gateway.PLACES)
def test_gateways_and_storage_classes_are_what_the_definitions_ask_for(
    cluster: ControlPlane, place: str
) -> None:
    """Strictly, as a dry run. Snapshot classes have no Go module that their schema came from."""
    cluster.define("gateway-api", "envoy-gateway", "cert-manager")
    gateways = test_gateway.gateway(
        place,
        login=test_gateway.LOGIN,
        client_ca_secret="ca",
        grants=[{"routes_in": "acme-a", "services_in": "acme-b", "services": ["x"]}],
        tokens={
            "staff": {**test_gateway.STAFF, "claims": {"groups": ["ml"]}, "headers": {"x": "sub"}},
            "partners": test_gateway.PARTNERS,
        },
    )
    grant = gateways["ReferenceGrant/acme-b/from-acme-a"]
    grant["metadata"] = {**grant["metadata"], "namespace": SERVING}
    classes = test_storage_classes.classes(place)
    known = [each for each in classes.values() if each["kind"] != "VolumeSnapshotClass"]
    for each in known:
        if "namespace" in each["metadata"]:
            each["metadata"] = {**each["metadata"], "namespace": "default"}
    applied = cluster.apply([*gateways.values(), *known], dry_run=True)
    assert len(applied) == len(gateways) + len(known)


def test_a_tenant_that_leaves_leaves_nothing(cluster: ControlPlane) -> None:
    objects = tenant_objects("leaving")
    cluster.apply(objects)
    cluster.objects.delete_all(list(reversed(objects)))

    def gone() -> bool:
        return not any(
            cluster.objects.get(each["apiVersion"], each["kind"], each["metadata"]["name"],
                                each["metadata"].get("namespace"))
            for each in objects
        )  # fmt: skip

    eventually("all objects of the tenant are gone", gone)
