"""Secrets of a namespace, and who gets at them by pods: attacks by every duty, and what works."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from falaj.components.kubernetes import federated_training
from falaj.components.kubernetes._placed import PROTECTED_LABEL
from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import Objects
from tests.cluster.residency_cases import in_kind, merged
from tests.cluster.residency_cluster import install, refusal
from tests.cluster.tenancy import (
    PLATFORM,
    SITE,
    active,
    condition,
    counted,
    eventually,
    job,
    members,
    platform_of,
    pod,
    pod_spec,
    queue_objects,
    refused,
    tenant_objects,
)
from tests.components.kubernetes.serving_services import DIGEST, by_key, service
from tests.components.kubernetes.test_federated_training import SITE as FEDERATED
from tests.components.kubernetes.training_jobs import arguments

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

TRAINING, SERVING = "acme-training", "acme-serving"
FLAVOR = "cpu-x86-64"
POOLS: dict[str, Any] = {FLAVOR: {"nodes": 2, "cpu": 30, "memory_gib": 120}}
SIZE = {"cpu": "1", "memory": "1Gi"}
APPS, JOBSETS = "apps/v1", "jobset.x-k8s.io/v1alpha2"
#: Changes one of a list's items by its name, as ``kubectl patch`` does.
STRATEGIC = "application/strategic-merge-patch+json"
KEYS = json.dumps({"keys": [
    {"kty": "OKP", "crv": "Ed25519", "kid": "issuer", "alg": "EdDSA", "use": "sig", "x": "A" * 43},
]})  # fmt: skip
USE, PROTECTED = "(cluster-secret-use)", "(cluster-protected-object)"
_CONTAINER = pod_spec(SIZE)["containers"][0]
_REFERENCE = {"name": "bank-keys", "key": "key"}
#: Every way in which a pod that the restricted standard allows gets a secret.
WAYS: dict[str, dict[str, Any]] = {
    "volume": {"volumes": [{"name": "s", "secret": {"secretName": "bank-keys"}}]},
    "optional-volume": {
        "volumes": [{"name": "s", "secret": {"secretName": "bank-keys", "optional": True}}]
    },
    "second-volume": {
        "volumes": [
            {"name": "a", "emptyDir": {}}, {"name": "b", "secret": {"secretName": "team.open"}},
            {"name": "s", "secret": {"secretName": "bank-keys"}},
        ]
    },
    "projected": {
        "volumes": [{"name": "s", "projected": {"sources": [
            {"downwardAPI": {"items": []}}, {"secret": {"name": "bank-keys"}},
        ]}}]
    },
    "variable": {
        "containers": [{**_CONTAINER, "env": [
            {"name": "A", "value": "a"}, {"name": "K", "valueFrom": {"secretKeyRef": _REFERENCE}},
        ]}]
    },
    "all-variables": {
        "containers": [{**_CONTAINER, "envFrom": [{"secretRef": {"name": "bank-keys"}}]}]
    },
    "init-container": {
        "initContainers": [{**_CONTAINER, "name": "i", "env": [
            {"name": "K", "valueFrom": {"secretKeyRef": _REFERENCE}},
        ]}]
    },
    "image-pull-secret": {"imagePullSecrets": [{"name": "bank-keys"}]},
    "name-that-ends-open": {
        "volumes": [{"name": "s", "secret": {"secretName": "keys.team.open"}}]
    },
    "name-in-capitals": {"imagePullSecrets": [{"name": "TEAM.keys"}]},
}  # fmt: skip
OPEN: dict[str, Any] = {
    "volumes": [{"name": "s", "secret": {"secretName": "team.tracking"}}],
    "containers": [{**_CONTAINER, "envFrom": [{"secretRef": {"name": "team.tracking"}}]}],
    "imagePullSecrets": [{"name": "team.registry"}],
}


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A platform as it is: a tenant, its queue, the policies, Kueue and JobSet."""
    with platform_of(control_plane, "cpu=2") as found:
        found.define("external-secrets", kinds=("ExternalSecret",))
        found.apply(tenant_objects("acme", training={"cpu": 40, "memory_gib": 200}))
        quotas = {"acme": {"quotas": {FLAVOR: {"cpu": 40, "memory_gib": 200}}}}
        found.apply(queue_objects(POOLS, quotas))
        install(found, PLATFORM)
        eventually("quotas are counted", lambda: counted(found, TRAINING, SERVING))
        eventually("the queues are active", lambda: active(found, "acme"))
        yield found


