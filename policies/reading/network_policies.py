"""Network policies of Kubernetes, Cilium, Calico and the network policy API, read alike.

Each is who it selects, whether it isolates them in a direction, and what it then lets through.
https://kubernetes.io/docs/concepts/services-networking/network-policies/
https://docs.cilium.io/en/stable/security/policy/language/
https://docs.tigera.io/calico/latest/reference/resources/networkpolicy
https://network-policy-api.sigs.k8s.io/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from falaj.policies.model import ABSENT, get, is_false, is_list, is_unknown, items, text
from falaj.policies.reading.kubernetes import Manifest

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
    if isinstance(manifest.spec, Mapping):
        yield "spec", manifest.spec
    for index, each in enumerate(items(manifest.body.get("specs"))):
        if isinstance(each, Mapping):
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
    if _flavour(manifest) != "kubernetes" or not isinstance(spec, Mapping):
        return False
    selector = spec.get("podSelector", {})
    if not isinstance(selector, Mapping) or not _is_empty(selector.get("matchExpressions")):
        return False
    wanted = selector.get("matchLabels") or {}
    return (
        isinstance(wanted, Mapping)
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
        said = any(items(spec.get(key)) for key in (direction, f"{direction}Deny"))
        return _selects_all(spec.get("endpointSelector")) and said and not is_false(default)
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
    return isinstance(selector, Mapping) and all(
        _is_empty(selector.get(key)) for key in ("matchLabels", "matchExpressions")
    )


def _is_empty(value: object) -> bool:
    return value is None or ((isinstance(value, Mapping) or is_list(value)) and not value)


def _selects_all_namespaces(subject: Any) -> bool:
    return isinstance(get(subject, "namespaces"), Mapping) and _selects_all(subject["namespaces"])


def _is_for_all(rule: Any, direction: Direction) -> bool:
    peers = items(get(rule, "to" if direction == "egress" else "from"))
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
            for index, rule in enumerate(items(rules)):
                where = f"{at}.{direction}[{index}]" if is_list(rules) else f"{at}.{direction}"
                if is_unknown(rule):
                    yield Opening(direction, where, hidden=rule.reason)
                elif isinstance(rule, Mapping):
                    yield _opening(flavour, direction, where, rule)


def _opening(flavour: str, direction: Direction, at: str, rule: Mapping[str, Any]) -> Opening:
    if flavour == "cilium":
        return _of_cilium(direction, at, rule)
    if flavour == "calico":
        return _of_calico(direction, at, rule)
    if flavour == "cluster":
        return _of_cluster(direction, at, rule)
    key = "to" if direction == "egress" else "from"
    peers: Any = rule.get(key)
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


def _of_cilium(direction: Direction, at: str, rule: Mapping[str, Any]) -> Opening:
    side = "to" if direction == "egress" else "from"
    ranges = [
        *_ranges([rule], at, f"{side}CIDR"),
        *_ranges(rule.get(f"{side}CIDRSet"), f"{at}.{side}CIDRSet", "cidr"),
    ]
    ranges = [(path.replace(f"{at}[0].", f"{at}."), value) for path, value in ranges]
    hosts = [
        *_ranges(rule.get("toFQDNs"), f"{at}.toFQDNs", "matchName"),
        *_ranges(rule.get("toFQDNs"), f"{at}.toFQDNs", "matchPattern"),
    ]
    entities = rule.get(f"{side}Entities")
    open_to = next((each for each in items(entities) if text(each) in _OUTSIDE), None)
    anywhere = f"{side}Entities has {open_to}" if open_to is not None else ""
    hidden = next((each.reason for each in items(entities) if is_unknown(each)), "")
    peers = [key for key in rule if key.startswith(side) and not key.endswith(("Ports", "ICMPs"))]
    if not peers and any(not _is_empty(rule.get(key)) for key in ("toPorts", "icmps")):
        anywhere = "a rule of ports alone is open to everyone"
    return Opening(direction, at, anywhere, tuple(ranges), tuple(hosts), hidden)


def _of_calico(direction: Direction, at: str, rule: Mapping[str, Any]) -> Opening:
    if text(rule.get("action")) not in {"", "Allow", "Pass"}:
        return Opening(direction, at)
    side = "destination" if direction == "egress" else "source"
    peer: Any = rule.get(side)
    if is_unknown(peer):
        return Opening(direction, f"{at}.{side}", hidden=peer.reason)
    named = isinstance(peer, Mapping) and any(key != "ports" for key in peer)
    if not named:
        return Opening(direction, at, f"a rule without {side!r} is open to everyone")
    nets = _placed(peer, f"{at}.{side}", "nets")
    outside = isinstance(peer, Mapping) and not nets and "notNets" in peer
    anywhere = "all but some networks are open" if outside else ""
    return Opening(direction, at, anywhere, nets, _placed(peer, f"{at}.{side}", "domains"))


def _of_cluster(direction: Direction, at: str, rule: Mapping[str, Any]) -> Opening:
    if text(rule.get("action")) not in {"Allow", "Accept"}:
        return Opening(direction, at)
    key = "to" if direction == "egress" else "from"
    peers, where = rule.get(key), f"{at}.{key}"
    ranges = _ranges(peers, where, "networks")
    return Opening(direction, at, "", ranges, _ranges(peers, where, "domainNames"))


def _placed(holder: Any, at: str, key: str) -> tuple[Placed, ...]:
    value = get(holder, key)
    if not is_list(value):
        return () if value is ABSENT else ((f"{at}.{key}", value),)
    return tuple((f"{at}.{key}[{index}]", each) for index, each in enumerate(value))
