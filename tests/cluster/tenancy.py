"""Tenants, queues and jobs for the tests on a real control plane."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from falaj.components.kubernetes import gpu_queues, tenant
from falaj.engine.controlplane import ControlPlane, Site
from falaj.engine.controlplane.objects import Objects, wait_for
from tests.cluster.leftovers import restored

SITE = Site(region="dxb-1", zones=("dxb-1a", "dxb-1b"), distribution="existing")
SECONDS = 240.0
"""How long something may take on a slow machine; nothing is measured here."""
DIGEST = "registry.acme.example/falaj/train@sha256:" + "1" * 64
DUTIES = ("trainers", "deployers", "auditors", "admins")
FORBIDDEN = 403
GPU = "nvidia.com/gpu"
JOBSETS = "count/jobsets.jobset.x-k8s.io"
RACK = "falaj.io/rack"
RACKS = ("falaj.io/block", RACK, "kubernetes.io/hostname")
"""Levels of a topology whose labels nodes of `SITE` carry."""
_COMMON: dict[str, Any] = {
    "distribution": "existing", "region": SITE.region, "registry": "registry.acme.example/falaj",
    "owner": "ml@acme.example", "data_class": "confidential", "cost_center": "ml",
}  # fmt: skip
PLATFORM: dict[str, Any] = {**_COMMON, "tenant": "platform"}
"""What the platform's own components are given, `Residency` among them."""


def platform_parts(plane: ControlPlane) -> None:
    """Make what tenants find in a cluster: namespaces and definitions of the platform."""
    plane.define("prometheus-operator", kinds=("PodMonitor", "PrometheusRule"))
    plane.apply([_namespace("monitoring"), _namespace("envoy-gateway-system")])


@contextmanager
def platform_of(plane: ControlPlane, nodes: str = "") -> Generator[ControlPlane]:
    """A control plane with what tenants find there: namespaces, definitions, and `nodes`.

    It is afterwards as it was.
    """
    with restored(plane):
        platform_parts(plane)
        if nodes:
            plane.nodes(nodes, SITE)
        yield plane


def counted(cluster: ControlPlane, *namespaces: str) -> bool:
    """Whether every quota of namespaces is in force: without its status it refuses all."""

    def in_force(quota: dict[str, Any]) -> bool:
        hard, status = quota["spec"]["hard"], quota.get("status", {})
        return hard.keys() == status.get("hard", {}).keys() and (
            JOBSETS not in hard or JOBSETS in status.get("used", {})
        )

    quotas = [cluster.objects.list("v1", "ResourceQuota", each) for each in namespaces]
    return all(found and all(map(in_force, found)) for found in quotas)


def _namespace(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}


def tenant_objects(name: str, **changes: Any) -> list[Any]:
    """What `Tenant` renders."""
    given: Any = {**_COMMON, "tenant": name, "monthly_budget_usd": 1000, **changes}
    return tenant.manifests(tenant.check(name, given))


def queue_objects(pools: dict[str, Any], tenants: dict[str, Any], **changes: Any) -> list[Any]:
    """What `GpuQueues` renders."""
    given: Any = {**PLATFORM, "pools": pools, "tenants": tenants, **changes}
    return gpu_queues.manifests(gpu_queues.check("queues", given))