@pytest.fixture(scope="module")
def served(plane: ControlPlane) -> str:
    """A service as `InferenceService` renders it, made by the platform's owners; its name."""
    rendered = service(
        region=SITE.region, cpus=1, memory_mib=512, model_mib=64, token_keys=KEYS,
        versions=[{"version": 7, "weight": 100, "package_digest": DIGEST, "keys_digest": DIGEST}],
    )  # fmt: skip
    kept = ("Deployment", "ConfigMap", "Service", "ExternalSecret")
    plane.apply([each for each in rendered if each["kind"] in kept])
    key_ring = by_key(rendered)["ExternalSecret/credit-risk-keys"]
    # As External Secrets makes it: without a template it copies the labels.
    about = {"name": "credit-risk-keys", "namespace": SERVING,
             "labels": key_ring["metadata"]["labels"]}  # fmt: skip
    plane.apply([{"apiVersion": "v1", "kind": "Secret", "metadata": about}])
    return "credit-risk-v7"


def _template(change: dict[str, Any], account: str) -> dict[str, Any]:
    """A pod's specification, with lists of the change in the place of its own."""
    made = {**pod_spec(SIZE, serviceAccountName=account), **copy.deepcopy(change)}
    del made["tolerations"]  # of GPUs
    return made


def _job(change: dict[str, Any]) -> dict[str, Any]:
    made = job(TRAINING, "thief", gpus=0)
    made["spec"]["template"]["spec"] = _template(change, "trainer")
    return made


def _job_set(change: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": JOBSETS, "kind": "JobSet",
        "metadata": {"name": "thief", "namespace": TRAINING},
        "spec": {"replicatedJobs": [
            {"name": "good", "template": {"spec": _job({})["spec"]}},
            {"name": "bad", "template": {"spec": _job(change)["spec"]}},
        ]},
    }  # fmt: skip


def _deployment(change: dict[str, Any]) -> dict[str, Any]:
    template = {**_template(change, "inference"), "restartPolicy": "Always"}
    labels = {"app": "thief"}
    return {
        "apiVersion": APPS, "kind": "Deployment",
        "metadata": {"name": "thief", "namespace": SERVING},
        "spec": {"selector": {"matchLabels": labels},
                 "template": {"metadata": {"labels": labels}, "spec": template}},
    }  # fmt: skip


def _pod(namespace: str, change: dict[str, Any]) -> dict[str, Any]:
    made = pod(namespace, "thief", SIZE)
    made["spec"] = _template(change, "trainer" if namespace == TRAINING else "inference")
    return made


def _with_rights(plane: ControlPlane, user: str, *rules: tuple[str, str, list[str]]) -> Objects:
    """A user, or an account, with rights in all namespaces: group, resource and verbs."""
    name = "rights-of-" + user.replace(":", "-")
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    given = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs}
        for group, resource, verbs in rules
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    plane.apply([
        {**about, "kind": "ClusterRole", "rules": given},
        {**about, "kind": "ClusterRoleBinding", "roleRef": role, "subjects": [subject]},
    ])  # fmt: skip
    return plane.as_user(user)


# A team's duties: in templates, since they may start nothing else.


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [_job, _job_set], ids=["Job", "JobSet"])
def test_a_trainer_starts_nothing_with_a_secret(plane: ControlPlane, kind: Any, way: str) -> None:
    trainer = members(plane, "acme", "trainers")
    assert USE in refusal(trainer, kind(WAYS[way]), create=True)


@pytest.mark.parametrize("way", WAYS)
def test_a_deployer_starts_nothing_with_a_secret(plane: ControlPlane, way: str) -> None:
    deployer = members(plane, "acme", "deployers")
    assert USE in refusal(deployer, _deployment(WAYS[way]), create=True)


def test_secrets_that_are_the_teams_own_are_used(plane: ControlPlane) -> None:
    trainer, deployer = (members(plane, "acme", each) for each in ("trainers", "deployers"))
    for change in (OPEN, {}):
        assert refusal(trainer, _job(change), create=True) == ""
        assert refusal(trainer, _job_set(change), create=True) == ""
        assert refusal(deployer, _deployment(change), create=True) == ""


