"""The outputs that every resource has."""

from __future__ import annotations

from typing import Any

from falaj.sandbox.clouds.azure import invented, known, places
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.shape import shape


def common(kind: Kind, ask: Ask) -> dict[str, Any]:
    """The inputs, and what Resource Manager adds to each resource."""
    id = ask.id or ""
    found: dict[str, Any] = {key: value for key, value in ask.inputs.items() if value is not None}
    given = shape(ask.token)
    expected = given.outputs if given else frozenset[str]()
    always = {
        "name": arm_name(id),
        "type": kind.arm_type,
        "azureApiVersion": given.api_version if given else "",
    }
    found |= {key: value for key, value in always.items() if given is None or key in expected}
    if "location" in expected and (region := location(ask)):
        found["location"] = region
    if "provisioningState" in expected:
        found["provisioningState"] = "Succeeded"
    if "systemData" in expected:
        found["systemData"] = invented.system_data()
    for name in ("etag", "eTag"):
        if name in expected:
            found[name] = invented.etag(id)
    if "identity" in expected and isinstance(ask.at("identity"), dict):
        found["identity"] = identity(ask)
    if "resourceGuid" in expected:
        found["resourceGuid"] = invented.guid("guid", id)
    return found


def arm_name(id: str) -> str:
    """The last segment of an id."""
    return id.rstrip("/").rpartition("/")[2]


def location(ask: Ask) -> str | None:
    """The resource's region: its own, the provider's, or its resource group's."""
    if ask.region:
        return ask.region
    group = ask.text("resourceGroupName")
    if ask.world is None or group is None:
        return None
    region = known.region_of(known.group(ask.world, group))
    return places.normalise(region) if region else None


def identity(ask: Ask) -> dict[str, Any]:
    """The managed identities of a resource, with the ids that Entra would give them."""
    found = ask.mapping("identity")
    kind = ask.text("identity.type") or ""
    if "systemassigned" in kind.lower():
        found["principalId"] = invented.guid("principal", ask.id or "")
        found["tenantId"] = invented.TENANT
    names = ask.names("identity.userAssignedIdentities")
    if names:
        found["userAssignedIdentities"] = {
            item: {
                "principalId": invented.guid("principal", item),
                "clientId": invented.guid("client", item),
            }
            for item in names
        }
    return found
