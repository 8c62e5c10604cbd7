"""A component that refused its arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from falaj.components.specification.argument_errors import InvalidArgumentsError

#: Checks a component's arguments by its name.
Check: TypeAlias = Callable[[str, Mapping[str, Any]], object]


@dataclass(frozen=True)
class Refused:
    """A component that refused its arguments."""

    component: str
    """Its class."""
    name: str
    args: Mapping[str, Any]
    check: Check
    error: InvalidArgumentsError
