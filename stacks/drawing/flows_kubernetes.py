"""What may talk to what in a cluster: network policies, routes of gateways, the mesh."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.policies.model import ABSENT, get, is_unknown, items, text
from falaj.policies.reading.addresses import Ports, port
from falaj.policies.reading.kubernetes import Manifest
from falaj.policies.rules.kubernetes.network_policies import is_policy, openings
from falaj.stacks.drawing.cluster import (
    Cluster,
    conditions,
    matches,
    node_id,
    selector_text,
)
from falaj.stacks.drawing.traffic import EVERYTHING, Traffic

_OWN_GROUPS: Final = frozenset(("networking.k8s.io", "extensions"))
_ROUTES: Final = frozenset(("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"))
_SIDES: Final = (("ingress", "from"), ("egress", "to"))


def flows(cluster: Cluster) -> None:
    """Traffic that a cluster's objects allow."""
    policed: set[str] = set()
    for each in cluster.objects:
        if each.kind == "NetworkPolicy" and each.group in _OWN_GROUPS:
            policed.add(_namespace(each))
            _network_policy(cluster, each)
        elif is_policy(each):
            policed.add(_namespace(each))
            _other_policy(cluster, each)
        elif each.kind in _ROUTES:
            _route(cluster, each)
        elif each.kind == "Ingress":
            _ingress(cluster, each)
        elif each.kind == "AuthorizationPolicy" and each.group == "security.istio.io":
            _authorization(cluster, each)
        elif each.kind == "Service" and node_id(each) in cluster.builder.nodes:
            _balancer(cluster, each)
    _unguarded(cluster, policed)


def _namespace(manifest: Manifest) -> str:
    found = manifest.namespace
    return "a namespace not known yet" if is_unknown(found) else str(found)


def _network_policy(cluster: Cluster, policy: Manifest) -> None:
    namespace = _namespace(policy)
    own = cluster.selected(namespace, policy.get("spec.podSelector"))
    for direction, side in _SIDES:
        for rule in items(policy.get(f"spec.{direction}")):
            traffic = _traffic(rule)
            for peer in _peers(cluster, namespace, rule, side):
                for one in own:
                    ends = (peer, one) if direction == "ingress" else (one, peer)
                    cluster.builder.flow(*ends, traffic, policy.resource.urn)


def _traffic(rule: Any) -> Traffic:
    given = items(get(rule, "ports"))
    if not given:
        return EVERYTHING
    ports: list[Ports] = []
    names: list[str] = []
    protocols: set[str] = set()
    seen = True
    for each in given:
        value = get(each, "port")
        protocols.add(text(get(each, "protocol")).lower() or "tcp")
        first = port(value)
        if is_unknown(value) or is_unknown(each):
            seen = False
        elif first is not None:
            last = port(get(each, "endPort"))
            ports.append(Ports(first, first if last is None else max(first, last)))
        elif text(value):
            names.append(text(value))
    protocol = "/".join(sorted(protocols)) if protocols != {"tcp"} else "tcp"
    return Traffic.of(protocol, ports, names, seen=seen)


def _peers(cluster: Cluster, namespace: str, rule: Any, side: str) -> Iterator[str]:
    """Ids of the nodes at the other end of a rule."""
    given = get(rule, side)
    if is_unknown(given):
        yield cluster.builder.unseen("peers")
        return
    if not items(given):
        # A rule that names nobody is for everybody.
        yield cluster.builder.internet()
    for each in items(given):
        if is_unknown(each):
            yield cluster.builder.unseen("peers")
            continue
        block = get(each, "ipBlock.cidr")
        if block is not ABSENT:
            hidden = is_unknown(block)
            yield cluster.builder.unseen("addresses") if hidden else _block(cluster, each)
            continue
        yield from _selected(cluster, namespace, each)


def _block(cluster: Cluster, peer: Any) -> str:
    return cluster.builder.addresses(get(peer, "ipBlock.cidr"))


def _selected(cluster: Cluster, namespace: str, peer: Any) -> Iterator[str]:
    spaces, wanted = get(peer, "namespaceSelector"), get(peer, "podSelector")
    if spaces is ABSENT:
        yield from cluster.selected(namespace, wanted)
        return
    if not conditions(spaces) and isinstance(spaces, Mapping):
        if conditions(wanted):
            said = selector_text(wanted)
            yield cluster.builder.node(f"pods:*:{said}", "pods", said, "pods of any namespace")
        else:
            yield cluster.every_namespace()
        return
    named = cluster.namespaces(spaces)
    if named:
        for each in named:
            yield from cluster.selected(each, wanted)
        return
    said = f"namespaces with {selector_text(spaces)}"
    if conditions(wanted):
        said = f"{said}: {selector_text(wanted)}"
    yield cluster.builder.node(f"pods:{said}", "pods", said)


def _other_policy(cluster: Cluster, policy: Manifest) -> None:
    """Cilium, Calico and the network policy API: the addresses and hosts that they let through."""
    own = cluster.namespace(policy, _namespace(policy))
    for opening in openings(policy):
        peers: list[str] = []
        if opening.anywhere:
            peers.append(cluster.builder.internet())
        if opening.hidden:
            peers.append(cluster.builder.unseen("peers"))
        for _, value in opening.ranges:
            unseen = is_unknown(value)
            builder = cluster.builder
            peers.append(builder.unseen("addresses") if unseen else builder.addresses(value))
        for _, value in opening.hosts:
            said = "a host not known yet" if is_unknown(value) else text(value)
            peers.append(cluster.builder.node(f"host:{said}", "service", said))
        for peer in peers:
            ends = (peer, own) if opening.direction == "ingress" else (own, peer)
            cluster.builder.edge("flow", *ends, policy.kind, policy.resource.urn)