def test_a_volume_of_a_driver_brings_no_secret(plane: ControlPlane) -> None:
    driver = {"driver": "secrets-store.csi.k8s.io", "nodePublishSecretRef": {"name": "bank-keys"}}
    change = {"volumes": [{"name": "s", "csi": driver}]}
    trainer = members(plane, "acme", "trainers")
    said = refusal(trainer, _job(change), create=True)
    assert USE in said or "(kubernetes-inline-csi)" in said


@pytest.mark.parametrize(
    "volume",
    [
        {"azureFile": {"secretName": "bank-keys", "shareName": "s"}},
        {"cephfs": {"monitors": ["10.0.0.1"], "secretRef": {"name": "bank-keys"}}},
        {"flexVolume": {"driver": "x/y", "secretRef": {"name": "bank-keys"}}},
        {"iscsi": {"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.ae.example:a", "lun": 0,
                   "secretRef": {"name": "bank-keys"}}},
        {"rbd": {"monitors": ["10.0.0.1"], "image": "i", "secretRef": {"name": "bank-keys"}}},
    ],
    ids=lambda each: next(iter(each)),
)  # fmt: skip
def test_volumes_with_secrets_of_old_kinds_are_the_standards_to_refuse(
    plane: ControlPlane, volume: dict[str, Any]
) -> None:
    change = {"volumes": [{"name": "s", **volume}]}
    assert "violates PodSecurity" in refusal(plane, _pod(TRAINING, change), create=True)


# Whoever may start pods by themselves, but read no secrets.


@pytest.fixture(scope="module")
def starter(plane: ControlPlane) -> Objects:
    verbs = ["create", "get", "patch", "update"]
    return _with_rights(
        plane, "starter", ("", "pods", verbs), ("", "pods/ephemeralcontainers", verbs),
        ("apps", "replicasets", verbs), ("apps", "statefulsets", verbs),
        ("apps", "daemonsets", verbs), ("batch", "cronjobs", verbs),
        ("", "replicationcontrollers", verbs), ("", "podtemplates", verbs),
    )  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_who_reads_no_secrets_starts_no_pod_with_one(
    plane: ControlPlane, starter: Objects, way: str
) -> None:
    for where in (TRAINING, SERVING):
        assert USE in refusal(starter, _pod(where, WAYS[way]), create=True)
        assert refusal(starter, _pod(where, {}), create=True) == ""
        assert refusal(starter, _pod(where, OPEN), create=True) == ""


@pytest.mark.parametrize(
    "kind", ["ReplicaSet", "StatefulSet", "DaemonSet", "CronJob", "ReplicationController",
             "PodTemplate"]
)  # fmt: skip
def test_no_kind_of_template_is_a_way_round(
    plane: ControlPlane, starter: Objects, kind: str
) -> None:
    spec = {**_template(WAYS["volume"], "trainer"), "restartPolicy": "Always"}
    made = in_kind(kind, TRAINING, spec, {})
    assert USE in refusal(starter, made, create=True)


def test_a_container_beside_those_of_a_pod_reads_none_of_its_secrets(
    plane: ControlPlane, starter: Objects, served: str
) -> None:
    (name, *_) = _pods_of(plane, served)
    container = {**_CONTAINER, "name": "debug"}
    container.pop("resources")
    mounted = {**container, "volumeMounts": [{"name": "secret", "mountPath": "/s"}]}
    path = f"/api/v1/namespaces/{SERVING}/pods/{name}/ephemeralcontainers"
    for each in (container, mounted):
        change = {"spec": {"ephemeralContainers": [each]}}
        said = refused(lambda one=change: starter.request("PATCH", path, one, STRATEGIC))
        assert USE in said


def _pods_of(plane: ControlPlane, served: str) -> list[str]:
    labels = "app.kubernetes.io/name=credit-risk"
    eventually(f"pods of {served}", lambda: bool(plane.objects.list("v1", "Pod", SERVING, labels)))
    return [each["metadata"]["name"] for each in plane.objects.list("v1", "Pod", SERVING, labels)]


# What the platform's owners deployed.


