"""When an object is ready, and waiting for it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from falaj.engine.errors import EngineError
from falaj.sandbox.cluster.connection import ApiError, Connection, Pauses
from falaj.sandbox.cluster.objects import (
    SKIP_AWAIT,
    TIMEOUT,
    WAIT_FOR,
    Address,
    Object,
    annotation,
)
from falaj.wire.documents import is_mapping, is_sequence, mapping

_PATH: Final = re.compile(r"^jsonpath=\{(\.[^=]+)\}(?:=(.*))?$", re.DOTALL)
_CONDITION: Final = re.compile(r"^condition=([^=]+)(?:=(.*))?$", re.DOTALL)
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


@dataclass(frozen=True)
class State:
    """Whether an object is ready, and if not, what it waits for."""

    ready: bool
    reason: str = ""
    failed: bool = False
    """It will not become ready by itself."""


READY: Final = State(True)
_NOBODY: Final = (
    f'the test control plane has none; the annotation {SKIP_AWAIT}: "true" doesn\'t wait for it'
)


def state(found: Object) -> State:
    """Whether an object of any kind is ready."""
    if asked := annotation(found, WAIT_FOR):
        return _asked(found, asked)
    group = str(found.get("apiVersion", "")).rpartition("/")[0]
    rule = _RULES.get((group, str(found.get("kind", ""))))
    return rule(found) if rule else READY


def is_awaited(found: Object) -> bool:
    """Whether an object's kind, or its annotation, makes it wait."""
    group = str(found.get("apiVersion", "")).rpartition("/")[0]
    return bool(annotation(found, WAIT_FOR)) or (group, str(found.get("kind", ""))) in _RULES


def condition(found: Object, kind: str) -> Mapping[str, Any]:
    """A condition of an object's status; empty where it has none of that kind."""
    for each in _status(found).get("conditions") or ():
        if each.get("type") == kind:
            return each
    return {}


def problems_of(found: Object) -> list[str]:
    """Conditions that don't hold, as ``type: reason: message``."""
    good = ("False",) if found.get("kind") in ("Job",) else ("True",)
    return [
        ": ".join(str(each[key]) for key in ("type", "reason", "message") if each.get(key))
        for each in _status(found).get("conditions") or ()
        if each.get("status") not in good and (each.get("message") or each.get("reason"))
    ]


def _deployment(found: Object) -> State:
    if (late := _late(found)) is not None:
        return late
    wanted = _number(_spec(found), "replicas", 1)
    status = _status(found)
    progressing = condition(found, "Progressing")
    if progressing.get("reason") == "ProgressDeadlineExceeded":
        return State(False, str(progressing.get("message", "its deadline has passed")), True)
    updated, total = _number(status, "updatedReplicas"), _number(status, "replicas")
    if updated < wanted:
        return State(False, f"{updated} of {wanted} pods are of the newest version")
    if total > updated:
        return State(False, f"{total - updated} pods of an older version still end")
    available = _number(status, "availableReplicas")
    if available < wanted:
        return State(False, f"{available} of {wanted} pods are available")
    return READY


def _stateful_set(found: Object) -> State:
    if (late := _late(found)) is not None:
        return late
    wanted = _number(_spec(found), "replicas", 1)
    status = _status(found)
    ready = _number(status, "readyReplicas")
    if ready < wanted:
        return State(False, f"{ready} of {wanted} pods are ready")
    strategy = mapping(_spec(found).get("updateStrategy"))
    held = strategy.get("type") == "OnDelete" or mapping(strategy.get("rollingUpdate")).get(
        "partition"
    )
    if not held and status.get("currentRevision") != status.get("updateRevision"):
        updated = _number(status, "updatedReplicas")
        return State(False, f"{updated} of {wanted} pods are of the newest version")
    return READY


def _daemon_set(found: Object) -> State:
    if (late := _late(found)) is not None:
        return late
    status = _status(found)
    wanted = _number(status, "desiredNumberScheduled")
    held = mapping(_spec(found).get("updateStrategy")).get("type") == "OnDelete"
    updated = _number(status, "updatedNumberScheduled")
    if not held and updated < wanted:
        return State(False, f"{updated} of {wanted} pods are of the newest version")
    available = _number(status, "numberAvailable")
    if available < wanted:
        return State(False, f"{available} of {wanted} pods are available")
    return READY


def _job(found: Object) -> State:
    if condition(found, "Complete").get("status") == "True":
        return READY
    failed = condition(found, "Failed")
    if failed.get("status") == "True":
        why = failed.get("message") or failed.get("reason") or "no reason is given"
        return State(False, f"it failed: {why}", True)
    if _spec(found).get("suspend"):
        return State(False, "it is suspended: a queue hasn't admitted it, or nobody resumes it")
    status = _status(found)
    done = f"{_number(status, 'succeeded')} of {_number(_spec(found), 'completions', 1)}"
    return State(False, f"{done} completions, {_number(status, 'active')} pods active")


