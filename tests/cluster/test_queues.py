"""Gangs, quotas, borrowing, pre-emption, topology and dying machines on 100 nodes with 8 GPUs.

With Kueue's and JobSet's own controllers beside a real scheduler; the machines are simulated. The
pool has 800 GPUs: 400 are north's, 240 south's, 16 small's, who borrows nothing, and 144 nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from falaj.engine.controlplane import ControlPlane
from tests.cluster.tenancy import (
    GPU,
    RACK,
    RACKS,
    active,
    condition,
    counted,
    end_all,
    eventually,
    job,
    nodes_of,
    platform_of,
    queue_objects,
    running,
    tenant_objects,
    waits,
    workload,
)

#: Making and removing 100 machines takes its time where others use the processors, too.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NODES = "h200=100,h200:mig-1g.18gb=2,l4:time-slicing-4=2,cpu=4"
MIG, SHARED = "nvidia.com/mig-1g.18gb", "nvidia.com/gpu.shared"
_H200 = {"cpu": 190, "memory_gib": 1900}
POOLS: dict[str, Any] = {
    "h200": {"nodes": 100, **_H200, "devices": {GPU: 8}},
    "h200-mig-1g.18gb": {"nodes": 2, **_H200, "devices": {MIG: 56}},
    "l4-time-slicing-4": {"nodes": 2, "cpu": 14, "memory_gib": 60, "devices": {SHARED: 4}},
    "cpu-x86-64": {"nodes": 4, "cpu": 30, "memory_gib": 120},
}
TENANTS: dict[str, Any] = {
    "north": {
        "quotas": {
            "h200": {"devices": {GPU: 400}},
            "h200-mig-1g.18gb": {"devices": {MIG: 56}},
            "cpu-x86-64": {"cpu": 60, "memory_gib": 240},
        }
    },
    "south": {
        "quotas": {
            "h200": {"devices": {GPU: 240}},
            "l4-time-slicing-4": {"devices": {SHARED: 8}},
        }
    },
    "small": {"quotas": {"h200": {"devices": {GPU: 16}, "borrow": {GPU: 0}}}},
}
LARGE = {"cpu": 20_000, "memory_gib": 200_000, "pods": 2000}
DEVICES: dict[str, dict[str, int]] = {
    "north": {GPU: 800, MIG: 112},
    "south": {GPU: 800, SHARED: 8},
    "small": {GPU: 800},
}
NORTH, SOUTH, SMALL = (f"{each}-training" for each in TENANTS)
#: Nodes that are lost are noticed soon, and pods leave them at once.
LEAVES = [
    {"key": f"node.kubernetes.io/{each}", "operator": "Exists", "effect": "NoExecute",
     "tolerationSeconds": 1}
    for each in ("not-ready", "unreachable")
]  # fmt: skip
GPU_NODES = {"key": GPU, "operator": "Equal", "value": "present", "effect": "NoSchedule"}


@pytest.fixture(scope="module")
def queues(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with platform_of(control_plane, NODES) as found:
        for name, devices in DEVICES.items():
            given: dict[str, Any] = {"training": {**LARGE, "devices": devices}}
            found.apply(tenant_objects(name, **given, shares_gpus=SHARED in devices))
        found.apply(queue_objects(POOLS, TENANTS, topology_levels=RACKS))
        eventually("quotas are counted", lambda: counted(found, NORTH, SOUTH, SMALL))
        eventually("the queues are active", lambda: active(found, *TENANTS))
        yield found


@pytest.fixture
def cluster(queues: ControlPlane) -> Iterator[ControlPlane]:
    """With nothing running before, and nothing left afterwards."""
    yield queues
    end_all(queues, NORTH, SOUTH, SMALL)


def used(cluster: ControlPlane, queue: str) -> int:
    """GPUs that a cluster queue has admitted jobs for."""
    found = cluster.objects.get("kueue.x-k8s.io/v1beta2", "ClusterQueue", queue) or {}
    return sum(
        int(each["total"])
        for flavor in found["status"].get("flavorsUsage", [])
        for each in flavor["resources"]
        if each["name"] == GPU
    )


def test_fifty_machines_are_one_gang_on_the_right_pool(cluster: ControlPlane) -> None:
    cluster.objects.create(job(NORTH, "wide", pods=50))
    eventually("50 pods run", lambda: len(running(cluster, "wide", NORTH)) == 50)
    nodes = nodes_of(running(cluster, "wide", NORTH))
    assert len(nodes) == 50
    assert all(each.startswith("h200-0") for each in nodes)
    assert used(cluster, "north") == 400


def test_a_gang_that_does_not_fit_starts_no_pod_and_holds_nobody_up(
    cluster: ControlPlane,
) -> None:
    cluster.objects.create(job(NORTH, "too-wide", pods=101))
    eventually("the gang waits", lambda: waits(cluster, "too-wide", NORTH))
    cluster.objects.create(job(NORTH, "after-it", pods=10))
    eventually("a smaller one runs", lambda: len(running(cluster, "after-it", NORTH)) == 10)
    assert cluster.objects.list("v1", "Pod", NORTH, "batch.kubernetes.io/job-name=too-wide") == []
    found = cluster.objects.get("batch/v1", "Job", "too-wide", NORTH)
    assert found is not None
    assert found["spec"]["suspend"] is True


def test_a_quota_without_borrowing_is_never_exceeded_though_gpus_are_idle(
    cluster: ControlPlane,
) -> None:
    cluster.objects.create(job(SMALL, "over", pods=3))
    eventually("24 of 16 GPUs wait", lambda: waits(cluster, "over", SMALL))
    cluster.objects.create(job(SMALL, "within", pods=2))
    eventually("16 of 16 run", lambda: len(running(cluster, "within", SMALL)) == 2)
    cluster.objects.create(job(SMALL, "one-more", pods=1))
    eventually("the next waits", lambda: waits(cluster, "one-more", SMALL))
    assert used(cluster, "small") == 16


def test_what_is_idle_is_lent_and_returns_when_its_owner_asks(cluster: ControlPlane) -> None:
    """North takes its own 400, nobody's 144 and south's 240; south wants its own back."""
    for index in range(7):
        cluster.objects.create(job(NORTH, f"borrows-{index}", pods=14))
    eventually("north has 784", lambda: used(cluster, "north") == 784)
    cluster.objects.create(job(SOUTH, "owner", pods=30))
    eventually("south's own job runs", lambda: len(running(cluster, "owner", SOUTH)) == 30)

    def whole_gangs() -> bool:
        left = [len(running(cluster, f"borrows-{index}", NORTH)) for index in range(7)]
        return sorted(left) == [0, 0, 14, 14, 14, 14, 14]

    # More may stop at first, where no room for the owner is left between them.
    eventually("two gangs stopped, and five run whole", whole_gangs)
    assert used(cluster, "north") == 800 - 240
    assert len(running(cluster, "owner", SOUTH)) == 30


def test_a_high_priority_displaces_a_low_one_which_runs_again_afterwards(
    cluster: ControlPlane,
) -> None:
    cluster.objects.create(job(SMALL, "low", pods=2, priority="falaj-low"))
    eventually("the low one runs", lambda: len(running(cluster, "low", SMALL)) == 2)
    cluster.objects.create(job(SMALL, "normal", pods=2, priority="falaj-low"))
    eventually("an equal one waits", lambda: waits(cluster, "normal", SMALL))
    cluster.objects.create(job(SMALL, "high", pods=2, priority="falaj-high"))
    eventually("the high one runs", lambda: len(running(cluster, "high", SMALL)) == 2)
    assert running(cluster, "low", SMALL) == []
    evicted = workload(cluster, "low", SMALL)
    assert condition(evicted, "Preempted") == "True"
    cluster.objects.delete("batch/v1", "Job", "high", SMALL)
    eventually(
        "one of the others runs",
        lambda: len(running(cluster, "low", SMALL) + running(cluster, "normal", SMALL)) == 2,
    )


def _racks(cluster: ControlPlane, pods: list[dict[str, Any]]) -> set[str]:
    nodes = {each["metadata"]["name"]: each for each in cluster.objects.list("v1", "Node")}
    return {nodes[each["spec"]["nodeName"]]["metadata"]["labels"][RACK] for each in pods}


def test_a_gang_stays_within_one_rack_when_asked_or_waits(cluster: ControlPlane) -> None:
    cluster.objects.create(job(NORTH, "five", pods=5, topology=RACK))
    cluster.objects.create(job(NORTH, "spread", pods=3, gpus=4))
    for name in ("rack-a", "rack-b"):
        cluster.objects.create(job(NORTH, name, pods=4, topology=RACK))
    for name in ("rack-a", "rack-b"):
        eventually(f"{name} runs", lambda each=name: len(running(cluster, each, NORTH)) == 4)
    where = [_racks(cluster, running(cluster, name, NORTH)) for name in ("rack-a", "rack-b")]
    assert len(where[0]) == len(where[1]) == 1
    assert where[0] != where[1]
    # A rack has four machines.
    eventually("five machines of one rack wait", lambda: waits(cluster, "five", NORTH))
    assert running(cluster, "five", NORTH) == []


def test_fractions_and_slices_land_only_where_they_may(cluster: ControlPlane) -> None:
    cluster.objects.create(job(NORTH, "slices", pods=8, gpus=1, resource=MIG))
    cluster.objects.create(job(SOUTH, "shared", pods=8, gpus=1, resource=SHARED))
    cluster.objects.create(job(NORTH, "whole", pods=2, gpus=8))
    cluster.objects.create(job(NORTH, "none", pods=2, gpus=0))
    expected = {
        ("slices", NORTH, 8): "h200-mig-1g.18gb-",
        ("shared", SOUTH, 8): "l4-time-slicing-4-",
        ("whole", NORTH, 2): "h200-0",
        ("none", NORTH, 2): "cpu-",
    }
    for (name, namespace, number), prefix in expected.items():
        eventually(
            f"{name} runs",
            lambda n=name, s=namespace, k=number: len(running(cluster, n, s)) == k,
        )
        nodes = nodes_of(running(cluster, name, namespace))
        assert all(each.startswith(prefix) for each in nodes), (name, nodes)
    credit = workload(cluster, "slices", NORTH)
    assert credit is not None
    (usage,) = credit["status"]["admission"]["podSetAssignments"]
    assert usage["resourceUsage"]["falaj.io/gpu-credit"] == "960"


def test_tenants_get_into_no_pool_of_others_and_share_no_gpu(cluster: ControlPlane) -> None:
    """South has no MIG pool, north no time slices; neither waits in front of the other's."""
    cluster.objects.create(job(SOUTH, "not-mine", gpus=1, resource=MIG))
    cluster.objects.create(job(NORTH, "not-mine", gpus=1, resource=SHARED))
    for namespace in (SOUTH, NORTH):
        eventually("it waits", lambda where=namespace: waits(cluster, "not-mine", where))
        assert cluster.objects.list("v1", "Pod", namespace) == []