@pytest.mark.parametrize(
    "change",
    [
        {"initContainers": [{"name": "keys", "image": f"registry.acme.example/falaj/x@{DIGEST}"}]},
        {"containers": [{"name": "server", "command": ["cat", "/run/falaj/keys/keyring"]}]},
        {"containers": [{"name": "server", "args": ["--jwks", "/tmp/mine"]}]},
        {"containers": [{"name": "server", "env": [{"name": "PYTHONSTARTUP", "value": "/x"}]}]},
        {"containers": [{**_CONTAINER, "name": "beside",
                         "volumeMounts": [{"name": "secret", "mountPath": "/s"}]}]},
        {"serviceAccountName": "default"},
        {"shareProcessNamespace": True},
    ],
    ids=["image", "command", "arguments", "variable", "container", "account", "processes"],
)  # fmt: skip
def test_a_deployer_changes_no_pod_that_has_secrets(
    plane: ControlPlane, served: str, change: dict[str, Any]
) -> None:
    deployer = members(plane, "acme", "deployers")
    patch = {"spec": {"template": {"spec": change}}}
    path = f"/apis/{APPS}/namespaces/{SERVING}/deployments/{served}"
    assert USE in refused(lambda: deployer.request("PATCH", path, patch, STRATEGIC))


def test_a_deployer_scales_and_restarts_what_has_secrets(plane: ControlPlane, served: str) -> None:
    deployer = members(plane, "acme", "deployers")
    note = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "2026-11-23"}}}
    before = set(_pods_of(plane, served))
    deployer.patch(
        APPS, "Deployment", served, {"spec": {"replicas": 2, "template": note}}, SERVING
    )

    def is_rolled() -> bool:
        found = plane.objects.get(APPS, "Deployment", served, SERVING) or {}
        status = found["status"]
        return status.get("updatedReplicas") == 2 and not before & set(_pods_of(plane, served))

    # The pods are made by the ReplicaSet's controller, which reads no secrets either.
    eventually("new pods in the place of the old", is_rolled)


def test_a_deployer_takes_secrets_out_of_a_pod(plane: ControlPlane) -> None:
    plane.apply([_deployment(WAYS["volume"])])
    deployer = members(plane, "acme", "deployers")
    without = {"spec": {"template": {"spec": {"volumes": None}}}}
    deployer.patch(APPS, "Deployment", "thief", without, SERVING)
    plane.objects.delete(APPS, "Deployment", "thief", SERVING)


# What says whom a workload trusts.


def _protected(kind: str, api: str = "v1") -> tuple[str, str, str, str]:
    name = "credit-risk-tokens" if kind == "ConfigMap" else "credit-risk-keys"
    return api, kind, name, SERVING


@pytest.mark.parametrize(
    ("duty", "what"),
    [
        ("deployers", _protected("ConfigMap")),
        ("admins", _protected("ConfigMap")),
        ("admins", _protected("Secret")),
        ("admins", _protected("ExternalSecret", "external-secrets.io/v1")),
    ],
    ids=lambda each: each if isinstance(each, str) else each[1],
)
def test_nobody_of_a_team_changes_whom_a_service_trusts(
    plane: ControlPlane, served: str, duty: str, what: tuple[str, str, str, str]
) -> None:
    user = members(plane, "acme", duty)
    api, kind, name, namespace = what
    assert PROTECTED in refused(lambda: user.delete(api, kind, name, namespace))
    if kind == "ConfigMap":
        for change in (
            {"data": {"tokens.jwks.json": '{"keys": ["mine"]}'}},
            {"metadata": {"labels": {PROTECTED_LABEL: None}}},
            {"metadata": {"labels": None}},
        ):
            said = refused(lambda one=change: user.patch(api, kind, name, one, namespace))
            assert PROTECTED in said
    assert plane.objects.get(api, kind, name, namespace)


def test_nobody_of_a_team_takes_the_name_before_a_service_does(plane: ControlPlane) -> None:
    """What is there already becomes the platform's when it is applied."""
    deployer = members(plane, "acme", "deployers")
    about = {"name": "early-tokens", "namespace": SERVING}
    mine = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": about, "data": {"a": "mine"}}
    deployer.create(mine)
    ours = {**mine, "metadata": {**about, "labels": {PROTECTED_LABEL: "true"}}}
    assert PROTECTED in refused(
        lambda: deployer.patch(
            "v1", "ConfigMap", "early-tokens",
            {"metadata": {"labels": {PROTECTED_LABEL: "true"}}}, SERVING,
        )
    )  # fmt: skip
    plane.apply([{**ours, "data": {"a": "ours"}}])
    said = refused(
        lambda: deployer.patch("v1", "ConfigMap", "early-tokens", {"data": {"a": "mine"}}, SERVING)
    )
    assert PROTECTED in said
    found = plane.objects.get("v1", "ConfigMap", "early-tokens", SERVING)
    assert found
    assert found["data"] == {"a": "ours"}


