"""Azure's companions: resources that say, by a name or an id, whose they are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from falaj.policies.model import Context, Resource, is_list, is_unknown, items, leaves, text

#: Properties that hold a resource's own name, as the resource and its children spell it.
_NAMES = (
    "accountName", "azureFirewallName", "clusterName", "hostingEnvironmentName",
    "managedInstanceName", "name", "namespaceName", "networkSecurityGroupName",
    "publicIpAddressName", "registryName", "resourceName", "routeTableName", "serverName",
    "sqlPoolName", "subnetName", "vaultName", "virtualNetworkName", "workspaceName",
)  # fmt: skip


def names(resource: Resource) -> set[str]:
    """What others may call it, in small letters: its id and its own name."""
    found = {resource.id, *(text(resource.get(key)) for key in _NAMES)}
    found |= {text(resource.outputs.get(key)) for key in ("id", "name")}
    return {each.lower() for each in found if each}


def children(
    context: Context, parent: Resource, kinds: frozenset[str], path: str
) -> list[Resource]:
    """Resources of these types whose property at `path` is the parent's name or id, or was made
    from it; empty while the stack isn't known."""
    if context.stack is None:
        return []
    own = names(parent)
    return [
        each
        for each in context.stack.of_kind(*sorted(kinds))
        if text(each.get(path)).lower() in own or _is_made_from(context, each, path, parent)
    ]


def _is_made_from(context: Context, child: Resource, path: str, parent: Resource) -> bool:
    return any(each.urn == parent.urn for each in context.referred(child, path))


def mentions(context: Context, user: Resource, path: str, target: Resource) -> bool:
    """Whether anything below a top-level property is a resource's id, or was made from it."""
    if target.id and any(
        text(value).lower() == target.id.lower() for value in _texts(user.properties.get(path))
    ):
        return True
    held = user.properties.get(path)
    hidden = any(is_unknown(value) for _, value in leaves(held))
    return hidden and target.urn in user.dependencies.get(path, ())


def _texts(value: Any) -> Iterator[Any]:
    for _, each in leaves(value):
        yield each


def entries(value: Any, path: str) -> list[tuple[str, Any]]:
    """The items of a list with their paths; a single one as the list of itself."""
    if is_list(value):
        return [(f"{path}[{index}]", each) for index, each in enumerate(value)]
    return [(path, each) for each in items(value)]
