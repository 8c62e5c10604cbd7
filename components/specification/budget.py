"""Arguments of `Budget`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

from annotated_types import Len

from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import EMAIL, MOST_EMAILS, Between, TextRule
from falaj.components.specification.placed import Placed, PlacedArgs, check_placed

#: Azure takes five alerts, one of which is the forecast's; AWS ten: https://learn.microsoft.com/
#: azure/cost-management-billing/costs/tutorial-acm-create-budgets
MOST_THRESHOLDS = 4
MONTHLY_USD = Between(1, 1_000_000_000, unit="US dollars")
PERCENT = Between(1, 1000)
MONTH = TextRule(r"^20\d\d-(?:0[1-9]|1[0-2])$", "a month: year, '-' and two digits", "2026-11")


@described
class BudgetArgs(PlacedArgs):
    """Arguments of `Budget`."""

    monthly_usd: Annotated[float, MONTHLY_USD]
    """Limit for a month in US dollars."""
    emails: Annotated[list[Annotated[str, EMAIL]], Len(1, MOST_EMAILS)]
    """Who is told."""
    alert_percent: NotRequired[
        Annotated[list[Annotated[int, PERCENT]], Len(1, MOST_THRESHOLDS), Default((50, 80, 100))]
    ]
    """Shares of the limit in percent at which they are told; and they are when the forecast passes
    100."""
    start: NotRequired[Annotated[str, MONTH]]
    """First month, ``2026-11``. Default: the month in which it is made, and kept after that."""


@dataclass(frozen=True, kw_only=True)
class BudgetSpec:
    """The plain arguments of `Budget`, checked."""

    placed: Placed
    monthly_usd: Annotated[float, MONTHLY_USD]
    emails: tuple[str, ...]
    alert_percent: tuple[int, ...]
    start: str | None


def check(cloud: str, name: str, args: BudgetArgs) -> BudgetSpec:
    """Check what is plain in the arguments of `Budget`.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"Budget {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, BudgetArgs, cloud)
    placed = check_placed(cloud, given, errors)
    percent: tuple[int, ...] = checked["alert_percent"]
    if len(set(percent)) != len(percent):
        errors.add("alert_percent", list(percent), "numbers, each only once")
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return BudgetSpec(
        placed=placed,
        monthly_usd=round(float(checked["monthly_usd"]), 2),
        emails=checked["emails"],
        alert_percent=tuple(sorted(percent)),
        start=checked["start"],
    )
