"""What is in a Kubernetes cluster, and what may talk to what there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from falaj.components.catalogue.clusters import NAMESPACE_NAME
from falaj.policies.model import ABSENT, Resource, get, is_unknown, items, text
from falaj.policies.reading.addresses import Ports, port
from falaj.policies.reading.kubernetes import Manifest, manifests
from falaj.policies.reading.pods import pods, runs
from falaj.policies.rules.kubernetes.network_policies import is_policy, openings
from falaj.stacks.costs import billed
from falaj.stacks.drawing.builder import EVERYTHING, Builder, Traffic
from falaj.stacks.drawing.model import NodeKind
from falaj.wire.documents import is_mapping, mapping

_SCALERS: Final = {
    "ScaledObject": ("spec.scaleTargetRef.name", "spec.minReplicaCount", "spec.maxReplicaCount"),
    "HorizontalPodAutoscaler": (
        "spec.scaleTargetRef.name", "spec.minReplicas", "spec.maxReplicas",
    ),
}  # fmt: skip
#: Parameters of storage classes that name a key.
_CLASS_KEYS: Final = ("kmsKeyId", "diskEncryptionSetID", "encryptionKMSID", "kms-key-id")
_EVERY_NAMESPACE: Final = "every namespace"


@dataclass(frozen=True)
class Pods:
    """Pods that an object of the stack starts."""

    id: str
    namespace: str
    labels: Mapping[str, Any]
    account: str = ""
    ports: Mapping[str, str] = field(default_factory=dict[str, str])
    """Numbers of ports by their names."""


@dataclass
class Cluster:
    """What the flows of a cluster are told by."""

    builder: Builder
    objects: list[Manifest] = field(default_factory=list[Manifest])
    pods: list[Pods] = field(default_factory=list[Pods])
    labels: dict[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    """Labels of the namespaces that the stack makes, by name."""
    holders: dict[str, str] = field(default_factory=dict[str, str])
    """Ids of the clusters' nodes, by the URN of their provider."""
    _by_label: dict[tuple[str, ...], list[Pods]] = field(
        default_factory=dict[tuple[str, ...], list[Pods]]
    )
    """Pods by namespace, and by namespace with one of their labels."""
    _indexed: int = 0

    def namespace(self, manifest: Manifest | None, name: str) -> str:
        """The node of a namespace of the cluster that an object is in."""
        holder = self.holder(manifest.resource) if manifest else self._any_holder()
        id = f"namespace:{name}"
        return self.builder.node(
            id, "namespace", name, container=holder, is_elsewhere=name not in self.labels
        )

    def holder(self, resource: Resource) -> str:
        """The node of the cluster that a resource is in."""
        provider = resource.provider
        key = provider.urn if provider else ""
        if not key and self.holders:
            return self._any_holder()
        if key not in self.holders:
            label = _cluster_name(provider.properties if provider else {})
            self.holders[key] = self.builder.node(f"cluster:{key}", "cluster", label)
        return self.holders[key]

    def _any_holder(self) -> str:
        return next(iter(self.holders.values()), "")

    def every_namespace(self) -> str:
        """The node for all namespaces at once."""
        return self.builder.node("namespace:*", "list", _EVERY_NAMESPACE)

    def selected(self, namespace: str, selector: Any) -> list[str]:
        """The nodes of the pods in a namespace that a selector means."""
        if not conditions(selector):
            return [self.namespace(None, namespace)]
        met = [
            each.id for each in self._near(namespace, selector) if matches(selector, each.labels)
        ]
        if met:
            return list(dict.fromkeys(met))
        labels = selector_text(selector)
        return [self.builder.node(f"pods:{namespace}:{labels}", "pods", f"{namespace}: {labels}")]

    def _near(self, namespace: str, selector: Any) -> list[Pods]:
        """The pods of a namespace that have the first of the labels that a selector demands."""
        wanted: tuple[str, Any] | tuple[()] = next(filter(_is_label, conditions(selector)), ())
        key = (namespace, *(text(one) for one in wanted))
        if not self._by_label or len(self.pods) != self._indexed:
            self._index()
        return self._by_label.get(key, [])

    def _index(self) -> None:
        self._by_label.clear()
        self._indexed = len(self.pods)
        for each in self.pods:
            self._by_label.setdefault((each.namespace,), []).append(each)
            for label, value in each.labels.items():
                key = (each.namespace, text(label), text(value))
                self._by_label.setdefault(key, []).append(each)

    def namespaces(self, selector: Any) -> list[str]:
        """Names of the namespaces that a selector means; empty where it can't be told."""
        if not is_mapping(selector):
            return []
        named = text(mapping(selector.get("matchLabels")).get(NAMESPACE_NAME))
        if named and len(conditions(selector)) == 1:
            return [named]
        return sorted(name for name, labels in self.labels.items() if matches(selector, labels))


