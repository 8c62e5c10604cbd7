"""Names that the whole of Azure shares: of vaults, storage accounts and registries."""

from __future__ import annotations

import re

import pulumi

from components.specification.names import unique_name
from components.specification.placed import Placed

#: https://learn.microsoft.com/azure/azure-resource-manager/management/resource-name-rules
_DASHED = 24
_LIMITS = {"storage": 24, "registry": 50}


def dashed(placed: Placed, *parts: str) -> str:
    """Name of a vault or hardware module: up to 24 letters, digits and single dashes."""
    whole = unique_name(placed.tenant, pulumi.get_stack(), *parts, limit=_DASHED)
    return re.sub("-+", "-", whole)


def compact(placed: Placed, kind: str, *parts: str) -> str:
    """Name of a ``storage`` account or ``registry``: small letters and digits only."""
    limit = _LIMITS[kind]
    return unique_name(placed.tenant, pulumi.get_stack(), *parts, limit=limit, separator="")
