"""Arguments of `Budget`."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NotRequired, cast

from falaj.components.specification.described import described
from falaj.components.specification.emails import checked_emails
from falaj.components.specification.limits import Between, TextRule
from falaj.components.specification.placed import Placed, PlacedArgs, check_placed
from falaj.components.specification.refusals import Refusals

#: Azure takes five alerts, one of which is the forecast's; AWS ten: https://learn.microsoft.com/
#: azure/cost-management-billing/costs/tutorial-acm-create-budgets
MOST_THRESHOLDS = 4
_DEFAULT_PERCENT = (50, 80, 100)
MONTHLY_USD = Between(1, 1_000_000_000)
PERCENT = Between(1, 1000)
MONTH = TextRule(r"^20\d\d-(?:0[1-9]|1[0-2])$", "a month: year, '-' and two digits", "2026-11")


@described
class BudgetArgs(PlacedArgs):
    """Arguments of `Budget`."""

    monthly_usd: float
    """Limit for a month in US dollars."""
    emails: list[str]
    """Who is told, one to ten addresses."""
    alert_percent: NotRequired[list[int]]
    """Shares of the limit at which they are told. One to four, 1 to 1000. Default: 50,
    80, 100; and when the forecast passes 100."""
    start: NotRequired[str]
    """First month, ``2026-11``. Default: the month in which it is made, and kept after that."""


@dataclass(frozen=True)
class BudgetSpec:
    """The plain arguments of `Budget`, checked."""

    placed: Placed
    monthly_usd: float
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
    refusals = Refusals(f"Budget {name!r}")
    given: Mapping[str, Any] = args
    refusals.names(given, BudgetArgs)
    placed = check_placed(cloud, given, refusals)
    limit = _limit(given.get("monthly_usd"), refusals)
    emails = checked_emails("emails", given.get("emails", []), refusals, least=1)
    percent = _percent(given.get("alert_percent"), refusals)
    start = given.get("start")
    if start is not None:
        refusals.form("start", start, MONTH)
    refusals.raise_if_any()
    if placed is None:
        raise AssertionError("what can't be used was refused")
    return BudgetSpec(placed, limit, emails, percent, start)


def _limit(value: object, refusals: Refusals) -> float:
    if MONTHLY_USD.allows(value):
        return round(float(cast("float", value)), 2)
    if value is not None:
        refusals.add("monthly_usd", value, MONTHLY_USD, "US dollars")
    return 1.0


def _percent(value: object, refusals: Refusals) -> tuple[int, ...]:
    if value is None:
        return _DEFAULT_PERCENT
    if not isinstance(value, list | tuple):
        refusals.add("alert_percent", value, "a list of whole numbers such as [50, 80, 100]")
        return ()
    items = cast("list[object]", value)
    found = [
        refusals.within(f"alert_percent[{position}]", item, PERCENT)
        for position, item in enumerate(items)
    ]
    if not 1 <= len(found) <= MOST_THRESHOLDS or len(set(found)) != len(found):
        refusals.add("alert_percent", items, f"1 to {MOST_THRESHOLDS} numbers, each only once")
    return tuple(sorted(found))
