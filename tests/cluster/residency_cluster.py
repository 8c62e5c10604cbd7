"""A control plane that refuses what `Residency` has it refuse."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from kubernetes.client.exceptions import ApiException

from falaj.components.kubernetes._objects import key_of
from falaj.components.kubernetes.residency import check, manifests
from falaj.engine.controlplane import ControlPlane, start
from falaj.engine.controlplane.objects import SIDE_BY_SIDE, Objects, wait_for

POLICY = ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy")
#: Where the question is asked whether the policies hold: nothing but them refuses a pod there.
_PROBED = ("legacy", "privileged")
NAMESPACES = (
    ("acme-training", "restricted"), ("acme-serving", "restricted"), _PROBED,
    ("gpu-operator", "privileged"), ("monitoring-nodes", "privileged"),
    ("istio-nodes", "privileged"), ("kueue-system", "restricted"), ("cert-manager", "restricted"),
    ("kubeflow-system", "restricted"), ("monitoring", "restricted"), ("velero", "restricted"),
)  # fmt: skip
_TIMEOUT = 504
_PATIENCE_SECONDS = 20.0
_LAST = "falaj-images-pods"


def _probe(region: str) -> dict[str, Any]:
    """A pod that is wrong in one respect only: its image.

    The API server goes through policies in no order and reports the first denial.
    """
    return {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "probe", "namespace": _PROBED[0]},
        "spec": {
            "containers": [{"name": "a", "image": "docker.io/x"}],
            "nodeSelector": {"topology.kubernetes.io/region": region},
            "automountServiceAccountToken": False,
        },
    }  # fmt: skip


def namespace(name: str, level: str) -> dict[str, Any]:
    """A namespace that enforces a Pod Security Standard."""
    labels = {"pod-security.kubernetes.io/enforce": level}
    if name.startswith("acme-"):
        labels["falaj.io/tenant"] = "acme"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def account(name: str, of: str) -> dict[str, Any]:
    """A service account."""
    about = {"name": name, "namespace": of}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about}


@contextmanager
def residence(args: Mapping[str, Any], nodes: str = "") -> Generator[ControlPlane]:
    """A control plane with namespaces that are older than the policies, and the policies."""
    with start(nodes=nodes) as plane:
        plane.apply([namespace(*each) for each in NAMESPACES])
        plane.apply([account("trainer", "acme-training"), account("trainer", "legacy")])
        plane.apply([account("kueue", "kueue-system"), account("trainer", "gpu-operator")])
        classes = ("nvidia", "untrusted")
        plane.apply([
            {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
             "metadata": {"name": each}, "handler": each}
            for each in classes
        ])  # fmt: skip
        install(plane, args)
        yield plane


def install(plane: ControlPlane, args: Mapping[str, Any]) -> None:
    """Make the policies of `Residency`, and wait until the API server goes by them."""
    enforce(plane, manifests(check("residency", args)), args["region"], args["registry"])


def enforce(
    plane: ControlPlane, policies: Iterable[Mapping[str, Any]], region: str, registry: str
) -> None:
    """Make policies with their bindings, and wait until the API server goes by them.

    It takes in new ones every second, in the order in which they were made: when the last holds
    as it was made just now, and not as an earlier call made it, all do.
    """
    if plane.objects.get("v1", "Namespace", _PROBED[0]) is None:
        plane.apply([namespace(*_PROBED)])
    made = list(policies)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for wanted in ("Policy", "PolicyBinding"):
            kind = f"ValidatingAdmission{wanted}"
            each = [one for one in made if one["kind"] == kind]
            list(pool.map(lambda one: _apply(plane, one), sorted(each, key=_is_last)[:-1]))
            _apply(plane, next(one for one in each if _is_last(one)))
    probe, ours = _probe(region), f"allowed: {registry}"

    def said() -> bool:
        message = refusal(plane, probe)
        return _LAST in message and ours in message

    wait_for(said, "the policies to hold", 60)


def _is_last(manifest: Mapping[str, Any]) -> bool:
    return manifest["metadata"]["name"] == _LAST


def _apply(plane: ControlPlane, manifest: Mapping[str, Any]) -> None:
    """Apply; once more where a busy machine didn't get round to it in time."""
    try:
        plane.apply([manifest])
    except ApiException as error:
        if error.status != _TIMEOUT:
            raise
        plane.apply([manifest])


def refusal(
    plane: Any, manifest: Mapping[str, Any], *, create: bool = False, real: bool = False
) -> str:
    """What the API server has against an object; empty where it would take it.

    Args:
        plane: a control plane, or what a user sees of one.
        manifest: the object.
        create: whether it is created, as controllers do, or else applied. One that is there
            already passed when it was made.
        real: whether it is really applied where it is taken.
    """
    try:
        if create:
            objects = plane if isinstance(plane, Objects) else plane.objects
            path = objects.path_of(manifest).rpartition("/")[0]
            objects.request("POST", path, manifest, fieldValidation="Strict", dryRun="All")
        else:
            plane.apply([manifest], dry_run=not real)
    except ApiException as error:
        said = json.loads(error.body or "{}")
        return "" if said.get("reason") == "AlreadyExists" else str(said["message"])
    return ""


def refused(
    plane: ControlPlane, manifests: Iterable[Mapping[str, Any]], *, real: bool = False
) -> dict[str, str]:
    """By object, why the administrator can't have it; several are asked about at once.

    What is refused is asked about again for a while: a busy API server may still go by a policy
    as it was before.
    """
    left = list(manifests)
    assert left

    def one(manifest: Mapping[str, Any]) -> str:
        # Definitions are so long that applying them takes many times as long.
        create = manifest["kind"] == "CustomResourceDefinition"
        return refusal(plane, manifest, create=create, real=real)

    until = time.monotonic() + _PATIENCE_SECONDS
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        while True:
            answers = [
                (each, why) for each, why in zip(left, pool.map(one, left), strict=True) if why
            ]
            left = [each for each, _ in answers]
            if not left or time.monotonic() > until:
                return {key_of(each): why for each, why in answers}
            time.sleep(1)
