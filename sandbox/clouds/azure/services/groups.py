"""Microsoft.Resources: resource groups."""

from __future__ import annotations

from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, invented, naming
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind


def _outputs(ask: Ask) -> dict[str, Any]:
    del ask
    return {
        "type": "Microsoft.Resources/resourceGroups",
        "properties": {"provisioningState": "Succeeded"},
    }


def _resource_outputs(ask: Ask) -> dict[str, Any]:
    """What a resource of any type answers; keys of a managed HSM are made by it."""
    reference = arm.parse(ask.id or "")
    given = ask.at("properties")
    found: dict[str, Any] = {"type": reference.type if reference else ""}
    if reference and reference.type.lower() == "microsoft.keyvault/managedhsms/keys":
        uri = f"https://{reference.names[0].lower()}.managedhsm.azure.net/keys/{reference.name}"
        version = invented.digest(32, "version", reference.id)
        found["properties"] = {
            **(given if isinstance(given, dict) else {}),
            "keyUri": uri,
            "keyUriWithVersion": f"{uri}/{version}",
        }
    return found


KINDS: Final = (
    Kind(
        "azure-native:resources:Resource",
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}/providers/"
        "{resourceProviderNamespace}/{parentResourcePath}/{resourceType}/{resourceName}",
        location="any",
        outputs=_resource_outputs,
    ),
    Kind(
        "azure-native:resources:ResourceGroup",
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}",
        name=naming.GROUP,
        autoname="random",
        outputs=_outputs,
    ),
)
