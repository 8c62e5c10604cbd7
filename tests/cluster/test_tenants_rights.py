"""Who may do what, as the API server itself decides it: every duty, every kind, every verb."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from falaj.engine.controlplane import ControlPlane
from tests.cluster.tenancy import (
    DUTIES,
    SECONDS,
    job,
    members,
    platform_of,
    pod_spec,
    refused,
    tenant_objects,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

#: Written by hand, not taken from the component: r read (get, list, watch), c create,
#: u change (update, patch), d delete; columns are trainers, deployers, auditors and admins.
RIGHTS = {
    "rights-training": """
        pods                                    r     -  r     rd
        pods/log                                r     -  r     r
        pods/exec                               -     -  -     -
        pods/attach                             -     -  -     -
        pods/portforward                        -     -  -     -
        secrets                                 -     -  -     cd
        configmaps                              rcud  -  r     rcud
        persistentvolumeclaims                  rcud  -  r     rd
        services                                r     -  r     r
        events                                  r     -  r     r
        serviceaccounts                         r     -  r     r
        serviceaccounts/token                   -     -  -     -
        resourcequotas                          r     -  r     r
        limitranges                             r     -  r     r
        jobs.batch                              rcud  -  r     rd
        cronjobs.batch                          r     -  r     r
        jobsets.jobset.x-k8s.io                 rcud  -  r     rd
        trainjobs.trainer.kubeflow.org          rcud  -  r     rd
        deployments.apps                        r     -  r     r
        statefulsets.apps                       r     -  r     r
        networkpolicies.networking.k8s.io       r     -  r     r
        roles.rbac.authorization.k8s.io         -     -  r     r
        rolebindings.rbac.authorization.k8s.io  -     -  r     r
        localqueues.kueue.x-k8s.io              r     -  r     ru
        workloads.kueue.x-k8s.io                r     -  r     ru
        httproutes.gateway.networking.k8s.io    -     -  -     -
        scaledobjects.keda.sh                   -     -  -     -
        externalsecrets.external-secrets.io     -     -  -     -
    """,
    "rights-serving": """
        pods                                        -  r     r     rd
        pods/log                                    -  r     r     r
        pods/exec                                   -  -     -     -
        secrets                                     -  -     -     cd
        configmaps                                  -  rcud  r     rcud
        services                                    -  rcud  r     r
        serviceaccounts                             -  r     r     r
        serviceaccounts/token                       -  -     -     -
        resourcequotas                              -  r     r     r
        persistentvolumeclaims                      -  r     r     rd
        deployments.apps                            -  rcud  r     rd
        statefulsets.apps                           -  r     r     r
        jobs.batch                                  -  r     r     rd
        jobsets.jobset.x-k8s.io                     -  -     -     -
        trainjobs.trainer.kubeflow.org              -  -     -     -
        horizontalpodautoscalers.autoscaling        -  rcud  r     r
        poddisruptionbudgets.policy                 -  rcud  r     r
        httproutes.gateway.networking.k8s.io        -  rcud  r     rd
        gateways.gateway.networking.k8s.io          -  -     -     -
        scaledobjects.keda.sh                       -  rcud  r     rd
        inferenceservices.serving.kserve.io         -  rcud  r     rd
        externalsecrets.external-secrets.io         -  r     r     rcd
        secretstores.external-secrets.io            -  -     -     -
        authorizationpolicies.security.istio.io     -  r     r     r
        networkpolicies.networking.k8s.io           -  r     r     r
        roles.rbac.authorization.k8s.io             -  -     r     r
        rolebindings.rbac.authorization.k8s.io      -  -     r     r
    """,
}
CLUSTER_WIDE = (
    "nodes", "namespaces", "persistentvolumes", "clusterroles.rbac.authorization.k8s.io",
    "clusterrolebindings.rbac.authorization.k8s.io", "clusterqueues.kueue.x-k8s.io",
    "customresourcedefinitions.apiextensions.k8s.io",
    "validatingadmissionpolicies.admissionregistration.k8s.io",
    "validatingadmissionpolicybindings.admissionregistration.k8s.io",
)  # fmt: skip
VERBS = {"r": ("get", "list", "watch"), "c": ("create",), "u": ("update", "patch"),
         "d": ("delete",)}  # fmt: skip


@pytest.fixture(scope="module")
def cluster(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    with platform_of(control_plane) as found:
        for name in ("rights", "others"):
            found.apply(tenant_objects(name))
        yield found


def allowed(user: Any, namespace: str, kind: str, verb: str, name: str = "") -> bool:
    resource, _, group = kind.partition(".")
    resource, _, part = resource.partition("/")
    attributes = {
        "namespace": namespace, "verb": verb, "group": group, "resource": resource,
        "subresource": part, "name": name,
    }  # fmt: skip
    answer = user.request(
        "POST",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        },
    )
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("namespace", RIGHTS)
@pytest.mark.parametrize("duty", DUTIES)
def test_a_duty_may_what_is_written_here_and_nothing_else(
    cluster: ControlPlane, namespace: str, duty: str
) -> None:
    user = members(cluster, "rights", duty)
    wrong: list[str] = []
    for line in RIGHTS[namespace].strip().splitlines():
        kind, *columns = line.split()
        for letter, verbs in VERBS.items():
            expected = letter in columns[DUTIES.index(duty)]
            wrong += [
                f"{verb} {kind}: {'denied' if expected else 'allowed'}"
                for verb in verbs
                if allowed(user, namespace, kind, verb) is not expected
            ]
    assert wrong == []


@pytest.mark.parametrize("duty", DUTIES)
def test_a_tenant_has_no_rights_in_others_namespaces_nor_over_the_cluster(
    cluster: ControlPlane, duty: str
) -> None:
    user = members(cluster, "rights", duty)
    wrong: list[str] = []
    for namespace in ("others-training", "others-serving", "kueue-system", "kube-system"):
        for kind in ("pods", "secrets", "configmaps", "jobs.batch", "deployments.apps"):
            for verb in ("get", "list", "create", "delete"):
                if allowed(user, namespace, kind, verb):
                    wrong.append(f"{verb} {kind} in {namespace}")
    for kind in CLUSTER_WIDE:
        for verb in ("create", "update", "patch", "delete", "list"):
            if allowed(user, "", kind, verb):
                wrong.append(f"{verb} {kind}")
    assert wrong == []
    assert allowed(user, "", "clusterqueues.kueue.x-k8s.io", "get", "rights")
    assert not allowed(user, "", "clusterqueues.kueue.x-k8s.io", "get", "others")
    for verb in ("escalate", "bind"):
        assert not allowed(user, "rights-training", "roles.rbac.authorization.k8s.io", verb)
    for kind in ("users", "groups", "serviceaccounts"):
        assert not allowed(user, "rights-training", kind, "impersonate")


def _deployment(namespace: str) -> dict[str, Any]:
    spec = pod_spec({"cpu": "1", "memory": "1Gi"}, serviceAccountName="inference")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "model", "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "model"}},
            "template": {
                "metadata": {"labels": {"app": "model"}},
                "spec": {**spec, "restartPolicy": "Always"},
            },
        },
    }


def test_trainers_train_and_deployers_deploy_and_neither_does_the_others_work(
    cluster: ControlPlane,
) -> None:
    trainer, deployer = (members(cluster, "rights", duty) for duty in DUTIES[:2])
    trainer.create(job("rights-training", "mine", gpus=0))
    deployer.create(_deployment("rights-serving"))
    said = refused(lambda: deployer.create(job("rights-training", "theirs")))
    assert 'cannot create resource "jobs"' in said
    refused(lambda: deployer.create(job("rights-serving", "theirs")))
    refused(lambda: trainer.create(_deployment("rights-serving")))
    refused(lambda: trainer.create(_deployment("rights-training")))
    trainer.delete("batch/v1", "Job", "mine", "rights-training")
    deployer.delete("apps/v1", "Deployment", "model", "rights-serving")


def test_a_trainer_reads_no_secret_of_its_own_namespace_nor_of_anothers(
    cluster: ControlPlane,
) -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "stringData": {"key": "value"}}
    for namespace in ("rights-training", "others-training"):
        cluster.apply([{**secret, "metadata": {"name": "keys", "namespace": namespace}}])
    trainer = members(cluster, "rights", "trainers")
    for namespace in ("rights-training", "others-training"):
        refused(lambda where=namespace: trainer.get("v1", "Secret", "keys", where))
        refused(lambda where=namespace: trainer.list("v1", "Secret", where))
    refused(lambda: trainer.list("v1", "Secret"))


def test_admins_make_secrets_but_see_none_and_widen_nothing(cluster: ControlPlane) -> None:
    admin = members(cluster, "rights", "admins")
    about = {"name": "made", "namespace": "rights-serving"}
    admin.create({"apiVersion": "v1", "kind": "Secret", "metadata": about})
    refused(lambda: admin.get("v1", "Secret", "made", "rights-serving"))
    more = {"spec": {"hard": {"pods": "9999"}}}
    refused(lambda: admin.patch("v1", "ResourceQuota", "compute", more, "rights-serving"))
    open_ = {"spec": {"ingress": [{}]}}
    api, kind = "networking.k8s.io/v1", "NetworkPolicy"
    refused(lambda: admin.patch(api, kind, "default-deny", open_, "rights-serving"))
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "mine", "namespace": "rights-serving"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                    "name": "cluster-admin"},
        "subjects": [],
    }  # fmt: skip
    refused(lambda: admin.create(role))
    admin.delete("v1", "Secret", "made", "rights-serving")


def test_who_is_in_both_groups_changes_nothing(cluster: ControlPlane) -> None:
    both = cluster.as_user("both@rights.example", ["rights:trainers", "rights:deployers"])
    for each in (job("rights-training", "both", gpus=0), _deployment("rights-serving")):
        said = refused(lambda one=each: both.create(one))
        assert "both among the trainers and the deployers of rights" in said
    # Reading is what each of the duties may, and leaving is no change of the cluster's.
    assert isinstance(both.list("batch/v1", "Job", "rights-training"), list)
    elsewhere = cluster.as_user("x@x.example", ["rights:trainers", "others:deployers"])
    elsewhere.create(job("rights-training", "elsewhere", gpus=0))
    elsewhere.delete("batch/v1", "Job", "elsewhere", "rights-training")


def test_a_token_of_another_tenant_opens_nothing(cluster: ControlPlane) -> None:
    path = "/api/v1/namespaces/others-training/serviceaccounts/trainer/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = cluster.objects.request("POST", path, request)["status"]["token"]
    settings = cluster.client.configuration
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert)

    host = urlsplit(settings.host)

    def answer(path: str) -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPSConnection(
            str(host.hostname), host.port, timeout=SECONDS, context=context
        )
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            response = connection.getresponse()
            return response.status, json.load(response)
        finally:
            connection.close()

    for namespace in ("rights-training", "rights-serving", "others-training"):
        for what in ("pods", "secrets", "configmaps"):
            status, said = answer(f"/api/v1/namespaces/{namespace}/{what}")
            assert status == 403, (namespace, what)
            assert "system:serviceaccount:others-training:trainer" in said["message"]
