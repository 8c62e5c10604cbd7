"""Leaves out names of resources' types under which nothing of ours was ever made."""

from __future__ import annotations

import re

import pulumi

#: A type with its API version in the name: ``azure-native:network/v20240501:Subnet``.
_DATED = re.compile(r"^azure-native:[a-z0-9]+/v[0-9]{8}[a-z]*:")


def of_component(opts: pulumi.ResourceOptions | None) -> pulumi.ResourceOptions:
    """Options of a component whose resources go without aliases of dated types.

    The SDK gives each resource an alias for every API version that its type ever had, up to
    seventy; the engine looks for all of them, and the SDK spends most of a program's time on them.
    They serve programs that changed from a dated type to the plain one. Components have used plain
    types from the start. Aliases of modules that were renamed stay, and those that were given.
    """
    own = pulumi.ResourceOptions(transformations=[_without_dated])
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
