"""Logs: kept as long as somebody decided, no shorter than evidence is needed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    number,
    rule,
    violation,
)
from falaj.policies.reading.types import azure

_LOG_GROUP: Final = "aws:cloudwatch/logGroup:LogGroup"
_WORKSPACE: Final = azure("operationalinsights:Workspace")
#: How long a workspace keeps logs by default:
#: https://learn.microsoft.com/azure/azure-monitor/logs/data-retention-configure
_WORKSPACE_DAYS: Final = 30
#: What CIS' benchmarks ask of logs of activity at the least.
LEAST_DAYS: Final = 90


@rule(
    "governance-log-retention",
    "Somebody decided how long logs are kept",
    Severity.LOW,
    _WORKSPACE | {_LOG_GROUP},
    (
        "uae-ia:T3.6.2",
        "uae-ia:T3.6.3",
        "iso27001:A.5.33",
        "iso27001:A.8.10",
        "iso27001:A.8.15",
        "pdpl:5",
    ),
    "Set retentionInDays: neither for ever, which no purpose justifies, nor too short to "
    "investigate; 90 days in a workspace at the least.",
)
def log_retention(resource: Resource, view: View) -> Iterator[Finding]:
    """Groups of CloudWatch keep for ever by default, and for 0; workspaces for 30 days."""
    path = "retentionInDays"
    value = resource.get(path)
    days = number(value)
    if is_unknown(value):
        yield indeterminate(path, "how long logs are kept can't be seen")
    elif resource.kind == _LOG_GROUP:
        if resource.get("logGroupClass") == "DELIVERY":
            return  # its retention is fixed
        if value is ABSENT or not days or days < 0:
            given = "isn't given" if value is ABSENT else "is 0"
            yield violation(path, f"it {given}, so that logs are kept for ever")
    elif value is ABSENT:
        reason = f"it isn't given, and the default is {_WORKSPACE_DAYS} days; "
        yield violation(path, f"{reason}{LEAST_DAYS} days at least")
    elif days is None or days < LEAST_DAYS:
        yield violation(path, f"logs are kept {days or 0:g} days; {LEAST_DAYS} days at least")


RULES: tuple[Rule, ...] = (log_retention,)
