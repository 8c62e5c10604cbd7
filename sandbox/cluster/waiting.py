"""Waits until an object is ready, or gone, and says what holds it when that takes too long."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from falaj.engine.errors import EngineError
from falaj.sandbox.cluster import readiness
from falaj.sandbox.cluster.connection import Connection
from falaj.sandbox.cluster.errors import ApiError
from falaj.sandbox.cluster.objects import SKIP_AWAIT, TIMEOUT, Address, annotation
from falaj.sandbox.cluster.retrying import Pauses

# Of the vendor's provider: ten minutes for what is waited for, at creation, update and deletion.
DEFAULT_SECONDS: Final = 600.0
_SHOWN: Final = 5
# The vendor's provider waits so long for services that an ingress names, and then goes on: they
# may never be there.
_SETTLING_SECONDS: Final = 10.0

Result = TypeVar("Result")


def limit(inputs: Mapping[str, Any], asked: float) -> float:
    """Seconds to wait: the resource's custom time-out, else its annotation, else the default.

    Raises:
        EngineError: the annotation is no number of seconds.
    """
    if asked > 0:
        return asked
    text = annotation(inputs, TIMEOUT)
    if not text:
        return DEFAULT_SECONDS
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < float("inf"):
        raise EngineError(f"annotation {TIMEOUT}: {text!r} is no number of seconds above 0")
    return found


def until_ready(
    connection: Connection, address: Address, found: Mapping[str, Any], seconds: float
) -> tuple[Mapping[str, Any], str]:
    """The object as it is when it is ready, and otherwise what it still waits for.

    Raises:
        ApiError: the API server doesn't answer.
        CancelledError: the engine stops.
    """
    if annotation(found, SKIP_AWAIT).lower() == "true" or not readiness.is_awaited(found):
        return found, ""
    if _waits_for_consumer(connection, found):
        return found, ""
    pauses = Pauses(connection.cancelled, seconds)
    settled = time.monotonic() + _SETTLING_SECONDS
    while True:
        state = readiness.state(found)
        if state.ready:
            state = _endpoints(connection, address, found)
        if state.ready and time.monotonic() < settled:
            state = _backends(connection, address, found)
        if state.ready:
            return found, ""
        if state.failed:
            return found, explain(connection, address, found, state.reason)
        if not pauses.wait():
            why = f"it wasn't ready within {seconds:g} s: {state.reason}"
            return found, explain(connection, address, found, why)
        found = connection.get(address.path)


def until_gone(connection: Connection, address: Address, uid: str, seconds: float) -> None:
    """Wait until an object is gone, or another has taken its place.

    Raises:
        EngineError: it is still there; the text says what holds it.
    """
    pauses = Pauses(connection.cancelled, seconds)
    while True:
        try:
            found = connection.get(address.path)
        except ApiError as error:
            if error.is_missing:
                return
            raise
        if found["metadata"].get("uid") != uid:
            return
        if not pauses.wait():
            raise EngineError(f"{address} isn't gone after {seconds:g} s: {_holds(found)}")


def explain(connection: Connection, address: Address, found: Mapping[str, Any], why: str) -> str:
    """Why an object isn't ready, with its conditions, its pods' and its latest events."""
    lines = [why, *readiness.problems_of(found)]
    try:
        lines += _of_pods(connection, address, found)
        lines += _events(connection, address, found)
    except ApiError as error:
        lines.append(f"no more is known: {error}")
    return "\n  - ".join(dict.fromkeys(lines))


def _of_pods(connection: Connection, address: Address, found: Mapping[str, Any]) -> list[str]:
    labels = ((found.get("spec") or {}).get("selector") or {}).get("matchLabels")
    if address.kind.kind not in ("Deployment", "StatefulSet", "DaemonSet", "Job") or not labels:
        return []
    chosen = ",".join(f"{key}={value}" for key, value in labels.items())
    path = f"/api/v1/namespaces/{address.namespace}/pods"
    lines: list[str] = []
    for pod in connection.get(path, labelSelector=chosen).get("items") or []:
        problems = readiness.pod_problems(pod)
        if problems:
            lines.append(f"pod {pod['metadata']['name']}: {'; '.join(problems)}")
    return lines[:_SHOWN] + ([f"{len(lines) - _SHOWN} more pods"] if len(lines) > _SHOWN else [])


def _events(connection: Connection, address: Address, found: Mapping[str, Any]) -> list[str]:
    if not address.namespace:
        return []
    path = f"/api/v1/namespaces/{address.namespace}/events"
    chosen = f"type=Warning,involvedObject.uid={found['metadata'].get('uid')}"
    events = connection.get(path, fieldSelector=chosen).get("items") or []
    return [f"event {each.get('reason')}: {each.get('message')}" for each in events[-_SHOWN:]]


def _endpoints(
    connection: Connection, address: Address, found: Mapping[str, Any]
) -> readiness.State:
    """A service with a selector and an address of its own waits for a pod behind it."""
    spec = found.get("spec") or {}
    if (
        address.kind.kind != "Service"
        or "/" in address.kind.api_version
        or not spec.get("selector")
        or spec.get("type") == "ExternalName"
        or spec.get("clusterIP") == "None"
    ):
        return readiness.READY
    path = f"/apis/discovery.k8s.io/v1/namespaces/{address.namespace}/endpointslices"
    slices = connection.get(path, labelSelector=f"kubernetes.io/service-name={address.name}")
    for each in slices.get("items") or []:
        for endpoint in each.get("endpoints") or []:
            if (endpoint.get("conditions") or {}).get("ready") is not False:
                return readiness.READY
    return readiness.State(False, "no pod that its selector finds is ready")


def _backends(
    connection: Connection, address: Address, found: Mapping[str, Any]
) -> readiness.State:
    """An ingress waits for services that it names; those that stand for a host have no pods."""
    if address.kind.kind != "Ingress":
        return readiness.READY
    spaces = f"namespaces/{address.namespace}"
    for rule in (found.get("spec") or {}).get("rules") or []:
        for path in (rule.get("http") or {}).get("paths") or []:
            name = ((path.get("backend") or {}).get("service") or {}).get("name")
            if name is None:
                continue
            slices = connection.get(
                f"/apis/discovery.k8s.io/v1/{spaces}/endpointslices",
                labelSelector=f"kubernetes.io/service-name={name}",
            )
            if not slices.get("items") and not _is_external(connection, f"/api/v1/{spaces}", name):
                return readiness.State(False, f"nothing is behind the service {name}")
    return readiness.READY


def _is_external(connection: Connection, spaces: str, name: str) -> bool:
    try:
        service = connection.get(f"{spaces}/services/{name}")
    except ApiError as error:
        if error.is_missing:
            return False
        raise
    return (service.get("spec") or {}).get("type") == "ExternalName"


def _waits_for_consumer(connection: Connection, found: Mapping[str, Any]) -> bool:
    """Whether a claim is bound only when a pod uses it, so that nobody can wait for it."""
    name = (found.get("spec") or {}).get("storageClassName")
    if found.get("kind") != "PersistentVolumeClaim" or not name:
        return False
    try:
        used = connection.get(f"/apis/storage.k8s.io/v1/storageclasses/{name}")
    except ApiError as error:
        if error.is_missing:
            return False
        raise
    return used.get("volumeBindingMode") == "WaitForFirstConsumer"


def _holds(found: Mapping[str, Any]) -> str:
    """What keeps a deleted object."""
    if not found["metadata"].get("deletionTimestamp"):
        return "it isn't even being deleted"
    finalizers = found["metadata"].get("finalizers") or (found.get("spec") or {}).get("finalizers")
    lines: list[str] = []
    if finalizers:
        names = ", ".join(str(each) for each in finalizers)
        lines.append(
            f"finalizers hold it: {names}; the controller that set them removes them once it has "
            "cleaned up, so it must be running while they go"
        )
    lines += [
        ": ".join(str(each[key]) for key in ("reason", "message") if each.get(key))
        for each in (found.get("status") or {}).get("conditions") or []
        if each.get("status") == "True" and "Content" in str(each.get("type"))
    ]
    return "; ".join(lines) or "the API server doesn't say why"
