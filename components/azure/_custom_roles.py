"""Roles of our own: exactly the operations that a duty needs, never all of anything."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pulumi
import pulumi_azure_native as azure_native

from falaj.components.specification.names import physical_name
from falaj.components.specification.placed import Placed

#: Longest name of a role:
#: https://learn.microsoft.com/azure/role-based-access-control/custom-roles
_LIMIT = 128
#: Ids of roles follow from their names, so that every run makes the same; any fixed UUID serves.
_NAMESPACE = uuid.UUID("6f3f8a52-6c0e-4d0b-9c58-0f6d0c5f3b11")


@dataclass(frozen=True)
class Permissions:
    """Operations that a role allows."""

    description: str
    actions: tuple[str, ...] = ()
    """On resources themselves."""
    data_actions: tuple[str, ...] = field(default=())
    """On what resources hold."""

    def __post_init__(self) -> None:
        """Raises ValueError for a role that allows everything."""
        for operation in (*self.actions, *self.data_actions):
            if operation.strip() in ("*", "*/*", "*/write", "*/delete", "*/action"):
                raise ValueError(
                    f"{operation!r} allows everything; allowed: operations of single resource "
                    "types, and '*/read' for auditors; name what the duty needs"
                )


def define_role(
    name: str,
    placed: Placed,
    permissions: Permissions,
    scope: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> azure_native.authorization.RoleDefinition:
    """Define a role that can be assigned inside ``scope`` only.

    Args:
        name: in the program; with tenant and stack the role's name in Entra.
        placed: the component's place and owner.
        permissions: what it allows.
        scope: id of a resource group or subscription.
        opts: options of the component's resources.
    """
    title = physical_name(placed.tenant, pulumi.get_stack(), name, limit=_LIMIT)
    return azure_native.authorization.RoleDefinition(
        name,
        role_definition_id=str(uuid.uuid5(_NAMESPACE, title)),
        role_name=title,
        role_type="CustomRole",
        description=permissions.description,
        scope=scope,
        assignable_scopes=[scope],
        permissions=[
            azure_native.authorization.PermissionArgs(
                actions=list(permissions.actions),
                data_actions=list(permissions.data_actions),
                not_actions=[],
                not_data_actions=[],
            )
        ],
        # Names of roles are unique in a tenant: a new one can't stand beside the old.
        opts=pulumi.ResourceOptions.merge(
            opts, pulumi.ResourceOptions(delete_before_replace=True)
        ),
    )
