"""What exists, asked in Resource Manager's terms.

Ids count in any letter case, and so do children that a parent declared in its own list, and what
Azure makes by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, table
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.model import Made, World

PACKAGE: Final = "azure-native:"

# Made by Azure itself: the network watcher of each region (network-watcher-create), the group of
# an AKS cluster's machines, the default groups of its monitors and those of managed environments.
_AUTOMATIC_GROUPS: Final = re.compile(
    r"NetworkWatcherRG|MC_.+|ME_.+|DefaultResourceGroup-.+", re.IGNORECASE
)
# Parts that come with their parent, whether or not a resource sets them.
_WITH_PARENT: Final = frozenset(
    {
        "microsoft.storage/storageaccounts/blobservices",
        "microsoft.storage/storageaccounts/fileservices",
        "microsoft.operationalinsights/workspaces/tables",
    }
)
# Types that everybody has, with built-in members beside those that are made.
_BUILT_IN: Final = frozenset(
    {
        "microsoft.authorization/roledefinitions",
        "microsoft.authorization/policydefinitions",
        "microsoft.authorization/policysetdefinitions",
        "microsoft.network/networkwatchers",
        "microsoft.insights/components",
        "microsoft.compute/images",
    }
)


def of_type(world: World, arm_type: str) -> Iterator[Made]:
    """All resources of a type of Resource Manager, by whichever token they were made."""
    for kind in table.of_type(arm_type):
        yield from world.all(kind.token)


def azure(world: World) -> Iterator[Made]:
    """Everything in the sandbox that is Azure's."""
    for made in world.all():
        if made.token.startswith(PACKAGE):
            yield made


def by_id(world: World, id: str) -> Made | None:
    """The resource with that id, in any letter case; None when none was made."""
    reference = arm.parse(id)
    kinds = table.of_type(reference.type) if reference else ()
    for kind in kinds:
        found = world.by_id(kind.token, id)
        if found:
            return found
    candidates = (
        (made for kind in kinds for made in world.all(kind.token)) if kinds else azure(world)
    )
    return next((made for made in candidates if arm.same(made.id, id)), None)


def group(world: World, name: str) -> Made | None:
    """The resource group of that name; None when there is none."""
    return by_id(world, arm.group_id(name))


def inline(world: World, id: str) -> Any:
    """What a parent declared under that id in its own list; None when it didn't."""
    reference = arm.parse(id)
    if reference is None or reference.parent is None:
        return None
    parent = by_id(world, reference.parent)
    for kind in table.of_type(reference.type) if parent else ():
        if parent is None or kind.inline is None:
            continue
        items = parent.inputs.get(kind.inline[0])
        for item in items if isinstance(items, list | tuple) else ():
            name = item.get(kind.inline[1]) if isinstance(item, dict) else None
            if isinstance(name, str) and name.lower() == reference.name.lower():
                return item
    return None


def exists(world: World, id: str) -> bool:
    """Whether the id means something that was made, or that Azure makes by itself."""
    reference = arm.parse(id)
    if reference is None or not reference.is_made_up:
        return True
    if reference.type == "":
        return reference.group is None or has_group(world, reference.group)
    if reference.type.lower() in _BUILT_IN or _is_automatic(reference.group):
        return True
    if by_id(world, id) or inline(world, id) is not None:
        return True
    # A part without a type of its own (a load balancer's address pool) stands with its parent.
    is_part = not table.of_type(reference.type) or reference.type.lower() in _WITH_PARENT
    return is_part and reference.parent is not None and exists(world, reference.parent)


def has_group(world: World, name: str) -> bool:
    """Whether the resource group exists, or is one that Azure makes by itself."""
    if _is_automatic(name) or group(world, name):
        return True
    return any(
        str(made.inputs.get("nodeResourceGroup", "")).lower() == name.lower()
        for made in world.all("azure-native:containerservice:ManagedCluster")
    )


def references(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every resource id among the values, with its path."""
    if isinstance(value, str):
        if arm.parse(value):
            yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            # The keys of a map of user-assigned identities are ids too.
            if isinstance(key, str) and arm.parse(key):
                yield path, key
            yield from references(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from references(item, f"{path}[{index}]")


def region_of(made: Made | None) -> str | None:
    """The region of what was made; None when it has none."""
    location = made.outputs.get("location") if made else None
    return location if isinstance(location, str) else None


def kind_of(made: Made) -> AzureKind | None:
    """The row of the table for what was made."""
    return table.kind(made.token)


def _is_automatic(group: str | None) -> bool:
    return group is not None and _AUTOMATIC_GROUPS.fullmatch(group) is not None
