"""All types that the model knows exactly, found by token or by Resource Manager's type."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from falaj.sandbox.clouds.azure.kinds import AzureKind

_by_token: Final[dict[str, AzureKind]] = {}
_by_type: Final[dict[str, list[AzureKind]]] = {}


def add(kinds: Iterable[AzureKind]) -> None:
    """Take rows into the table.

    Raises:
        ValueError: a token is there already.
    """
    for kind in kinds:
        if kind.token in _by_token:
            raise ValueError(f"the table has {kind.token} already")
        _by_token[kind.token] = kind
        _by_type.setdefault(kind.arm_type.lower(), []).append(kind)


def kind(token: str) -> AzureKind | None:
    """The row of a token; None when the model has none."""
    return _by_token.get(token)


def of_type(arm_type: str) -> tuple[AzureKind, ...]:
    """The rows of a type such as ``Microsoft.Network/virtualNetworks``, in any letter case."""
    return tuple(_by_type.get(arm_type.lower(), ()))


def all_kinds() -> tuple[AzureKind, ...]:
    """Every row."""
    return tuple(_by_token.values())
