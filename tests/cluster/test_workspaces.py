"""A workspace on a real control plane: Kueue admits it, one person gets in, homes stay theirs."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from falaj.components.kubernetes._objects import Manifest
from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import Objects
from tests.cluster.residency_cluster import install, namespace, refusal
from tests.cluster.tenancy import (
    FORBIDDEN,
    SITE,
    active,
    condition,
    counted,
    eventually,
    job,
    members,
    platform_of,
    queue_objects,
    refused,
    tenant_objects,
    workload,
)
from tests.components.kubernetes.training_jobs import the
from tests.components.kubernetes.workspaces import OWNER, rendered

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

RESIDENCY: dict[str, Any] = {
    "distribution": "existing", "region": SITE.region, "registry": "registry.acme.example/falaj",
    "tenant": "platform", "owner": "ml@acme.example", "data_class": "confidential",
    "cost_center": "ml",
}  # fmt: skip
TRAINING, MIG, CPU_FLAVOR = "acme-training", "nvidia.com/mig-1g.18gb", "cpu-x86-64"
POD, HOME = "alice-workspace", "home.alice"
POOLS: dict[str, Any] = {
    "h200-mig-1g.18gb": {"nodes": 1, "cpu": 190, "memory_gib": 1900, "devices": {MIG: 56}},
    CPU_FLAVOR: {"nodes": 1, "cpu": 30, "memory_gib": 120},
}
QUOTAS: dict[str, Any] = {
    "h200-mig-1g.18gb": {"devices": {MIG: 1}, "borrow": {MIG: 0}},
    CPU_FLAVOR: {"cpu": 8, "memory_gib": 32},
}
SIZES = {"cpu": 40, "memory_gib": 400, "devices": {MIG: 4}}
HOMES = {"use": "(cluster-home-use)", "change": "(cluster-home-change)",
         "clone": "(cluster-home-clone)"}  # fmt: skip
WORKLOADS = ("kueue.x-k8s.io/v1beta2", "Workload")


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A platform as it is, with two tenants, their queues, and the policies."""
    with platform_of(control_plane, "h200:mig-1g.18gb=1,cpu=1") as found:
        found.define("external-secrets", "cert-manager", kinds=("Certificate", "ExternalSecret"))
        for tenant in ("acme", "globex"):
            found.apply(tenant_objects(tenant, training=SIZES))
        found.apply(queue_objects(POOLS, {"acme": {"quotas": QUOTAS}}))
        found.apply([namespace("legacy", "privileged")])
        install(found, RESIDENCY)
        eventually("quotas are counted", lambda: counted(found, TRAINING))
        eventually("the queue is active", lambda: active(found, "acme"))
        yield found


def objects(**changes: Any) -> list[Manifest]:
    return rendered(region=SITE.region, **changes)


def volume(name: str) -> dict[str, Any]:
    """What a storage driver makes for a home."""
    spec: dict[str, Any] = {
        "capacity": {"storage": "20Gi"}, "accessModes": ["ReadWriteOnce"],
        "storageClassName": "falaj-block", "persistentVolumeReclaimPolicy": "Retain",
        "csi": {"driver": "blocks.example", "volumeHandle": name},
        "claimRef": {"namespace": TRAINING, "name": name},
    }  # fmt: skip
    about = {"name": name}
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": about, "spec": spec}


def phase(plane: ControlPlane, name: str = POD) -> str:
    found = plane.objects.get("v1", "Pod", name, TRAINING) or {}
    return str(found.get("status", {}).get("phase", ""))


def gated(plane: ControlPlane, name: str) -> bool:
    found = plane.objects.get("v1", "Pod", name, TRAINING) or {"spec": {}}
    gates = [each["name"] for each in found["spec"].get("schedulingGates", [])]
    state = workload(plane, name, TRAINING)
    return gates != [] and condition(state, "QuotaReserved") == "False"


