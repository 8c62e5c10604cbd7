"""Rehearsals of restores: what comes back is looked at, nothing else can, and nothing is left.

Velero itself doesn't run here, as its build takes eleven minutes of a core: `rehearsals.Velero`
plays it.
"""

from __future__ import annotations

import copy
import http
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import Objects, wait_for
from tests.cluster.rehearsals import (
    BACKUP,
    NAME,
    RESTORE,
    SCRATCH,
    SOURCE,
    VELERO,
    WITNESS,
    Account,
    Velero,
    backup,
    of_every_namespace,
    platform,
    played,
    witness,
)

pytestmark = pytest.mark.cluster

SECRET_TEXT = "not-for-logs"
FORBIDDEN = 403


def of(
    api_version: str, kind: str, name: str, namespace: str = "", **parts: Any
) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name}
    if namespace:
        about["namespace"] = namespace
    return {"apiVersion": api_version, "kind": kind, "metadata": about, **parts}


POD = {"containers": [{"name": "a", "image": "registry.acme.example/a@sha256:" + "1" * 64}]}
TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": POD}
#: What a backup holds of the namespace, and comes back.
WHOLE = (
    of("v1", "ConfigMap", "settings", SOURCE, data={"a": "1"}),
    of("v1", "Secret", "key", SOURCE, stringData={"key": SECRET_TEXT}),
    of("v1", "ServiceAccount", "server", SOURCE),
    of("v1", "Service", "server", SOURCE, spec={"ports": [{"port": 80}]}),
    of("apps/v1", "Deployment", "server", SOURCE, spec={
        "replicas": 3, "selector": {"matchLabels": {"app": "a"}}, "template": TEMPLATE}),
)  # fmt: skip
SUBJECT = {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "somebody-who-left"}


def role_ref(kind: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "view"}


#: What a backup holds besides, and may not come back by a rehearsal.
ESCAPING = (
    of("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "escaped", roleRef=role_ref(
        "ClusterRole"), subjects=[SUBJECT]),
    of("rbac.authorization.k8s.io/v1", "RoleBinding", "escaped", SOURCE, roleRef=role_ref(
        "ClusterRole"), subjects=[SUBJECT]),
    of("v1", "ConfigMap", "escaped", "default", data={"a": "of another namespace"}),
    of("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration", "escaped"),
    of("v1", "Pod", "escaped", SOURCE, spec=POD),
    of("batch/v1", "Job", "escaped", SOURCE, spec={"template": {"spec": {
        **POD, "restartPolicy": "Never"}}}),
)  # fmt: skip


@pytest.fixture(scope="module")
def plane(cluster: ControlPlane) -> ControlPlane:
    cluster.define("velero")
    cluster.apply(platform())
    for each in (SCRATCH, VELERO):
        account = ("v1", "ServiceAccount", "default", each)
        wait_for(lambda account=account: cluster.objects.get(*account), f"accounts of {each}")

    def counts() -> Any:
        quota = cluster.objects.get("v1", "ResourceQuota", NAME, SCRATCH)
        return quota and "count/secrets" in quota.get("status", {}).get("used", {})

    def listed() -> bool:
        """Whether kinds that were defined just now can be listed: the API server reads them in."""
        try:
            for kind in (RESTORE, BACKUP):
                cluster.objects.list(*kind, VELERO)
        except ApiException as error:
            if error.status == http.HTTPStatus.TOO_MANY_REQUESTS:
                return False
            raise
        return True

    wait_for(counts, "the quota to count")
    wait_for(listed, "restores and backups to be read in")
    return cluster


@pytest.fixture
def account(plane: ControlPlane, tmp_path: Path) -> Iterator[Account]:
    yield Account(plane, tmp_path)
    for kind in (RESTORE, BACKUP):
        for each in plane.objects.list(*kind, VELERO):
            plane.objects.delete(*kind, each["metadata"]["name"], VELERO)


@pytest.fixture
def user(plane: ControlPlane) -> Objects:
    """What the account may do."""
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{VELERO}")
    return plane.as_user(f"system:serviceaccount:{VELERO}:{NAME}", groups)