def add_objects(builder: Builder) -> Cluster:
    """Everything of clusters that is drawn."""
    cluster = Cluster(builder)
    for each in builder.stack.resources:
        if each.package == "kubernetes" and each.custom:
            cluster.objects += [one for one in manifests(each) if not one.is_patch]
    for each in cluster.objects:
        if each.kind == "Namespace" and not each.group:
            cluster.labels[each.name] = {**each.labels, NAMESPACE_NAME: each.name}
    for each in cluster.objects:
        if each.kind == "Namespace" and not each.group:
            id = cluster.namespace(each, each.name)
            builder.change(id, urn=each.resource.urn)
        elif (kind := _kind(each)) is not None:
            _draw(cluster, each, kind)
    _scale(cluster)
    _charts(cluster)
    return cluster


#: What objects are drawn as, by group and kind; of any group where that is empty.
_KINDS: Final[Mapping[tuple[str, str], NodeKind]] = {
    ("gateway.networking.k8s.io", "Gateway"): "ingress",
    ("networking.k8s.io", "Ingress"): "ingress",
    ("extensions", "Ingress"): "ingress",
    ("core", "PersistentVolumeClaim"): "volume",
    ("storage.k8s.io", "StorageClass"): "volume",
    ("external-secrets.io", "SecretStore"): "vault",
    ("external-secrets.io", "ClusterSecretStore"): "vault",
    ("external-secrets.io", "ExternalSecret"): "secret",
}


def _kind(manifest: Manifest) -> NodeKind | None:
    if runs(manifest):
        return "workload"
    group = manifest.group or "core"
    if (group, manifest.kind) == ("core", "Service"):
        return "balancer" if text(manifest.get("spec.type")) == "LoadBalancer" else None
    known = billed(f"kubernetes:{group}:{manifest.kind}")
    charged = known is None or bool(known.meters)
    return _KINDS.get((group, manifest.kind)) or ("other" if charged else None)


def node_id(manifest: Manifest) -> str:
    """Id of an object's node: its resource's URN, and the object's place in it."""
    inner = ".".join(map(str, manifest.at))
    return f"{manifest.resource.urn}#{inner}" if inner else manifest.resource.urn


def _draw(cluster: Cluster, manifest: Manifest, kind: NodeKind) -> None:
    builder, id = cluster.builder, node_id(manifest)
    namespaced = not manifest.kind.startswith("Cluster") and manifest.kind != "StorageClass"
    container = (
        cluster.namespace(manifest, _namespace(manifest))
        if namespaced
        else cluster.holder(manifest.resource)
    )
    details = [each for each in _details(manifest, kind) if each]
    builder.node(id, kind, manifest.name, *details, container=container)
    builder.change(id, urn=manifest.resource.urn)
    if kind == "workload":
        for pod in pods(manifest):
            labels = get(pod.metadata, "labels")
            ports = {
                text(get(port, "name")): str(get(port, "containerPort"))
                for one in pod.containers
                for port in items(one.get("ports"))
                if text(get(port, "name"))
            }
            cluster.pods.append(
                Pods(
                    id,
                    _namespace(manifest),
                    mapping(labels),
                    text(pod.get("serviceAccountName")),
                    ports,
                )
            )
    if manifest.kind == "StorageClass":
        _class_key(cluster, manifest, id)


def _namespace(manifest: Manifest) -> str:
    found = manifest.namespace
    return "a namespace not known yet" if is_unknown(found) else str(found)


def _details(manifest: Manifest, kind: NodeKind) -> Iterator[str]:
    if kind in {"workload", "other", "vault"}:
        yield manifest.kind
    if kind == "workload":
        replicas = manifest.get("spec.replicas")
        if isinstance(replicas, int | float) and not isinstance(replicas, bool):
            yield f"{replicas:g} replicas"
    if kind == "ingress":
        for listener in items(manifest.get("spec.listeners")):
            host = text(get(listener, "hostname"))
            yield " ".join(filter(None, (host, str(get(listener, "port") or ""))))
        for each in items(manifest.get("spec.rules")):
            yield text(get(each, "host"))
    if manifest.kind == "PersistentVolumeClaim":
        yield text(manifest.get("spec.resources.requests.storage"))
        yield text(manifest.get("spec.storageClassName"))
    if manifest.kind == "StorageClass":
        yield text(manifest.get("provisioner"))
    if kind == "vault":
        for provider in _values(manifest.get("spec.provider")):
            for key in ("server", "vaultUrl", "region"):
                yield text(get(provider, key))


