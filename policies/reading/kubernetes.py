"""The Kubernetes objects that a resource declares, wherever they stand in it.

A Pulumi resource is one object as a rule. It holds several where it is a list
(``DeploymentList``), a group of manifests (``yaml/v2:ConfigGroup`` with objects or YAML text), or
a custom resource with whole objects inside (a template, a work order for another cluster).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Final

import yaml

from falaj.components.catalogue.clusters import SYSTEM_NAMESPACES
from falaj.policies.model import (
    ABSENT,
    Finding,
    FindingKind,
    Path,
    Resource,
    Stack,
    format_path,
    get,
    is_list,
    is_unknown,
    text,
)
from falaj.policies.model.resource import remembered
from falaj.wire.documents import is_dictionary, is_mapping, is_sequence, mapping

_MOST_NODES: Final = 200_000
_MOST_DEPTH: Final = 60


def _is_too_deep(value: str) -> bool:
    """Whether a text nests more than a manifest does: the parser in C would end the process."""
    depth = 0
    for event in yaml.parse(value, yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MOST_DEPTH:
            return True
    return False


def documents(value: object) -> list[Any] | None:
    """The documents of a YAML text as plain values; None where it can't be read."""
    if not isinstance(value, str):
        return None
    try:
        if _is_too_deep(value):
            return None
        loaded = list(yaml.load_all(value, yaml.CSafeLoader))
        return [_plain(each, [_MOST_NODES], 0) for each in loaded]
    except (yaml.YAMLError, ValueError, RecursionError, TypeError, AttributeError):
        return None


def _plain(value: Any, budget: list[int], depth: int) -> Any:
    """A copy that is JSON-like and finite: aliases of YAML may stand for more than memory holds.

    Raises ValueError where it is too large or too deep.
    """
    budget[0] -= 1
    if budget[0] < 0 or depth > _MOST_DEPTH:
        raise ValueError("more than a manifest may hold")
    if is_dictionary(value):
        return {str(key): _plain(each, budget, depth + 1) for key, each in value.items()}
    if is_sequence(value):
        return [_plain(each, budget, depth + 1) for each in value]
    return value if value is None or isinstance(value, str | bool | int | float) else str(value)


#: Every Kubernetes resource, custom ones included, for rules that look into all of them.
ANY_OBJECT: Final = frozenset({"kubernetes:*"})
#: Types that may hold objects of any kind.
_HOLDERS: Final = frozenset({
    "kubernetes:yaml:ConfigGroup", "kubernetes:yaml/v2:ConfigGroup", "kubernetes:core/v1:List",
    "kubernetes:apiextensions.k8s.io:CustomResource*",
    # Work orders for other clusters, and templates, which hold whole objects.
    "kubernetes:work.karmada.io/*:*", "kubernetes:work.open-cluster-management.io/*:*",
    "kubernetes:kubernetes.crossplane.io/*:*", "kubernetes:kubernetes.m.crossplane.io/*:*",
    "kubernetes:apiextensions.crossplane.io/*:Composition*",
    "kubernetes:template.openshift.io/*:*", "kubernetes:hive.openshift.io/*:*SyncSet*",
})  # fmt: skip
#: Kinds of Pulumi's own that aren't objects of a cluster.
BUNDLES: Final = frozenset({
    "ConfigGroup", "ConfigFile", "Directory", "Chart", "Release",
})  # fmt: skip
_BUNDLE_GROUPS: Final = frozenset({"yaml", "kustomize", "helm.sh", "helm"})
#: Kinds whose name ends in Patch or List by itself.
_WHOLE_NAMES: Final = frozenset({"EnvoyPatchPolicy", "IPAddressList", "EgressCIDRList"})
#: Groups whose objects describe pods that they refuse or change, and start none.
_DESCRIBING: Final = re.compile(r"(?:.*\.)?(?:kyverno\.io|gatekeeper\.sh|security\.openshift\.io)")
_TOKEN = re.compile(r"kubernetes:(?:([^:]*?)(?:/(v[^:/]*))?:)?([^:]*)")
_VERSION = re.compile(r"v\d+\w*")