@pytest.fixture(scope="module")
def workspace(plane: ControlPlane) -> str:
    """A workspace as the platform's owners make it; the pod's name."""
    plane.apply([volume(HOME)])
    for each in objects():
        assert refusal(plane, each, real=True) == "", each["kind"]
    plane.apply([{
        "apiVersion": "v1", "kind": "Secret", "stringData": {"token": "5f" * 32},
        "metadata": the("ExternalSecret", objects())["metadata"],
    }])  # fmt: skip
    eventually("the workspace runs", lambda: phase(plane) == "Running")
    return POD


def test_kueue_admits_it_by_the_tenants_quota(plane: ControlPlane, workspace: str) -> None:
    admitted = workload(plane, workspace, TRAINING)
    assert condition(admitted, "Admitted") == "True"
    assert admitted is not None
    (given,) = admitted["status"]["admission"]["podSetAssignments"]
    assert given["flavors"][MIG] == "h200-mig-1g.18gb"
    found = plane.objects.get("v1", "Pod", workspace, TRAINING)
    assert found is not None
    assert found["spec"]["nodeSelector"]["falaj.io/flavor"] == "h200-mig-1g.18gb"

    def used() -> list[str]:
        queue = plane.objects.get("kueue.x-k8s.io/v1beta2", "ClusterQueue", "acme")
        assert queue is not None
        return [
            one["total"]
            for each in queue["status"]["flavorsUsage"]
            for one in each["resources"]
            if each["name"] == "h200-mig-1g.18gb" and one["name"] == MIG
        ]

    # Kueue writes it into the queue's status a little after it has admitted.
    eventually("it counts against the quota", lambda: used() == ["1"])


def test_a_second_one_waits_until_the_first_has_ended_and_goes_by_itself(
    plane: ControlPlane, workspace: str
) -> None:
    plane.apply([volume("home.second")])
    second = objects(name="second", user="bob@acme.example")
    plane.apply(second)
    eventually("it waits for quota", lambda: gated(plane, "second-workspace"))
    plane.objects.delete("v1", "Pod", workspace, TRAINING)
    eventually("it runs", lambda: phase(plane, "second-workspace") == "Running")
    # Its own end, as the server's: the pod is done, and its quota another's.
    plane.apply([the("Pod", objects(session=2))])
    eventually("the first waits", lambda: gated(plane, workspace))
    done = {"status": {"phase": "Succeeded"}}
    path = f"/api/v1/namespaces/{TRAINING}/pods/second-workspace/status"
    plane.objects.request("PATCH", path, done, "application/merge-patch+json")
    eventually("the first runs again", lambda: phase(plane) == "Running")
    claim = plane.objects.get("v1", "PersistentVolumeClaim", "home.second", TRAINING)
    assert claim is not None
    assert claim["status"]["phase"] == "Bound"
    plane.objects.delete_all(second)


# Who gets in.


def forward(user: Objects, name: str, verb: str = "POST", kind: str = "portforward") -> int:
    """The status with which a request to get into a pod ends; no node is there to answer it."""
    path = f"/api/v1/namespaces/{TRAINING}/pods/{name}/{kind}"
    try:
        user.request(verb, path, ports="8443")
    except ApiException as error:
        return int(error.status or 0)
    return 200


@pytest.mark.parametrize("verb", ["POST", "GET"])
def test_the_owner_alone_forwards_the_port(plane: ControlPlane, workspace: str, verb: str) -> None:
    owner = plane.as_user(OWNER)
    assert forward(owner, workspace, verb) != FORBIDDEN
    for kind in ("exec", "attach", "proxy"):
        assert forward(owner, workspace, verb, kind) == FORBIDDEN
    for other in ("second-workspace", "probe", "thief-0-abcde"):
        assert forward(owner, other, verb) == FORBIDDEN
    colleagues = [
        members(plane, tenant, duty)
        for tenant in ("acme", "globex")
        for duty in ("trainers", "deployers", "auditors", "admins")
    ]
    for each in (*colleagues, plane.as_user("bob@acme.example")):
        assert forward(each, workspace, verb) == FORBIDDEN


