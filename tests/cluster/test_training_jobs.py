"""Training jobs, sweeps and federations on a real control plane, as components render them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from falaj.components.kubernetes import federated_training, sweep, training_job
from falaj.components.kubernetes._objects import Manifest
from falaj.engine.controlplane import ControlPlane
from tests.cluster.second_cluster import pods
from tests.cluster.tenancy import (
    GPU,
    RACK,
    RACKS,
    active,
    claim,
    condition,
    counted,
    end_all,
    eventually,
    nodes_of,
    platform_of,
    queue_objects,
    simulated,
    tenant_objects,
    waits,
)
from tests.components.kubernetes.training_jobs import HOROVOD, arguments

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

NAMESPACE, MIG, CPU_FLAVOR = "acme-training", "nvidia.com/mig-1g.18gb", "cpu-x86-64"
JOBSETS = ("jobset.x-k8s.io/v1alpha2", "JobSet")
NODES = "h200=8,h200:mig-1g.18gb=1,cpu=4"
POOLS: dict[str, Any] = {
    "h200": {"nodes": 8, "cpu": 190, "memory_gib": 1900, "devices": {GPU: 8}},
    "h200-mig-1g.18gb": {"nodes": 1, "cpu": 190, "memory_gib": 1900, "devices": {MIG: 56}},
    CPU_FLAVOR: {"nodes": 4, "cpu": 30, "memory_gib": 120},
}
QUOTAS: dict[str, Any] = {
    "h200": {"devices": {GPU: 64}},
    "h200-mig-1g.18gb": {"devices": {MIG: 4}, "borrow": {MIG: 0}},
    CPU_FLAVOR: {"cpu": 8, "memory_gib": 64},
}
LARGE = {"cpu": 4_000, "memory_gib": 40_000, "pods": 500, "devices": {GPU: 64, MIG: 56}}
WATCHED_SECONDS = 10
SMALL = {"cpus": 2, "memory_gib": 4}


@pytest.fixture(scope="module")
def queues(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with platform_of(control_plane, NODES) as found:
        found.apply(tenant_objects("acme", training=LARGE))
        found.apply(queue_objects(POOLS, {"acme": {"quotas": QUOTAS}}, topology_levels=RACKS))
        found.apply(claim("runs", NAMESPACE))
        eventually("quotas are counted", lambda: counted(found, NAMESPACE))
        eventually("the queues are active", lambda: active(found, "acme"))
        yield found


@pytest.fixture
def cluster(queues: ControlPlane) -> Iterator[ControlPlane]:
    """With nothing running before, and nothing left afterwards."""
    yield queues
    end_all(queues, NAMESPACE)


def job(name: str, **changes: Any) -> list[Manifest]:
    return training_job.manifests(training_job.check(name, arguments(**changes)))


def status(cluster: ControlPlane, name: str) -> dict[str, Any]:
    found = cluster.objects.get(*JOBSETS, name, NAMESPACE)
    return (found or {}).get("status", {})


def label_of(cluster: ControlPlane, nodes: set[str], label: str) -> set[str]:
    listed = cluster.objects.list("v1", "Node")
    return {
        each["metadata"]["labels"][label] for each in listed if each["metadata"]["name"] in nodes
    }


def test_a_horovod_job_runs_with_its_launcher(cluster: ControlPlane) -> None:
    cluster.apply(job("rings", **{**HOROVOD, "flavor": CPU_FLAVOR}, nodes=2, processes_per_node=2))
    eventually("both machines run", lambda: len(pods(cluster, "rings")) == 2)
    for each in pods(cluster, "rings"):
        assert [before["name"] for before in each["spec"]["initContainers"]] == ["launcher"]
        labels = each["metadata"]["labels"]
        assert labels["jobset.sigs.k8s.io/restart-attempt"] == "0"
        assert labels["batch.kubernetes.io/job-completion-index"] in ("0", "1")


def test_a_gang_is_admitted_whole_and_within_one_rack(cluster: ControlPlane) -> None:
    cluster.apply(job("gang", nodes=3, gpus_per_node=8, topology={"level": "rack"}))
    eventually("the gang runs", lambda: len(pods(cluster, "gang")) == 3)
    nodes = nodes_of(pods(cluster, "gang"))
    assert len(nodes) == 3
    assert len(label_of(cluster, nodes, RACK)) == 1
    assert label_of(cluster, nodes, "falaj.io/flavor") == {"h200"}


def test_a_job_on_a_plain_control_plane_is_one_gang_that_nobody_stops(
    cluster: ControlPlane,
) -> None:
    """A Kueue that doesn't manage JobSets takes their jobs for jobs of users, and stops them."""
    cluster.apply(job("plain", nodes=2, gpus_per_node=8))
    eventually("it runs", lambda: len(pods(cluster, "plain")) == 2)
    before = {each["metadata"]["uid"] for each in pods(cluster, "plain")}
    workloads = cluster.objects.list("kueue.x-k8s.io/v1beta2", "Workload", NAMESPACE)
    owners = [each["metadata"]["ownerReferences"][0] for each in workloads]
    assert [(each["kind"], each["name"]) for each in owners] == [("JobSet", "plain")]
    assert condition(workloads[0], "Admitted") == "True"
    # Where it was stopped it was so every second or two.
    time.sleep(WATCHED_SECONDS)
    assert {each["metadata"]["uid"] for each in pods(cluster, "plain")} == before
    events = cluster.objects.list("v1", "Event", NAMESPACE)
    about = [each for each in events if each["involvedObject"]["name"].startswith("plain")]
    assert about
    assert [each["message"] for each in about if each["reason"] == "Stopped"] == []
    assert status(cluster, "plain").get("restarts", 0) == 0


