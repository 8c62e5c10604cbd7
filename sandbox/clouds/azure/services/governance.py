"""Budgets (Microsoft.Consumption, Microsoft.CostManagement) and Defender's plans."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, naming
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.model import Problem

_BUDGET: Final = naming.NameRule(
    1, 63, r"[-A-Za-z0-9_]+", "letters, digits, underscores and hyphens"
)
# Source: Microsoft Defender for Cloud REST API (pricings): names of plans.
_PLANS: Final = (
    "Api", "AppServices", "Arm", "CloudPosture", "Containers", "CosmosDbs", "Dns", "KeyVaults",
    "OpenSourceRelationalDatabases", "SqlServers", "SqlServerVirtualMachines", "StorageAccounts",
    "VirtualMachines", "AI", "Discovery", "FoundationalCspm",
)  # fmt: skip


def _day(text: str) -> date | None:
    try:
        return datetime.fromisoformat(text).date()
    except ValueError:
        return None


def _budget_problems(ask: Ask) -> Iterator[Problem]:
    amount = ask.number("amount")
    if amount is not None and amount <= 0:
        yield Problem("amount", f"{amount:g} isn't allowed; a budget is more than 0")
    given = {name: ask.text(f"timePeriod.{name}") for name in ("startDate", "endDate")}
    days = {name: _day(text) if text else None for name, text in given.items()}
    for name, text in given.items():
        if text and days[name] is None:
            yield Problem(
                f"timePeriod.{name}", f"{text!r} isn't a date such as 2026-12-01T00:00:00Z"
            )
    start, end = days["startDate"], days["endDate"]
    # Source: rest/api/consumption/budgets: the first of a month, from June 2017 on.
    if start is not None and start.day != 1:
        yield Problem(
            "timePeriod.startDate",
            f"{start} isn't the first day of a month; choose {start.replace(day=1)}",
        )
    if start is not None and start < date(2017, 6, 1):
        yield Problem("timePeriod.startDate", f"{start} is before June 2017")
    if start is not None and end is not None and end <= start:
        yield Problem("timePeriod.endDate", f"{end} isn't after the start {start}")
    if len(ask.keys("notifications")) > 5:
        yield Problem(
            "notifications", f"{len(ask.keys('notifications'))} are given; at most 5 are allowed"
        )
    for key in ask.keys("notifications"):
        yield from _notification(ask, key)


def _notification(ask: Ask, key: str) -> Iterator[Problem]:
    notifications = ask.at("notifications")
    inner = notifications.get(key)
    where = f"notifications.{key}"
    if not isinstance(inner, dict):
        return
    one = Ask(ask.token, inner, ask.config)
    share = one.number("threshold")
    if share is not None and not 0 < share <= 1000:
        yield Problem(
            f"{where}.threshold",
            f"{share:g} isn't allowed; allowed is a share of more than 0 to 1000 percent",
        )
    people = ("contactEmails", "contactRoles", "contactGroups")
    if all(one.is_absent(f"{name}[0]") for name in people):
        yield Problem(
            f"{where}.contactEmails",
            "is missing: name whom to tell, by mail, role or action group",
        )
    if len(one.items("contactEmails")) > 50:
        yield Problem(f"{where}.contactEmails", "names more than 50, which is the most")
    for path, text in one.texts("contactEmails"):
        if "@" not in text:
            yield Problem(f"{where}.{path}", f"{text!r} isn't an e-mail address")
    for path, text in one.texts("contactGroups"):
        for problem in checks.resource_id(path, text, "Microsoft.Insights/actionGroups"):
            yield Problem(f"{where}.{problem.path}", problem.reason)


def _pricing_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.one_of("pricingName", ask.text("pricingName"), _PLANS)
    if ask.is_given("subPlan") and ask.text("pricingTier") == "Free":
        yield Problem("subPlan", "goes with pricingTier Standard only")


def _budget_outputs(ask: Ask) -> dict[str, Any]:
    del ask
    return {"currentSpend": {"amount": 0, "unit": "USD"}}


def _pricing_outputs(ask: Ask) -> dict[str, Any]:
    del ask
    return {"freeTrialRemainingTime": "PT0S", "deprecated": False, "inherited": "False"}


KINDS: Final = (
    Kind(
        "azure-native:security:SecurityContact",
        "/subscriptions/{subscriptionId}/providers/Microsoft.Security/securityContacts/"
        "{securityContactName}",
        name=naming.only("default"),
        is_always_there=True,
    ),
    Kind(
        "azure-native:consumption:Budget",
        "{scope}/providers/Microsoft.Consumption/budgets/{budgetName}",
        name=_BUDGET,
        replaces=frozenset({"timeGrain", "timePeriod.startDate"}),
        problems=_budget_problems,
        outputs=_budget_outputs,
    ),
    Kind(
        "azure-native:costmanagement:Budget",
        "{scope}/providers/Microsoft.CostManagement/budgets/{budgetName}",
        name=_BUDGET,
        replaces=frozenset({"timeGrain", "timePeriod.startDate"}),
        problems=_budget_problems,
        outputs=_budget_outputs,
    ),
    Kind(
        "azure-native:security:Pricing",
        "{scopeId}/providers/Microsoft.Security/pricings/{pricingName}",
        is_always_there=True,
        problems=_pricing_problems,
        outputs=_pricing_outputs,
    ),
)
