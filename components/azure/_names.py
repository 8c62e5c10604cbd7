"""Names of resources in Azure: inside a group, and those that the whole of Azure shares."""

from __future__ import annotations

import re

import pulumi

from falaj.components.specification.names import physical_name, unique_name
from falaj.components.specification.placed import Placed

#: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
_PLAIN = 50
_DASHED = 24
_LIMITS = {"storage": 24, "registry": 50}


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
