"""Metadata of the objects that components render: names, and labels that say whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from falaj.components.kubernetes._placed import InCluster


def metadata(
    placed: InCluster,
    component: str,
    name: str,
    namespace: str = "",
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """``metadata`` of an object.

    Args:
        placed: whom it is for.
        component: name of the component that makes it.
        name: the object's own name.
        namespace: where it is; empty for objects of the whole cluster.
        labels: beside those that all objects have.
        annotations: likewise.
    """
    found: dict[str, Any] = {"name": name}
    if namespace:
        found["namespace"] = namespace
    found["labels"] = {**placed.labels(component), **(labels or {})}
    found["annotations"] = {**placed.annotations(), **(annotations or {})}
    return found