def left(plane: ControlPlane) -> list[str]:
    """Names of what restores left in the scratch namespace."""
    kinds = (
        ("v1", "ConfigMap"), ("v1", "Secret"), ("v1", "Service"), ("apps/v1", "Deployment"),
        ("v1", "ServiceAccount"), ("v1", "Pod"),
    )  # fmt: skip
    return [
        f"{kind[1]}/{each['metadata']['name']}"
        for kind in kinds
        for each in plane.objects.list(*kind, SCRATCH, labels="velero.io/restore-name")
    ]


def results(plane: ControlPlane) -> dict[str, Any]:
    found = plane.objects.get("v1", "ConfigMap", f"{NAME}-results", VELERO)
    assert found
    return {key: json.loads(text) for key, text in found.get("data", {}).items()}


def test_what_is_whole_comes_back_is_counted_and_goes(
    plane: ControlPlane, account: Account
) -> None:
    backup(plane, "older", age_hours=20)
    backup(plane, "newest", age_hours=2)
    backup(plane, "broken", age_hours=1, phase="PartiallyFailed")
    with played(Velero(plane, [witness(plane), *WHOLE])):
        code, report, complaints = account.rehearse()
    assert (code, complaints) == (0, "")
    assert report["backup"] == "newest"
    assert report["findings"] == []
    (first, second) = report["restored"]
    assert (first["namespace"], second["namespace"]) == (WITNESS, SOURCE)
    assert second["in_backup"] == len(WHOLE) + len(of_every_namespace(SOURCE))
    assert second["objects"]["secrets"] == second["objects"]["deployments.apps"] == 1
    kept = results(plane)
    assert kept["last.json"] == kept["last-success.json"] == report
    assert SECRET_TEXT not in json.dumps(report)
    assert left(plane) == []
    assert plane.objects.list(*RESTORE, VELERO) == []


def test_nothing_of_a_backup_escapes_or_starts(plane: ControlPlane, account: Account) -> None:
    backup(plane, "newest")
    balanced = of("v1", "Service", "balanced", SOURCE, spec={
        "type": "LoadBalancer", "ports": [{"port": 80}], "externalIPs": ["192.0.2.1"],
        "loadBalancerSourceRanges": ["0.0.0.0/0"]})  # fmt: skip
    kept = of("v1", "ConfigMap", "kept", SOURCE, data={})
    kept["metadata"]["finalizers"] = ["example.ae/somebody-else"]
    velero = Velero(plane, [witness(plane), *WHOLE, *ESCAPING, balanced, kept])
    with played(velero):
        code, report, _ = account.rehearse()
    assert (code, report["findings"], velero.refused) == (0, [], [])
    made = {f"{each['kind']}/{each['metadata']['name']}": each for each in velero.made}
    assert len(made) == len(velero.made) == len(WHOLE) + 3
    assert not any(name.endswith("/escaped") for name in made)
    assert "finalizers" not in made["ConfigMap/kept"]["metadata"]
    assert made["Deployment/server"]["spec"]["replicas"] == 0
    for name in ("Service/server", "Service/balanced"):
        assert made[name]["spec"]["type"] == "ClusterIP"
        assert "externalIPs" not in made[name]["spec"]
    for each in ESCAPING:
        where = "default" if each["metadata"].get("namespace") == "default" else SCRATCH
        found = plane.objects.get(each["apiVersion"], each["kind"], "escaped", where)
        assert found is None, each["kind"]
    assert left(plane) == []


