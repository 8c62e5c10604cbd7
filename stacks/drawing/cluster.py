"""What is in a Kubernetes cluster: namespaces with workloads, entrances, volumes, add-ons."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeGuard

from falaj.policies.model import Resource, get, is_unknown, items, text
from falaj.policies.reading.kubernetes import Manifest, manifests
from falaj.policies.reading.pods import pods, runs
from falaj.stacks.costs import billed
from falaj.stacks.documents import is_mapping, mapping
from falaj.stacks.drawing.builder import Builder
from falaj.stacks.drawing.model import Kind

_SCALERS: Final = {
    "ScaledObject": ("spec.scaleTargetRef.name", "spec.minReplicaCount", "spec.maxReplicaCount"),
    "HorizontalPodAutoscaler": (
        "spec.scaleTargetRef.name", "spec.minReplicas", "spec.maxReplicas",
    ),
}  # fmt: skip
_NAMESPACE_LABEL: Final = "kubernetes.io/metadata.name"
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
        said = selector_text(selector)
        return [self.builder.node(f"pods:{namespace}:{said}", "pods", f"{namespace}: {said}")]

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
        named = text(mapping(selector.get("matchLabels")).get(_NAMESPACE_LABEL))
        if named and len(conditions(selector)) == 1:
            return [named]
        return sorted(name for name, labels in self.labels.items() if matches(selector, labels))


def things(builder: Builder) -> Cluster:
    """Everything of clusters that is drawn."""
    cluster = Cluster(builder)
    for each in builder.stack.resources:
        if each.package == "kubernetes" and each.custom:
            cluster.objects += [one for one in manifests(each) if not one.is_patch]
    for each in cluster.objects:
        if each.kind == "Namespace" and not each.group:
            cluster.labels[each.name] = {**each.labels, _NAMESPACE_LABEL: each.name}
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
_KINDS: Final[Mapping[tuple[str, str], Kind]] = {
    ("gateway.networking.k8s.io", "Gateway"): "entrance",
    ("networking.k8s.io", "Ingress"): "entrance",
    ("extensions", "Ingress"): "entrance",
    ("core", "PersistentVolumeClaim"): "volume",
    ("storage.k8s.io", "StorageClass"): "volume",
    ("external-secrets.io", "SecretStore"): "vault",
    ("external-secrets.io", "ClusterSecretStore"): "vault",
    ("external-secrets.io", "ExternalSecret"): "secret",
}


def _kind(manifest: Manifest) -> Kind | None:
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


def _draw(cluster: Cluster, manifest: Manifest, kind: Kind) -> None:
    builder, id = cluster.builder, node_id(manifest)
    namespaced = not manifest.kind.startswith("Cluster") and manifest.kind != "StorageClass"
    container = (
        cluster.namespace(manifest, _namespace(manifest))
        if namespaced
        else cluster.holder(manifest.resource)
    )
    said = [each for each in _details(manifest, kind) if each]
    builder.node(id, kind, manifest.name, *said, container=container)
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


def _details(manifest: Manifest, kind: Kind) -> Iterator[str]:
    if kind in {"workload", "other", "vault"}:
        yield manifest.kind
    if kind == "workload":
        replicas = manifest.get("spec.replicas")
        if isinstance(replicas, int | float) and not isinstance(replicas, bool):
            yield f"{replicas:g} replicas"
    if kind == "entrance":
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
            said = "a key not known yet" if is_unknown(value) else text(value)
            given = cluster.builder.references.given_name(said) if "/" in said else said
            name = given or said.rpartition("/")[2]
            area = cluster.builder.node("area:Keys and secrets", "area", "Keys and secrets")
            source = cluster.builder.node(
                f"key:{said}", "key", name, "not of this stack", container=area, is_elsewhere=True
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
                kept = [said for said in node.details if not said.endswith("replicas")]
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
    said: list[str] = []
    for each in conditions(selector):
        if _is_label(each):
            said.append(f"{str(each[0]).rpartition('/')[2]}={text(each[1]) or '…'}")
        else:
            key = text(get(each, "key")).rpartition("/")[2]
            values = ", ".join(text(one) for one in items(get(each, "values")))
            operator = text(get(each, "operator"))
            said.append(f"{key} {operator} {values}".strip())
    return ", ".join(said) or "all pods"