def test_a_gang_that_fits_no_rack_waits_whole(cluster: ControlPlane) -> None:
    cluster.apply(job("wide", nodes=5, gpus_per_node=8, topology={"level": "rack"}))
    eventually("Kueue lets it wait", lambda: waits(cluster, "wide", NAMESPACE))
    assert not pods(cluster, "wide")


def test_a_fraction_of_a_gpu_lands_where_there_are_fractions(cluster: ControlPlane) -> None:
    cluster.apply(job("slice", flavor="h200-mig-1g.18gb"))
    eventually("it runs", lambda: len(pods(cluster, "slice")) == 1)
    nodes = nodes_of(pods(cluster, "slice"))
    assert label_of(cluster, nodes, "falaj.io/flavor") == {"h200-mig-1g.18gb"}


def test_what_was_refused_ends_the_job_at_once(cluster: ControlPlane) -> None:
    manifests = job("refused", flavor=CPU_FLAVOR, nodes=2, **SMALL)
    cluster.apply(simulated(manifests, duration="1s", exit_code="2"))
    eventually("it failed", lambda: status(cluster, "refused").get("terminalState") == "Failed")
    assert status(cluster, "refused").get("restarts", 0) == 0


@pytest.mark.parametrize("code", ["1", "71", "74", "137"])
def test_what_may_be_a_machines_fault_is_tried_again_and_not_for_ever(
    cluster: ControlPlane, code: str
) -> None:
    """1 is what Python and torchrun end with, whatever the cause; 137 is SIGKILL's."""
    name = f"broken-{code}"
    manifests = job(name, flavor=CPU_FLAVOR, nodes=2, max_restarts=2, **SMALL)
    cluster.apply(simulated(manifests, duration="1s", exit_code=code))
    eventually("it failed", lambda: status(cluster, name).get("terminalState") == "Failed")
    assert status(cluster, name)["restarts"] == 2
    assert status(cluster, name)["restartsCountTowardsMax"] == 2


def test_what_stops_with_a_checkpoint_goes_on_and_costs_no_attempt(cluster: ControlPlane) -> None:
    manifests = job("spot", flavor=CPU_FLAVOR, nodes=2, max_restarts=0, **SMALL)
    cluster.apply(simulated(manifests, duration="1s", exit_code="75"))
    eventually("it started again", lambda: status(cluster, "spot").get("restarts", 0) >= 2)
    assert status(cluster, "spot").get("terminalState") is None
    assert status(cluster, "spot").get("restartsCountTowardsMax", 0) == 0