def test_a_machine_that_dies_is_replaced_and_its_job_goes_on(cluster: ControlPlane) -> None:
    tolerations = [GPU_NODES, *LEAVES]
    cluster.objects.create(job(NORTH, "survives", pods=4, topology=RACK, tolerations=tolerations))
    eventually("four pods run", lambda: len(running(cluster, "survives", NORTH)) == 4)
    before = {
        each["spec"]["nodeName"]: each["metadata"]["uid"]
        for each in running(cluster, "survives", NORTH)
    }
    dead = sorted(before)[0]
    cluster.machines.kill(dead)

    def noticed() -> bool:
        found = cluster.objects.get("v1", "Node", dead) or {"spec": {}}
        taints = found["spec"].get("taints") or []
        return any(each["key"] in {one["key"] for one in LEAVES} for each in taints)

    eventually("the machine is missed", noticed)
    cluster.machines.replace(dead)

    def whole_again() -> bool:
        pods = running(cluster, "survives", NORTH)
        return len(pods) == 4 and dead not in nodes_of(pods)

    eventually("four pods run without the dead machine", whole_again)
    pods = running(cluster, "survives", NORTH)
    assert len(_racks(cluster, pods)) == 1


def test_a_job_set_of_two_roles_is_one_gang(cluster: ControlPlane) -> None:
    def role(name: str, pods: int, gpus: int) -> dict[str, Any]:
        one = job(SMALL, name, pods=pods, gpus=gpus)
        template = {"spec": {**one["spec"], "backoffLimit": 0}}
        return {"name": name, "replicas": 1, "template": template}

    def jobset(name: str, workers: int) -> dict[str, Any]:
        roles = [role("driver", 1, 0), role("workers", workers, 8)]
        return {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": name, "namespace": SMALL},
            "spec": {"replicatedJobs": roles},
        }

    cluster.objects.create(jobset("large", 3))
    cluster.objects.create(jobset("fits", 2))

    def pods(name: str) -> list[dict[str, Any]]:
        chosen = f"jobset.sigs.k8s.io/jobset-name={name}"
        return [
            each
            for each in cluster.objects.list("v1", "Pod", SMALL, chosen)
            if each["status"].get("phase") == "Running"
        ]

    eventually("the smaller one runs whole", lambda: len(pods("fits")) == 3)
    assert pods("large") == []
    eventually("the larger one waits whole", lambda: waits(cluster, "large", SMALL))
