"""The outputs that every resource has."""

from __future__ import annotations

from typing import Any

from falaj.sandbox.clouds.azure import existing, generated, places
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.shape import shape
from falaj.sandbox.clouds.inputs import Inputs, Resource


def common(kind: AzureKind, resource: Resource) -> dict[str, Any]:
    """The inputs, and what Resource Manager adds to each resource."""
    id = resource.id
    found: dict[str, Any] = {
        key: value for key, value in resource.values.items() if value is not None
    }
    given = shape(resource.token)
    expected = given.outputs if given else frozenset[str]()
    always = {
        "name": arm_name(id),
        "type": kind.arm_type,
        "azureApiVersion": given.api_version if given else "",
    }
    found |= {key: value for key, value in always.items() if given is None or key in expected}
    if "location" in expected and (region := location(resource)):
        found["location"] = region
    if "provisioningState" in expected:
        found["provisioningState"] = "Succeeded"
    if "systemData" in expected:
        found["systemData"] = generated.system_data()
    for name in ("etag", "eTag"):
        if name in expected:
            found[name] = generated.etag(id)
    if "identity" in expected and isinstance(resource.at("identity"), dict):
        found["identity"] = identity(resource)
    if "resourceGuid" in expected:
        found["resourceGuid"] = generated.guid("guid", id)
    return found


def arm_name(id: str) -> str:
    """The last segment of an id."""
    return id.rstrip("/").rpartition("/")[2]


def location(resource: Resource) -> str | None:
    """The resource's region: its own, the provider's, or its resource group's."""
    if places.region(resource):
        return places.region(resource)
    group = resource.optional_string("resourceGroupName")
    if group is None:
        return None
    region = existing.region_of(existing.group(resource.world, group))
    return places.normalise(region) if region else None


def identity(resource: Resource) -> dict[str, Any]:
    """The managed identities of a resource, with the ids that Entra would give them."""
    found = resource.mapping("identity")
    kind = resource.optional_string("identity.type") or ""
    if "systemassigned" in kind.lower():
        found["principalId"] = generated.guid("principal", resource.id)
        found["tenantId"] = generated.TENANT
    names = identity_names(resource)
    if names:
        found["userAssignedIdentities"] = {
            item: {
                "principalId": generated.guid("principal", item),
                "clientId": generated.guid("client", item),
            }
            for item in names
        }
    return found


def identity_names(inputs: Inputs) -> list[str]:
    """The ids of its user-assigned identities: the SDK writes them as a list or as keys."""
    path = "identity.userAssignedIdentities"
    return inputs.keys(path) or [text for _, text in inputs.strings(path)]
