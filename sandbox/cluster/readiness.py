"""When an object is ready: the vendor's rules, as a function of the object alone.

Sources: https://www.pulumi.com/registry/packages/kubernetes/api-docs/ (what each kind waits for)
and pulumi/pulumi-kubernetes, provider/pkg/await/. Custom resources are ready at once unless their
annotation ``pulumi.com/waitFor`` says for what they wait.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.sandbox.cluster.objects import SKIP_AWAIT, WAIT_FOR, Object, annotation

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
    for each in _status(found).get("conditions") or []:
        if each.get("type") == kind:
            return each
    return {}


def problems_of(found: Object) -> list[str]:
    """Conditions that don't hold, as ``type: reason: message``."""
    good = ("False",) if found.get("kind") in ("Job",) else ("True",)
    return [
        ": ".join(str(each[key]) for key in ("type", "reason", "message") if each.get(key))
        for each in _status(found).get("conditions") or []
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
    strategy = _spec(found).get("updateStrategy") or {}
    held = strategy.get("type") == "OnDelete" or (strategy.get("rollingUpdate") or {}).get(
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
    held = (_spec(found).get("updateStrategy") or {}).get("type") == "OnDelete"
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
        for each in status.get(key) or []:
            for phase in ("waiting", "terminated"):
                why = (each.get("state") or {}).get(phase) or {}
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
    if ((_status(found).get("loadBalancer")) or {}).get("ingress"):
        return READY
    return State(False, f"no load balancer was assigned; {_NOBODY}")


def _ingress(found: Object) -> State:
    """Its controller writes where it is reached: the vendor's provider waits for that as well."""
    if ((_status(found).get("loadBalancer")) or {}).get("ingress"):
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
        if name and isinstance(found, Mapping):
            found = found.get(name)
        elif index and isinstance(found, list) and int(index) < len(found):
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
