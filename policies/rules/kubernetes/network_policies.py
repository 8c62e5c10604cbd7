"""Network policies: everything is denied at first, and no rule is open to the world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    Stack,
    format_value,
    get,
    is_unknown,
    items,
    rule,
)
from falaj.policies.reading.cidr import are_open, is_open
from falaj.policies.reading.hosts import may_talk_to
from falaj.policies.reading.kubernetes import (
    ANY_OBJECT,
    Manifest,
    all_manifests,
    is_bundle,
    kinds,
    manifests,
)
from falaj.policies.reading.namespaces import is_system, namespace_key
from falaj.policies.reading.network_policies import (
    DIRECTIONS,
    Direction,
    Opening,
    is_cluster_wide,
    is_policy,
    isolates,
    isolates_all,
    openings,
)
from falaj.policies.reading.pods import Pod, pods, runs
from falaj.policies.reading.remembered import remembered

_POLICIES: Final = kinds(
    "networking.k8s.io:NetworkPolicy",
    "extensions:NetworkPolicy",
    "cilium.io:Cilium",
    "crd.projectcalico.org:",
    "projectcalico.org:",
    "policy.networking.k8s.io:",
    "networking.k8s.aws:",
)
_CONTROLS: Final = (
    "cis-eks:4.3.2", "cis-aks:4.4.2", "uae-ia:T4.5.3", "iso27001:A.8.22", "nist-800-207:2",
)  # fmt: skip


@rule(
    "kubernetes-default-deny",
    "Namespaces with workloads deny all traffic that no rule allows",
    Severity.HIGH,
    ANY_OBJECT,
    _CONTROLS,
    "Add a NetworkPolicy to the namespace with an empty podSelector and the policyTypes Ingress "
    "and Egress, and further ones for what is needed.",
)
def default_deny(resource: Resource, context: Context) -> Iterator[Finding]:
    """Found at the namespace where the stack declares it, else at what runs in it."""
    for manifest in manifests(resource):
        if is_system(manifest.namespace if manifest.kind != "Namespace" else manifest.name):
            continue
        declares = manifest.kind == "Namespace" and not manifest.group
        if manifest.is_patch or not (declares or runs(manifest)):
            continue
        path = "" if declares else "metadata.namespace"
        if context.stack is None:
            yield manifest.indeterminate(path, "whether its namespace denies by default is seen "
                                         "with the whole stack only")  # fmt: skip
            continue
        key = namespace_key(manifest, context.stack)
        if key is None:
            yield manifest.indeterminate(path, "which namespace it is in can't be known")
        elif declares == (key in _declared(context.stack)) and (
            not declares or key in _occupied(context.stack)
        ):
            yield from _covered(manifest, path, key, context.stack)


def _covered(manifest: Manifest, path: str, key: str, stack: Stack) -> Iterator[Finding]:
    for direction in DIRECTIONS:
        found = _isolated(key, direction, stack)
        # What another stack declares in the namespace isn't seen; its pods' own policies are.
        if manifest.kind != "Namespace" and _isolates_its_pods(manifest, key, direction, stack):
            continue
        if found is None:
            yield manifest.indeterminate(
                path, f"a policy that may deny {direction} by default has a namespace that can't "
                "be known"
            )  # fmt: skip
        elif not found:
            own = manifest.kind == "Namespace"
            name = manifest.name if own else format_value(manifest.namespace)
            yield manifest.violation(
                path, f"no network policy denies {direction} by default to all pods of namespace "
                f"{name}"
            )  # fmt: skip


@remembered(8)
def _declared(stack: Stack) -> set[str]:
    return {
        namespace_key(each, stack) or ""
        for each in all_manifests(stack)
        if each.kind == "Namespace" and not each.is_patch
    }


@remembered(8)
def _occupied(stack: Stack) -> set[str | None]:
    """Namespaces in which something runs: pods of any object, and charts."""
    running = [each for each in all_manifests(stack) if runs(each)]
    charts = [
        Manifest(each, "helm.sh", "chart", {"metadata": {"namespace": each.get("namespace")}})
        for each in stack.resources
        if each.package == "kubernetes" and is_bundle(each) and each.get("chart") is not ABSENT
    ]
    return {namespace_key(each, stack) for each in (*running, *charts)}


@remembered(8)
def _isolating(stack: Stack) -> dict[Direction, list[Manifest]]:
    """The policies that deny by default, by what they deny."""
    policies = [each for each in all_manifests(stack) if not each.is_patch and is_policy(each)]
    return {
        direction: [each for each in policies if isolates_all(each, direction)]
        for direction in DIRECTIONS
    }


def _isolated(key: str, direction: Direction, stack: Stack) -> bool | None:
    """Whether a policy denies by default there; None where one might."""
    unseen = False
    for each in _isolating(stack)[direction]:
        if is_cluster_wide(each):
            return True
        own = namespace_key(each, stack)
        if own == key:
            return True
        unseen = unseen or own is None
    return None if unseen else False


def _isolates_its_pods(manifest: Manifest, key: str, direction: Direction, stack: Stack) -> bool:
    """Whether policies of the stack select every pod that an object starts."""
    here = [
        each
        for each in all_manifests(stack)
        if not each.is_patch and is_policy(each) and namespace_key(each, stack) == key
    ]
    started = [each for each in pods(manifest) if not each.is_partial]
    return bool(started) and all(
        not pod.hidden and any(isolates(each, _labels(pod), direction) for each in here)
        for pod in started
    )


def _labels(pod: Pod) -> Mapping[str, Any]:
    """Labels of a pod's template; a bare pod has its object's."""
    labels = get(pod.metadata, "labels")
    return labels if isinstance(labels, Mapping) else {}


def _judge(manifest: Manifest, direction: Direction, context: Context) -> Iterator[Finding]:
    whom = "everything may be reached" if direction == "egress" else "everyone may come in"
    found = [each for each in openings(manifest) if each.direction == direction]
    for each in found:
        if each.hidden:
            yield manifest.indeterminate(each.at, f"what is let through {each.hidden}")
        elif each.anywhere:
            yield manifest.violation(each.at, f"{each.anywhere}, so {whom}")
        yield from _ranges(manifest, each, whom)
        yield from _hosts(manifest, each, context)
    together = [(path, value) for each in found for path, value in each.ranges]
    given = [value for _, value in together if not is_unknown(value)]
    if not any(is_open(value) for value in given) and are_open(given):
        yield manifest.violation(together[0][0], f"the ranges together are the world, so {whom}")


def _ranges(manifest: Manifest, opening: Opening, whom: str) -> Iterator[Finding]:
    for path, value in opening.ranges:
        if is_unknown(value):
            yield manifest.indeterminate(path, f"the range {value.reason}")
        elif is_open(value):
            yield manifest.violation(path, f"{format_value(value)} is the world, so {whom}")


def _hosts(manifest: Manifest, opening: Opening, context: Context) -> Iterator[Finding]:
    for path, value in opening.hosts:
        if is_unknown(value):
            yield manifest.indeterminate(path, f"the host {value.reason}")
            continue
        host = str(value).strip().lower().rstrip(".")
        # A pattern is as wide as the name behind its last star.
        bare = host.rpartition("*")[2].lstrip(".") if "*" in host else host
        known = bool(bare) and (
            may_talk_to("x." + bare if bare != host else bare, context.settings)
        )
        if not known or ("." not in bare and bare != host):
            yield manifest.violation(
                path,
                f"{format_value(value)} is neither in an allowed region nor one of allowedHosts",
            )


@rule(
    "kubernetes-open-egress",
    "Network policies open no way out to the world",
    Severity.HIGH,
    _POLICIES,
    (*_CONTROLS, "pdpl:22", "health-data:13", "iso27001:A.8.12"),
    "Name the pods, namespaces or ranges that may be reached. For names, allow port 53 to the "
    "cluster's DNS in kube-system only.",
)
def open_egress(resource: Resource, context: Context) -> Iterator[Finding]:
    """Every rule for egress names where to, and that isn't the world nor a host abroad."""
    for manifest in manifests(resource):
        if is_policy(manifest):
            yield from _judge(manifest, "egress", context)
            yield from _without_effect(manifest)


def _without_effect(manifest: Manifest) -> Iterator[Finding]:
    types = items(manifest.get("spec.policyTypes"))
    rules = items(manifest.get("spec.egress"))
    if not types or not rules or "Egress" in types:
        return
    hidden = next((each for each in types if is_unknown(each)), None)
    path = "spec.policyTypes"
    if hidden is not None:
        yield manifest.indeterminate(path, f"whether egress is restricted {hidden.reason}")
    else:
        yield manifest.violation(
            path, "the rules for egress have no effect: policyTypes lacks Egress"
        )


@rule(
    "kubernetes-open-ingress",
    "Network policies let in nobody who isn't named",
    Severity.MEDIUM,
    _POLICIES,
    _CONTROLS,
    "Name the pods, namespaces or ranges that may come in.",
)
def open_ingress(resource: Resource, context: Context) -> Iterator[Finding]:
    """Every rule for ingress names from where, and that isn't the world."""
    for manifest in manifests(resource):
        if is_policy(manifest):
            yield from _judge(manifest, "ingress", context)


RULES: tuple[Rule, ...] = (default_deny, open_egress, open_ingress)
