"""Types of Azure: how each is named and placed, the table of all, and the data shipped as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from falaj.sandbox.clouds.kinds import ResourceKind
from falaj.sandbox.clouds.model import Problem


@dataclass(frozen=True)
class NameRule:
    """The length and the characters of a name."""

    shortest: int
    longest: int
    pattern: str
    """The whole name must match it."""
    text: str
    """The characters, in words."""

    def check(self, path: str, name: str) -> Iterator[Problem]:
        """A problem when the service would refuse the name."""
        fits = self.shortest <= len(name) <= self.longest
        if fits and re.fullmatch(self.pattern, name):
            return
        length = (
            f"{self.shortest} to {self.longest} characters"
            if self.longest > self.shortest
            else f"{self.longest} characters"
        )
        yield Problem(
            path,
            f"the name {name!r} ({len(name)} characters) isn't allowed; allowed are {length}, "
            f"{self.text}; choose another name",
        )


def only(name: str) -> NameRule:
    """The rule of a resource that can bear one name."""
    return NameRule(len(name), len(name), re.escape(name), f"only {name!r}")


GROUP: Final = NameRule(
    1,
    90,
    r"[-\w._()]*[-\w_()]",
    "letters, digits, underscores, hyphens, periods and parentheses, not ending in a period",
)
NETWORK: Final = NameRule(
    1,
    80,
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9_])?",
    "letters, digits, underscores, periods and hyphens, starting with a letter or digit and "
    "ending with a letter, digit or underscore",
)
VIRTUAL_NETWORK: Final = NameRule(2, 64, NETWORK.pattern, NETWORK.text)
VAULT: Final = NameRule(
    3,
    24,
    r"[A-Za-z](?:-?[A-Za-z0-9])*",
    "letters, digits and single hyphens, starting with a letter and ending with a letter or digit",
)
VAULT_ITEM: Final = NameRule(1, 127, r"[-A-Za-z0-9]+", "letters, digits and hyphens")
STORAGE_ACCOUNT: Final = NameRule(3, 24, r"[a-z0-9]+", "lower-case letters and digits")
CONTAINER: Final = NameRule(
    3,
    63,
    r"[a-z0-9](?:-?[a-z0-9])*",
    "lower-case letters, digits and single hyphens, starting and ending with a letter or digit",
)
REGISTRY: Final = NameRule(5, 50, r"[A-Za-z0-9]+", "letters and digits")
REGISTRY_ITEM: Final = NameRule(
    5, 50, r"[-A-Za-z0-9_]+", "letters, digits, hyphens and underscores"
)
CLUSTER: Final = NameRule(
    1,
    63,
    r"[A-Za-z0-9](?:[-A-Za-z0-9_]*[A-Za-z0-9])?",
    "letters, digits, underscores and hyphens, starting and ending with a letter or digit",
)
AGENT_POOL: Final = NameRule(
    1, 12, r"[a-z][a-z0-9]*", "lower-case letters and digits, starting with a letter"
)
IDENTITY: Final = NameRule(
    3,
    128,
    r"[A-Za-z0-9][-A-Za-z0-9_]*",
    "letters, digits, hyphens and underscores, starting with a letter or digit",
)
DISK: Final = NameRule(1, 80, r"[-A-Za-z0-9_.]+", "letters, digits, underscores and hyphens")
COMPUTE: Final = NameRule(1, 80, NETWORK.pattern, NETWORK.text)
MACHINE: Final = NameRule(
    1,
    64,
    r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9_])?",
    "letters, digits, underscores, periods and hyphens, not ending in a period or hyphen",
)
WORKSPACE: Final = NameRule(
    4,
    63,
    r"[A-Za-z0-9][-A-Za-z0-9]*[A-Za-z0-9]",
    "letters, digits and hyphens, starting and ending with a letter or digit",
)
LOCK: Final = NameRule(
    1,
    90,
    r"[-\w.()]*[-\w()]",
    "letters, digits, periods, underscores, hyphens and parentheses, not ending in a period",
)
POLICY: Final = NameRule(
    1, 128, r"[^<>*%&:?+/\\#]*[^<>*%&:?+/\\# .]", "none of <>*%&:?+/\\#, not ending in . or space"
)
FREE: Final = NameRule(
    1, 260, r"[^<>*%&:?+/\\#]*[^<>*%&:?+/\\# .]", "none of <>*%&:?+/\\#, not ending in . or space"
)
GUID: Final = NameRule(
    36,
    36,
    r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}",
    "a GUID such as 12345678-1234-1234-1234-123456789abc",
)
ZONE: Final = NameRule(
    1,
    253,
    r"(?:[A-Za-z0-9_](?:[-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?)"
    r"(?:\.[A-Za-z0-9_](?:[-A-Za-z0-9_]{0,61}[A-Za-z0-9_])?){1,33}",
    "2 to 34 labels of letters, digits, underscores and hyphens, separated by periods",
)


PLACE: Final = re.compile(r"\{(\w+)\}")
"""Where a name stands in a path, as `{vaultName}`."""
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
    takes_along: bool = False
    """Whether what stands below it goes with it."""

    @property
    def parameters(self) -> tuple[str, ...]:
        """The inputs that the path is made of, in its order."""
        return tuple(name for name in PLACE.findall(self.path) if name not in _NO_INPUT)

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


# The table: all types that the model knows exactly, by token and by Resource Manager's type.

_by_token: Final[dict[str, AzureKind]] = {}
_by_type: Final[dict[str, list[AzureKind]]] = {}


def add_kinds(kinds: Iterable[AzureKind]) -> None:
    """Take rows into the table.

    Raises:
        ValueError: a token is there already.
    """
    for kind in kinds:
        if kind.token in _by_token:
            raise ValueError(f"the table has {kind.token} already")
        _by_token[kind.token] = kind
        _by_type.setdefault(kind.arm_type.lower(), []).append(kind)


def kind_of(token: str) -> AzureKind | None:
    """The row of a token; None when the model has none."""
    return _by_token.get(token)


def kinds_of_type(arm_type: str) -> tuple[AzureKind, ...]:
    """The rows of a type such as ``Microsoft.Network/virtualNetworks``, in any letter case."""
    return tuple(_by_type.get(arm_type.lower(), ()))


def all_kinds() -> tuple[AzureKind, ...]:
    """Every row."""
    return tuple(_by_token.values())


# The tables that are shipped as JSON beside the code, each with its sources.


@cache
def load_table(name: str) -> dict[str, Any]:
    """The table of that name, such as ``quotas``."""
    text = Path(__file__).with_name(f"{name}.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found
