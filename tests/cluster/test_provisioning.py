"""Machines made for a whole gang before it is admitted: Kueue's requests and the tenant's rights.

Kueue's own controller and the API server with all that `Residency` refuses; of the cluster
autoscaler there is the definition of its requests alone, and the tests answer in its place. By
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/proposals/provisioning-request.md
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from falaj.engine.controlplane import ControlPlane, start
from tests.cluster.residency_cluster import install
from tests.cluster.tenancy import (
    DUTIES,
    GPU,
    PLATFORM,
    SITE,
    active,
    condition,
    counted,
    eventually,
    job,
    members,
    platform_parts,
    queue_objects,
    refused,
    running,
    tenant_objects,
    workload,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

API, KIND = "autoscaling.x-k8s.io/v1", "ProvisioningRequest"
TRAINING = "acme-training"
POOLS: dict[str, Any] = {
    "h200": {"nodes": 2, "cpu": 190, "memory_gib": 1900, "devices": {GPU: 8}},
    "cpu-x86-64": {"nodes": 2, "cpu": 30, "memory_gib": 120},
}
QUOTAS: dict[str, Any] = {
    "acme": {
        "quotas": {
            "h200": {"devices": {GPU: 16}},
            "cpu-x86-64": {"cpu": 60, "memory_gib": 240},
        }
    }
}
ASKED: dict[str, Any] = {"flavors": ["h200"], "retries": 1}


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """One machine with GPUs, and queues that ask for more of them before a gang is admitted."""
    # Kueue asks once, when it starts, whether the definition is there.
    with start(controllers=("kueue", "jobset"), crds=("cluster-autoscaler",)) as found:
        platform_parts(found)
        found.nodes("h200=1,cpu=2", SITE)
        devices = {GPU: 16}
        found.apply(
            tenant_objects("acme", training={"cpu": 400, "memory_gib": 4000, "devices": devices})
        )
        found.apply(_impatient(queue_objects(POOLS, QUOTAS, provisioning=ASKED)))
        install(found, {**PLATFORM, "zones": list(SITE.zones)})
        eventually("quotas are counted", lambda: counted(found, TRAINING))
        eventually("the queues are active", lambda: active(found, "acme"))
        yield found


def _impatient(made: list[Any]) -> list[Any]:
    """The same, but Kueue gives quota back and asks again after a second, not after a minute."""
    (asks,) = [each for each in made if each["kind"] == "ProvisioningRequestConfig"]
    asks["spec"]["retryStrategy"]["backoffBaseSeconds"] = 1
    return made


def _request(plane: ControlPlane, name: str) -> dict[str, Any]:
    """What Kueue asks the autoscaler for, for a job."""
    found: list[dict[str, Any]] = []

    def there() -> bool:
        of = workload(plane, name, TRAINING)
        found[:] = [
            each
            for each in plane.objects.list(API, KIND, TRAINING)
            if of and of["metadata"]["name"] in _owners(each)
        ]
        return bool(found)

    eventually(f"machines are asked for, for {name}", there)
    return found[0]


def _owners(of: dict[str, Any]) -> set[str]:
    return {each["name"] for each in of["metadata"]["ownerReferences"]}


def _answer(plane: ControlPlane, request: dict[str, Any], kind: str) -> None:
    """What the autoscaler says of a request."""
    said = {
        "type": kind, "status": "True", "reason": kind, "message": "",
        "lastTransitionTime": request["metadata"]["creationTimestamp"],
    }  # fmt: skip
    path = plane.objects.path_of(request)
    plane.objects.request(
        "PATCH", f"{path}/status", {"status": {"conditions": [said]}},
        kind="application/merge-patch+json",
    )  # fmt: skip


def test_a_gang_waits_for_all_its_machines(plane: ControlPlane) -> None:
    plane.objects.create(job(TRAINING, "gang", pods=2))
    asked = _request(plane, "gang")
    assert asked["spec"]["provisioningClassName"] == (
        "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
    )
    (pods,) = asked["spec"]["podSets"]
    assert pods["count"] == 2
    of = plane.objects.get("v1", "PodTemplate", pods["podTemplateRef"]["name"], TRAINING)
    assert of is not None
    assert of["template"]["spec"]["nodeSelector"]["topology.kubernetes.io/region"] == SITE.region
    assert running(plane, "gang", TRAINING) == []
    assert condition(workload(plane, "gang", TRAINING), "Admitted") != "True"

    plane.nodes("h200=2,cpu=2", SITE)
    _answer(plane, asked, "Provisioned")
    eventually("the gang runs", lambda: len(running(plane, "gang", TRAINING)) == 2)
    plane.objects.delete("batch/v1", "Job", "gang", TRAINING)
    eventually("it is gone", lambda: workload(plane, "gang", TRAINING) is None)


def test_a_gang_whose_machines_cannot_be_had_gives_its_quota_back(plane: ControlPlane) -> None:
    plane.objects.create(job(TRAINING, "refused", pods=2))
    _answer(plane, _request(plane, "refused"), "Failed")

    def given_back() -> bool:
        # It is asked for again, and has its quota again then: that it was evicted stays told.
        found = workload(plane, "refused", TRAINING)
        return condition(found, "QuotaReserved") == "False" or condition(found, "Evicted") != ""

    eventually("its quota is free again", given_back)
    assert running(plane, "refused", TRAINING) == []
    plane.objects.delete("batch/v1", "Job", "refused", TRAINING)
    eventually("it is gone", lambda: workload(plane, "refused", TRAINING) is None)


def test_what_needs_no_gpus_is_not_asked_for(plane: ControlPlane) -> None:
    plane.objects.create(job(TRAINING, "plain", gpus=0, tolerations=[]))
    eventually("it runs", lambda: bool(running(plane, "plain", TRAINING)))
    assert plane.objects.list(API, KIND, TRAINING) == []
    plane.objects.delete("batch/v1", "Job", "plain", TRAINING)


@pytest.mark.parametrize("duty", DUTIES)
def test_nobody_of_a_tenant_asks_for_machines(plane: ControlPlane, duty: str) -> None:
    template = {"name": "mine"}
    request = {
        "apiVersion": API,
        "kind": KIND,
        "metadata": {"name": "mine", "namespace": TRAINING},
        "spec": {
            "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
            "podSets": [{"count": 512, "podTemplateRef": template}],
        },
    }
    assert "forbidden" in refused(lambda: members(plane, "acme", duty).create(request))