@pytest.mark.parametrize("kind", ["Pod", "PersistentVolumeClaim", "Service", "Job"])
def test_nothing_that_runs_stores_or_listens_comes_into_the_scratch_namespace(
    plane: ControlPlane, kind: str
) -> None:
    """Whoever makes it: here the administrator, as whom Velero works."""
    objects = {
        "Pod": of("v1", "Pod", "x", SCRATCH, spec={
            **POD, "securityContext": {"runAsNonRoot": True, "runAsUser": 65532,
                                       "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{**POD["containers"][0], "securityContext": {
                "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}]}),
        "PersistentVolumeClaim": of("v1", "PersistentVolumeClaim", "x", SCRATCH, spec={
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}),
        "Service": of("v1", "Service", "x", SCRATCH, spec={
            "type": "LoadBalancer", "ports": [{"port": 80}]}),
        "Job": of("batch/v1", "Job", "x", SCRATCH, spec=ESCAPING[-1]["spec"]),
    }  # fmt: skip
    with pytest.raises(ApiException, match="exceeded quota") as refused:
        plane.objects.create(objects[kind])
    assert refused.value.status == FORBIDDEN


def allowed_restore() -> dict[str, Any]:
    return of(*RESTORE, "by-hand", VELERO, spec={
        "backupName": "newest", "includedNamespaces": [SOURCE],
        "namespaceMapping": {SOURCE: SCRATCH}, "includedResources": ["configmaps"],
        "includeClusterResources": False, "restorePVs": False,
        "resourceModifier": {"kind": "ConfigMap", "name": f"{NAME}-changes"},
    })  # fmt: skip


ATTACKS: dict[str, dict[str, Any]] = {
    "everything": {"includedNamespaces": ["*"]},
    "every namespace": {"includedNamespaces": None},
    "two namespaces": {"includedNamespaces": [SOURCE, "kube-system"]},
    "a namespace that isn't in the plan": {
        "includedNamespaces": ["kube-system"], "namespaceMapping": {"kube-system": SCRATCH}},
    "where it came from": {"namespaceMapping": None},
    "into another namespace": {"namespaceMapping": {SOURCE: "default"}},
    "another mapping": {"namespaceMapping": {"kube-system": SCRATCH}},
    "two mappings": {"namespaceMapping": {SOURCE: SCRATCH, "kube-system": "default"}},
    "every kind": {"includedResources": None},
    "all kinds": {"includedResources": ["*"]},
    "pods": {"includedResources": ["configmaps", "pods"]},
    "rights": {"includedResources": ["rolebindings.rbac.authorization.k8s.io"]},
    "objects of the cluster": {"includeClusterResources": True},
    "objects of the cluster, not said": {"includeClusterResources": None},
    "volumes": {"restorePVs": True},
    "unchanged": {"resourceModifier": None},
    "changed by something else": {"resourceModifier": {"kind": "ConfigMap", "name": "mine"}},
    "over what is there": {"existingResourcePolicy": "update"},
    "with status": {"restoreStatus": {"includedResources": ["*"]}},
    "with a hook": {"hooks": {"resources": [{"name": "x", "postHooks": [
        {"exec": {"command": ["sh"]}}]}]}},
    "of a whole schedule": {"scheduleName": "velero-daily"},
    "of chosen labels": {"labelSelector": {"matchLabels": {"a": "b"}}},
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_the_account_may_make_no_other_restores(
    plane: ControlPlane, user: Objects, attack: str
) -> None:
    """Velero would carry out whatever it says, with all of its rights."""

    def refused() -> str:
        changed = copy.deepcopy(allowed_restore())
        changed["spec"] |= ATTACKS[attack]
        changed["spec"] = {key: value for key, value in changed["spec"].items() if value}
        path = plane.objects.path_of(changed).rpartition("/")[0]
        try:
            user.request("POST", path, changed, dryRun="All")
        except ApiException as error:
            return str(error.body)
        return ""

    # Policies hold a moment after they were made.
    assert "falaj-restore-rehearsal" in wait_for(refused, f"{attack} to be refused", 30)
    path = plane.objects.path_of(allowed_restore()).rpartition("/")[0]
    assert user.request("POST", path, allowed_restore(), dryRun="All")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/api/v1/namespaces/{SCRATCH}/secrets"),
        ("GET", f"/api/v1/namespaces/{SCRATCH}/secrets/key"),
        ("GET", f"/api/v1/namespaces/{VELERO}/secrets"),
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/namespaces"),
        ("GET", f"/api/v1/namespaces/{SCRATCH}/configmaps/settings"),
        ("GET", f"/api/v1/namespaces/{WITNESS}/configmaps/{NAME}"),
        ("PATCH", f"/api/v1/namespaces/{VELERO}/configmaps/{NAME}"),
        ("PATCH", f"/api/v1/namespaces/{VELERO}/configmaps/{NAME}-changes"),
        ("PATCH", f"/apis/velero.io/v1/namespaces/{VELERO}/restores/x"),
        ("POST", f"/apis/velero.io/v1/namespaces/{VELERO}/backups"),
        ("DELETE", f"/apis/velero.io/v1/namespaces/{VELERO}/backups/x"),
        ("DELETE", f"/api/v1/namespaces/{SCRATCH}"),
        ("DELETE", "/api/v1/namespaces/default/configmaps"),
        ("POST", f"/api/v1/namespaces/{SCRATCH}/pods"),
        ("PATCH", f"/api/v1/namespaces/{SCRATCH}/resourcequotas/{NAME}"),
        ("DELETE", f"/apis/networking.k8s.io/v1/namespaces/{SCRATCH}/networkpolicies"),
        (
            "PATCH",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/falaj-" + NAME,
        ),
    ],
)
def test_the_account_may_do_nothing_else(user: Objects, method: str, path: str) -> None:
    merge = "application/merge-patch+json"
    body: dict[str, Any] | None = None if method in {"GET", "DELETE"} else {}
    with pytest.raises(ApiException) as refused:
        user.request(method, path, body, merge if method == "PATCH" else "application/json")
    assert refused.value.status == FORBIDDEN


@pytest.mark.parametrize(
    ("ages", "says"),
    [
        ((), "no backup of the schedule velero-daily is complete; there are none"),
        (((31.0, "Completed"), (1.0, "PartiallyFailed")), "the newest complete backup, b0, began"),
        (((1.0, "PartiallyFailed"),), "there are 1 PartiallyFailed"),
    ],
)
def test_a_backup_that_is_too_old_or_missing_is_a_finding(
    plane: ControlPlane, account: Account, ages: tuple[tuple[float, str], ...], says: str
) -> None:
    for number, (age, phase) in enumerate(ages):
        backup(plane, f"b{number}", age, phase)
    code, report, complaints = account.rehearse()
    assert code == 3
    assert says in complaints
    assert report["restored"] == []
    assert results(plane)["last.json"] == report
    assert plane.objects.list(*RESTORE, VELERO) == []


def test_what_is_lost_changed_or_refused_is_a_finding(
    plane: ControlPlane, account: Account
) -> None:
    backup(plane, "newest")
    other = witness(plane)
    other["data"] = {"content": "something else"}
    headless = of("v1", "Service", "refused", SOURCE, spec={"ports": []})
    good = results(plane).get("last-success.json")
    velero = Velero(plane, [other, *WHOLE, headless], loses=frozenset({"settings"}))
    with played(velero):
        code, report, complaints = account.rehearse()
    assert code == 3
    assert len(velero.refused) == 1
    assert "came back with another content" in complaints
    assert f"the restore of {SOURCE} ended as PartiallyFailed with 1 errors" in complaints
    assert f"of {len(WHOLE) + 3} objects of {SOURCE} in the backup only" in complaints
    assert SECRET_TEXT not in complaints + json.dumps(report)
    assert results(plane).get("last-success.json") == good
    assert left(plane) == []


def test_a_killed_rehearsal_is_cleaned_up_by_the_next(
    plane: ControlPlane, account: Account
) -> None:
    backup(plane, "newest")
    contents = [witness(plane), *WHOLE]
    with played(Velero(plane, contents, idle=True)) as velero:
        with account.start() as process:
            wait_for(lambda: plane.objects.list(*RESTORE, VELERO), "the restore to be asked for")
            process.send_signal(signal.SIGKILL)
            process.communicate()
        (restore,) = plane.objects.list(*RESTORE, VELERO)
        velero.carry_out(restore)
        assert left(plane)
        velero.idle = False
        code, report, complaints = account.rehearse()
    assert (code, complaints, report["findings"]) == (0, "", [])
    assert left(plane) == []
    assert plane.objects.list(*RESTORE, VELERO) == []


def test_one_that_is_asked_to_end_cleans_up_itself(plane: ControlPlane, account: Account) -> None:
    backup(plane, "newest")
    with played(Velero(plane, (), idle=True)), account.start() as process:
        wait_for(lambda: plane.objects.list(*RESTORE, VELERO), "the restore to be asked for")
        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "asked to end while waiting for the restore of restore-witness" in complaints
    assert plane.objects.list(*RESTORE, VELERO) == []
