"""What differs between a resource and what is wanted of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

ChangeKind: TypeAlias = Literal["add", "delete", "update"]


@dataclass(frozen=True)
class PropertyChange:
    """One property that differs."""

    path: str
    kind: ChangeKind
    replaces: bool
    """Whether it takes a new resource."""
    is_input: bool = True
    """Whether an input changed, as opposed to an output that was found to differ."""
