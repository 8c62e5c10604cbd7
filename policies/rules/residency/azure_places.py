"""Where Azure's resources are, and where what their properties refer to is.

A resource without a location of its own is where its provider's default is, else where its
resource group is (https://www.pulumi.com/registry/packages/azure-native/installation-configuration/,
``azure-native:location``); a child is where its parent is.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from falaj.components.catalogue.region_names import normalise_azure
from falaj.policies.model import (
    Context,
    Resource,
    Stack,
    is_unknown,
    text,
)
from falaj.policies.model.resource import remembered
from falaj.policies.reading.types import azure

_DATA: Final = json.loads(
    Path(__file__).with_name("azure_located_types.json").read_text(encoding="utf-8")
)
#: Types that take a location of their own; all others are where their parent is.
LOCATED: Final = azure(
    *(f"{module}:{name}" for module, names in _DATA["types"].items() for name in names)
)
GROUP: Final = "azure-native:resources:ResourceGroup"

#: Where geo-redundant copies of a region go
#: (https://learn.microsoft.com/azure/reliability/regions-paired).
PAIRS: Final = {"uaenorth": "uaecentral", "uaecentral": "uaenorth"}

_ARM_ID: Final = re.compile(r"^/?subscriptions/([^/]+)(?:/resourceGroups/([^/]+))?", re.IGNORECASE)
#: Hosts of services whose first label is the name of a resource.
_HOST: Final = re.compile(
    r"(?:^|//)([a-z0-9-]+)\.(?:(?:blob|queue|table|file|dfs|web)\.(?:core\.windows|storage\.azure)"
    r"\.net|vault\.azure\.net|servicebus\.windows\.net|documents\.azure\.com|azurecr\.io"
    r"|database\.windows\.net|azurewebsites\.net|search\.windows\.net|openai\.azure\.com"
    r"|cognitiveservices\.azure\.com|azure-api\.net)",
    re.IGNORECASE,
)
#: Azure's own names of types where the SDK calls them otherwise.
_CALLED: Final = {"site": "webapp", "serverfarm": "appserviceplan", "slot": "webappslot"}
#: Types whose own name is under a key of another word.
_NAMED: Final = {
    "redisenterprise": "cluster", "iotdpsresource": "provisioningservice", "grafana": "workspace",
    "virtualmachine": "vm", "virtualmachinescaleset": "vmscaleset",
    "configurationstore": "configstore",
}  # fmt: skip
#: Parents are followed this far: a container's service's account.
_GENERATIONS: Final = 4


def allowed(context: Context) -> tuple[str, ...]:
    """The locations where data may be."""
    return context.settings.regions("azure")


def where_allowed(context: Context) -> str:
    """The end of a reason: where data may be."""
    return f"data may be in {' or '.join(allowed(context)) or 'no location of Azure'}"


def geo_copies_stay(context: Context) -> bool:
    """Whether copies in the region's pair are wanted, and the pairs of all regions allowed."""
    regions = allowed(context)
    return context.settings.geo_redundancy == "paired" and all(
        PAIRS.get(each) in regions for each in regions
    )


def no_geo_copies(context: Context) -> str:
    """The end of a reason: why a geo-redundant copy isn't allowed."""
    if context.settings.geo_redundancy == "paired":
        return f"the region's pair isn't an allowed place; {where_allowed(context)}"
    return "geoRedundancy is forbidden in the settings"


def azure_place_of(resource: Resource, context: Context, _generation: int = 0) -> str | None:
    """The location of a resource in its one spelling; None where it can't be seen."""
    given = resource.get("location")
    for known in (given, resource.outputs.get("location")):
        if text(known):
            return normalise_azure(known)
    if _generation >= _GENERATIONS:
        return None
    if is_unknown(given):
        return _one(refers_to(resource, "location", given, context), context, _generation)
    if resource.kind not in LOCATED:
        return _one(_parents(resource, context), context, _generation)
    default = resource.provider.properties.get("location") if resource.provider else None
    if text(default):
        return normalise_azure(default)
    return (
        None if is_unknown(default) else _one(groups_of(resource, context), context, _generation)
    )


def _one(found: list[Resource], context: Context, generation: int) -> str | None:
    """The place of what was found: a place that isn't allowed, where there are several."""
    places = [azure_place_of(each, context, generation + 1) for each in found]
    if not places or None in places:
        return next((each for each in places if each and each not in allowed(context)), None)
    return next((each for each in places if each not in allowed(context)), places[0])


