"""What controllers make of objects, down to pods and claims, and by which account."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import yaml

from falaj.components.kubernetes._objects import Manifest, key_of
from falaj.engine.controlplane import ControlPlane
from falaj.engine.controlplane.objects import SIDE_BY_SIDE
from tests.cluster.residency_cluster import refusal

_SYSTEM = "system:serviceaccount:kube-system:"
JOBSET = "system:serviceaccount:jobset-system:jobset-controller"
GATEWAY = "system:serviceaccount:envoy-gateway-system:envoy-gateway"
#: Who makes the pods of a kind.
_OF_PODS = {
    "ReplicaSet": f"{_SYSTEM}replicaset-controller",
    "StatefulSet": f"{_SYSTEM}statefulset-controller",
    "DaemonSet": f"{_SYSTEM}daemon-set-controller",
    "Job": f"{_SYSTEM}job-controller",
}
#: As the proxies' namespace asks, and as Envoy Gateway sets it for the container that it adds.
_RESTRICTED = {
    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}  # fmt: skip


@dataclass(frozen=True)
class Made:
    """An object that a controller makes of another one."""

    user: str
    """The controller's account."""
    manifest: Manifest
    of: str
    """The other object, by its key."""

    def __str__(self) -> str:
        return f"{key_of(self.manifest)} of {self.of}"


def made_of(manifest: Manifest) -> Iterator[Made]:
    """What controllers make of an object, and of what they made."""
    kind, spec, of = str(manifest["kind"]), manifest.get("spec", {}), key_of(manifest)
    user = _OF_PODS.get(kind, "")
    if kind == "Deployment":
        own = {"selector": spec["selector"], "template": spec["template"]}
        inner = _object(manifest, "apps/v1", "ReplicaSet", spec=own)
        yield from _with_pods(f"{_SYSTEM}deployment-controller", inner, of)
    elif kind == "CronJob":
        inner = _object(manifest, "batch/v1", "Job", **spec["jobTemplate"])
        yield from _with_pods(f"{_SYSTEM}cronjob-controller", inner, of)
    elif kind == "JobSet":
        for each in spec["replicatedJobs"]:
            inner = _object(manifest, "batch/v1", "Job", **each["template"])
            # JobSet's webhook sets it where it is left out.
            inner["spec"]["template"]["spec"].setdefault("restartPolicy", "OnFailure")
            yield from _with_pods(JOBSET, inner, of)
    elif kind in _OF_PODS:
        yield Made(user, _pod(manifest), of)
        for claim in spec.get("volumeClaimTemplates", []):
            yield Made(user, _object(manifest, "v1", "PersistentVolumeClaim", **claim), of)


def _with_pods(user: str, inner: Manifest, of: str) -> Iterator[Made]:
    yield Made(user, inner, of)
    yield from made_of(inner)


def _pod(manifest: Manifest) -> Manifest:
    pod = _object(manifest, "v1", "Pod", **manifest["spec"]["template"])
    if manifest["kind"] == "DaemonSet":
        only = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
        affinity = pod["spec"].setdefault("affinity", {}).setdefault("nodeAffinity", {})
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {
            "nodeSelectorTerms": [{"matchFields": [only]}]
        }
    return pod


def _object(of: Manifest, version: str, kind: str, **rest: Any) -> dict[str, Any]:
    """An object in the namespace of another, named after it."""
    own: dict[str, Any] = copy.deepcopy(dict(rest))
    about: Mapping[str, Any] = own.pop("metadata", None) or {}
    place = {"name": f"{of['metadata']['name']}-0", "namespace": of["metadata"]["namespace"]}
    return {"apiVersion": version, "kind": kind, "metadata": {**about, **place}, **own}


def jobs_of_runtime(runtime: Manifest, namespace: str) -> Iterator[Made]:
    """What JobSet makes of a TrainJob in a tenant's namespace that names a runtime."""
    about = {"name": runtime["metadata"]["name"], "namespace": namespace}
    yield from made_of({"kind": "JobSet", "metadata": about, **runtime["spec"]["template"]})


def proxies_of(proxy: Manifest, gateway: Manifest, configuration: Manifest) -> Iterator[Made]:
    """What Envoy Gateway makes of a gateway: proxies with its own helper, and a service.

    Args:
        proxy: the `EnvoyProxy`.
        gateway: the `Gateway`.
        configuration: Envoy Gateway's own, which names the helper's image.
    """
    wanted = proxy["spec"]["provider"]["kubernetes"]
    pod, container = (dict(wanted["envoyDeployment"][part]) for part in ("pod", "container"))
    about = {key: pod.pop(key, {}) for key in ("labels", "annotations")}
    labels = {"gateway.envoyproxy.io/owning-gateway-name": gateway["metadata"]["name"]}
    about["labels"] |= labels
    own = yaml.safe_load(configuration["data"]["envoy-gateway.yaml"])["provider"]["kubernetes"]
    helper = {
        "name": "shutdown-manager", "image": own["shutdownManager"]["image"],
        "securityContext": _RESTRICTED,
    }  # fmt: skip
    template = {
        "metadata": about,
        "spec": {
            "automountServiceAccountToken": False,
            "containers": [{"name": "envoy", **container}, helper],
            **pod,
        },
    }
    spec = {"selector": {"matchLabels": labels}, "template": template}
    yield from _with_pods(GATEWAY, _object(gateway, "apps/v1", "Deployment", spec=spec), "Gateway")
    service = dict(wanted["envoyService"])
    annotations = service.pop("annotations", {})
    ports = [{"name": each["name"], "port": each["port"]} for each in gateway["spec"]["listeners"]]
    spec = {**service, "selector": labels, "ports": ports[:1]}
    about = {"annotations": annotations, "labels": labels}
    yield Made(GATEWAY, _object(gateway, "v1", "Service", metadata=about, spec=spec), "Gateway")


def refused_to_controllers(plane: ControlPlane, made: Iterable[Made]) -> dict[str, str]:
    """By object, why its controller can't have it; several are asked about at once."""
    asked = list(made)
    assert asked
    users = {each.user: plane.as_user(each.user) for each in asked}

    def one(each: Made) -> str:
        return refusal(users[each.user], each.manifest, create=True)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        answers = list(pool.map(one, asked))
    return {str(each): why for each, why in zip(asked, answers, strict=True) if why}
