"""Nodes that are taken out of service: whose marks they have, and what the controller may change.

Roles know no fields: whoever may patch nodes, every kubelet its own among them, could keep a sick
node in service or have a well one drained, and the controller's account could do anything to them.
"""

from falaj.components.catalogue.clusters import GPU_ERROR_TAINT, NODE_REPAIR, REPAIR_DOMAIN
from falaj.components.kubernetes.admission.access import MAY_CHANGE_POLICIES
from falaj.components.kubernetes.admission.policy import (
    ACCOUNTS,
    ASKER,
    Check,
    ClusterScope,
    Policy,
    Target,
    joined,
    literal,
    when,
)

_CONTROLLER = f"{ASKER} == {literal(f'{ACCOUNTS}{NODE_REPAIR}:{NODE_REPAIR}')}"
#: By way of its status a node's labels and annotations can be changed as well.
_TARGETS = (Target("", "v1", ("nodes", "nodes/status")),)
_OWN = f"k.startsWith({literal(REPAIR_DOMAIN + '/')})"
_MAPS = ("labels", "annotations")


def policies(_: ClusterScope) -> tuple[Policy, ...]:
    """Both sides: others leave the marks alone, and the controller all the rest."""
    variables = {
        f"{age}{kind}": (
            f"{where} == null ? {{}} : {where}.metadata.?{kind}.orValue({{}})"
            if age == "old"
            else f"{where}.metadata.?{kind}.orValue({{}})"
        )
        for age, where in (("new", "object"), ("old", "oldObject"))
        for kind in _MAPS
    } | {
        "newtaints": "object.?spec.?taints.orValue([])",
        "oldtaints": "oldObject == null ? [] : oldObject.?spec.?taints.orValue([])",
    }
    return (
        Policy(
            "node-repair-marks",
            _TARGETS,
            (
                Check(
                    "cluster-node-repair-marks",
                    joined((*(_changed(kind, _OWN) for kind in _MAPS), _taints("=="))),
                    "marks of nodes that are taken out of service are changed",
                    "other labels, annotations and taints",
                    "let an administrator change them",
                ),
            ),
            variables,
            {
                "may-not-change-policies": f"!{MAY_CHANGE_POLICIES}",
                "not-of-the-controller": f"!({_CONTROLLER})",
            },
        ),
        Policy(
            "node-repair-reach",
            _TARGETS,
            (
                Check(
                    "cluster-node-repair-reach",
                    joined((
                        *(_changed(kind, f"!{_OWN}") for kind in _MAPS), _taints("!="), *_rest(),
                    )),
                    "the controller changes more of a node than its own marks",
                    f"{REPAIR_DOMAIN}/…, the taint {GPU_ERROR_TAINT}",
                    "look who uses its account",
                ),
            ),
            variables,
            {"of-the-controller": _CONTROLLER},
        ),
    )  # fmt: skip


def _changed(kind: str, which: str) -> str:
    """Keys of labels or annotations that have come, gone, or have another value."""
    new, old = (f"variables.{age}{kind}" for age in ("new", "old"))
    return (
        f"{new}.filter(k, {which} && !(k in {old} && {old}[k] == {new}[k])) + "
        f"{old}.filter(k, {which} && !(k in {new}))"
    )


def _taints(operator: str) -> str:
    """Whether taints of the key, or of all others, are otherwise than before."""
    new, old = (
        f"variables.{age}taints.filter(t, t.key {operator} {literal(GPU_ERROR_TAINT)})"
        for age in ("new", "old")
    )
    shown = GPU_ERROR_TAINT if operator == "==" else "other taints"
    return when(f"{new} != {old}", literal(shown))


def _rest() -> tuple[str, ...]:
    """What else a node has: its spec, and all of its status but conditions of the domain."""
    found: list[str] = []
    for part, own in (("spec", "taints"), ("status", "conditions")):
        new, old = f"dyn(object.{part})", f"dyn(oldObject.{part})"
        differs = (
            f"{new}.exists(k, k != {literal(own)} && !(k in {old} && {old}[k] == {new}[k])) || "
            f"{old}.exists(k, k != {literal(own)} && !(k in {new}))"
        )
        found.append(when(differs, literal(part)))
    new, old = (
        f"{where}.?status.?conditions.orValue([])"
        f".filter(c, !c.type.startsWith({literal(REPAIR_DOMAIN + '/')}))"
        for where in ("object", "oldObject")
    )
    found.append(when(f"{new} != {old}", literal("other conditions")))
    return tuple(found)