def test_an_evicted_pod_starts_the_whole_gang_again(cluster: ControlPlane) -> None:
    cluster.apply(job("evicted", flavor=CPU_FLAVOR, nodes=2, max_restarts=0, **SMALL))
    eventually("it runs", lambda: len(pods(cluster, "evicted")) == 2)
    before = {each["metadata"]["uid"] for each in pods(cluster, "evicted")}
    victim = pods(cluster, "evicted")[0]["metadata"]["name"]
    # As a kubelet reports a pod that an eviction, a drain or a spot notice ended.
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}
    ended = {"status": {"phase": "Failed", "conditions": [disrupted]}}
    cluster.objects.patch("v1", "Pod", victim, ended, NAMESPACE, part="status")

    def again() -> bool:
        now = {each["metadata"]["uid"] for each in pods(cluster, "evicted")}
        return len(now) == 2 and not now & before

    eventually("all of it runs again", again)
    assert status(cluster, "evicted")["restarts"] == 1
    assert status(cluster, "evicted").get("restartsCountTowardsMax", 0) == 0


def test_a_dead_node_costs_a_restart_elsewhere(cluster: ControlPlane) -> None:
    cluster.apply(job("struck", nodes=2, gpus_per_node=8))
    eventually("it runs", lambda: len(pods(cluster, "struck")) == 2)
    dead = sorted(nodes_of(pods(cluster, "struck")))[0]
    cluster.machines.kill(dead)
    cluster.machines.replace(dead)

    def elsewhere() -> bool:
        return len(pods(cluster, "struck")) == 2 and dead not in nodes_of(pods(cluster, "struck"))

    eventually("it runs elsewhere", elsewhere)


def test_an_elastic_job_grows_and_shrinks_in_place(cluster: ControlPlane) -> None:
    def of(nodes: int) -> list[Manifest]:
        elastic = {"min_nodes": 1, "max_nodes": 4}
        return job("elastic", flavor=CPU_FLAVOR, nodes=nodes, elastic=elastic, **SMALL)

    cluster.apply(of(2))
    eventually("it runs", lambda: len(pods(cluster, "elastic")) == 2)
    before = {each["metadata"]["uid"] for each in pods(cluster, "elastic")}
    cluster.apply(of(3))
    eventually("it grew", lambda: len(pods(cluster, "elastic")) == 3)
    assert before <= {each["metadata"]["uid"] for each in pods(cluster, "elastic")}
    cluster.apply(of(1))
    eventually("it shrank", lambda: len(pods(cluster, "elastic")) == 1)
    assert {each["metadata"]["uid"] for each in pods(cluster, "elastic")} <= before


def test_trials_share_a_quota_and_fail_alone(cluster: ControlPlane) -> None:
    """Four slices of GPUs are the tenant's: four trials at a time, of the six asked for."""
    given: Any = {
        **arguments(flavor="h200-mig-1g.18gb"),
        "search": {"width": "8|16"}, "trials": 8, "parallel": 6, "retries": 0,
    }  # fmt: skip
    manifests = sweep.manifests(sweep.check("trials", given))
    cluster.apply(manifests)
    eventually("four trials run", lambda: len(pods(cluster, "trials")) == 4)
    first = pods(cluster, "trials")[0]["metadata"]["name"]
    container = {
        "name": "train", "image": "x", "imageID": "x", "ready": False, "restartCount": 0,
        "state": {"terminated": {"exitCode": 2, "reason": "Error"}},
    }  # fmt: skip
    failed = {"status": {"phase": "Failed", "containerStatuses": [container]}}
    cluster.objects.patch("v1", "Pod", first, failed, NAMESPACE, part="status")

    def alone() -> bool:
        found = cluster.objects.get("batch/v1", "Job", "trials", NAMESPACE) or {}
        return bool(found["status"].get("failedIndexes")) and len(pods(cluster, "trials")) == 4

    eventually("one trial failed and another took its place", alone)


def test_a_federation_is_accepted_and_runs(cluster: ControlPlane) -> None:
    common: Any = {**arguments(flavor=CPU_FLAVOR, **SMALL), "peer_namespaces": [NAMESPACE]}
    leader: Any = {
        **common, "role": "coordinator", "certificate_secret": "leader-tls",
        "sites": {"dubai": "a" * 64},
    }  # fmt: skip
    site: Any = {
        **common, "role": "site", "certificate_secret": "dubai-tls",
        "token_secret": "dubai-token", "coordinator": "leader.acme-training.svc:8470",
    }  # fmt: skip
    for name, given in (("leader", leader), ("dubai", site)):
        cluster.apply(federated_training.manifests(federated_training.check(name, given)))
        eventually(f"{name} runs", lambda name=name: len(pods(cluster, name)) == 1)
