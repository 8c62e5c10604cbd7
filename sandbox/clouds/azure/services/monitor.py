"""Microsoft.Insights: diagnostic settings, alerts, and scaling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.sandbox.clouds.azure import arm, checks, known, naming, places
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.services import compute
from falaj.sandbox.clouds.model import Problem

SETTING: Final = "azure-native:monitor:DiagnosticSetting"
_DESTINATIONS: Final = {
    "workspaceId": "Microsoft.OperationalInsights/workspaces",
    "storageAccountId": "Microsoft.Storage/storageAccounts",
    "eventHubAuthorizationRuleId": "Microsoft.EventHub/namespaces/authorizationRules",
    "marketplacePartnerId": "",
    "serviceBusRuleId": "",
}
_DURATION: Final = re.compile(r"P(?=.)(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?")
_EMAIL: Final = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
# Source: azure-monitor/essentials/activity-log-schema (categories).
_ACTIVITY: Final = (
    "Administrative",
    "Security",
    "ServiceHealth",
    "Alert",
    "Recommendation",
    "Policy",
    "Autoscale",
    "ResourceHealth",
)


def _setting_problems(ask: Ask) -> Iterator[Problem]:
    yield from _destinations(ask)
    if ask.is_absent("logs[0]") and ask.is_absent("metrics[0]"):
        yield Problem("logs", "is missing: name at least one category of logs or metrics")
    for name in ("logs", "metrics"):
        for path, _ in ask.items(name):
            days = ask.number(f"{path}.retentionPolicy.days")
            if days and ask.flag(f"{path}.retentionPolicy.enabled"):
                # Source: azure-monitor/essentials/migrate-to-azure-storage-lifecycle-policy.
                yield Problem(
                    f"{path}.retentionPolicy",
                    "isn't taken any more; keep logs by the workspace's retention or the "
                    "account's lifecycle",
                )
    if ask.is_given("logAnalyticsDestinationType") and ask.is_absent("workspaceId"):
        yield Problem("logAnalyticsDestinationType", "goes with a workspaceId only")


def _destinations(ask: Ask) -> Iterator[Problem]:
    if all(ask.is_absent(name) for name in _DESTINATIONS):
        yield Problem(
            "workspaceId",
            "is missing: name where the logs go (a workspace, a storage account or an event hub)",
        )
    for name, kind in _DESTINATIONS.items():
        if kind:
            yield from checks.resource_id(name, ask.text(name), kind)
    for path, _ in ask.items("logs"):
        names = [f"{path}.{part}" for part in ("category", "categoryGroup")]
        if all(map(ask.is_absent, names)) or all(map(ask.is_given, names)):
            yield Problem(path, "must name either a category or a categoryGroup")


def _setting_conflicts(ask: Ask) -> Iterator[Problem]:
    if ask.world is None or ask.id is None:
        return
    target = ask.id.lower().split("/providers/microsoft.insights/diagnosticsettings/")[0]
    others = [
        made
        for made in ask.world.all(SETTING)
        if not arm.same(made.id, ask.id)
        and made.id.lower().split("/providers/microsoft.insights/diagnosticsettings/")[0] == target
    ]
    # Source: azure-monitor/essentials/diagnostic-settings (up to five for each resource).
    if len(others) >= 5:
        yield Problem("resourceUri", "has five settings already, which is the most")
    for made in others:
        for name in ("workspaceId", "storageAccountId"):
            mine, theirs = ask.text(name), made.inputs.get(name)
            if (
                mine
                and isinstance(theirs, str)
                and arm.same(mine, theirs)
                and (_categories(ask) & _categories(Ask(SETTING, made.inputs, {})))
            ):
                yield Problem(
                    name,
                    f"{made.id.rpartition('/')[2]!r} sends the same category there "
                    "already; leave it out of one of them",
                )
    resource = known.by_id(ask.world, target)
    yield from compute.same_region(ask, "storageAccountId", known.region_of(resource))


def _categories(ask: Ask) -> set[str]:
    found: set[str] = set()
    for name in ("logs", "metrics"):
        for path, _ in ask.items(name):
            category = ask.text(f"{path}.category") or ask.text(f"{path}.categoryGroup")
            if category and ask.at(f"{path}.enabled") is not False:
                found.add(category)
    return found


def _activity_problems(ask: Ask) -> Iterator[Problem]:
    yield from _destinations(ask)
    yield from checks.needs(ask, "logs[0]", "name at least one category")
    for path, _ in ask.items("logs"):
        yield from checks.one_of(f"{path}.category", ask.text(f"{path}.category"), _ACTIVITY)


def _action_group_problems(ask: Ask) -> Iterator[Problem]:
    name = ask.text("groupShortName")
    if name and len(name) > 12:
        yield Problem(
            "groupShortName", f"{name!r} has {len(name)} characters; at most 12 are allowed"
        )
    region = ask.region
    # Source: azure-monitor/alerts/action-groups (regional processing).
    allowed = (
        places.GLOBAL,
        "swedencentral",
        "germanywestcentral",
        "northcentralus",
        "southcentralus",
        "eastus2",
        "southindia",
        "australiaeast",
        "southeastasia",
    )
    if region is not None and places.is_known(region) and region not in allowed:
        yield Problem(
            "location",
            f"{region} has no action groups; it is 'global' or one of {', '.join(allowed[1:])}",
        )
    names: set[str] = set()
    for kind in ("emailReceivers", "webhookReceivers", "smsReceivers", "armRoleReceivers"):
        for path, _ in ask.items(kind):
            receiver = ask.text(f"{path}.name")
            if receiver in names:
                yield Problem(
                    f"{path}.name", f"{receiver!r} is used twice; give each receiver its own name"
                )
            names.add(receiver or "")
    for path, _ in ask.items("emailReceivers"):
        text = ask.text(f"{path}.emailAddress")
        if text and not _EMAIL.fullmatch(text):
            yield Problem(f"{path}.emailAddress", f"{text!r} isn't an e-mail address")


def _autoscale_problems(ask: Ask) -> Iterator[Problem]:
    profiles = ask.items("profiles")
    if isinstance(ask.at("profiles"), list) and not 1 <= len(profiles) <= 20:
        yield Problem("profiles", f"{len(profiles)} are given; allowed are 1 to 20")
    yield from checks.needs(ask, "targetResourceUri", "name what is to be scaled")
    for path, _ in profiles:
        counts = {
            part: _count(ask, f"{path}.capacity.{part}")
            for part in ("minimum", "default", "maximum")
        }
        for part, count in counts.items():
            if ask.text(f"{path}.capacity.{part}") and count is None:
                yield Problem(
                    f"{path}.capacity.{part}", "isn't a whole number in quotes, such as '2'"
                )
        low, middle, high = counts["minimum"], counts["default"], counts["maximum"]
        if low is not None and high is not None and low > high:
            yield Problem(f"{path}.capacity.maximum", f"{high} is less than the minimum {low}")
        elif None not in (low, middle, high) and not (low or 0) <= (middle or 0) <= (high or 0):
            yield Problem(f"{path}.capacity.default", f"{middle} isn't between {low} and {high}")
        rules = ask.items(f"{path}.rules")
        if len(rules) > 10:
            yield Problem(f"{path}.rules", f"{len(rules)} are given; at most 10 are allowed")
        for rule, _ in rules:
            for name in (
                "metricTrigger.timeGrain",
                "metricTrigger.timeWindow",
                "scaleAction.cooldown",
            ):
                text = ask.text(f"{rule}.{name}")
                if text and not _DURATION.fullmatch(text):
                    yield Problem(f"{rule}.{name}", f"{text!r} isn't a duration such as PT5M")
            yield from checks.resource_id(
                f"{rule}.metricTrigger.metricResourceUri",
                ask.text(f"{rule}.metricTrigger.metricResourceUri"),
            )


def _count(ask: Ask, path: str) -> int | None:
    text = ask.text(path)
    return int(text) if text and re.fullmatch(r"\d{1,6}", text) else None


def _activity_alert_problems(ask: Ask) -> Iterator[Problem]:
    if ask.is_absent("condition.allOf[0]"):
        yield Problem("condition.allOf", "is missing: one condition must name the category")
    fields = {ask.text(f"{path}.field") for path, _ in ask.items("condition.allOf")}
    if ask.items("condition.allOf") and None not in fields and "category" not in fields:
        yield Problem(
            "condition.allOf", "names no category; one condition must be of the field 'category'"
        )
    for path, text in ask.texts("scopes"):
        yield from checks.resource_id(path, text)
    for path, _ in ask.items("actions.actionGroups"):
        yield from checks.resource_id(
            f"{path}.actionGroupId",
            ask.text(f"{path}.actionGroupId"),
            "Microsoft.Insights/actionGroups",
        )


_INSIGHTS: Final = "Microsoft.Insights"
_DIAGNOSTICS: Final = f"{_INSIGHTS}/diagnosticSettings/{{name}}"


KINDS: Final = (
    Kind(
        SETTING,
        f"{{resourceUri}}/providers/{_DIAGNOSTICS}",
        name=naming.FREE,
        problems=_setting_problems,
        conflicts=_setting_conflicts,
    ),
    Kind(
        "azure-native:monitor:SubscriptionDiagnosticSetting",
        f"/subscriptions/{{subscriptionId}}/providers/{_DIAGNOSTICS}",
        name=naming.FREE,
        problems=_activity_problems,
    ),
    Kind(
        "azure-native:monitor:ActionGroup",
        f"{_INSIGHTS}/actionGroups/{{actionGroupName}}",
        name=naming.FREE,
        location="any",
        problems=_action_group_problems,
    ),
    Kind(
        "azure-native:monitor:AutoscaleSetting",
        f"{_INSIGHTS}/autoscaleSettings/{{autoscaleSettingName}}",
        name=naming.FREE,
        replaces=frozenset({"targetResourceUri"}),
        problems=_autoscale_problems,
    ),
    Kind(
        "azure-native:monitor:ActivityLogAlert",
        f"{_INSIGHTS}/activityLogAlerts/{{activityLogAlertName}}",
        name=naming.FREE,
        location="any",
        problems=_activity_alert_problems,
    ),
    Kind(
        "azure-native:monitor:MetricAlert",
        f"{_INSIGHTS}/metricAlerts/{{ruleName}}",
        name=naming.FREE,
        location="global",
    ),
    Kind(
        "azure-native:monitor:ScheduledQueryRule",
        f"{_INSIGHTS}/scheduledQueryRules/{{ruleName}}",
        name=naming.FREE,
    ),
    Kind(
        "azure-native:monitor:PrivateLinkScope",
        f"{_INSIGHTS}/privateLinkScopes/{{scopeName}}",
        name=naming.FREE,
        location="global",
        is_held_by_children=True,
    ),
    Kind(
        "azure-native:monitor:PrivateLinkScopedResource",
        f"{_INSIGHTS}/privateLinkScopes/{{scopeName}}/scopedResources/{{name}}",
        name=naming.FREE,
    ),
)
