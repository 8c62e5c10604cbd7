"""Attacks by the people of tenants, as the users that they are: refused, and by whom.

Roles, quotas, the Pod Security Standard and each policy by its name; what they may do stands
beside it, so that a policy that refuses all would be found. Cases are in ``attacks/``.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from kubernetes.client.exceptions import ApiException

from falaj.components.kubernetes import gateway, tenant
from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import Objects, wait_for
from tests.cluster.residency_cases import DIGEST, PLAIN, REGISTRY, RESIDENCY, in_kind, merged
from tests.cluster.residency_cluster import residence
from tests.components.kubernetes.test_gateway import GATEWAY

_FOLDER: Final = Path(__file__).parent / "attacks"
_FORBIDDEN: Final = 403
_MERGE: Final = "application/merge-patch+json"
#: Whoever may write everything but policies: what a cluster's own administrators may be.
_WRITES: Final = [
    {"apiGroups": [""], "resources": ["*"], "verbs": ["*"]},
    {"apiGroups": ["apps", "batch"], "resources": ["*"], "verbs": ["*"]},
]
HOSTS: Final = {"acme": ["api.acme.example.ae"], "bravo": ["api.bravo.example.ae"]}
_GIVEN: Final = {
    **{key: RESIDENCY[key] for key in (
        "distribution", "region", "acknowledge_degraded", "registry", "owner", "data_class",
        "cost_center",
    )},
    "training": {"devices": {"nvidia.com/gpu": 8}}, "monthly_budget_usd": 1000,
}  # fmt: skip
_JOBS: Final = "system:serviceaccount:kube-system:job-controller"
_PROMETHEUS: Final = "http://prometheus-operated.monitoring.svc:9090"


@dataclass(frozen=True)
class Attack:
    """One thing that somebody tries, and who refuses it; nobody where it is permitted."""

    name: str
    user: str
    method: str
    path: str
    body: Any
    by: str = ""
    says: str = ""

    def __str__(self) -> str:
        return f"{self.user}: {self.name}"


def _rights() -> Iterator[Attack]:
    for each in yaml.safe_load((_FOLDER / "rights.yaml").read_text(encoding="utf-8")):
        for path in each["paths"]:
            for user in each["as"]:
                verb = each["verb"]
                yield Attack(f"{verb} {path}", user, verb, path, {}, "RBAC", "cannot ")


@cache
def _objects(file: str) -> tuple[Attack, ...]:
    text = (_FOLDER / file).read_text(encoding="utf-8")
    text = text.replace("REGISTRY", REGISTRY).replace("DIGEST", DIGEST)
    return tuple(map(_attack, yaml.safe_load(text)))


def _attack(given: Mapping[str, Any]) -> Attack:
    method, kind = "POST", ""
    if "change" in given:
        method, body = "PATCH", given["change"]["to"]
        version, kind, name, namespace = given["change"]["of"]
        about = {"name": name, "namespace": namespace}
    else:
        body = _object(given)
        version, kind, about = body["apiVersion"], body["kind"], body["metadata"]
    root = "/apis" if "/" in version else "/api"
    below = f"/namespaces/{about['namespace']}" if "namespace" in about else ""
    path = f"{root}/{version}{below}/{kind.lower()}s"
    if method == "PATCH":
        path += f"/{about['name']}"
    return Attack(
        given["name"], given["as"], method, path, body, given.get("by", ""), given.get("says", "")
    )


def _object(given: Mapping[str, Any]) -> dict[str, Any]:
    user = given["as"]
    serving = given.get("in", "acme-serving")
    if "object" in given:
        return dict(given["object"])
    if "pod" in given:
        return _pod(given)
    if "claim" in given:
        spec = {"storageClassName": "falaj-block", "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "1Gi"}}}  # fmt: skip
        return _made("v1", "PersistentVolumeClaim", "acme-training", merged(spec, given["claim"]))
    if "alias" in given:
        spec = {"type": "ExternalName", "externalName": given["alias"]}
        return _made("v1", "Service", serving, spec)
    if "route" in given:
        spec = {"parentRefs": [{"name": "models", "namespace": "envoy-gateway-system"}],
                "rules": [{"backendRefs": [{"name": "api", "port": 443}]}]}  # fmt: skip
        api = "gateway.networking.k8s.io/v1"
        return _made(api, "HTTPRoute", serving, {**spec, **given["route"]})
    query = {"serverAddress": _PROMETHEUS, "query": given.get("query", ""), "threshold": "1"}
    trigger = given.get("trigger", {"type": "prometheus", "metadata": query})
    assert "query" in given or "trigger" in given, (user, given)
    return _scaler("case", trigger)


def _pod(given: Mapping[str, Any]) -> dict[str, Any]:
    """The pod by itself, or in what the user may make."""
    user, limits = given["as"], given.get("limits", {})
    spec = copy.deepcopy(merged(PLAIN, {**given["pod"], "initContainers": None}))
    sizes = {"memory": "1Gi", **limits}
    spec["containers"][0]["resources"] = {"requests": {"cpu": "1", **sizes}, "limits": sizes}
    for each in given["pod"].get("initContainers", []):
        other = {**spec["containers"][0], "name": each["name"]}
        sizes = {"memory": "1Gi", **each["limits"]}
        other["resources"] = {"requests": {"cpu": "1", **sizes}, "limits": sizes}
        spec.setdefault("initContainers", []).append(other)
    labels = given.get("labels", {})
    kind = {"trainer": "Job", "deployer": "Deployment"}.get(user, "Pod")
    namespace = given.get("in", "acme-serving" if kind == "Deployment" else "acme-training")
    if kind == "Deployment":
        spec["serviceAccountName"] = "inference"
    if kind == "Pod":
        spec["restartPolicy"] = "Never"
    return in_kind(kind, namespace, spec, labels)


def _made(version: str, kind: str, namespace: str, spec: Any, name: str = "case") -> Any:
    about = {"name": name, "namespace": namespace}
    return {"apiVersion": version, "kind": kind, "metadata": about, "spec": spec}


def _scaler(name: str, trigger: Mapping[str, Any]) -> Any:
    spec = {"scaleTargetRef": {"name": "api"}, "triggers": [dict(trigger)]}
    return _made("keda.sh/v1alpha1", "ScaledObject", "acme-serving", spec, name)


#: What people change: it is there, and was taken.
_THERE: Final = (
    _made("v1", "Service", "acme-serving",
          {"selector": {"app": "x"}, "ports": [{"port": 443}]}, "api"),
    _made("v1", "PersistentVolumeClaim", "acme-training",
          {"storageClassName": "falaj-block", "accessModes": ["ReadWriteOnce"],
           "resources": {"requests": {"storage": "1Gi"}}}, "open"),
    _made("gateway.networking.k8s.io/v1", "HTTPRoute", "acme-serving",
          {"parentRefs": [{"name": "models", "namespace": "envoy-gateway-system"}],
           "hostnames": HOSTS["acme"]}, "api"),
    _scaler("api", {"type": "cpu", "metricType": "Utilization", "metadata": {"value": "70"}}),
)  # fmt: skip


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    with residence(RESIDENCY, nodes="cpu=1") as found:
        found.define("gateway-api", "keda")
        found.define("prometheus-operator", kinds=("PrometheusRule",))
        for name in HOSTS:
            given: Any = {**_GIVEN, "tenant": name}
            found.apply(
                each
                for each in tenant.manifests(tenant.check(name, given))
                # Queues take no part here, and Kueue would have to run for them.
                if not each["apiVersion"].startswith("kueue.x-k8s.io/")
            )
        shared: Any = {
            **_GIVEN, **GATEWAY, "tenant": "platform", "tenants": list(HOSTS), "hosts_of": HOSTS,
            "hosts": [host for each in HOSTS.values() for host in each],
            "own_domains": ["acme.example", "example.ae"],
        }  # fmt: skip
        for key in ("training", "monthly_budget_usd"):
            del shared[key]
        found.apply(gateway.admission(gateway.check("models", shared)))
        found.apply(_administrator())
        wait_for(lambda: _is_counted(found), "quotas", 60)
        found.apply(_THERE)
        _wait_for_policies(found)
        yield found


def _is_counted(plane: ControlPlane) -> bool:
    """Whether quotas are in force, of what is served here."""
    quotas = plane.objects.list("v1", "ResourceQuota")
    return all(
        each["spec"]["hard"].keys() == each.get("status", {}).get("hard", {}).keys()
        for each in quotas
    )


def _administrator() -> list[dict[str, Any]]:
    api = "rbac.authorization.k8s.io"
    about = {"name": "administrator"}
    return [
        {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": about, "rules": _WRITES},
        {"apiVersion": f"{api}/v1", "kind": "ClusterRoleBinding", "metadata": about,
         "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "administrator"},
         "subjects": [{"apiGroup": api, "kind": "User", "name": "administrator"}]},
    ]  # fmt: skip


def _wait_for_policies(plane: ControlPlane) -> None:
    """The tenant's and the gateway's came last; a quota refuses none of these."""
    for by in ("falaj-acme-devices", "falaj-models-routes"):
        first = next(each for each in _objects("objects.yaml") if each.by == by)
        wait_for(lambda one=first: one.by in _said(plane, one), by, 60)


def _user(plane: ControlPlane, name: str) -> Objects:
    if name == "administrator":
        return plane.as_user(name)
    if name == "jobs":
        return plane.as_user(_JOBS, ["system:serviceaccounts", "system:authenticated"])
    of = "bravo" if name.startswith("other") else "acme"
    duty = {"other": "deployer", "other deployer": "deployer"}.get(name, name)
    return plane.as_user(f"{duty}@{of}.example", [f"{of}:{duty}s"])


def _said(plane: ControlPlane, attack: Attack) -> str:
    """What the API server has against it; empty where it would do it."""
    kind = _MERGE if attack.method == "PATCH" else "application/json"
    body = None if attack.method == "GET" else attack.body
    query = {} if attack.method == "GET" else {"dryRun": "All"}
    try:
        _user(plane, attack.user).request(attack.method, attack.path, body, kind, **query)
    except ApiException as error:
        assert error.status == _FORBIDDEN, error.body
        return str(json.loads(str(error.body))["message"])
    return ""


RIGHTS: Final = tuple(_rights())
OBJECTS: Final = _objects("objects.yaml")
PERMITTED: Final = _objects("permitted.yaml")


@pytest.mark.cluster
@pytest.mark.parametrize("attack", RIGHTS, ids=str)
def test_roles_refuse_it(plane: ControlPlane, attack: Attack) -> None:
    said = _said(plane, attack)
    assert f'User "{attack.user.removeprefix("other") or "deployer"}@' in said
    assert "cannot " in said


@pytest.mark.cluster
@pytest.mark.parametrize("attack", OBJECTS, ids=str)
def test_it_is_refused_by_what_guards_it(plane: ControlPlane, attack: Attack) -> None:
    said = _said(plane, attack)
    by = {
        "quota": "exceeded quota: ",
        "limits": "maximum ",
        "PodSecurity": "violates PodSecurity",
    }.get(attack.by, f"ValidatingAdmissionPolicy '{attack.by}")
    assert by in said
    assert attack.says in said


@pytest.mark.cluster
@pytest.mark.parametrize("attack", PERMITTED, ids=str)
def test_what_people_may_do_is_done(plane: ControlPlane, attack: Attack) -> None:
    assert _said(plane, attack) == ""


def test_the_suite_is_whole() -> None:
    """Every duty tries something, and no attack stands twice."""
    tried = [*RIGHTS, *OBJECTS]
    assert len(tried) >= 150
    assert len({str(each) for each in tried}) == len(tried)
    users = {each.user for each in tried}
    assert users >= {"trainer", "deployer", "auditor", "admin", "other", "administrator", "jobs"}
