"""What is recorded on Azure: operations, connections, and what threatens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_false,
    is_true,
    is_unknown,
    items,
    number,
    requirement_rule,
    rule,
    scalar,
    text,
    violation,
)
from falaj.policies.reading.azure_children import children, entries
from falaj.policies.reading.types import azure

_CONTROLS: Final = ("uae-ia:T3.6.2", "iso27001:A.8.15", "iso27001:A.8.16", "nist-800-207:7",
                    "pdpl:9")  # fmt: skip
_SETTING: Final = azure("monitor:DiagnosticSetting")
_ALL: Final = frozenset(("audit", "alllogs"))
#: What must be recorded of each type: categories of which one will do; none means any category.
#: https://learn.microsoft.com/azure/azure-monitor/reference/logs-index
_RECORDED: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(azure("keyvault:Vault", "keyvault:ManagedHsm"), ("auditevent",)),
    **dict.fromkeys(
        azure("containerservice:ManagedCluster"), ("kube-audit", "kube-audit-admin")
    ),
    **dict.fromkeys(
        azure(
            "network:AzureFirewall", "network:ApplicationGateway", "network:BastionHost",
            "network:VirtualNetworkGateway", "containerregistry:Registry",
            "apimanagement:ApiManagementService",
        ),
        (),
    ),
}  # fmt: skip


@rule(
    "zero-trust-azure-diagnostics",
    "Who did what with keys, clusters, registries and gateways is recorded",
    Severity.MEDIUM,
    frozenset(_RECORDED),
    (*_CONTROLS, "cis-azure:6.1.1.4", "cis-aks:2.1.1"),
    "Add a monitor.DiagnosticSetting for the resource, with its audit logs and a destination in "
    "the country.",
)
def diagnostics(resource: Resource, view: View) -> Iterator[Finding]:
    """Nothing is recorded of a resource until a diagnostic setting says so."""
    if view.stack is None:
        yield indeterminate("", "whether its operations are recorded isn't known yet")
        return
    wanted = _RECORDED.get(resource.kind, ())
    found = children(view, resource, _SETTING, "resourceUri")
    if any(_records(each, wanted) for each in found):
        return
    if any(is_unknown(each.get("logs")) for each in found):
        yield indeterminate("", "which of its operations are recorded can't be seen")
        return
    what = f"no setting records {' or '.join(wanted)}" if wanted else "no setting records its logs"
    yield violation("", f"{what}; the default is to record nothing")


def _records(setting: Resource, wanted: tuple[str, ...]) -> bool:
    for log in items(setting.get("logs")):
        if is_false(get(log, "enabled")):
            continue
        if scalar(get(log, "categoryGroup")) in _ALL:
            return True
        category = scalar(get(log, "category"))
        if category in wanted or (not wanted and category):
            return True
    return False


_DESTINATIONS: Final = (
    "eventHubAuthorizationRuleId", "marketplacePartnerId", "serviceBusRuleId", "storageAccountId",
    "workspaceId",
)  # fmt: skip
_SUBSCRIPTION: Final = azure("monitor:SubscriptionDiagnosticSetting")


@rule(
    "zero-trust-azure-empty-diagnostics",
    "Settings that record have something to record, and a place for it",
    Severity.MEDIUM,
    _SETTING | _SUBSCRIPTION,
    _CONTROLS,
    "Switch on the logs and name a workspace or storage account.",
)
def empty_diagnostics(resource: Resource, view: View) -> Iterator[Finding]:
    """A setting may be of metrics alone, but not of logs that are all switched off."""
    logs = resource.get("logs")
    given = items(logs)
    if is_unknown(logs):
        yield indeterminate("logs", "which logs are recorded can't be seen")
    elif given and all(is_false(get(each, "enabled")) for each in given):
        yield violation("logs", "every log is switched off")
    elif given and not any(is_true(get(each, "enabled")) for each in given):
        yield indeterminate("logs", "whether any log is switched on can't be seen")
    elif not given and not items(resource.get("metrics")):
        yield violation("logs", "nothing is recorded")
    if not any(items(resource.get(each)) for each in _DESTINATIONS):
        yield violation("workspaceId", "no destination is given")


#: https://learn.microsoft.com/azure/azure-monitor/platform/activity-log-schema#categories
_ACTIVITIES: Final = ("administrative", "alert", "policy", "security")


@rule(
    "zero-trust-azure-activity-log",
    "The subscription's record holds who changed, who decided and what was found",
    Severity.MEDIUM,
    _SUBSCRIPTION,
    _CONTROLS,
    "Switch on the categories Administrative, Alert, Policy and Security.",
)
def activity_log(resource: Resource, view: View) -> Iterator[Finding]:
    """Categories that are switched off, or not named."""
    logs = resource.get("logs")
    if is_unknown(logs) or any(is_unknown(each) for each in items(logs)):
        yield indeterminate("logs", "which categories are recorded can't be seen")
        return
    on: set[str] = set()
    for _, each in entries(logs, "logs"):
        enabled, name = get(each, "enabled"), get(each, "category")
        if is_unknown(enabled) or is_unknown(name):
            yield indeterminate("logs", "which categories are recorded can't be seen")
            return
        if is_true(enabled):
            on |= {scalar(name), scalar(get(each, "categoryGroup"))}
    missing = [each for each in _ACTIVITIES if each not in on]
    if missing and not on & _ALL:
        yield violation("logs", f"not recorded: {', '.join(missing)}")


_NETWORK: Final = azure("network:VirtualNetwork")
_GROUP: Final = azure("network:NetworkSecurityGroup")
_FLOW_LOG: Final = azure("network:FlowLog")


@rule(
    "zero-trust-azure-flow-logs",
    "Connections in networks are recorded",
    Severity.MEDIUM,
    _NETWORK,
    _CONTROLS,
    "Add a network.FlowLog with the network's id as its target.",
)
def flow_logs(resource: Resource, view: View) -> Iterator[Finding]:
    """Of the network, of a part of it, or of its security groups, which is the older way:
    https://learn.microsoft.com/azure/network-watcher/vnet-flow-logs-overview."""
    if view.stack is None:
        yield indeterminate("", "whether its connections are recorded isn't known yet")
        return
    logs = [
        each
        for each in view.stack.of_kind(*sorted(_FLOW_LOG))
        if not is_false(each.get("enabled"))
    ]
    for log in logs:
        target = text(log.get("targetResourceId")).lower()
        if resource.id and (target + "/").startswith(resource.id.lower() + "/"):
            return
        made_from = view.referred(log, "targetResourceId")
        if any(each.urn == resource.urn or each.kind in _GROUP for each in made_from):
            return
    yield violation("", "no flow log records its connections, which is the default")


