"""Tags of a resource: its own in either form, and those that its provider adds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, cast

from falaj.components.catalogue.tag_names import tag_name, tag_names
from falaj.policies.model import ABSENT, UNKNOWN, Context, Resource, get, is_unknown, items, text

#: Tags as a list of keys and values, which providers don't add their own to:
#: https://registry.terraform.io/providers/hashicorp/aws/latest/docs/resources/autoscaling_group
LISTED: Final = frozenset(("aws:autoscaling/group:Group",))


def tags_of(resource: Resource) -> dict[str, Any] | None:
    """All tags by name; None where they can't be seen. Values may be unknown."""
    own = resource.get("tags")
    if resource.kind in LISTED:
        return _listed(own)
    found: dict[str, Any] = {}
    for given in (_added(resource), resource.get("tagsAll"), own):
        if is_unknown(given):
            return None
        if isinstance(given, Mapping):
            found |= {str(key): each for key, each in cast("Mapping[Any, Any]", given).items()}
    return found


def as_given(resource: Resource, tag: str) -> str:
    """A tag's name as it is to be given to a resource: Falaj's own have another form on Azure."""
    own, _, name = tag.partition(":")
    is_other = resource.package == "azure-native" and own.lower() == "falaj" and name
    return tag_name("azure", name) if is_other else tag


def comparable(resource: Resource, tag: str) -> str:
    """What two names of one tag have in common: on Azure neither letter case nor the colon counts.

    Falaj's own may have been given in AWS' form on Azure, where most types take it.
    """
    return as_given(resource, tag).lower() if resource.package == "azure-native" else tag


def _listed(value: Any) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for each in items(value):
        key = get(each, "key")
        if is_unknown(each) or is_unknown(key):
            return None
        found[text(key)] = get(each, "value")
    return found


def _added(resource: Resource) -> Any:
    """``defaultTags`` of the AWS provider, whose settings are JSON texts in the engine."""
    if resource.provider is None or resource.package != "aws":
        return ABSENT
    given = resource.provider.properties.get("defaultTags")
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except ValueError:
            return ABSENT
    return get(given, "tags")


def data_class(resource: Resource, context: Context) -> Any:
    """The class of its data: its own tag's, else the stack's; an unknown where that can't be
    told."""
    return _tagged(resource, "data-class", context.settings.data_class)


def environment(resource: Resource, context: Context) -> Any:
    """The environment it belongs to, found as `data_class` is."""
    return _tagged(resource, "environment", context.settings.environment)


def purpose(resource: Resource) -> Any:
    """What it is for, by its own tag; empty where none says it, unknown where that is unknown."""
    return _tagged(resource, "purpose", "")


def _tagged(resource: Resource, name: str, otherwise: str) -> Any:
    tags = tags_of(resource)
    if tags is None:
        return UNKNOWN
    for key in (*tag_names(name), name):
        value = tags.get(key)
        if is_unknown(value):
            return value
        if given := text(value):
            return given.lower()
    return otherwise