def pod_spec(resources: dict[str, str], **changes: Any) -> dict[str, Any]:
    """A pod that meets the restricted standard."""
    container = {
        "name": "main",
        "image": DIGEST,
        "resources": {"requests": resources, "limits": _limits(resources)},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    return {
        "restartPolicy": "Never",
        "serviceAccountName": "trainer",
        "automountServiceAccountToken": False,
        "nodeSelector": {"topology.kubernetes.io/region": SITE.region},
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [{"key": GPU, "operator": "Equal", "value": "present",
                         "effect": "NoSchedule"}],
        "containers": [container],
        **changes,
    }  # fmt: skip


def _limits(resources: dict[str, str]) -> dict[str, str]:
    return {key: value for key, value in resources.items() if key != "cpu"}


def pod(namespace: str, name: str, resources: dict[str, str], **changes: Any) -> dict[str, Any]:
    """A pod of its own."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": pod_spec(resources, **changes),
    }


def job(
    namespace: str,
    name: str,
    *,
    pods: int = 1,
    gpus: int = 8,
    resource: str = GPU,
    priority: str = "",
    seconds: int = 0,
    topology: str = "",
    **changes: Any,
) -> dict[str, Any]:
    """A job whose pods run side by side.

    Args:
        namespace: where it is.
        name: its name.
        pods: how many.
        gpus: of each.
        resource: kind of GPU.
        priority: class of priority.
        seconds: after which its pods end; 0 for never.
        topology: level that all its pods have to be within.
        changes: of the pods' spec.
    """
    notes = {"simulation.falaj.io/duration": f"{seconds}s"} if seconds else {}
    if topology:
        notes["kueue.x-k8s.io/podset-required-topology"] = topology
    asked = {"cpu": "1", "memory": "4Gi", **({resource: str(gpus)} if gpus else {})}
    labels = {"kueue.x-k8s.io/priority-class": priority} if priority else {}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {
            "parallelism": pods,
            "completions": pods,
            "completionMode": "Indexed",
            "backoffLimit": 100,
            "template": {"metadata": {"annotations": notes}, "spec": pod_spec(asked, **changes)},
        },
    }


def claim(name: str, namespace: str) -> list[dict[str, Any]]:
    """A claim on a file system that many pods write to, bound as a storage driver does."""
    size = {"storage": "1Ti"}
    volume: dict[str, Any] = {
        "capacity": size,
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "falaj-files",
        "csi": {"driver": "files.example", "volumeHandle": name},
        "claimRef": {"namespace": namespace, "name": name},
    }
    wanted: dict[str, Any] = {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "falaj-files",
        "volumeName": name,
        "resources": {"requests": size},
    }
    about = {"name": name, "namespace": namespace}
    return [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name},
            "spec": volume,
        },
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": wanted},
    ]


def simulated(manifests: Sequence[Mapping[str, Any]], **notes: str) -> list[dict[str, Any]]:
    """The same, with what the simulated machines are to do with the pods."""
    copied: list[Any] = json.loads(json.dumps(manifests))
    for each in copied:
        templates = [each["spec"].get("template")] if each["kind"] == "Job" else []
        for role in each["spec"].get("replicatedJobs", ()):
            templates.append(role["template"]["spec"]["template"])
        for template in templates:
            found = {f"simulation.falaj.io/{key}": value for key, value in notes.items()}
            template["metadata"]["annotations"] |= {
                key.replace("exit_code", "exit-code"): value for key, value in found.items()
            }
    return copied


def running(cluster: ControlPlane, name: str, namespace: str) -> list[dict[str, Any]]:
    """Pods of a job that run and aren't on their way out."""
    return [
        each
        for each in cluster.objects.list(
            "v1", "Pod", namespace, f"batch.kubernetes.io/job-name={name}"
        )
        if each["status"].get("phase") == "Running"
        and not each["metadata"].get("deletionTimestamp")
    ]


def nodes_of(pods: Sequence[dict[str, Any]]) -> set[str]:
    """Where pods are."""
    return {each["spec"]["nodeName"] for each in pods}


def workload(cluster: ControlPlane, name: str, namespace: str) -> dict[str, Any] | None:
    """Kueue's workload of a job; None where there is none yet."""
    for each in cluster.objects.list("kueue.x-k8s.io/v1beta2", "Workload", namespace):
        if any(owner["name"] == name for owner in each["metadata"].get("ownerReferences", [])):
            return each
    return None


def condition(found: dict[str, Any] | None, kind: str) -> str:
    """Status of a condition; empty where it isn't there."""
    conditions = (found or {}).get("status", {}).get("conditions", [])
    return next((each["status"] for each in conditions if each["type"] == kind), "")


def active(cluster: ControlPlane, *tenants: str) -> bool:
    """Whether the queues of tenants admit jobs."""
    listed = [("ClusterQueue", each, None) for each in tenants]
    listed += [("LocalQueue", "default", f"{each}-training") for each in tenants]
    return all(
        condition(cluster.objects.get("kueue.x-k8s.io/v1beta2", *each), "Active") == "True"
        for each in listed
    )


def waits(cluster: ControlPlane, name: str, namespace: str) -> bool:
    """Whether Kueue looked at a job and admitted it not."""
    found = workload(cluster, name, namespace)
    return condition(found, "QuotaReserved") == "False" and condition(found, "Admitted") != "True"


def end_all(cluster: ControlPlane, *namespaces: str) -> None:
    """End the jobs of namespaces, and wait until nothing of them is left.

    Pods that were told to end go at once: those of a dead machine would wait for its word.
    """
    for namespace in namespaces:
        for api, kind in (("jobset.x-k8s.io/v1alpha2", "JobSet"), ("batch/v1", "Job")):
            for each in cluster.objects.list(api, kind, namespace):
                cluster.objects.delete(api, kind, each["metadata"]["name"], namespace)

    def idle() -> bool:
        pods = [each for one in namespaces for each in cluster.objects.list("v1", "Pod", one)]
        for each in (one["metadata"] for one in pods):
            if "deletionTimestamp" in each:
                cluster.objects.delete("v1", "Pod", each["name"], each["namespace"], 0)
        return not pods and not any(
            cluster.objects.list("kueue.x-k8s.io/v1beta2", "Workload", each) for each in namespaces
        )

    eventually("what the test started is gone", idle)


def eventually(what: str, true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    wait_for(true, what, SECONDS)


def refused(act: Callable[[], object]) -> str:
    """What the API server says of something that it forbids."""
    with pytest.raises(ApiException) as caught:
        act()
    assert caught.value.status == FORBIDDEN, caught.value.body
    return str(json.loads(str(caught.value.body))["message"])


def members(cluster: ControlPlane, name: str, duty: str) -> Objects:
    """Somebody with one duty of a tenant."""
    return cluster.as_user(f"{duty}@{name}.example", [f"{name}:{duty}"])
