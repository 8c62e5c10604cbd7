"""What stands on a node: read into what is known of it, and written as changes of the node.

All of it begins with the settings' domain, which admission lets only the controller and
administrators write:

- the label ``…/state``, for people and selectors;
- the annotation ``…/record``, since when and why, as JSON;
- the annotation ``…/hold``, a person's: the node is left alone as long as it is there;
- the annotation ``…/cleared``, a person's word that what a GPU reported is mended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from falaj.workloads.documents import mapping
from falaj.workloads.repair.settings import Condition, Settings
from falaj.workloads.repair.states import Health, NodeView, Record, State, Step

Node = Mapping[str, Any]
Change = dict[str, Any]

_EFFECT: Final = "NoSchedule"


def seconds(text: object) -> float:
    """Seconds since 1970 of a time as the API server writes it; 0 where it isn't one."""
    try:
        return datetime.fromisoformat(str(text)).timestamp()
    except ValueError:
        return 0.0


def written(time: float) -> str:
    """A time as the API server writes it."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def is_watched(node: Node, settings: Settings) -> bool:
    """Whether a node is looked after: by its labels, or as it was once taken out of service.

    A GPU that is gone takes the labels with it that its discovery set.
    """
    labels = _labels(node)
    return any(key in labels for key in (*settings.watched, f"{settings.domain}/state"))


def view(node: Node, settings: Settings, now: float, first_seen: Mapping[str, float]) -> NodeView:
    """What is known of a node.

    Args:
        node: as the API server has it.
        settings: what was asked for.
        now: seconds since 1970.
        first_seen: since when each taint of others, by its key, was seen on it.
    """
    record = _record(node, settings, now)
    conditions = conditions_of(node)
    tainted = any(each.get("key") == settings.taint for each in _taints(node))
    ready = conditions.get("Ready", {}).get("status") == "True"
    since: dict[str, float] = {}
    for each in criteria(settings):
        found = conditions.get(each.type)
        if found is not None and found.get("status") == each.status:
            since[str(each)] = seconds(found.get("lastTransitionTime"))
    for taint in _taints(node):
        if taint.get("key") in settings.taints:
            since[_of_taint(taint["key"])] = first_seen.get(taint["key"], now)
    health = Health.SICK if since else Health.WELL
    if not since and not (ready and _all_well(record, conditions)):
        health = Health.UNKNOWN
    return NodeView(
        node["metadata"]["name"],
        health,
        tuple(since),
        min(since.values(), default=0.0),
        record,
        tainted,
        hold=f"{settings.domain}/hold" in _annotations(node),
        away=not ready or bool(node["spec"].get("unschedulable")) or (tainted and record is None),
    )


def criteria(settings: Settings) -> tuple[Condition, ...]:
    """Conditions that say that a node is sick, with the controller's own."""
    return (*settings.conditions, settings.fault)


def _all_well(record: Record | None, conditions: Mapping[str, Mapping[str, Any]]) -> bool:
    """Whether all that a node was taken out for is said to be well; silence isn't enough."""
    for cause in record.causes if record is not None else ():
        kind, _, status = cause.rpartition("=")
        if not kind:  # a taint, which is gone
            continue
        found = conditions.get(kind, {}).get("status")
        if found not in {"True", "False"} or found == status:
            return False
    return True


def _of_taint(key: str) -> str:
    return f"taint {key}"


def changed(node: Node, step: Step, settings: Settings) -> Change:
    """The change of a node that a step makes: a merge patch of the version it was made for."""
    domain, record = settings.domain, step.record
    taints = [dict(each) for each in _taints(node) if each.get("key") != settings.taint]
    notes: dict[str, str | None] = {f"{domain}/record": None}
    if record is not None:
        ours = [each for each in _taints(node) if each.get("key") == settings.taint]
        taints += [dict(each) for each in ours] or [
            {"key": settings.taint, "value": "sick", "effect": _EFFECT}
        ]
        notes = {f"{domain}/record": _note(record, step.reason)}
    if step.hold:
        notes[f"{domain}/hold"] = step.reason
    label = record.state.value if record is not None else None
    return {
        "metadata": {
            "resourceVersion": node["metadata"]["resourceVersion"],
            "labels": {f"{domain}/state": label},
            "annotations": notes,
        },
        "spec": {"taints": taints or None},
    }


def _note(record: Record, reason: str) -> str:
    record_fields: dict[str, Any] = {
        "since": written(record.since), "causes": list(record.causes), "reason": reason,
    }  # fmt: skip
    if record.deadline:
        record_fields["deadline"] = written(record.deadline)
    return json.dumps(record_fields, sort_keys=True)


def _record(node: Node, settings: Settings, now: float) -> Record | None:
    """What stands on the node. What can't be read counts as a quarantine that begins now."""
    label = _labels(node).get(f"{settings.domain}/state")
    if label is None:
        return None
    try:
        state = State(label)
        fields = json.loads(_annotations(node).get(f"{settings.domain}/record", ""))
        causes = tuple(str(each) for each in fields["causes"])
        deadline = seconds(fields["deadline"]) if "deadline" in fields else 0.0
        return Record(state, seconds(fields["since"]), causes, deadline)
    except (ValueError, KeyError, TypeError):
        return Record(State.QUARANTINED, now, ())


def conditions_of(node: Node) -> dict[str, Mapping[str, Any]]:
    """A node's conditions by type."""
    return {each["type"]: each for each in mapping(node.get("status")).get("conditions") or ()}


def _labels(node: Node) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}


def _annotations(node: Node) -> Mapping[str, str]:
    return node["metadata"].get("annotations") or {}


def _taints(node: Node) -> list[Mapping[str, Any]]:
    return mapping(node.get("spec")).get("taints") or []