def test_the_owner_reads_the_token_and_no_other_secret(
    plane: ControlPlane, workspace: str
) -> None:
    owner = plane.as_user(OWNER)
    found = owner.get("v1", "Secret", f"{workspace}-token", TRAINING)
    assert found is not None
    assert "token" in found["data"]
    refused(lambda: owner.get("v1", "Secret", f"{workspace}-tls", TRAINING))
    refused(lambda: owner.list("v1", "Secret", TRAINING))
    for duty in ("trainers", "auditors", "admins"):
        one = members(plane, "acme", duty)
        refused(lambda one=one: one.get("v1", "Secret", f"{workspace}-token", TRAINING))


def test_nobody_makes_the_token_another_or_the_deadline_later(
    plane: ControlPlane, workspace: str
) -> None:
    own = f"{workspace}-token"
    for duty in ("trainers", "admins"):
        one = members(plane, "acme", duty)
        refused(lambda one=one: one.delete("v1", "Secret", own, TRAINING))
        mine = {"spec": {"activeDeadlineSeconds": 10**7}}
        refused(lambda one=one, mine=mine: one.patch("v1", "Pod", workspace, mine, TRAINING))
    owner = plane.as_user(OWNER)
    for change in ({"spec": {"activeDeadlineSeconds": 10**7}},
                   {"metadata": {"annotations": {"falaj.io/session": "9"}}}):  # fmt: skip
        refused(lambda change=change: owner.patch("v1", "Pod", workspace, change, TRAINING))
    # Not even who may: the API server takes a lower one alone.
    with pytest.raises(ApiException, match="must be less than or equal to previous value"):
        plane.objects.patch(
            "v1", "Pod", workspace, {"spec": {"activeDeadlineSeconds": 10**7}}, TRAINING
        )


# Homes.


def _mounts(claim: dict[str, Any]) -> dict[str, Any]:
    made = job(TRAINING, "thief", gpus=0, tolerations=[])
    made["spec"]["template"]["spec"]["volumes"] = [{"name": "h", **claim}]
    return made


def _as_set(made: dict[str, Any]) -> dict[str, Any]:
    template = {"name": "one", "template": {"spec": copy.deepcopy(made["spec"])}}
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "thief", "namespace": TRAINING},
        "spec": {"replicatedJobs": [template]},
    }  # fmt: skip


