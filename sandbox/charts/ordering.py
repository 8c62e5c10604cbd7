"""Which objects of a group wait for which others, and what each resource is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.sandbox.clouds.kubernetes import has_namespace
from falaj.sandbox.cluster.objects import SKIP_AWAIT

_DEFINITION: Final = "CustomResourceDefinition"


@dataclass(frozen=True)
class Declared:
    """One object of a group as a resource."""

    token: str
    name: str
    manifest: Mapping[str, Any]
    after: tuple[int, ...]
    """Places in the list of those that have to be there first: all before this one."""

    @property
    def is_kept(self) -> bool:
        """Whether it stays when the chart goes (``helm.sh/resource-policy: keep``)."""
        annotations = self.manifest["metadata"].get("annotations") or {}
        return annotations.get("helm.sh/resource-policy") == "keep"


def token_of(manifest: Mapping[str, Any]) -> str:
    """The type of the resource; the core group is written out."""
    version = str(manifest["apiVersion"])
    return f"kubernetes:{version if '/' in version else f'core/{version}'}:{manifest['kind']}"


def declared(
    manifests: Sequence[Mapping[str, Any]],
    prefix: str,
    namespace: str,
    *,
    skip_await: bool = False,
) -> list[Declared]:
    """The objects in an order in which they can be made: definitions and namespaces first.

    Args:
        prefix: before each resource's name, with a colon; none when empty.
        namespace: of those that live in one and don't say which.
        skip_await: let none of them be waited for.
    """
    scopes = {
        (m["spec"]["group"], m["spec"]["names"]["kind"]): m["spec"].get("scope") == "Namespaced"
        for m in manifests
        if m["kind"] == _DEFINITION
    }
    found: list[Declared] = []
    definitions: dict[tuple[str, str], int] = {}
    namespaces: dict[str, int] = {}
    for given in sorted(manifests, key=_rank):
        manifest = _placed(given, scopes, namespace, skip_await)
        metadata, key = manifest["metadata"], _kind_key(manifest)
        places = (definitions.get(key), namespaces.get(str(metadata.get("namespace"))))
        own = f"{metadata['namespace']}/{metadata['name']}" if "namespace" in metadata else None
        name = own or str(metadata["name"])
        found.append(
            Declared(
                token_of(manifest),
                f"{prefix}:{name}" if prefix else name,
                manifest,
                tuple(place for place in places if place is not None),
            )
        )
        if manifest["kind"] == _DEFINITION:
            spec = manifest["spec"]
            definitions[spec["group"], spec["names"]["kind"]] = len(found) - 1
        elif manifest["kind"] == "Namespace" and manifest["apiVersion"] == "v1":
            namespaces[name] = len(found) - 1
    return found


def _placed(
    manifest: Mapping[str, Any],
    scopes: Mapping[tuple[str, str], bool],
    namespace: str,
    skip_await: bool,
) -> dict[str, Any]:
    metadata = {key: value for key, value in manifest["metadata"].items() if value is not None}
    lives = scopes.get(_kind_key(manifest))
    lives = has_namespace(token_of(manifest)) if lives is None else lives
    if lives and not metadata.get("namespace"):
        metadata["namespace"] = namespace
    if skip_await:
        metadata["annotations"] = {**(metadata.get("annotations") or {}), SKIP_AWAIT: "true"}
    return {**manifest, "metadata": metadata}


def _kind_key(manifest: Mapping[str, Any]) -> tuple[str, str]:
    return str(manifest["apiVersion"]).rpartition("/")[0], str(manifest["kind"])


def _rank(manifest: Mapping[str, Any]) -> int:
    order = (_DEFINITION, "Namespace")
    kind = str(manifest["kind"])
    return order.index(kind) if kind in order else len(order)
