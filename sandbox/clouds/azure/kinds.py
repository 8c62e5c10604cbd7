"""How Azure names and places one type of resource, as a row of a table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from falaj.sandbox.clouds.azure.naming import NameRule
from falaj.sandbox.clouds.kinds import ResourceKind

_PLACE: Final = re.compile(r"\{(\w+)\}")
_NO_INPUT: Final = frozenset({"subscriptionId", "unnamed"})
"""Parts of a path that no input gives; `unnamed` is a name that Azure itself makes."""


@dataclass(frozen=True)
class AzureKind(ResourceKind):
    """One type of Azure; it is replaced by changes of its path and location as well."""

    token: str
    """Such as ``azure-native:keyvault:Vault``."""
    path: str
    """The path below the resource group, with inputs in braces; whole when it starts with
    ``/subscriptions`` or ``{scope}``."""
    name: NameRule | None = None
    """What the service allows as the last name of the path."""
    autoname: Literal["random", "copy", "uuid"] | None = None
    """How a missing name is made: by the vendor's rule for the path when None."""
    is_global_name: bool = False
    """Whether no two resources in all of Azure may bear the same name."""
    location: Literal["region", "global", "any"] = "region"
    """Where the service lets such a resource be, if it has a location at all."""
    max_tags: int = 50
    """Tags that a resource may carry (Resource Manager's own limit is 50)."""
    inline: tuple[str, str] | None = None
    """Where a parent can declare such children itself: its list and their key."""
    is_held_by_references: bool = False
    """Whether it can't be deleted while another resource refers to it."""
    is_held_by_children: bool = False
    """Whether it can't be deleted while resources stand below it."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The inputs that the path is made of, in its order."""
        return tuple(name for name in _PLACE.findall(self.path) if name not in _NO_INPUT)

    @property
    def own_name(self) -> str | None:
        """The input that names the resource; None when the path ends in a fixed name."""
        last = self.path.rpartition("{")[2]
        return last[:-1] if last.endswith("}") and last[:-1] not in _NO_INPUT else None

    @property
    def is_in_group(self) -> bool:
        """Whether it stands in a resource group."""
        return not self.path.startswith(("/", "{"))

    @property
    def arm_type(self) -> str:
        """The type's name in Resource Manager, such as ``Microsoft.KeyVault/vaults``; empty for
        resource groups, whose ids name no type."""
        _, marker, below = self.path.rpartition("providers/")
        if not marker and not self.is_in_group:
            return ""
        segments = below.split("/")
        return "/".join([segments[0], *segments[1::2]])
