"""Collects what is wrong with a component's arguments, and refuses all of it at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi


class Refusals:
    """Problems of one component, by argument."""

    def __init__(self, component: str) -> None:
        """``component`` is its class and name, as ``Network 'core'``."""
        self._component = component
        self._found: list[tuple[str, str]] = []

    def add(self, argument: str, given: object, allowed: str, hint: str = "") -> None:
        """A value that isn't allowed; ``hint`` says what to change."""
        self.say(argument, f"given {given!r}; allowed: {allowed}" + (f"; {hint}" if hint else ""))

    def say(self, argument: str, reason: str) -> None:
        """A problem in words of its own: what was wrong, what is allowed, what to change."""
        self._found.append((argument, reason))

    def text(self, args: Mapping[str, Any], argument: str) -> str:
        """A required plain text; empty where it was refused."""
        value = args.get(argument)
        if isinstance(value, str) and value.strip():
            return value.strip()
        if isinstance(value, pulumi.Output):
            self.say(
                argument, "is an output; it has to be a plain value, known before anything runs"
            )
        elif value is None:
            self.say(argument, "missing")
        else:
            self.add(argument, value, "text that is not empty")
        return ""

    def choice(self, argument: str, value: object, allowed: Sequence[str]) -> None:
        """Refuse a value that is none of ``allowed``."""
        if value not in allowed:
            self.add(argument, value, ", ".join(allowed))

    def whole(self, argument: str, value: object, low: int, high: int) -> int:
        """A whole number between two limits; ``low`` where it was refused.

        Numbers from programs in other languages arrive as floats: a whole one is taken.
        """
        if (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and float(value).is_integer()
            and low <= value <= high
        ):
            return int(value)
        self.add(argument, value, f"a whole number from {low} to {high}")
        return low

    def raise_if_any(self) -> None:
        """Refuse the component if something was wrong.

        Raises:
            pulumi.InputPropertiesError: with the argument and the reason of each problem.
        """
        if not self._found:
            return
        listed = "\n".join(f"  {argument}: {reason}" for argument, reason in self._found)
        raise pulumi.InputPropertiesError(
            f"{self._component} was refused:\n{listed}",
            [{"property_path": argument, "reason": reason} for argument, reason in self._found],
        )
