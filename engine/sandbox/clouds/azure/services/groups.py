"""Microsoft.Resources: resource groups."""

from __future__ import annotations

from typing import Any, Final

from engine.sandbox.clouds.azure import naming
from engine.sandbox.clouds.azure.ask import Ask
from engine.sandbox.clouds.azure.kind import Kind


def _outputs(ask: Ask) -> dict[str, Any]:
    del ask
    return {
        "type": "Microsoft.Resources/resourceGroups",
        "properties": {"provisioningState": "Succeeded"},
    }


KINDS: Final = (
    Kind(
        "azure-native:resources:ResourceGroup",
        "/subscriptions/{subscriptionId}/resourceGroups/{resourceGroupName}",
        name=naming.GROUP,
        autoname="random",
        outputs=_outputs,
    ),
)
