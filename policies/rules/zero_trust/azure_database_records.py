"""What Azure's databases record, and who hears of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from falaj.policies.model import (
    ABSENT,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    number,
    requirement_rule,
    rule,
    scalar,
    violation,
)
from falaj.policies.reading.azure_children import children
from falaj.policies.reading.types import azure

_CONTROLS: Final = ("uae-ia:T3.6.2", "iso27001:A.8.15", "iso27001:A.8.16", "nist-800-207:7",
                    "pdpl:9")  # fmt: skip
_SERVER: Final = azure("sql:Server")
_AUDITING: Final = azure("sql:ExtendedServerBlobAuditingPolicy", "sql:ServerBlobAuditingPolicy")
_OF_DATABASES: Final = azure(
    "sql:DatabaseBlobAuditingPolicy", "sql:ExtendedDatabaseBlobAuditingPolicy"
)
#: What CIS' benchmark asks for.
LEAST_DAYS: Final = 90


@rule(
    "zero-trust-azure-sql-auditing",
    "SQL servers record who asked what",
    Severity.MEDIUM,
    _SERVER,
    _CONTROLS,
    "Add a sql.ExtendedServerBlobAuditingPolicy with state Enabled for the server.",
)
def sql_auditing(resource: Resource, view: View) -> Iterator[Finding]:
    """Off by default: https://learn.microsoft.com/azure/azure-sql/database/auditing-overview."""
    if view.stack is None:
        yield indeterminate("", "whether the server is audited isn't known yet")
        return
    found = children(view, resource, _AUDITING, "serverName")
    if not found:
        yield violation("", "no policy audits the server, which is the default")


_policies = requirement_rule(
    "zero-trust-azure-sql-auditing-off",
    "Policies that audit SQL are on",
    Severity.MEDIUM,
    {
        _AUDITING | _OF_DATABASES: (Requirement("state", ("Enabled",), "Disabled"),),
        azure("sql:ServerSecurityAlertPolicy", "sql:DatabaseSecurityAlertPolicy"): (
            Requirement("state", ("Enabled",), "Disabled"),
        ),
    },
    _CONTROLS,
    "Set state to Enabled.",
)


@rule(
    "zero-trust-azure-sql-auditing-days",
    "Records of SQL are kept for 90 days",
    Severity.LOW,
    _AUDITING | _OF_DATABASES,
    _CONTROLS,
    "Set retentionDays to 90 or more, or to 0 for ever.",
)
def sql_auditing_days(resource: Resource, view: View) -> Iterator[Finding]:
    """0, which is the default, keeps them until somebody deletes them."""
    days = resource.get("retentionDays")
    if is_unknown(days):
        yield indeterminate("retentionDays", "how long records are kept can't be seen")
    elif 0 < (number(days) or 0) < LEAST_DAYS:
        yield violation("retentionDays", f"it is {number(days):g} days; at least {LEAST_DAYS}")


_CONFIGURATION: Final = azure(
    "dbforpostgresql:Configuration", "dbforpostgresql:SingleServerConfiguration",
    "dbformysql:Configuration", "dbformysql:SingleServerConfiguration",
)  # fmt: skip
#: Parameters that record, or slow down who guesses passwords.
_ON: Final = frozenset(
    (
        "audit_log_enabled", "connection_throttle.enable", "connection_throttling",
        "log_checkpoints", "log_connections", "log_disconnections", "log_duration",
    )
)  # fmt: skip


@rule(
    "zero-trust-azure-database-logs-off",
    "Databases record connections",
    Severity.LOW,
    _CONFIGURATION,
    _CONTROLS,
    "Set the parameter to on.",
)
def database_logs_off(resource: Resource, view: View) -> Iterator[Finding]:
    """Parameters of PostgreSQL and MySQL that are switched off."""
    value = resource.get("value")
    name = scalar(resource.get("configurationName")) or resource.name.lower()
    if name not in _ON:
        return
    if is_unknown(value):
        yield indeterminate("value", f"whether {name} is on can't be seen")
    elif scalar(value) in {"off", "false", "0"}:
        yield violation("value", f"{name} is switched off")


_CONTACT: Final = azure("security:SecurityContact")


@rule(
    "zero-trust-azure-security-contact",
    "Somebody hears of it when Defender finds something",
    Severity.LOW,
    _CONTACT,
    ("uae-ia:T3.6.1", "iso27001:A.8.16", "nist-800-207:7", "pdpl:9"),
    "Switch notifications on, with people's addresses.",
)
def security_contact(resource: Resource, view: View) -> Iterator[Finding]:
    """Switches of today's contacts and of older ones, which are objects or texts."""
    switches = [
        (path, resource.get(f"{path}.state") if isinstance(value, Mapping) else value)
        for path in ("isEnabled", "notificationsByRole", "alertNotifications", "alertsToAdmins")
        if (value := resource.get(path)) is not ABSENT
    ]
    for path, value in switches:
        if is_unknown(value):
            yield indeterminate(path, "whether anybody is told can't be seen")
        elif scalar(value) in {"false", "off"}:
            yield violation(path, f"it is {scalar(value)}, so that nobody is told")


RULES: tuple[Rule, ...] = (
    sql_auditing,
    _policies,
    sql_auditing_days,
    database_logs_off,
    security_contact,
)
