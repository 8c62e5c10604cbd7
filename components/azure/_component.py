"""What the Azure components share: names, resource groups and the options of what they make."""

from __future__ import annotations

import re
from typing import Final

import pulumi
import pulumi_azure_native as azure_native

from falaj.components.azure._waiting import waiting
from falaj.components.specification.names import physical_name, unique_name
from falaj.components.specification.placed import Placed
from falaj.components.specification.queries import asked_once

#: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
_PLAIN = 50
_DASHED = 24
_LIMITS = {"storage": 24, "registry": 50}


_CLIENT: Final = "azure-native:authorization:getClientConfig"


def client_of(
    parent: pulumi.Resource,
) -> pulumi.Output[azure_native.authorization.GetClientConfigResult]:
    """Subscription, tenant and principal that the parent's provider deploys with."""
    opts = pulumi.InvokeOutputOptions(parent=parent)
    return asked_once(
        parent, _CLIENT, lambda: azure_native.authorization.get_client_config_output(opts=opts)
    )


def titled(placed: Placed, *parts: str) -> str:
    """Name of what is in a resource group: tenant, stack and parts.

    Up to 50 letters, digits and dashes: every kind of resource takes that, and has room for what
    follows from its name (a private endpoint has 64 and adds nine of its own).
    """
    return physical_name(placed.tenant, pulumi.get_stack(), *parts, limit=_PLAIN)


def dashed(placed: Placed, *parts: str) -> str:
    """Name of a vault or hardware module: up to 24 letters, digits and single dashes."""
    whole = unique_name(placed.tenant, pulumi.get_stack(), *parts, limit=_DASHED)
    return re.sub("-+", "-", whole)


def compact(placed: Placed, kind: str, *parts: str) -> str:
    """Name of a ``storage`` account or ``registry``: small letters and digits only."""
    limit = _LIMITS[kind]
    return unique_name(placed.tenant, pulumi.get_stack(), *parts, limit=limit, separator="")


#: Longest name of a resource group:
#: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
_GROUP_LIMIT = 90


def kept(opts: pulumi.ResourceOptions, retained: bool) -> pulumi.ResourceOptions:
    """Options of a resource with data: protected in the stack and retained in the cloud.

    Args:
        opts: the options of the component's other resources.
        retained: whether data outlive a mistake (`Placed.retained`).
    """
    return pulumi.ResourceOptions.merge(
        opts, pulumi.ResourceOptions(protect=retained, retain_on_delete=retained)
    )


def left_to_its_vault(opts: pulumi.ResourceOptions) -> pulumi.ResourceOptions:
    """Options of a key: it is never deleted by itself, in any environment.

    Resource Manager has no verb for that (https://github.com/Azure/azure-rest-api-specs/pull/10643),
    so that the provider goes to the vault's own address, which is closed to it. The vault takes
    its keys along when it goes.
    """
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(retain_on_delete=True))


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
        resource_group_name=physical_name(
            placed.tenant, pulumi.get_stack(), name, limit=_GROUP_LIMIT
        ),
        location=placed.region,
        tags=placed.tags(name),
        opts=kept(opts, placed.retained) if stateful else opts,
    )


#: A type with its API version in the name: ``azure-native:network/v20240501:Subnet``.
_DATED = re.compile(r"^azure-native:[a-z0-9]+/v[0-9]{8}[a-z]*:")


def component_options(opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    """Options of a component whose resources go without aliases of dated types.

    The SDK gives each resource an alias for every API version that its type ever had, up to
    seventy; the engine looks for all of them, and the SDK spends most of a program's time on them.
    They serve programs that changed from a dated type to the plain one. Components have used plain
    types from the start. Aliases of modules that were renamed stay, and those that were given.

    What relies on roles waits for them (`waiting`).
    """
    own = pulumi.ResourceOptions(transformations=[_without_dated, waiting])
    return pulumi.ResourceOptions.merge(opts, own)


def _without_dated(
    args: pulumi.ResourceTransformationArgs,
) -> pulumi.ResourceTransformationResult | None:
    if not args.opts.aliases:
        return None
    args.opts.aliases = [each for each in args.opts.aliases if not _is_dated(each)]
    return pulumi.ResourceTransformationResult(args.props, args.opts)


def _is_dated(alias: pulumi.Input[pulumi.Alias | str]) -> bool:
    kind: object = alias.type_ if isinstance(alias, pulumi.Alias) else None
    return isinstance(kind, str) and _DATED.match(kind) is not None
