"""Residency in a cluster: policies that the API server accepts whole, records, and users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.exceptions import ApiException

from falaj.components.kubernetes.residency import check, manifests
from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import Objects, wait_for
from tests.cluster.residency_cases import DIGEST, PLAIN, REGISTRY, RESIDENCY, in_kind, merged
from tests.cluster.residency_cluster import POLICY, install, namespace, refusal, residence
from tests.cluster.type_checks import types_checked

pytestmark = pytest.mark.cluster

AKS = {
    **RESIDENCY, "distribution": "aks", "region": "uaenorth",
    "registry": "falaj.azurecr.io/falaj",
}  # fmt: skip
SITE = {
    **RESIDENCY, "distribution": "existing", "region": "dubai-dc1", "data_class": "restricted",
    "registry": "registry.falaj.example.ae:5000/falaj",
}  # fmt: skip
#: Whoever may do everything but change policies: what a cluster's own administrators may be.
POWERFUL = [
    {"apiGroups": ["", "apps", "batch", "rbac.authorization.k8s.io"], "resources": ["*"],
     "verbs": ["*"]},
]  # fmt: skip


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with residence(RESIDENCY, nodes="h200=1") as found:
        # All of both, for expressions are checked against each kind that is there.
        found.define("gateway-api", "external-secrets")
        yield found


def _clustered(name: str, rules: list[dict[str, Any]], user: str) -> list[dict[str, Any]]:
    api = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    binding = {
        "apiVersion": f"{api}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
    }  # fmt: skip
    return [{**role, "rules": rules}, binding]


@pytest.fixture(scope="module")
def powerful(plane: ControlPlane) -> Objects:
    """One who may write everything here, namespaces and roles too, but no policies."""
    plane.apply(_clustered("powerful", POWERFUL, "mohammed"))
    return plane.as_user("mohammed")


def _warnings(plane: ControlPlane) -> dict[str, Any]:
    """What the API server has against expressions; raises until all have been checked."""
    found = {}
    for each in plane.objects.list(*POLICY):
        status = each.get("status", {})
        assert status.get("observedGeneration") == each["metadata"]["generation"]
        if warnings := status.get("typeChecking", {}).get("expressionWarnings"):
            found[each["metadata"]["name"]] = warnings
    return found


def _is_checked(plane: ControlPlane) -> bool:
    try:
        _warnings(plane)
    except AssertionError:
        return False
    return True


def test_users_get_no_further_than_their_roles(plane: ControlPlane) -> None:
    """A policy can't be changed by who may not, whatever else they may."""
    user = plane.as_user("nobody", ["acme:trainers"])
    made = next(iter(manifests(check("residency", RESIDENCY))))
    assert "cannot patch resource" in refusal(user, made)
    with pytest.raises(ApiException) as refused:
        user.delete(*POLICY, "falaj-images-pods")
    assert refused.value.status == 403


def test_whoever_may_everything_else_changes_no_policy(powerful: Objects) -> None:
    made = list(manifests(check("residency", RESIDENCY)))
    for each in (made[0], made[1]):
        assert "cannot patch resource" in refusal(powerful, each)


def test_roles_that_change_policies_are_refused(powerful: Objects) -> None:
    rule = {
        "apiGroups": ["admissionregistration.k8s.io"],
        "resources": ["validatingadmissionpolicybindings"],
        "verbs": ["delete"],
    }
    said = refusal(powerful, _clustered("off", [rule], "mohammed")[0])
    assert "falaj-cluster-roles" in said or "attempting to grant RBAC permissions" in said


@pytest.mark.parametrize("name", ["gpu-operator-2", "network-operator", "istio-system", "keda"])
def test_names_of_exempt_namespaces_are_for_administrators(
    plane: ControlPlane, powerful: Objects, name: str
) -> None:
    """The exemption is as strong as the right to change policies."""
    level = "restricted"
    said = refusal(powerful, namespace(name, level))
    if name == "gpu-operator-2":
        assert said == ""
    else:
        assert "falaj-exempt-namespaces" in said
        assert refusal(plane, namespace(name, level)) == ""