def kinds(*names: str) -> frozenset[str]:
    """The types of resources that may declare objects of some kinds, patches and lists included.

    Args:
        names: group and kind, as ``apps:Deployment``; the core group is ``core``.
    """
    found = (each.partition(":") for each in names)
    return _HOLDERS | {f"kubernetes:{group}/*:{kind}*" for group, _, kind in found}


@dataclass(frozen=True)
class Manifest:
    """One object of a cluster, as a resource declares it."""

    resource: Resource
    group: str
    """API group; empty for the core one."""
    kind: str
    """``Deployment``, also for a ``DeploymentPatch``."""
    body: Mapping[str, Any]
    at: Path = ()
    """Where it stands in the resource's properties."""
    in_text: bool = False
    """Whether `at` is a YAML text that holds it."""
    is_patch: bool = False
    """Whether it changes an object that somebody else made: what it lacks says nothing."""

    def get(self, path: str) -> Any:
        """What is at a path of the object, or ABSENT."""
        return get(self.body, path)

    @property
    def spec(self) -> Any:
        """Its spec, whatever that is."""
        return get(self.body, "spec")

    @property
    def name(self) -> str:
        """Its name in the cluster; the resource's where that isn't known."""
        return text(self.get("metadata.name")) or self.resource.name

    @property
    def namespace(self) -> Any:
        """Its namespace: its own, else its provider's, else ``default``; or an Unknown."""
        own = self.get("metadata.namespace")
        if own is ABSENT and self.resource.provider is not None:
            own = get(self.resource.provider.properties, "namespace")
        return own if is_unknown(own) else text(own) or "default"

    @cached_property
    def annotations(self) -> Mapping[str, Any]:
        """Its annotations; empty where it has none or they can't be seen."""
        found = self.get("metadata.annotations")
        return mapping(found)

    @cached_property
    def labels(self) -> Mapping[str, Any]:
        """Its labels; empty where it has none or they can't be seen."""
        found = self.get("metadata.labels")
        return mapping(found)

    @property
    def is_custom(self) -> bool:
        """Whether its group isn't one of Kubernetes' own."""
        return "." in self.group and not self.group.endswith(".k8s.io")

    @property
    def is_searched(self) -> bool:
        """Whether pods, images and hosts may stand anywhere in it: it is a custom object, and
        none that only describes others."""
        return "." in self.group and _DESCRIBING.fullmatch(self.group) is None

    def path(self, inner: str) -> str:
        """A path of the object as one of the resource's properties."""
        return format_path(self.at) if self.in_text else join(format_path(self.at), inner)

    def violation(self, inner: str, reason: str) -> Finding:
        """A certain finding at a path of the object."""
        return Finding(self.path(inner), self._say(inner, reason))

    def indeterminate(self, inner: str, reason: str) -> Finding:
        """A finding about what can't be seen at a path of the object."""
        return Finding(self.path(inner), self._say(inner, reason), FindingKind.INDETERMINATE)

    def _say(self, inner: str, reason: str) -> str:
        return f"{self.kind} {self.name!r}, {inner}: {reason}" if self.in_text else reason

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}"


def join(outer: str, inner: str) -> str:
    """Two spelled paths as one."""
    if not outer or not inner:
        return outer or inner
    return outer + inner if inner.startswith("[") else f"{outer}.{inner}"


def group_and_kind(resource: Resource) -> tuple[str, str]:
    """API group (empty for the core one) and kind that a resource's type names."""
    match = _TOKEN.fullmatch(resource.kind)
    if match is None:
        return "", ""
    group, kind = match[1] or "", match[3]
    if kind.removesuffix("Patch") == "CustomResource" or not group:
        body = resource.properties
        declared = text(get(body, "kind"))
        if declared:
            suffix = "Patch" if kind.endswith("Patch") else ""
            return _group_of(get(body, "apiVersion")), declared + suffix
    return "" if group == "core" or _VERSION.fullmatch(group) else group, kind


