"""Every object of a control plane, whatever its kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubernetes.client.exceptions import ApiException

from falaj.engine.controlplane.objects import Objects

#: What the control plane itself writes all the time.
_OWN = frozenset({"Event", "Lease", "ComponentStatus", "IPAddress"})
_UNAVAILABLE = 503
_GONE = 404


def inventory(objects: Objects) -> set[str]:
    """``<kind>.<group> <namespace>/<name>`` of all objects.

    A group whose server isn't there (an APIService of a chart) has none.
    """
    found: set[str] = set()
    for path, kind, group in _served(objects):
        for each in _ask(objects, path, "items"):
            metadata = each["metadata"]
            found.add(f"{kind}.{group} {metadata.get('namespace', '')}/{metadata['name']}")
    return found


def _served(objects: Objects) -> Iterator[tuple[str, str, str]]:
    roots = [("/api/v1", "")]
    for group in objects.request("GET", "/apis")["groups"]:
        roots.append((f"/apis/{group['preferredVersion']['groupVersion']}", group["name"]))
    for root, group in roots:
        for each in _ask(objects, root, "resources"):
            if "list" in each["verbs"] and "/" not in each["name"] and each["kind"] not in _OWN:
                yield f"{root}/{each['name']}", each["kind"], group


def _ask(objects: Objects, path: str, key: str) -> list[dict[str, Any]]:
    try:
        return objects.request("GET", path)[key]
    except ApiException as error:
        if error.status not in {_UNAVAILABLE, _GONE}:
            raise
        return []