def test_no_label_exempts_a_namespace(plane: ControlPlane, powerful: Objects) -> None:
    """The label that bindings go by is the API server's own: it writes the name over it."""
    changed = namespace("acme-training", "restricted")
    changed["metadata"]["labels"]["kubernetes.io/metadata.name"] = "gpu-operator"
    answer = plane.objects.request(
        "PATCH", "/api/v1/namespaces/acme-training",
        {"metadata": {"labels": changed["metadata"]["labels"]}},
        "application/merge-patch+json", dryRun="All",
    )  # fmt: skip
    assert answer["metadata"]["labels"]["kubernetes.io/metadata.name"] == "acme-training"
    changed = namespace("acme-training", "restricted")
    changed["metadata"]["labels"]["falaj.io/tenant"] = "bravo"
    assert "marks of the namespace are changed: falaj.io/tenant" in refusal(powerful, changed)
    weaker = namespace("acme-training", "privileged")
    assert "another Pod Security Standard: privileged" in refusal(powerful, weaker)


def test_a_token_of_another_tenant_is_refused(plane: ControlPlane) -> None:
    """Even where a role would give it: roles err, and are found later."""
    rule = [{"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}]
    thief = "system:serviceaccount:acme-serving:inference"
    plane.apply(_clustered("tokens", rule, thief))
    path = "/api/v1/namespaces/acme-training/serviceaccounts/trainer/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    with pytest.raises(ApiException) as refused:
        plane.as_user(thief).request("POST", path, request)
    assert "falaj-token-requests" in json.loads(refused.value.body or "{}")["message"]
    own = "system:serviceaccount:acme-training:trainer"
    plane.apply(_clustered("own-tokens", rule, own))
    assert plane.as_user(own).request("POST", path, request)["status"]["token"]
    request["spec"] = {"expirationSeconds": 864000}
    with pytest.raises(ApiException) as refused:
        plane.as_user(own).request("POST", path, request)
    assert "864000 s" in json.loads(refused.value.body or "{}")["message"]


def test_an_ephemeral_container_is_judged(plane: ControlPlane) -> None:
    plane.apply([in_kind("Pod", "acme-training", PLAIN, {})])
    debugger = {
        "name": "debug", "image": f"docker.io/busybox@{DIGEST}",
        "securityContext": PLAIN["containers"][0]["securityContext"],
    }  # fmt: skip
    path = "/api/v1/namespaces/acme-training/pods/case/ephemeralcontainers"
    change = {"spec": {"ephemeralContainers": [debugger]}}
    kind = "application/strategic-merge-patch+json"
    with pytest.raises(ApiException) as refused:
        plane.objects.request("PATCH", path, change, kind)
    assert "falaj-images-pods" in json.loads(refused.value.body or "{}")["message"]
    debugger["image"] = f"{REGISTRY}/debug@{DIGEST}"
    plane.objects.request("PATCH", path, change, kind, dryRun="All")


def test_a_node_that_was_wrong_before_can_be_kept_free_and_drained(plane: ControlPlane) -> None:
    """As controllers do when it doesn't answer; but it says nothing else that is wrong."""
    plane.objects.delete("admissionregistration.k8s.io/v1", f"{POLICY[1]}Binding", "falaj-nodes")
    abroad = {"topology.kubernetes.io/region": "eu-west-1", "team": "a"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "early", "labels": abroad}}
    wait_for(lambda: refusal(plane, node) == "", "the policy to be off", 30)
    plane.apply([node])
    install(plane, RESIDENCY)
    another = {**node, "metadata": {"name": "late", "labels": abroad}}
    wait_for(lambda: "falaj-nodes" in refusal(plane, another), "the policy to be on again", 30)
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}
    kept_free = {"spec": {"taints": [taint], "unschedulable": True}}
    plane.objects.patch("v1", "Node", "early", kept_free)
    moved = {"metadata": {"labels": {"topology.kubernetes.io/region": "eu-west-2"}}}
    with pytest.raises(ApiException) as refused:
        plane.objects.patch("v1", "Node", "early", moved)
    assert "the node says that it is elsewhere" in str(refused.value.body)
    home = {"metadata": {"labels": {"topology.kubernetes.io/region": "me-central-1"}}}
    plane.objects.patch("v1", "Node", "early", home)
    plane.objects.delete("v1", "Node", "early")