def _group_of(version: object) -> str:
    return text(version).rpartition("/")[0]


@remembered(512)
def manifests(resource: Resource) -> tuple[Manifest, ...]:
    """The objects that a resource declares; none for a chart, or for what is of no cluster."""
    if resource.package != "kubernetes":
        return ()
    group, kind = group_and_kind(resource)
    if is_bundle(resource):
        found = _bundled(resource)
    else:
        whole = Manifest(resource, group, kind, resource.properties)
        found = _unfold(_without_patch(whole))
    return tuple(found)


def is_bundle(resource: Resource) -> bool:
    """Whether a resource stands for a chart or a group of manifests."""
    group, kind = group_and_kind(resource)
    return kind in BUNDLES and group.partition("/")[0] in _BUNDLE_GROUPS


def unreadable(resource: Resource) -> Iterator[tuple[str, str]]:
    """Parts of a group of manifests that can't be read.

    Yields:
        The path, and why the part can't be seen; empty where it can, and isn't a manifest.
    """
    if resource.package != "kubernetes" or not is_bundle(resource):
        return
    for key in ("objs", "yaml"):
        given = get(resource.properties, key)
        for path, each in _each(given, (key,)):
            if is_unknown(each):
                yield format_path(path), str(each.reason)
            elif not (text(get(each, "kind")) if key == "objs" else documents(each) is not None):
                yield format_path(path), ""


