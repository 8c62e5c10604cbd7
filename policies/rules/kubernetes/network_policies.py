"""Network policies: everything is denied at first, and no rule is open to the world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

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
    is_false,
    is_list,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.model.resource import remembered
from falaj.policies.reading.addresses import are_open, is_open
from falaj.policies.reading.hosts import may_talk_to
from falaj.policies.reading.kubernetes import (
    ANY_OBJECT,
    Manifest,
    all_manifests,
    is_bundle,
    is_system,
    kinds,
    manifests,
    namespace_key,
)
from falaj.policies.reading.pods import Pod, pods, runs
from falaj.wire.documents import is_mapping, mapping

# What the policies of Kubernetes, Cilium, Calico and the network policy API say, read alike.
#
# Each is who it selects, whether it isolates them in a direction, and what it then lets through.
# https://kubernetes.io/docs/concepts/services-networking/network-policies/
# https://docs.cilium.io/en/stable/security/policy/language/
# https://docs.tigera.io/calico/latest/reference/resources/networkpolicy
# https://network-policy-api.sigs.k8s.io/

Direction = Literal["ingress", "egress"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("ingress", "egress")
Placed = tuple[str, Any]

_CILIUM: Final = frozenset({"CiliumNetworkPolicy", "CiliumClusterwideNetworkPolicy"})
_CALICO: Final = frozenset({
    "NetworkPolicy", "GlobalNetworkPolicy", "StagedNetworkPolicy", "StagedGlobalNetworkPolicy",
})  # fmt: skip
_CALICO_GROUPS: Final = frozenset({"crd.projectcalico.org", "projectcalico.org"})
_CLUSTER_KINDS: Final = frozenset({
    "AdminNetworkPolicy", "BaselineAdminNetworkPolicy", "ClusterNetworkPolicy",
})  # fmt: skip
_OUTSIDE: Final = frozenset({"world", "world-ipv4", "world-ipv6", "all"})


@dataclass(frozen=True)
class Opening:
    """What one rule of a policy lets through."""

    direction: Direction
    at: str
    """Path of the rule in the object."""
    anywhere: str = ""
    """Why it is open to everyone; empty where it isn't."""
    ranges: tuple[Placed, ...] = ()
    """Ranges of addresses (or Unknowns) with their paths."""
    hosts: tuple[Placed, ...] = ()
    """Names of hosts (or Unknowns) with their paths."""
    hidden: str = ""
    """Why it can't be seen; empty where it can."""


def is_policy(manifest: Manifest) -> bool:
    """Whether an object is a network policy of a kind that is read here."""
    return _flavour(manifest) != ""


def _flavour(manifest: Manifest) -> str:
    if manifest.kind == "NetworkPolicy" and manifest.group in {"networking.k8s.io", "extensions"}:
        return "kubernetes"
    if manifest.kind in _CILIUM and manifest.group == "cilium.io":
        return "cilium"
    if manifest.kind in _CALICO and manifest.group in _CALICO_GROUPS:
        return "calico"
    return "cluster" if manifest.kind in _CLUSTER_KINDS else ""


def is_cluster_wide(manifest: Manifest) -> bool:
    """Whether a policy holds in all namespaces."""
    flavour = _flavour(manifest)
    return flavour == "cluster" or (flavour in {"cilium", "calico"} and (
        "Clusterwide" in manifest.kind or "Global" in manifest.kind
    ))  # fmt: skip