def groups_of(resource: Resource, context: Context) -> list[Resource]:
    """The resource group of a resource, where it is in the stack."""
    found = refers_to(resource, "resourceGroupName", resource.get("resourceGroupName"), context)
    return [each for each in found if each.kind == GROUP]


def _parents(resource: Resource, context: Context) -> list[Resource]:
    """Resources of the same module that its names point to, else what its scope is."""
    module = resource.kind.rpartition(":")[0]
    for key, value in resource.properties.items():
        if key.endswith(("Name", "name")) and key != "resourceGroupName":
            found = [
                each
                for each in refers_to(resource, key, value, context)
                if each.urn != resource.urn and each.kind.rpartition(":")[0] == module
            ]
            if found:
                return found
    return []


@remembered(4)
def _by_name(stack: Stack) -> dict[str, list[Resource]]:
    """Resources by the name that they give themselves: ``workspaceName`` of a ``Workspace``."""
    found: dict[str, list[Resource]] = {}
    for each in stack.resources:
        kind = each.kind.rpartition(":")[2].lower()
        for key, value in each.properties.items():
            stem = key[:-4].lower() if key.endswith(("Name", "name")) else "-"
            own = (
                kind.endswith(stem) or stem.endswith(kind) or stem == _NAMED.get(kind, "resource")
            )
            if own and text(value):
                found.setdefault(text(value).lower(), []).append(each)
        # What a workspace is called by agents and by environments of containers.
        if customer := text(each.outputs.get("customerId")):
            found.setdefault(customer.lower(), []).append(each)
    return found


def refers_to(resource: Resource, path: str, value: Any, context: Context) -> list[Resource]:
    """The resources of the stack that a property refers to.

    Args:
        resource: whose property.
        path: of the property, as in findings.
        value: at that path: an id, a name, or an unknown, which is followed through what the
            engine knows it was made from.
        context: without its stack nothing is found.
    """
    stack = context.stack
    if stack is None:
        return []
    if is_unknown(value):
        top = re.split(r"[.\[]", path, maxsplit=1)[0]
        urns = resource.dependencies.get(top, ())
        found = [stack.by_urn[urn] for urn in urns if urn in stack.by_urn]
        # Names are also made of random values and of what other stacks say.
        return [each for each in found if each.package == "azure-native"]
    if not text(value):
        return []
    if found := _HOST.search(text(value)):
        value = found[1]
    found = [each for each in stack.called(value) if each.urn != resource.urn]
    if not found and _ARM_ID.match(text(value)):
        return _by_id(text(value), stack)
    found = found or _by_name(stack).get(text(value).lower(), [])
    found = [each for each in found if each.urn != resource.urn]
    # Children carry their parent's name too.
    return [each for each in found if each.kind in LOCATED or each.kind == GROUP] or found


def _by_id(identifier: str, stack: Stack) -> list[Resource]:
    """By the longest part of an ARM id that is a resource's, else by the names within it."""
    parts = identifier.strip("/").split("/")
    for end in range(len(parts), 3, -1):
        found = stack.called("/" + "/".join(parts[:end]))
        if end < len(parts):
            found = [each for each in found if each.kind != GROUP]
        if found:
            return found
    matched = _ARM_ID.match(identifier)
    group = (matched[2] or "").lower() if matched else ""
    for index in range(len(parts) - 1, 0, -1):
        kind = parts[index - 1].lower().rstrip("s")
        kind = _CALLED.get(kind, kind)
        above = {each.lower() for each in parts[7:index:2]}
        found = [
            each
            for each in _by_name(stack).get(parts[index].lower(), [])
            if each.kind != GROUP
            and _same_kind(kind, each)
            and text(each.get("resourceGroupName")).lower() in {group, ""}
            and _may_be_below(each, above)
        ]
        if found:
            return found
    return []


def _may_be_below(resource: Resource, above: set[str]) -> bool:
    """Whether a child's parents may be those of these names: it has them, or can't be seen to."""
    own = resource.properties.values()
    known = {text(each).lower() for each in own}
    return above <= known or any(is_unknown(each) for each in own)


def _same_kind(kind: str, resource: Resource) -> bool:
    own = resource.kind.rpartition(":")[2].lower().rstrip("s")
    return own.endswith(kind) or kind.endswith(own)


def is_trusted(value: Any, context: Context) -> bool:
    """Whether an id is of a subscription that the settings name as one's own or a friend's."""
    found = _ARM_ID.match(text(value))
    return found is not None and found[1].lower() in {
        each.lower() for each in context.settings.allowed_accounts
    }
