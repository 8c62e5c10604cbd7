"""Where nodes, pods and what is made for them are: in the cluster's own place."""

from falaj.components.kubernetes.admission.expressions import text, when
from falaj.components.kubernetes.admission.home import (
    PLACE_KEYS,
    Home,
    abroad_in_map,
    abroad_in_terms,
    joined,
)
from falaj.components.kubernetes.admission.pods import DAEMON_SETS, PodPolicy, Shape, refused
from falaj.components.kubernetes.admission.policy import Check, Policy, Target

_ABROAD = "kubernetes-placement-abroad"
_DEMANDS = "requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms"
_WISHES = "preferredDuringSchedulingIgnoredDuringExecution"
_SELECTORS = {
    "selector": "variables.pod.?nodeSelector.orValue({})",
    "terms": f"variables.pod.?affinity.?nodeAffinity.?{_DEMANDS}.orValue([])",
    "wishes": f"variables.pod.?affinity.?nodeAffinity.?{_WISHES}.orValue([])",
}


def policies(home: Home) -> tuple[Policy, ...]:
    """Pods, nodes, and the flavours and pools that nodes are chosen by."""
    return (
        *PodPolicy("placement", lambda _: (_abroad(home),), _SELECTORS).policies(),
        *PodPolicy(
            "pinning", lambda shape: _pinning(home, shape), _SELECTORS, home.platform
        ).policies(),
        _nodes(home),
        _runtime_classes(home),
        _flavors(home),
        _node_pools(home),
    )


def _check(home: Home, wrong: str, what: str) -> Check:
    return Check(_ABROAD, wrong, what, home.said, "name places of this cluster only")


def _abroad(home: Home) -> Check:
    wishes = "variables.wishes.map(w, w.preference)"
    wrong = joined((
        abroad_in_map(home, "variables.selector"),
        abroad_in_terms(home, "variables.terms"),
        abroad_in_terms(home, wishes),
    ))  # fmt: skip
    return _check(home, wrong, "nodes in places that aren't allowed are asked for")


def _pinning(home: Home, shape: Shape) -> tuple[Check, ...]:
    # Places abroad are refused elsewhere, of every pod: naming any place is enough here.
    in_selector = f"{PLACE_KEYS}.exists(k, k in variables.selector)"
    in_term = (
        f"t.?matchExpressions.orValue([]).exists(e, e.key in {PLACE_KEYS} && "
        'e.operator == "In" && size(e.?values.orValue([])) > 0)'
    )
    in_terms = f"(size(variables.terms) > 0 && variables.terms.all(t, {in_term}))"
    # A DaemonSet's pods go where the nodes are, which are at home themselves.
    exempt = DAEMON_SETS if shape.is_pod else 'request.kind.kind == "DaemonSet"'
    pinned = Check(
        "kubernetes-placement-pinned",
        when(f"!({exempt} || {in_selector} || {in_terms})", '"no node selector names the region"'),
        "nothing keeps the pod at home",
        f"topology.kubernetes.io/region: {home.placed.region}",
        "add it to the pod's nodeSelector, or require it in every term of its node affinity",
    )
    # Kubelets register static pods with their own name.
    by_scheduler = 'request.userInfo.username.startsWith("system:node:")'
    fresh = 'request.operation == "CREATE" && ' if shape.is_pod else ""
    return pinned, *refused("pinning", f"{fresh}!{by_scheduler}")


def _nodes(home: Home) -> Policy:
    """Nodes that say where they are: when they come, and when they say something else.

    What is wrong from before the policies stays: who taints or drains such a node must be able to.
    """
    labels = "object.metadata.?labels.orValue({})"
    moved = (
        f'request.operation == "CREATE" || {PLACE_KEYS}.exists(k, '
        'object.metadata.?labels[?k].orValue("") != oldObject.metadata.?labels[?k].orValue(""))'
    )
    return Policy(
        "nodes",
        (Target("", "v1", ("nodes",)),),
        (_check(
            home, abroad_in_map(home, "variables.labels", no_zone=True),
            "the node says that it is elsewhere",
        ),),
        {"labels": labels},
        {"says-where-it-is": moved},
    )  # fmt: skip


def _runtime_classes(home: Home) -> Policy:
    selector = "object.?scheduling.?nodeSelector.orValue({})"
    return Policy(
        "runtime-classes",
        (Target("node.k8s.io", "v1", ("runtimeclasses",)),),
        (_check(home, abroad_in_map(home, "variables.selector"), "its pods would be elsewhere"),),
        {"selector": selector},
    )


def _flavors(home: Home) -> Policy:
    return Policy(
        "resource-flavors",
        (Target("kueue.x-k8s.io", "v1beta2", ("resourceflavors",)),),
        (_check(home, abroad_in_map(home, "variables.labels"), "the flavour is of nodes abroad"),),
        {"labels": "object.?spec.?nodeLabels.orValue({})"},
    )


def _node_pools(home: Home) -> Policy:
    wrong = home.is_abroad("r.key", "v")
    values = "r.?values.orValue([])"
    found = (
        f'variables.requirements.filter(r, r.key in {PLACE_KEYS} && r.operator == "In" && '
        f"{values}.exists(v, {wrong})).map(r, r.key + {text(' in ')} + "
        f'{values}.filter(v, {wrong}).join(" or "))'
    )
    return Policy(
        "node-pools",
        (Target("karpenter.sh", "v1", ("nodepools",)),),
        (_check(home, found, "nodes would be made elsewhere"),),
        {"requirements": "object.?spec.?template.?spec.?requirements.orValue([])"},
    )