def _specs(manifest: Manifest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The specs of a policy; Cilium's may have a list of them."""
    if is_mapping(manifest.spec):
        yield "spec", manifest.spec
    for index, each in enumerate(items(manifest.body.get("specs"))):
        if is_mapping(each):
            yield f"specs[{index}]", each


def isolates_all(manifest: Manifest, direction: Direction) -> bool:
    """Whether a policy denies what no rule allows, to every pod of where it holds."""
    flavour = _flavour(manifest)
    return any(
        _isolates_all(flavour, spec, direction) for _, spec in _specs(manifest)
    ) and not any(each.direction == direction and each.anywhere for each in openings(manifest))


def isolates(manifest: Manifest, labels: Mapping[str, Any], direction: Direction) -> bool:
    """Whether one of Kubernetes' own policies denies what no rule allows to pods of ``labels``.

    A pod that any policy selects for a direction is isolated in it, whatever else is in its
    namespace. A selector with a condition that can't be seen to hold selects nothing here.
    """
    spec = manifest.spec
    if _flavour(manifest) != "kubernetes" or not is_mapping(spec):
        return False
    selector = spec.get("podSelector", {})
    if not is_mapping(selector) or not _is_empty(selector.get("matchExpressions")):
        return False
    wanted = mapping(selector.get("matchLabels"))
    return (
        is_mapping(wanted)
        and all(
            text(value) and text(labels.get(key)) == text(value) for key, value in wanted.items()
        )
        and direction in _types(spec)
        and not any(each.direction == direction and each.anywhere for each in openings(manifest))
    )


def _isolates_all(flavour: str, spec: Mapping[str, Any], direction: Direction) -> bool:
    if flavour == "kubernetes":
        return _selects_all(spec.get("podSelector", {})) and direction in _types(spec)
    if flavour == "cilium":
        default = get(spec, f"enableDefaultDeny.{direction}")
        # An empty list of rules is none: Cilium isolates by a rule, be it an empty one.
        has_rules = any(items(spec.get(key)) for key in (direction, f"{direction}Deny"))
        return _selects_all(spec.get("endpointSelector")) and has_rules and not is_false(default)
    if flavour == "calico":
        selector = text(spec.get("selector")).replace(" ", "")
        nobody_else = not any(
            text(spec.get(key)) for key in ("namespaceSelector", "serviceAccountSelector")
        )
        return selector in {"", "all()"} and nobody_else and direction in _types(spec)
    return _selects_all_namespaces(spec.get("subject")) and any(
        text(get(each, "action")) == "Deny" and _is_for_all(each, direction)
        for each in items(spec.get(direction))
    )


def _selects_all(selector: object) -> bool:
    """Whether a selector of pods has no condition."""
    return is_mapping(selector) and all(
        _is_empty(selector.get(key)) for key in ("matchLabels", "matchExpressions")
    )


def _is_empty(value: object) -> bool:
    return value is None or ((is_mapping(value) or is_list(value)) and not value)


def _selects_all_namespaces(subject: Any) -> bool:
    return is_mapping(get(subject, "namespaces")) and _selects_all(subject["namespaces"])


def _is_for_all(entry: Any, direction: Direction) -> bool:
    peers = items(get(entry, "to" if direction == "egress" else "from"))
    return any(
        _selects_all(get(each, "namespaces")) or get(each, "networks") is not ABSENT
        for each in peers
    )


def _types(spec: Mapping[str, Any]) -> set[str]:
    """Directions that a policy is about; by default ingress, and egress where it has rules."""
    given = [*items(spec.get("policyTypes")), *items(spec.get("types"))]
    if given:
        return {text(each).lower() for each in given}
    return {"ingress", "egress"} if items(spec.get("egress")) else {"ingress"}


def openings(manifest: Manifest) -> Iterator[Opening]:
    """What each rule of a policy lets through."""
    flavour = _flavour(manifest)
    if is_unknown(manifest.spec):
        for direction in DIRECTIONS:
            yield Opening(direction, "spec", hidden=manifest.spec.reason)
    for at, spec in _specs(manifest) if flavour else ():
        for direction in DIRECTIONS:
            rules: Any = spec.get(direction)
            if is_unknown(rules):
                yield Opening(direction, f"{at}.{direction}", hidden=rules.reason)
                continue
            for index, entry in enumerate(items(rules)):
                where = f"{at}.{direction}[{index}]" if is_list(rules) else f"{at}.{direction}"
                if is_unknown(entry):
                    yield Opening(direction, where, hidden=entry.reason)
                elif is_mapping(entry):
                    yield _opening(flavour, direction, where, entry)


def _opening(flavour: str, direction: Direction, at: str, entry: Mapping[str, Any]) -> Opening:
    if flavour == "cilium":
        return _of_cilium(direction, at, entry)
    if flavour == "calico":
        return _of_calico(direction, at, entry)
    if flavour == "cluster":
        return _of_cluster(direction, at, entry)
    key = "to" if direction == "egress" else "from"
    peers: Any = entry.get(key)
    if is_unknown(peers):
        return Opening(direction, f"{at}.{key}", hidden=peers.reason)
    if not items(peers):
        return Opening(direction, at, f"a rule without {key!r} is open to everyone")
    return Opening(direction, at, ranges=_ranges(peers, f"{at}.{key}", "ipBlock.cidr"))


def _ranges(peers: Any, at: str, path: str) -> tuple[Placed, ...]:
    """The values at a path of each peer."""
    found: list[Placed] = []
    for index, peer in enumerate(items(peers)):
        where = f"{at}[{index}]" if is_list(peers) else at
        if is_unknown(peer):
            found.append((where, peer))
            continue
        value = get(peer, path)
        for inner, each in enumerate(items(value)):
            suffix = f"[{inner}]" if is_list(value) else ""
            found.append((f"{where}.{path}{suffix}", each))
    return tuple(found)


def _of_cilium(direction: Direction, at: str, entry: Mapping[str, Any]) -> Opening:
    side = "to" if direction == "egress" else "from"
    ranges = [
        *_ranges([entry], at, f"{side}CIDR"),
        *_ranges(entry.get(f"{side}CIDRSet"), f"{at}.{side}CIDRSet", "cidr"),
    ]
    ranges = [(path.replace(f"{at}[0].", f"{at}."), value) for path, value in ranges]
    hosts = [
        *_ranges(entry.get("toFQDNs"), f"{at}.toFQDNs", "matchName"),
        *_ranges(entry.get("toFQDNs"), f"{at}.toFQDNs", "matchPattern"),
    ]
    entities = entry.get(f"{side}Entities")
    open_to = next((each for each in items(entities) if text(each) in _OUTSIDE), None)
    anywhere = f"{side}Entities has {open_to}" if open_to is not None else ""
    hidden = next((each.reason for each in items(entities) if is_unknown(each)), "")
    peers = [key for key in entry if key.startswith(side) and not key.endswith(("Ports", "ICMPs"))]
    if not peers and any(not _is_empty(entry.get(key)) for key in ("toPorts", "icmps")):
        anywhere = "a rule of ports alone is open to everyone"
    return Opening(direction, at, anywhere, tuple(ranges), tuple(hosts), hidden)


def _of_calico(direction: Direction, at: str, entry: Mapping[str, Any]) -> Opening:
    if text(entry.get("action")) not in {"", "Allow", "Pass"}:
        return Opening(direction, at)
    side = "destination" if direction == "egress" else "source"
    peer: Any = entry.get(side)
    if is_unknown(peer):
        return Opening(direction, f"{at}.{side}", hidden=peer.reason)
    named = is_mapping(peer) and any(key != "ports" for key in peer)
    if not named:
        return Opening(direction, at, f"a rule without {side!r} is open to everyone")
    nets = _placed(peer, f"{at}.{side}", "nets")
    outside = is_mapping(peer) and not nets and "notNets" in peer
    anywhere = "all but some networks are open" if outside else ""
    return Opening(direction, at, anywhere, nets, _placed(peer, f"{at}.{side}", "domains"))


def _of_cluster(direction: Direction, at: str, entry: Mapping[str, Any]) -> Opening:
    if text(entry.get("action")) not in {"Allow", "Accept"}:
        return Opening(direction, at)
    key = "to" if direction == "egress" else "from"
    peers, where = entry.get(key), f"{at}.{key}"
    ranges = _ranges(peers, where, "networks")
    return Opening(direction, at, "", ranges, _ranges(peers, where, "domainNames"))


def _placed(holder: Any, at: str, key: str) -> tuple[Placed, ...]:
    value = get(holder, key)
    if not is_list(value):
        return () if value is ABSENT else ((f"{at}.{key}", value),)
    return tuple((f"{at}.{key}[{index}]", each) for index, each in enumerate(value))


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
    return mapping(labels)


def _judge(manifest: Manifest, direction: Direction, context: Context) -> Iterator[Finding]:
    whom = "everything may be reached" if direction == "egress" else "everyone may come in"
    found = [each for each in openings(manifest) if each.direction == direction]
    for each in found:
        if each.hidden:
            yield manifest.indeterminate(each.at, f"what is let through {each.hidden}")
        elif each.anywhere:
            yield manifest.violation(each.at, f"{each.anywhere}, so {whom}")
        yield from _open_ranges(manifest, each, whom)
        yield from _hosts(manifest, each, context)
    together = [(path, value) for each in found for path, value in each.ranges]
    given = [value for _, value in together if not is_unknown(value)]
    if not any(is_open(value) for value in given) and are_open(given):
        yield manifest.violation(together[0][0], f"the ranges together are the world, so {whom}")


def _open_ranges(manifest: Manifest, opening: Opening, whom: str) -> Iterator[Finding]:
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