def test_a_teams_own_objects_stay_its_own(plane: ControlPlane) -> None:
    deployer, admin = (members(plane, "acme", each) for each in ("deployers", "admins"))
    about = {"name": "mine", "namespace": SERVING}
    deployer.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": about})
    deployer.patch("v1", "ConfigMap", "mine", {"data": {"a": "b"}}, SERVING)
    deployer.delete("v1", "ConfigMap", "mine", SERVING)
    own = {"name": "team.tracking", "namespace": SERVING}
    admin.create({"apiVersion": "v1", "kind": "Secret", "metadata": own})
    admin.delete("v1", "Secret", "team.tracking", SERVING)


def test_what_is_protected_goes_with_its_owner(plane: ControlPlane) -> None:
    """The collector of garbage deletes it, which reads every secret."""
    owner = {"apiVersion": "v1", "kind": "ConfigMap",
             "metadata": {"name": "owner", "namespace": SERVING}}  # fmt: skip
    (made,) = plane.apply([owner])
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner",
                 "uid": made["metadata"]["uid"]}  # fmt: skip
    about = {"name": "owned", "namespace": SERVING, "labels": {PROTECTED_LABEL: "true"},
             "ownerReferences": [reference]}  # fmt: skip
    plane.apply([{"apiVersion": "v1", "kind": "Secret", "metadata": about}])
    plane.objects.delete("v1", "ConfigMap", "owner", SERVING)
    eventually(
        "the owned one is gone", lambda: not plane.objects.get("v1", "Secret", "owned", SERVING)
    )


# Controllers.


def test_a_job_with_secrets_of_the_platforms_owners_runs(plane: ControlPlane) -> None:
    """Kueue and JobSet complete it and make its job; the job's controller makes its pod."""
    given: Any = {
        **arguments(cpus=1, memory_gib=1, flavor=FLAVOR, gpus_per_node=0, nodes=None),
        **FEDERATED, "region": SITE.region,
    }  # fmt: skip
    given = {key: each for key, each in given.items() if each is not None}
    rendered = federated_training.manifests(federated_training.check("claims", given))
    (found,) = [each for each in rendered if each["kind"] == "JobSet"]
    plane.apply([found])
    labels = "jobset.sigs.k8s.io/jobset-name=claims"
    eventually("its pod is made", lambda: bool(plane.objects.list("v1", "Pod", TRAINING, labels)))
    plane.objects.delete(JOBSETS, "JobSet", "claims", TRAINING)


JOBS = ["create", "get", "patch", "update"]


@pytest.mark.parametrize(
    "account",
    ["kubeflow-system:kubeflow-trainer", "kserve:kserve-controller-manager",
     "kueue-system:kueue-controller-manager", "keda:keda-operator"],
)  # fmt: skip
def test_what_acts_for_others_brings_no_secret_in(plane: ControlPlane, account: str) -> None:
    """Whatever it may read: a TrainJob or an InferenceService of KServe's names what it likes."""
    user = _with_rights(
        plane, f"system:serviceaccount:{account}", ("", "secrets", ["get"]),
        ("batch", "jobs", JOBS), ("jobset.x-k8s.io", "jobsets", JOBS),
        ("apps", "deployments", JOBS),
    )  # fmt: skip
    for made in (_job, _job_set, _deployment):
        assert USE in refusal(user, made(WAYS["volume"]), create=True)
        assert refusal(user, made(OPEN), create=True) == ""


def test_what_acts_for_others_completes_what_has_secrets(plane: ControlPlane) -> None:
    """Kueue writes into suspended jobs where their pods go."""
    # Of a queue that isn't there: the real Kueue would start it, whose template can't be changed.
    nowhere = {"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "nowhere"}}}
    suspended = merged(_job(WAYS["volume"]), {**nowhere, "spec": {"suspend": True}})
    plane.apply([suspended])

    def is_suspended() -> bool:
        found = plane.objects.get("batch/v1", "Job", "thief", TRAINING)
        return condition(found, "Suspended") == "True"

    # Before its controller says so, the template of a job can't be changed by anybody.
    eventually("the job is suspended", is_suspended)
    kueue = plane.as_user("system:serviceaccount:kueue-system:kueue-controller-manager")
    selector = {"spec": {"template": {"spec": {"nodeSelector": {"falaj.io/flavor": FLAVOR}}}}}
    kueue.patch("batch/v1", "Job", "thief", selector, TRAINING)
    plane.objects.delete("batch/v1", "Job", "thief", TRAINING)
