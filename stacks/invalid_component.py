"""A component whose arguments are invalid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from falaj.components.specification.argument_errors import InvalidArgumentsError

#: Checks a component's arguments by its name.
Check: TypeAlias = Callable[[str, Mapping[str, Any]], object]


@dataclass(frozen=True)
class InvalidComponent:
    """A component whose arguments are invalid."""

    component: str
    """Its class."""
    name: str
    args: Mapping[str, Any]
    check: Check
    error: InvalidArgumentsError