def _behind(cluster: Cluster, namespace: str, service: str) -> list[tuple[str, Mapping[str, str]]]:
    """The pods behind a service; itself, where its pods aren't of the stack."""
    for each in cluster.objects:
        if each.kind == "Service" and not each.group and each.name == service:
            if _namespace(each) != namespace:
                continue
            wanted = {"matchLabels": each.get("spec.selector")}
            met = [
                (one.id, one.ports)
                for one in cluster.pods
                if one.namespace == namespace
                and conditions(wanted)
                and matches(wanted, one.labels)
            ]
            if met:
                return met
    id = f"service:{namespace}:{service}"
    label = f"{namespace}: service {service}"
    return [(cluster.builder.node(id, "service", label), {})]


def _route(cluster: Cluster, route: Manifest) -> None:
    """From a gateway to what a route sends to."""
    namespace = _namespace(route)
    parents = [
        _entrance(cluster, text(get(each, "namespace")) or namespace, text(get(each, "name")))
        for each in items(route.get("spec.parentRefs"))
    ]
    for rule in items(route.get("spec.rules")):
        paths = [text(get(each, "path.value")) for each in items(get(rule, "matches"))]
        for backend in items(get(rule, "backendRefs")):
            where = text(get(backend, "namespace")) or namespace
            for target, _ in _behind(cluster, where, text(get(backend, "name"))):
                said = [_tcp(get(backend, "port")), *dict.fromkeys(filter(None, paths))]
                for parent in parents:
                    label = " ".join(said)
                    cluster.builder.edge("flow", parent, target, label, route.resource.urn)


def _tcp(value: Any) -> str:
    found = port(value)
    return f"tcp {found}" if found is not None else "tcp"


def _entrance(cluster: Cluster, namespace: str, name: str) -> str:
    for each in cluster.objects:
        if each.kind == "Gateway" and each.name == name and _namespace(each) == namespace:
            return node_id(each)
    id = f"entrance:{namespace}:{name}"
    container = cluster.namespace(None, namespace)
    return cluster.builder.node(
        id, "entrance", name, "gateway", container=container, is_elsewhere=True
    )


def _ingress(cluster: Cluster, ingress: Manifest) -> None:
    backends = [(get(ingress.spec, "defaultBackend"), "")]
    for rule in items(get(ingress.spec, "rules")):
        backends += [
            (get(each, "backend"), text(get(each, "path")))
            for each in items(get(rule, "http.paths"))
        ]
    for backend, path in backends:
        name = text(get(backend, "service.name"))
        for target, _ in _behind(cluster, _namespace(ingress), name) if name else ():
            label = " ".join(filter(None, (_tcp(get(backend, "service.port.number")), path)))
            cluster.builder.edge("flow", node_id(ingress), target, label, ingress.resource.urn)


def _balancer(cluster: Cluster, service: Manifest) -> None:
    for target, names in _behind(cluster, _namespace(service), service.name):
        for each in items(service.get("spec.ports")):
            value = get(each, "targetPort")
            said = names.get(text(value), text(value)) or get(each, "port")
            found = port(said if said else value)
            ports = (Ports(found, found),) if found is not None else ()
            protocol = text(get(each, "protocol")) or "tcp"
            traffic = Traffic.of(protocol, ports)
            if target != node_id(service):
                cluster.builder.flow(node_id(service), target, traffic, service.resource.urn)


def _authorization(cluster: Cluster, policy: Manifest) -> None:
    """Callers that the mesh lets in by name."""
    if (text(policy.get("spec.action")) or "ALLOW") != "ALLOW":
        return
    namespace = _namespace(policy)
    own = cluster.selected(namespace, policy.get("spec.selector"))
    for rule in items(policy.get("spec.rules")):
        listed = [
            one for each in items(get(rule, "to")) for one in items(get(each, "operation.ports"))
        ]
        found = [port(each) for each in listed]
        ports = [Ports(each, each) for each in found if each is not None]
        label = f"{Traffic.of('tcp', ports).label} in the mesh" if ports else "in the mesh"
        for each in items(get(rule, "from")):
            for caller in _callers(cluster, get(each, "source")):
                for one in own:
                    cluster.builder.edge("flow", caller, one, label, policy.resource.urn)


def _callers(cluster: Cluster, source: Any) -> Iterator[str]:
    for each in items(get(source, "namespaces")):
        yield cluster.namespace(None, text(each))
    for each in items(get(source, "principals")):
        parts = text(each).split("/")
        named = dict(zip(parts[1::2], parts[2::2], strict=False))
        namespace, account = named.get("ns", ""), named.get("sa", "")
        met = [
            one.id
            for one in cluster.pods
            if one.namespace == namespace and one.account == account and account
        ]
        label = f"{namespace}: account {account}" if account else text(each)
        yield from dict.fromkeys(met) or [
            cluster.builder.node(f"account:{text(each)}", "pods", label)
        ]


def _unguarded(cluster: Cluster, policed: set[str]) -> None:
    """Namespaces with workloads that no policy of the stack guards let everything in."""
    for name in sorted(set(cluster.labels) - policed):
        if any(each.namespace == name for each in cluster.pods):
            id = cluster.namespace(None, name)
            cluster.builder.edge(
                "flow", cluster.every_namespace(), id, "everything (no network policy)"
            )
