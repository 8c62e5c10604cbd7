"""Where nodes, pods and what is made for them are: in the cluster's own place."""

from falaj.components.kubernetes.admission.policy import (
    ASKER,
    PLACE_KEYS,
    Check,
    ClusterScope,
    Policy,
    Target,
    abroad_in_map,
    abroad_in_terms,
    joined,
    literal,
    when,
)
from falaj.components.kubernetes.admission.shapes import DAEMON_SETS, PodPolicy, Shape
from falaj.components.kubernetes.admission.workloads import refused

_ABROAD = "kubernetes-placement-abroad"
_DEMANDS = "requiredDuringSchedulingIgnoredDuringExecution.?nodeSelectorTerms"
_WISHES = "preferredDuringSchedulingIgnoredDuringExecution"
_SELECTORS = {
    "selector": "variables.pod.?nodeSelector.orValue({})",
    "terms": f"variables.pod.?affinity.?nodeAffinity.?{_DEMANDS}.orValue([])",
    "wishes": f"variables.pod.?affinity.?nodeAffinity.?{_WISHES}.orValue([])",
}


def policies(scope: ClusterScope) -> tuple[Policy, ...]:
    """Pods, nodes, and the flavours and pools that nodes are chosen by."""
    return (
        *PodPolicy("placement", lambda _: (_abroad(scope),), _SELECTORS).policies(),
        *PodPolicy(
            "pinning", lambda shape: _pinning(scope, shape), _SELECTORS, scope.platform
        ).policies(),
        _nodes(scope),
        _runtime_classes(scope),
        _flavors(scope),
        _node_pools(scope),
    )


def _check(scope: ClusterScope, wrong: str, what: str) -> Check:
    return Check(_ABROAD, wrong, what, scope.in_words, "name places of this cluster only")


def _abroad(scope: ClusterScope) -> Check:
    wishes = "variables.wishes.map(w, w.preference)"
    wrong = joined((
        abroad_in_map(scope, "variables.selector"),
        abroad_in_terms(scope, "variables.terms", partners=True),
        abroad_in_terms(scope, wishes),
    ))  # fmt: skip
    return _check(scope, wrong, "nodes in places that aren't allowed are asked for")


def _pinning(scope: ClusterScope, shape: Shape) -> tuple[Check, ...]:
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
        f"topology.kubernetes.io/region: {scope.placed.region}",
        "add it to the pod's nodeSelector, or require it in every term of its node affinity",
    )
    # Kubelets register static pods with their own name.
    by_scheduler = f'{ASKER}.startsWith("system:node:")'
    fresh = 'request.operation == "CREATE" && ' if shape.is_pod else ""
    # DaemonSets' pods name their node in an affinity, which their controller writes.
    of_nodes = f" && !({DAEMON_SETS})" if shape.is_pod else ""
    return pinned, *refused("pinning", f"{fresh}!{by_scheduler}{of_nodes}")


def _nodes(scope: ClusterScope) -> Policy:
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
            scope, abroad_in_map(scope, "variables.labels", no_zone=True),
            "the node says that it is elsewhere",
        ),),
        {"labels": labels},
        {"says-where-it-is": moved},
    )  # fmt: skip


def _runtime_classes(scope: ClusterScope) -> Policy:
    selector = "object.?scheduling.?nodeSelector.orValue({})"
    return Policy(
        "runtime-classes",
        (Target("node.k8s.io", "v1", ("runtimeclasses",)),),
        (
            _check(
                scope, abroad_in_map(scope, "variables.selector"), "its pods would be elsewhere"
            ),
        ),
        {"selector": selector},
    )


def _flavors(scope: ClusterScope) -> Policy:
    return Policy(
        "resource-flavors",
        (Target("kueue.x-k8s.io", "v1beta2", ("resourceflavors",)),),
        (
            _check(
                scope, abroad_in_map(scope, "variables.labels"), "the flavour is of nodes abroad"
            ),
        ),
        {"labels": "object.?spec.?nodeLabels.orValue({})"},
    )


def _node_pools(scope: ClusterScope) -> Policy:
    wrong = scope.is_abroad("r.key", "v")
    values = "r.?values.orValue([])"
    found = (
        f'variables.requirements.filter(r, r.key in {PLACE_KEYS} && r.operator == "In" && '
        f"{values}.exists(v, {wrong})).map(r, r.key + {literal(' in ')} + "
        f'{values}.filter(v, {wrong}).join(" or "))'
    )
    return Policy(
        "node-pools",
        (Target("karpenter.sh", "v1", ("nodepools",)),),
        (_check(scope, found, "nodes would be made elsewhere"),),
        {"requirements": "object.?spec.?template.?spec.?requirements.orValue([])"},
    )