def _pod(found: Object) -> State:
    phase = _status(found).get("phase")
    if phase == "Succeeded" or condition(found, "Ready").get("status") == "True":
        return READY
    if phase == "Failed":
        return State(False, f"it failed: {_status(found).get('message', 'see its log')}", True)
    return State(False, "; ".join(pod_problems(found)) or f"its phase is {phase or 'unknown'}")


def pod_problems(pod: Object) -> list[str]:
    """Why a pod isn't ready: its conditions, and what its containers wait for."""
    found = [
        text for text in problems_of(pod) if not text.startswith(("ContainersReady", "Ready:"))
    ]
    status = _status(pod)
    for key in ("initContainerStatuses", "containerStatuses"):
        for each in status.get(key) or ():
            for phase in ("waiting", "terminated"):
                why = mapping(mapping(each.get("state")).get(phase))
                if why.get("reason") not in (None, "Completed", "PodInitializing"):
                    text = f"container {each['name']}: {why['reason']}"
                    found.append(f"{text}: {why['message']}" if why.get("message") else text)
    return found


def _namespace(found: Object) -> State:
    phase = _status(found).get("phase")
    return READY if phase == "Active" else State(False, f"its phase is {phase or 'unknown'}")


def _definition(found: Object) -> State:
    accepted = condition(found, "NamesAccepted")
    if accepted.get("status") == "False":
        return State(False, f"its names are taken: {accepted.get('message')}", True)
    if condition(found, "Established").get("status") == "True":
        return READY
    return State(False, "it isn't established yet")


def _claim(found: Object) -> State:
    phase = _status(found).get("phase")
    return READY if phase == "Bound" else State(False, f"its phase is {phase or 'unknown'}")


def _service(found: Object) -> State:
    if _spec(found).get("type") != "LoadBalancer":
        return READY
    if mapping(_status(found).get("loadBalancer")).get("ingress"):
        return READY
    return State(False, f"no load balancer was assigned; {_NOBODY}")


def _ingress(found: Object) -> State:
    """Its controller writes where it is reached: the vendor's provider waits for that as well."""
    if mapping(_status(found).get("loadBalancer")).get("ingress"):
        return READY
    wanted = _spec(found).get("ingressClassName")
    whose = f"of class {wanted}" if wanted else "(it names no class)"
    return State(False, f"no controller {whose} has said where it is reached; {_NOBODY}")


def _late(found: Object) -> State | None:
    """What a controller has not seen yet is not judged."""
    generation = _number(found["metadata"], "generation", 1)
    if _number(_status(found), "observedGeneration") < generation:
        return State(False, "its controller hasn't seen the change yet")
    return None


def _asked(found: Object, text: str) -> State:
    """``jsonpath={.status.phase}=Running``, ``condition=Ready`` or a list of both as JSON."""
    wishes = [text]
    if text.startswith("["):
        try:
            wishes = [str(each) for each in json.loads(text)]
        except ValueError:
            return State(False, f"annotation {WAIT_FOR}: {text!r} is no JSON list", True)
    for wish in wishes:
        if given := _CONDITION.match(wish):
            status = condition(found, given[1]).get("status")
            if str(status).lower() != (given[2] or "True").lower():
                return State(False, f"condition {given[1]} is {status or 'not there yet'}")
        elif given := _PATH.match(wish):
            value = _at(found, given[1])
            if value is None or (given[2] is not None and str(value) != given[2]):
                return State(False, f"{given[1]} is {value!r}, waiting for {given[2] or 'any'}")
        else:
            return State(
                False,
                f"annotation {WAIT_FOR}: {wish!r} is neither condition=TYPE[=STATUS] nor "
                "jsonpath={.path}[=value]",
                True,
            )
    return READY


def _at(found: Any, path: str) -> Any:
    for name, index in _STEP.findall(path):
        if name and is_mapping(found):
            found = found.get(name)
        elif index and is_sequence(found) and int(index) < len(found):
            found = found[int(index)]
        else:
            return None
    return found


def _status(found: Object) -> Mapping[str, Any]:
    return found.get("status") or {}


def _spec(found: Object) -> Mapping[str, Any]:
    return found.get("spec") or {}


def _number(values: Mapping[str, Any], name: str, default: int = 0) -> int:
    value = values.get(name)
    return default if value is None else int(value)