def _values(value: Any) -> list[Any]:
    return list(mapping(value).values())


def _class_key(cluster: Cluster, manifest: Manifest, id: str) -> None:
    parameters = manifest.get("parameters")
    for key in _CLASS_KEYS:
        value = get(parameters, key)
        if is_unknown(value) or text(value):
            reference = "a key not known yet" if is_unknown(value) else text(value)
            given = (
                cluster.builder.references.given_name(reference) if "/" in reference else reference
            )
            name = given or reference.rpartition("/")[2]
            area = cluster.builder.node("area:Keys and secrets", "area", "Keys and secrets")
            source = cluster.builder.node(
                f"key:{reference}",
                "key",
                name,
                "not of this stack",
                container=area,
                is_elsewhere=True,
            )
            cluster.builder.edge("encrypts", source, id, "", manifest.resource.urn)


def _scale(cluster: Cluster) -> None:
    """How many pods a workload has, where something scales it."""
    for each in cluster.objects:
        if each.kind not in _SCALERS:
            continue
        name, least, most = (each.get(path) for path in _SCALERS[each.kind])
        for one in cluster.objects:
            same = one.name == text(name) and one.namespace == each.namespace
            if same and one.kind != each.kind and node_id(one) in cluster.builder.nodes:
                node = cluster.builder.nodes[node_id(one)]
                kept = [detail for detail in node.details if not detail.endswith("replicas")]
                ends = " to ".join(str(end) for end in (least, most) if isinstance(end, int))
                if ends:
                    cluster.builder.change(node.id, details=(*kept, f"{ends} replicas"))


def _charts(cluster: Cluster) -> None:
    """Charts whose objects aren't resources of the stack."""
    parents = {each.parent for each in cluster.builder.stack.resources if each.parent}
    for each in cluster.builder.stack.resources:
        if each.package != "kubernetes" or not each.kind.startswith("kubernetes:helm.sh/"):
            continue
        if each.urn in parents:
            continue
        name = text(each.get("name")) or each.name
        where = text(each.get("namespace")) or "default"
        holder = cluster.holder(each)
        container = cluster.builder.node(
            f"namespace:{where}", "namespace", where, container=holder,
            is_elsewhere=where not in cluster.labels,
        )  # fmt: skip
        version = text(each.get("version"))
        cluster.builder.stand_for(
            each, "add-on", f"chart {version}".strip(), container=container, label=name
        )


def _cluster_name(properties: Mapping[str, Any]) -> str:
    context = text(properties.get("context"))
    given = properties.get("kubeconfig")
    if not context and isinstance(given, str):
        try:
            context = text(get(json.loads(given), "current-context"))
        except ValueError:
            context = ""
    return context or "cluster"


def conditions(selector: Any) -> list[Any]:
    """What a selector of labels demands: labels with their values, and expressions.

    Empty where it means everything.
    """
    labels = mapping(mapping(selector).get("matchLabels"))
    return [*labels.items(), *items(mapping(selector).get("matchExpressions"))]


def _is_label(condition: object) -> TypeGuard[tuple[str, Any]]:
    return isinstance(condition, tuple)


def matches(selector: Any, labels: Mapping[str, Any]) -> bool:
    """Whether labels are what a selector demands."""
    for each in conditions(selector):
        if _is_label(each):
            key, value = each
            if text(labels.get(key)) != text(value) or not text(value):
                return False
        elif not _holds(each, labels):
            return False
    return True


def _holds(expression: Any, labels: Mapping[str, Any]) -> bool:
    key, operator = text(get(expression, "key")), text(get(expression, "operator"))
    values = {text(each) for each in items(get(expression, "values"))}
    own = text(labels.get(key))
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    return own in values if operator == "In" else operator == "NotIn" and own not in values


def selector_text(selector: Any) -> str:
    """A selector in words, its labels without their domain."""
    terms: list[str] = []
    for each in conditions(selector):
        if _is_label(each):
            terms.append(f"{str(each[0]).rpartition('/')[2]}={text(each[1]) or '…'}")
        else:
            key = text(get(each, "key")).rpartition("/")[2]
            values = ", ".join(text(one) for one in items(get(each, "values")))
            operator = text(get(each, "operator"))
            terms.append(f"{key} {operator} {values}".strip())
    return ", ".join(terms) or "all pods"


# Traffic: network policies, routes of gateways, the mesh.

