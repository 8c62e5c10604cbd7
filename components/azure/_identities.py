"""What is known of an identity by its id."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import managedidentity

from falaj.components.azure._ids import resource_id

_IDENTITY = "Microsoft.ManagedIdentity/userAssignedIdentities"


def client_id(
    identity_id: pulumi.Input[str], opts: pulumi.InvokeOutputOptions
) -> pulumi.Output[str]:
    """The client id of a user-assigned identity, which some services ask for instead of its id."""
    identity = pulumi.Output.from_input(identity_id).apply(
        lambda text: resource_id(text, _IDENTITY)
    )
    return managedidentity.get_user_assigned_identity_output(
        resource_group_name=identity.apply(lambda found: found.group),
        resource_name=identity.apply(lambda found: found.name),
        opts=opts,
    ).client_id