def _each(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """A value, or the items of nested lists."""
    if is_list(value):
        for index, each in enumerate(value):
            yield from _each(each, (*path, index))
    elif value is not ABSENT and value is not None:
        yield path, value


def _bundled(resource: Resource) -> Iterator[Manifest]:
    for path, each in _each(get(resource.properties, "objs"), ("objs",)):
        if is_mapping(each):
            yield from _declared(resource, each, path, in_text=False)
    for path, each in _each(get(resource.properties, "yaml"), ("yaml",)):
        for document in documents(each) or ():
            if is_mapping(document):
                yield from _declared(resource, document, path, in_text=True)


def _declared(
    resource: Resource, body: Mapping[str, Any], path: Path, *, in_text: bool
) -> Iterator[Manifest]:
    group, kind = _group_of(body.get("apiVersion")), text(body.get("kind"))
    if kind:
        yield from _unfold(Manifest(resource, group, kind, body, path, in_text))


def _without_patch(given: Manifest) -> Manifest:
    if not given.kind.endswith("Patch") or given.kind in _WHOLE_NAMES or given.kind == "Patch":
        return given
    kind = given.kind.removesuffix("Patch")
    return Manifest(given.resource, given.group, kind, given.body, given.at, is_patch=True)


def _unfold(given: Manifest) -> Iterator[Manifest]:
    """An object, the items of a list in its stead, and the objects inside of a custom one."""
    if given.kind.endswith("List") and given.kind not in _WHOLE_NAMES and "items" in given.body:
        kind = given.kind.removesuffix("List")
        for index, each in enumerate(_as_list(given.body.get("items"))):
            if is_mapping(each):
                own = text(each.get("kind")) or kind
                group = _group_of(each["apiVersion"]) if "apiVersion" in each else given.group
                at = given.at if given.in_text else (*given.at, "items", index)
                yield from _unfold(Manifest(given.resource, group, own, each, at, given.in_text))
        return
    yield given
    for path, body in _inner(given.body, ()):
        at = given.at if given.in_text else (*given.at, *path)
        group = _group_of(body.get("apiVersion"))
        yield Manifest(given.resource, group, text(body.get("kind")), body, at, given.in_text)


def _as_list(value: Any) -> list[Any]:
    return list(value) if is_list(value) else []


def is_object(value: object) -> bool:
    """Whether a value inside of an object is a whole object itself, not a reference to one."""
    return (
        is_mapping(value)
        and bool(text(value.get("apiVersion")))
        and bool(text(value.get("kind")))
        and any(is_mapping(value.get(key)) for key in ("spec", "data", "metadata"))
    )


def _inner(value: Any, path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Whole objects inside of an object, at any depth."""
    if path and is_object(value):
        yield path, value
    if is_mapping(value):
        for key, each in value.items():
            if is_mapping(each) or is_list(each):
                yield from _inner(each, (*path, str(key)))
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _inner(each, (*path, index))


@remembered(8)
def all_manifests(stack: Stack) -> tuple[Manifest, ...]:
    """Every object that a stack declares."""
    return tuple(each for resource in stack.resources for each in manifests(resource))


# Namespaces: which are the system's own, and which Pod Security Standard each must enforce.
#
# https://kubernetes.io/docs/concepts/security/pod-security-standards/


class Level(IntEnum):
    """Pod Security Standards, in the order of what they demand."""

    PRIVILEGED = 0
    BASELINE = 1
    RESTRICTED = 2


def is_system(namespace: object) -> bool:
    """Whether a namespace is one of the system's own; what can't be seen isn't."""
    return isinstance(namespace, str) and namespace in SYSTEM_NAMESPACES


def level_of(manifest: Manifest) -> Level:
    """The standard that an object's pods must meet: restricted, outside of the system's own."""
    if not is_system(manifest.namespace):
        return Level.RESTRICTED
    return Level.PRIVILEGED if manifest.kind == "DaemonSet" else Level.BASELINE


@remembered(8)
def _by_name(stack: Stack) -> dict[str, str]:
    """Names of the namespaces that a stack declares, each with what stands for it."""
    return {
        name: _own_key(each)
        for each in all_manifests(stack)
        if each.kind == "Namespace" and not each.group and not each.is_patch
        for name in _names(each)
    }


@remembered(8)
def names_below(stack: Stack) -> frozenset[str]:
    """What names in a cluster end in: namespaces that a stack has objects in, and its services."""
    found: set[Any] = set(_by_name(stack))
    for each in all_manifests(stack):
        found.add(each.namespace)
        if each.kind == "Service":
            found.add(each.name)
    return frozenset(each for each in found if isinstance(each, str))


def _names(namespace: Manifest) -> list[str]:
    outputs: Mapping[str, Any] = namespace.resource.outputs if not namespace.at else {}
    return [
        name
        for name in (
            text(namespace.get("metadata.name")),
            text(get(outputs, "metadata.name")),
            "" if namespace.at else namespace.resource.id,
        )
        if name
    ]


def _own_key(namespace: Manifest) -> str:
    return f"{namespace.resource.urn}#{'/'.join(str(part) for part in namespace.at)}"


def namespace_key(manifest: Manifest, stack: Stack) -> str | None:
    """What stands for an object's namespace within a stack; None where it can't be known.

    Objects of one namespace have the same key, whether they name it or were made from it. A
    namespace's own key is that of what is in it.
    """
    if manifest.kind == "Namespace" and not manifest.group:
        return _own_key(manifest)
    namespace = manifest.namespace
    if isinstance(namespace, str):
        return _by_name(stack).get(namespace, namespace)
    for top in ("metadata", "namespace"):
        urns = manifest.resource.dependencies.get(top, ())
        found = [stack.by_urn[urn] for urn in urns if urn in stack.by_urn]
        named = {_own_key(each) for one in found for each in manifests(one) if _is_one(each)}
        if len(named) == 1:
            return named.pop()
    return None


def _is_one(manifest: Manifest) -> bool:
    return manifest.kind == "Namespace" and not manifest.group
