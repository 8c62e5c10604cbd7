"""What objects demand of nodes: labels by selector, affinity, requirement or topology.

https://kubernetes.io/docs/reference/labels-annotations-taints/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.catalogue.clusters import REGION_KEYS, ZONE_KEYS
from falaj.components.catalogue.region_names import place_named
from falaj.policies.model import (
    ABSENT,
    Path,
    Settings,
    format_path,
    get,
    is_list,
    is_unknown,
    items,
    text,
)
from falaj.policies.reading.kubernetes import Manifest, is_object
from falaj.policies.reading.pods import Pod

PLACE_KEYS: Final = REGION_KEYS | ZONE_KEYS
#: Azure's nodes bear their location and the zone's number; ``0`` is a node of no zone.
_AZURE_ZONE: Final = re.compile(r"([a-z0-9]+)-\d")
_NOT_SEARCHED: Final = frozenset({"status", "openAPIV3Schema", "annotations"})


@dataclass(frozen=True)
class Requirement:
    """One label that nodes must have, with the values that it may have."""

    at: str
    """Path of the values in the object."""
    key: str
    operator: str
    values: tuple[tuple[str, Any], ...]
    """Each value (a text or an Unknown) with its path."""

    @property
    def pins(self) -> bool:
        """Whether it names the values that are allowed; NotIn and Exists name none."""
        return self.operator == "In" and bool(self.values)


def requirements(manifest: Manifest, keys: frozenset[str]) -> Iterator[Requirement]:
    """Everything in an object that demands one of some labels, wherever it stands."""
    skips = frozenset[str]() if manifest.kind == "Node" else frozenset({"metadata"})
    yield from _walk(manifest.body, (), keys, skips)


def _walk(
    value: Any, path: Path, keys: frozenset[str], skips: frozenset[str] = frozenset()
) -> Iterator[Requirement]:
    if isinstance(value, Mapping):
        if path and is_object(value):
            return
        if (found := _expression(value, path, keys)) is not None:
            yield found
            return
        for key, each in value.items():
            name, at = str(key), (*path, str(key))
            if name in keys:
                yield Requirement(format_path(at), name, "In", ((format_path(at), each),))
            elif name not in skips and name not in _NOT_SEARCHED:
                yield from _walk(each, at, keys)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _walk(each, (*path, index), keys)


def _expression(value: Mapping[str, Any], path: Path, keys: frozenset[str]) -> Requirement | None:
    key = text(value.get("key"))
    if key not in keys or not any(each in value for each in ("values", "operator", "value")):
        return None
    # Tolerations have one value, and Equal where requirements have In.
    name = "values" if "values" in value else "value"
    said = text(value.get("operator"))
    operator = "In" if said in {"", "Equal"} else said
    given, at = value.get(name), (*path, name)
    values = tuple(
        (format_path((*at, index)) if is_list(given) else format_path(at), each)
        for index, each in enumerate(items(given))
    )
    return Requirement(format_path(at), key, operator, values)


def place_of_label(key: str, value: object) -> str:
    """The place that a node's region or zone label names, as ``azure/uaenorth``; else empty."""
    given = text(value).lower()
    if key in ZONE_KEYS and (zone := _AZURE_ZONE.fullmatch(given)):
        return place_named(zone[1])
    return place_named(given)


def is_allowed(key: str, value: object, settings: Settings) -> bool:
    """Whether a node's region or zone label names an allowed place or one of one's own sites."""
    return place_of_label(key, value) in settings.allowed_places or settings.is_site(text(value))


def is_pinned(pod: Pod, settings: Settings) -> bool | None:
    """Whether a pod can only run in allowed places by its own demands; None where unseen.

    Terms of an affinity are alternatives: each of them must pin.
    """
    selector = pod.get("nodeSelector")
    terms = pod.get(
        "affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
    )
    own = _names_place(selector, settings)
    alternatives = [_names_place(get(each, "matchExpressions"), settings) for each in items(terms)]
    if own or (alternatives and all(alternatives)):
        return True
    unseen = is_unknown(selector) or is_unknown(terms) or own is None or None in alternatives
    return None if unseen else False


def _names_place(value: Any, settings: Settings) -> bool | None:
    """Whether a selector or a term's expressions name allowed places; None where unseen."""
    if is_unknown(value):
        return None
    unseen = False
    for each in _walk(value if value is not ABSENT else {}, (), PLACE_KEYS):
        if not each.pins:
            continue
        if any(is_unknown(given) for _, given in each.values):
            unseen = True
        elif all(is_allowed(each.key, given, settings) for _, given in each.values):
            return True
    return None if unseen else False
