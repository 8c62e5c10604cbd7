"""Microsoft.Resources: resource groups."""

from __future__ import annotations

from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, generated, naming
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource


def _outputs(inputs: Inputs) -> dict[str, Any]:
    del inputs
    return {
        "type": "Microsoft.Resources/resourceGroups",
        "properties": {"provisioningState": "Succeeded"},
    }


def _resource_outputs(resource: Resource) -> dict[str, Any]:
    """What a resource of any type answers; keys of a managed HSM are made by it."""
    reference = arm.parse(resource.id)
    given = resource.at("properties")
    found: dict[str, Any] = {"type": reference.type if reference else ""}
    if reference and reference.type.lower() == "microsoft.keyvault/managedhsms/keys":
        uri = f"https://{reference.names[0].lower()}.managedhsm.azure.net/keys/{reference.name}"
        version = generated.digest(32, "version", reference.id)
        found["properties"] = {
            **(given if isinstance(given, dict) else {}),
            "keyUri": uri,
            "keyUriWithVersion": f"{uri}/{version}",
        }
    return found


KINDS: Final = (
    AzureKind(
        "azure-native:resources:Resource",
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/"
        "{resourceProviderNamespace}/{parentResourcePath}/{resourceType}/{resourceName}",
        location="any",
        computed=_resource_outputs,
    ),
    AzureKind(
        "azure-native:resources:ResourceGroup",
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}",
        name=naming.GROUP,
        autoname="random",
        computed=_outputs,
    ),
)  # fmt: skip