@rule(
    "zero-trust-azure-flow-log-off",
    "Flow logs are on, and kept for 90 days",
    Severity.MEDIUM,
    _FLOW_LOG,
    _CONTROLS,
    "Set enabled to true, and retentionPolicy.days to 90 or more, or to 0 for ever.",
)
def flow_log_off(resource: Resource, view: View) -> Iterator[Finding]:
    """Without a policy the storage account's own rules decide how long they are kept."""
    enabled = resource.get("enabled")
    if is_false(enabled):
        yield violation("enabled", "the flow log is switched off")
    elif is_unknown(enabled):
        yield indeterminate("enabled", "whether the flow log is on can't be seen")
    days = resource.get("retentionPolicy.days")
    if not is_true(resource.get("retentionPolicy.enabled")):
        return
    if is_unknown(days):
        yield indeterminate("retentionPolicy.days", "how long they are kept can't be seen")
    elif 0 < (number(days) or 0) < 90:
        yield violation("retentionPolicy.days", f"it is {number(days):g} days; at least 90")


_defender = requirement_rule(
    "zero-trust-azure-defender",
    "Plans of Defender that are declared are on",
    Severity.MEDIUM,
    {azure("security:Pricing"): (Requirement("pricingTier", ("Standard",), "Free"),)},
    ("uae-ia:T3.6.1", "iso27001:A.8.16", "nist-800-207:5"),
    "Set pricingTier to Standard.",
)

RULES: tuple[Rule, ...] = (
    diagnostics,
    empty_diagnostics,
    activity_log,
    flow_logs,
    flow_log_off,
    _defender,
)
