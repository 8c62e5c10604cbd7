"""Namespaces: which are the system's own, and which Pod Security Standard each must enforce.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from enum import IntEnum

from falaj.components.catalogue.clusters import SYSTEM_NAMESPACES
from falaj.policies.model import Stack, get, text
from falaj.policies.reading.kubernetes import Manifest, all_manifests, manifests
from falaj.policies.reading.remembered import remembered


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


def _names(namespace: Manifest) -> list[str]:
    outputs = namespace.resource.outputs if not namespace.at else {}
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
