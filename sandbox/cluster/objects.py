"""Objects as the engine's resources name them, and what is cut off before they are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.sandbox.cluster.discovery import Kind

SKIP_AWAIT: Final = "pulumi.com/skipAwait"
TIMEOUT: Final = "pulumi.com/timeoutSeconds"
WAIT_FOR: Final = "pulumi.com/waitFor"
FORCE: Final = "pulumi.com/patchForce"
MANAGER: Final = "pulumi.com/patchFieldManager"
PROPAGATION: Final = "pulumi.com/deletionPropagationPolicy"
AUTONAMED: Final = "pulumi.com/autonamed"
"""Annotations of the vendor's provider:
https://www.pulumi.com/registry/packages/kubernetes/how-to-guides/managing-resources-with-server-side-apply/
"""

# What the API server adds by itself, and no program writes.
_SERVERS_OWN: Final = (
    "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation",
    "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid",
)  # fmt: skip

Object = Mapping[str, Any]
"""An object as the API server gives it."""


@dataclass(frozen=True)
class Address:
    """Where an object is."""

    kind: Kind
    namespace: str | None
    name: str

    @property
    def path(self) -> str:
        """Its path on the API server."""
        return self.kind.path(self.namespace, self.name)

    @property
    def id(self) -> str:
        """The engine's id: ``namespace/name``, or the name alone."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.id}"


def group_version_kind(token: str) -> tuple[str, str, bool]:
    """API version and kind of a resource's type, and whether it patches what others made."""
    _, version, kind = token.split(":", 2)
    version = version.removeprefix("core/")
    is_patch = kind.endswith("Patch") and "." not in kind
    return version, kind.removesuffix("Patch") if is_patch else kind, is_patch


def annotation(values: Mapping[str, Any], name: str) -> str:
    """An annotation's value; empty where there is none."""
    metadata = values.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    value = annotations.get(name) if isinstance(annotations, Mapping) else None
    return value if isinstance(value, str) else ""


def manifest(token: str, inputs: Mapping[str, Any], address: Address) -> dict[str, Any]:
    """What is sent to the API server: inputs without the engine's own, with type and name."""
    version, kind, _ = group_version_kind(token)
    metadata = dict(inputs.get("metadata") or {})
    metadata.pop("generateName", None)
    metadata["name"] = address.name
    metadata.pop("namespace", None)
    if address.namespace:
        metadata["namespace"] = address.namespace
    own = {key: value for key, value in inputs.items() if not key.startswith("__")}
    if kind == "CustomResourceDefinition":
        own["spec"] = _with_own_names(own.get("spec"))
    return {**own, "apiVersion": version, "kind": kind, "metadata": metadata}


def _with_own_names(value: Any) -> Any:
    """Kubernetes' x-kubernetes-… in the place of what the SDKs write with underscores."""
    if isinstance(value, Mapping):
        return {
            str(key).replace("_", "-") if str(key).startswith("x_kubernetes_") else key: (
                _with_own_names(each)
            )
            for key, each in value.items()
        }
    return [_with_own_names(each) for each in value] if isinstance(value, list) else value


def live_outputs(found: Object, inputs: Mapping[str, Any], token: str) -> dict[str, Any]:
    """An object as the resource's outputs, in the shape of the vendor's provider.

    Who manages which field is left out: it changes with each of them, and nobody reads it here.
    """
    outputs = dict(found)
    outputs["metadata"] = {
        key: value for key, value in found["metadata"].items() if key != "managedFields"
    }
    outputs["kind"] = group_version_kind(token)[1]
    # Sent to the API server and never given back by it.
    if "stringData" in inputs:
        outputs["stringData"] = inputs["stringData"]
    return outputs


def importable(found: Object) -> dict[str, Any]:
    """An object as the inputs that would make it."""
    metadata = {k: v for k, v in found["metadata"].items() if k not in _SERVERS_OWN}
    return {**{k: v for k, v in found.items() if k != "status"}, "metadata": metadata}


def managers(found: Object) -> list[str]:
    """Who manages fields of an object."""
    fields = found["metadata"].get("managedFields") or []
    return list(dict.fromkeys(str(each.get("manager", "")) for each in fields))