def test_objects_of_the_clusters_extensions(plane: ControlPlane) -> None:
    about = {"name": "web", "namespace": "acme-serving"}
    listener: dict[str, Any] = {
        "name": "web",
        "port": 443,
        "protocol": "HTTPS",
        "hostname": "x.example.ae",
    }
    listener["tls"] = {"certificateRefs": [{"name": "web"}]}
    gateway: dict[str, Any] = {
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": about,
        "spec": {"gatewayClassName": "envoy", "listeners": [listener]},
    }  # fmt: skip
    assert refusal(plane, gateway) == ""
    plain = merged(
        gateway, {"spec": {"listeners": [{"port": 8080, "protocol": "HTTP", "tls": None}]}}
    )
    assert "falaj-gateways" in refusal(plane, plain)
    scheme = {"service.beta.kubernetes.io/aws-load-balancer-scheme": "internet-facing"}
    facing = merged(gateway, {"spec": {"infrastructure": {"annotations": scheme}}})
    assert "faces the internet" in refusal(plane, facing)
    secret: dict[str, Any] = {
        "apiVersion": "external-secrets.io/v1", "kind": "ExternalSecret", "metadata": about,
        "spec": {"secretStoreRef": {"kind": "ClusterSecretStore", "name": "falaj"},
                 "data": [{"secretKey": "k", "remoteRef": {"key": "acme/model-key"}}]},
    }  # fmt: skip
    assert refusal(plane, secret) == ""
    secret["spec"]["data"][0]["remoteRef"]["key"] = "bravo/model-key"
    assert "secrets that aren't the tenant's are read: bravo/model-key" in refusal(plane, secret)


def test_refusals_are_in_the_audit_log(plane: ControlPlane) -> None:
    """Under the rule's id, with what was wrong; beside the policy that denied it."""
    image = {"containers": [{"image": "docker.io/library/audited:1"}]}
    assert refusal(plane, in_kind("Pod", "acme-training", merged(PLAIN, image), {}))

    def recorded() -> dict[str, str]:
        for line in Path(plane.files.audit_log).read_text(encoding="utf-8").splitlines():
            notes = json.loads(line).get("annotations", {})
            if "audited" in notes.get("falaj-images-pods/kubernetes-image-digest", ""):
                return notes
        return {}

    wait_for(lambda: bool(recorded()), "the record", 20)
    notes = recorded()
    assert notes["falaj-images-pods/kubernetes-image-registry"] == "docker.io/library/audited:1"
    failures = json.loads(notes["validation.policy.admission.k8s.io/validation_failure"])
    assert {each["policy"] for each in failures} >= {"falaj-images-pods"}
    assert failures[0]["validationActions"] == ["Deny", "Audit"]


@pytest.mark.parametrize("args", [RESIDENCY, AKS, SITE], ids=["eks", "aks", "existing"])
def test_no_expression_is_warned_of(
    plane: ControlPlane, args: dict[str, Any], tmp_path: Path
) -> None:
    """Every expression has the types of every kind that its policy matches."""
    install(plane, args)
    with types_checked(plane, tmp_path):
        wait_for(lambda: _is_checked(plane), "expressions are checked", 240)
    assert _warnings(plane) == {}


def test_a_site_and_its_balancers(plane: ControlPlane) -> None:
    """An existing cluster: the site's name is its region; addresses of one's own are internal."""
    install(plane, SITE)
    pinned = {"nodeSelector": {"topology.kubernetes.io/region": "dubai-dc1"}}
    image = f"registry.falaj.example.ae:5000/falaj/x@{DIGEST}"
    pod = merged(PLAIN, {**pinned, "containers": [{"image": image}]})
    wait_for(
        lambda: refusal(plane, in_kind("Job", "acme-training", pod, {})) == "", "the site", 30
    )
    abroad = {"nodeSelector": {"topology.kubernetes.io/region": "me-central-1"}}
    said = refusal(plane, in_kind("Job", "acme-training", merged(pod, abroad), {}))
    assert "region dubai-dc1" in said
    service: dict[str, Any] = {
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "api", "namespace": "acme-serving"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 443}]},
    }  # fmt: skip
    assert "would be public" in refusal(plane, service)
    key = "metallb.io/loadBalancerIPs"
    service["metadata"]["annotations"] = {key: "10.20.0.9"}
    # The API server takes up each policy by itself.
    wait_for(lambda: refusal(plane, service) == "", "the site's balancers", 30)
    service["metadata"]["annotations"] = {key: "10.20.0.9,203.0.113.9"}
    assert "would be public" in refusal(plane, service)


def test_to_see_what_would_be_lost_nothing_is_denied(plane: ControlPlane) -> None:
    plane.apply(manifests(check("residency", {**SITE, "enforce": False})))
    abroad = in_kind("Job", "acme-training", PLAIN, {})
    wait_for(lambda: refusal(plane, abroad) == "", "denials have ended", 60)