def _copy(source: str) -> dict[str, Any]:
    return {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "falaj-block",
        "resources": {"requests": {"storage": "20Gi"}},
        source: {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": HOME},
    }  # fmt: skip


def _claim(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    about = {"name": name, "namespace": TRAINING}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": about, "spec": spec}


@pytest.mark.parametrize(
    "claim",
    [
        {"persistentVolumeClaim": {"claimName": HOME}},
        {"persistentVolumeClaim": {"claimName": HOME, "readOnly": True}},
        {"ephemeral": {"volumeClaimTemplate": {"spec": _copy("dataSource")}}},
        {"ephemeral": {"volumeClaimTemplate": {"spec": _copy("dataSourceRef")}}},
    ],
    ids=["mounted", "read-only", "cloned", "cloned-by-reference"],
)
@pytest.mark.parametrize("shape", [lambda each: each, _as_set], ids=["Job", "JobSet"])
def test_a_colleagues_job_gets_no_home(
    plane: ControlPlane, workspace: str, shape: Any, claim: dict[str, Any]
) -> None:
    trainer = members(plane, "acme", "trainers")
    said = refusal(trainer, shape(_mounts(claim)), create=True)
    assert HOMES["use"] in said, said
    team = {"persistentVolumeClaim": {"claimName": "runs"}}
    assert refusal(trainer, shape(_mounts(team)), create=True) == ""


@pytest.mark.parametrize("source", ["dataSource", "dataSourceRef"])
def test_a_colleague_copies_no_home(plane: ControlPlane, workspace: str, source: str) -> None:
    trainer = members(plane, "acme", "trainers")
    assert HOMES["clone"] in refusal(trainer, _claim("mine", _copy(source)), create=True)
    plain = {key: each for key, each in _copy(source).items() if key != source}
    assert refusal(trainer, _claim("mine", plain), create=True) == ""


def test_a_colleague_neither_deletes_nor_changes_nor_prepares_a_home(
    plane: ControlPlane, workspace: str
) -> None:
    plain = {key: each for key, each in _copy("dataSource").items() if key != "dataSource"}
    path = f"/api/v1/namespaces/{TRAINING}/persistentvolumeclaims/{HOME}"
    for duty in ("trainers", "admins"):
        one = members(plane, "acme", duty)
        said = refused(lambda one=one: one.request("DELETE", path, dryRun="All"))
        assert HOMES["change"] in said
    trainer = members(plane, "acme", "trainers")
    assert HOMES["change"] in refusal(trainer, _claim("home.bob", plain), create=True)
    own = {"metadata": {"labels": {"falaj.io/component": "mine"}}}
    said = refused(lambda: trainer.patch("v1", "PersistentVolumeClaim", HOME, own, TRAINING))
    assert HOMES["change"] in said


# What was changed is refused by the cluster.


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (
            {"automountServiceAccountToken": True, "serviceAccountName": "default"},
            "(kubernetes-token-mount)",
        ),
        ({"automountServiceAccountToken": True}, ""),
        ({"hostNetwork": True}, "host"),
        ({"volumes": [{"name": "n", "hostPath": {"path": "/"}}]}, "hostPath"),
        ({"serviceAccountName": "default"}, ""),
    ],
    ids=["token", "own-token", "network", "disk", "account"],
)
def test_a_workspace_that_was_changed_is_refused_or_has_no_more_rights(
    plane: ControlPlane, workspace: str, change: dict[str, Any], rule: str
) -> None:
    made: Any = copy.deepcopy(the("Pod", objects(name="changed")))
    made["spec"] |= {"serviceAccountName": workspace, **change}
    made["spec"]["containers"][0]["volumeMounts"] = []
    said = refusal(plane, made, create=True)
    assert (rule in said) if rule else (said == ""), said


def test_the_account_of_a_workspace_may_do_nothing(plane: ControlPlane, workspace: str) -> None:
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{TRAINING}"]
    account = plane.as_user(f"system:serviceaccount:{TRAINING}:{workspace}", groups)
    for kind in ("Secret", "Pod", "ConfigMap", "PersistentVolumeClaim"):
        refused(lambda kind=kind: account.list("v1", kind, TRAINING))
    assert forward(account, workspace) == FORBIDDEN


@pytest.mark.parametrize(
    ("rule", "refused_by"),
    [
        ({"resources": ["pods/portforward"], "resourceNames": [POD]}, ""),
        ({"resources": ["pods/portforward"]}, "(kubernetes-rbac-escalation)"),
        ({"resources": ["pods/portforward"], "resourceNames": []}, "(kubernetes-rbac-escalation)"),
        ({"resources": ["pods/exec"], "resourceNames": [POD]}, "(kubernetes-rbac-escalation)"),
    ],
    ids=["named", "all", "none-named", "commands"],
)
def test_roles_forward_ports_of_pods_that_they_name_alone(
    plane: ControlPlane, rule: dict[str, Any], refused_by: str
) -> None:
    rules = [{"apiGroups": [""], "verbs": ["create"], **rule}]
    api = "rbac.authorization.k8s.io/v1"
    about = {"name": "ports", "namespace": TRAINING}
    role = {"apiVersion": api, "kind": "Role", "metadata": about, "rules": rules}
    said = refusal(plane, role, create=True)
    assert refused_by in said if refused_by else said == ""