_OWN_GROUPS: Final = frozenset(("networking.k8s.io", "extensions"))
_ROUTES: Final = frozenset(("HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"))
_SIDES: Final = (("ingress", "from"), ("egress", "to"))


def flows(cluster: Cluster) -> None:
    """Traffic that a cluster's objects allow."""
    policed: set[str] = set()
    for each in cluster.objects:
        if each.kind == "NetworkPolicy" and each.group in _OWN_GROUPS:
            policed.add(_namespace_of(each))
            _network_policy(cluster, each)
        elif is_policy(each):
            policed.add(_namespace_of(each))
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


def _namespace_of(manifest: Manifest) -> str:
    found = manifest.namespace
    return "a namespace not known yet" if is_unknown(found) else str(found)


def _network_policy(cluster: Cluster, policy: Manifest) -> None:
    namespace = _namespace_of(policy)
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
            label = selector_text(wanted)
            yield cluster.builder.node(f"pods:*:{label}", "pods", label, "pods of any namespace")
        else:
            yield cluster.every_namespace()
        return
    named = cluster.namespaces(spaces)
    if named:
        for each in named:
            yield from cluster.selected(each, wanted)
        return
    label = f"namespaces with {selector_text(spaces)}"
    if conditions(wanted):
        label = f"{label}: {selector_text(wanted)}"
    yield cluster.builder.node(f"pods:{label}", "pods", label)


def _other_policy(cluster: Cluster, policy: Manifest) -> None:
    """Cilium, Calico and the network policy API: the addresses and hosts that they let through."""
    own = cluster.namespace(policy, _namespace_of(policy))
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
            host = "a host not known yet" if is_unknown(value) else text(value)
            peers.append(cluster.builder.node(f"host:{host}", "service", host))
        for peer in peers:
            ends = (peer, own) if opening.direction == "ingress" else (own, peer)
            cluster.builder.edge("flow", *ends, policy.kind, policy.resource.urn)


def _behind(cluster: Cluster, namespace: str, service: str) -> list[tuple[str, Mapping[str, str]]]:
    """The pods behind a service; itself, where its pods aren't of the stack."""
    for each in cluster.objects:
        if each.kind == "Service" and not each.group and each.name == service:
            if _namespace_of(each) != namespace:
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
    namespace = _namespace_of(route)
    parents = [
        _parent(cluster, text(get(each, "namespace")) or namespace, text(get(each, "name")))
        for each in items(route.get("spec.parentRefs"))
    ]
    for rule in items(route.get("spec.rules")):
        paths = [text(get(each, "path.value")) for each in items(get(rule, "matches"))]
        for backend in items(get(rule, "backendRefs")):
            where = text(get(backend, "namespace")) or namespace
            for target, _ in _behind(cluster, where, text(get(backend, "name"))):
                parts = [_tcp(get(backend, "port")), *dict.fromkeys(filter(None, paths))]
                for parent in parents:
                    label = " ".join(parts)
                    cluster.builder.edge("flow", parent, target, label, route.resource.urn)


def _tcp(value: Any) -> str:
    found = port(value)
    return f"tcp {found}" if found is not None else "tcp"


def _parent(cluster: Cluster, namespace: str, name: str) -> str:
    for each in cluster.objects:
        if each.kind == "Gateway" and each.name == name and _namespace_of(each) == namespace:
            return node_id(each)
    id = f"ingress:{namespace}:{name}"
    container = cluster.namespace(None, namespace)
    return cluster.builder.node(
        id, "ingress", name, "gateway", container=container, is_elsewhere=True
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
        for target, _ in _behind(cluster, _namespace_of(ingress), name) if name else ():
            label = " ".join(filter(None, (_tcp(get(backend, "service.port.number")), path)))
            cluster.builder.edge("flow", node_id(ingress), target, label, ingress.resource.urn)


def _balancer(cluster: Cluster, service: Manifest) -> None:
    for target, names in _behind(cluster, _namespace_of(service), service.name):
        for each in items(service.get("spec.ports")):
            value = get(each, "targetPort")
            number = names.get(text(value), text(value)) or get(each, "port")
            found = port(number if number else value)
            ports = (Ports(found, found),) if found is not None else ()
            protocol = text(get(each, "protocol")) or "tcp"
            traffic = Traffic.of(protocol, ports)
            if target != node_id(service):
                cluster.builder.flow(node_id(service), target, traffic, service.resource.urn)


def _authorization(cluster: Cluster, policy: Manifest) -> None:
    """Callers that the mesh lets in by name."""
    if (text(policy.get("spec.action")) or "ALLOW") != "ALLOW":
        return
    namespace = _namespace_of(policy)
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
