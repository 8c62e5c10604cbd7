"""Numbers that may have a fraction."""

import math

from falaj.components.specification.refusals import Refusals


def number(argument: str, value: object, low: float, high: float, refusals: Refusals) -> float:
    """A number between two limits; ``low`` where it was refused."""
    if (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
        and low <= value <= high
    ):
        return float(value)
    refusals.add(argument, value, f"a number from {low:g} to {high:g}")
    return low


def shown(value: float) -> str:
    """A number as a manifest writes it: without a fraction where it has none."""
    return f"{value:g}" if value < 1e6 else str(round(value))