_RULES: Final[Mapping[tuple[str, str], Callable[[Object], State]]] = {
    ("apps", "Deployment"): _deployment,
    ("apps", "StatefulSet"): _stateful_set,
    ("apps", "DaemonSet"): _daemon_set,
    ("batch", "Job"): _job,
    ("", "Pod"): _pod,
    ("", "Namespace"): _namespace,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Service"): _service,
    ("networking.k8s.io", "Ingress"): _ingress,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
}


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
    if annotation(found, SKIP_AWAIT).lower() == "true" or not is_awaited(found):
        return found, ""
    if _waits_for_consumer(connection, found):
        return found, ""
    pauses = Pauses(connection.cancelled, seconds)
    settled = time.monotonic() + _SETTLING_SECONDS
    while True:
        reached = state(found)
        if reached.ready:
            reached = _endpoints(connection, address, found)
        if reached.ready and time.monotonic() < settled:
            reached = _backends(connection, address, found)
        if reached.ready:
            return found, ""
        if reached.failed:
            return found, explain(connection, address, found, reached.reason)
        if not pauses.wait():
            why = f"it wasn't ready within {seconds:g} s: {reached.reason}"
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
    lines = [why, *problems_of(found)]
    try:
        lines += _of_pods(connection, address, found)
        lines += _events(connection, address, found)
    except ApiError as error:
        lines.append(f"no more is known: {error}")
    return "\n  - ".join(dict.fromkeys(lines))


def _of_pods(connection: Connection, address: Address, found: Mapping[str, Any]) -> list[str]:
    labels = mapping(mapping(found.get("spec")).get("selector")).get("matchLabels")
    if address.kind.kind not in ("Deployment", "StatefulSet", "DaemonSet", "Job") or not labels:
        return []
    chosen = ",".join(f"{key}={value}" for key, value in labels.items())
    path = f"/api/v1/namespaces/{address.namespace}/pods"
    lines: list[str] = []
    for pod in connection.get(path, labelSelector=chosen).get("items") or ():
        problems = pod_problems(pod)
        if problems:
            lines.append(f"pod {pod['metadata']['name']}: {'; '.join(problems)}")
    return lines[:_SHOWN] + ([f"{len(lines) - _SHOWN} more pods"] if len(lines) > _SHOWN else [])


def _events(connection: Connection, address: Address, found: Mapping[str, Any]) -> list[str]:
    if not address.namespace:
        return []
    path = f"/api/v1/namespaces/{address.namespace}/events"
    chosen = f"type=Warning,involvedObject.uid={found['metadata'].get('uid')}"
    events = connection.get(path, fieldSelector=chosen).get("items") or ()
    return [f"event {each.get('reason')}: {each.get('message')}" for each in events[-_SHOWN:]]


def _endpoints(connection: Connection, address: Address, found: Mapping[str, Any]) -> State:
    """A service with a selector and an address of its own waits for a pod behind it."""
    spec = mapping(found.get("spec"))
    if (
        address.kind.kind != "Service"
        or "/" in address.kind.api_version
        or not spec.get("selector")
        or spec.get("type") == "ExternalName"
        or spec.get("clusterIP") == "None"
    ):
        return READY
    path = f"/apis/discovery.k8s.io/v1/namespaces/{address.namespace}/endpointslices"
    slices = connection.get(path, labelSelector=f"kubernetes.io/service-name={address.name}")
    for each in slices.get("items") or ():
        for endpoint in each.get("endpoints") or ():
            if mapping(endpoint.get("conditions")).get("ready") is not False:
                return READY
    return State(False, "no pod that its selector finds is ready")


def _backends(connection: Connection, address: Address, found: Mapping[str, Any]) -> State:
    """An ingress waits for services that it names; those that stand for a host have no pods."""
    if address.kind.kind != "Ingress":
        return READY
    spaces = f"namespaces/{address.namespace}"
    for rule in mapping(found.get("spec")).get("rules") or ():
        for path in mapping(rule.get("http")).get("paths") or ():
            name = mapping(mapping(path.get("backend")).get("service")).get("name")
            if name is None:
                continue
            slices = connection.get(
                f"/apis/discovery.k8s.io/v1/{spaces}/endpointslices",
                labelSelector=f"kubernetes.io/service-name={name}",
            )
            if not slices.get("items") and not _is_external(connection, f"/api/v1/{spaces}", name):
                return State(False, f"nothing is behind the service {name}")
    return READY


def _is_external(connection: Connection, spaces: str, name: str) -> bool:
    try:
        service = connection.get(f"{spaces}/services/{name}")
    except ApiError as error:
        if error.is_missing:
            return False
        raise
    return mapping(service.get("spec")).get("type") == "ExternalName"


def _waits_for_consumer(connection: Connection, found: Mapping[str, Any]) -> bool:
    """Whether a claim is bound only when a pod uses it, so that nobody can wait for it."""
    name = mapping(found.get("spec")).get("storageClassName")
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
    own = mapping(found.get("spec")).get("finalizers")
    finalizers = found["metadata"].get("finalizers") or own
    lines: list[str] = []
    if finalizers:
        names = ", ".join(str(each) for each in finalizers)
        lines.append(
            f"finalizers hold it: {names}; the controller that set them removes them once it has "
            "cleaned up, so it must be running while they go"
        )
    lines += [
        ": ".join(str(each[key]) for key in ("reason", "message") if each.get(key))
        for each in mapping(found.get("status")).get("conditions") or ()
        if each.get("status") == "True" and "Content" in str(each.get("type"))
    ]
    return "; ".join(lines) or "the API server doesn't say why"
