"""What each component stands in: a resource group of its own, kept where its data are kept."""

from __future__ import annotations

import pulumi
import pulumi_azure_native as azure_native

from falaj.components.specification.names import physical_name
from falaj.components.specification.placed import Placed

#: Longest name of a resource group:
#: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
_LIMIT = 90


def kept(opts: pulumi.ResourceOptions, retained: bool) -> pulumi.ResourceOptions:
    """Options of a resource with data: protected in the stack and retained in the cloud.

    Args:
        opts: the options of the component's other resources.
        retained: whether data outlive a mistake (`Placed.retained`).
    """
    return pulumi.ResourceOptions.merge(
        opts, pulumi.ResourceOptions(protect=retained, retain_on_delete=retained)
    )


def resource_group(
    name: str, placed: Placed, opts: pulumi.ResourceOptions, *, stateful: bool = False
) -> azure_native.resources.ResourceGroup:
    """The resource group ``<tenant>-<stack>-<name>`` of a component.

    Args:
        name: the component's name.
        placed: its place and owner.
        opts: options of its resources.
        stateful: whether it holds data. To delete a group deletes all that is in it, so such a
            group is kept like the data.
    """
    return azure_native.resources.ResourceGroup(
        f"{name}-group",
        resource_group_name=physical_name(placed.tenant, pulumi.get_stack(), name, limit=_LIMIT),
        location=placed.region,
        tags=placed.tags(name),
        opts=kept(opts, placed.retained) if stateful else opts,
    )
