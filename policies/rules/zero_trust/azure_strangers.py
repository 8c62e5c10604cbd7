"""Strangers on Azure: other tenants that administer, and anybody who may connect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Resource,
    Rule,
    Severity,
    View,
    indeterminate,
    is_unknown,
    rule,
    text,
    violation,
)
from falaj.policies.reading.azure_children import entries
from falaj.policies.reading.types import azure


@rule(
    "zero-trust-azure-private-link-visibility",
    "Private link services are for named subscriptions",
    Severity.HIGH,
    azure("network:PrivateLinkService"),
    ("uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:6"),
    "Name the subscriptions in visibility and autoApproval.",
)
def private_link_visibility(resource: Resource, view: View) -> Iterator[Finding]:
    """``*`` lets every customer of Azure find the service, or connect without being asked:
    https://learn.microsoft.com/azure/private-link/private-link-service-overview."""
    for key in ("visibility.subscriptions", "autoApproval.subscriptions"):
        for where, each in entries(resource.get(key), key):
            if is_unknown(each):
                yield indeterminate(where, "whom the service is for can't be seen")
            elif text(each) == "*":
                yield violation(where, "every subscription of every customer is let in")


_MANAGED: Final = azure("managedservices:RegistrationDefinition")


@rule(
    "zero-trust-azure-foreign-administration",
    "No other tenant administers this one",
    Severity.HIGH,
    _MANAGED,
    ("uae-ia:T5.2.2", "iso27001:A.5.19", "iso27001:A.8.2", "nist-800-207:6"),
    "Delete the definition, or name the tenant in allowedAccounts where a contract binds it.",
)
def foreign_administration(resource: Resource, view: View) -> Iterator[Finding]:
    """Azure Lighthouse gives roles to people of another tenant, who sign in there:
    https://learn.microsoft.com/azure/lighthouse/concepts/architecture."""
    path = "properties.managedByTenantId"
    tenant = resource.get(path)
    allowed = {each.lower() for each in view.settings.allowed_accounts}
    if is_unknown(tenant):
        yield indeterminate(path, "which tenant may administer this one can't be seen")
    elif text(tenant).lower() not in allowed:
        yield violation(path, f"tenant {text(tenant) or 'not given'} may administer this one")


RULES: tuple[Rule, ...] = (private_link_visibility, foreign_administration)
