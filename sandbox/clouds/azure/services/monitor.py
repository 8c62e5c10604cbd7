"""Microsoft.Insights: diagnostic settings, alerts, and scaling."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from falaj.sandbox.clouds.azure import arm, checks, existing, links, naming, places
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import absent, all_of, given, one_of, refused, required, sized

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


def _setting_problems(inputs: Inputs) -> Iterator[Problem]:
    for name in ("logs", "metrics"):
        for path, _ in inputs.items(name):
            days = inputs.number(f"{path}.retentionPolicy.days")
            if days and inputs.flag(f"{path}.retentionPolicy.enabled"):
                # Source: azure-monitor/essentials/migrate-to-azure-storage-lifecycle-policy.
                yield Problem(
                    f"{path}.retentionPolicy",
                    "isn't taken any more; keep logs by the workspace's retention or the "
                    "account's lifecycle",
                )


def _destinations(inputs: Inputs) -> Iterator[Problem]:
    if all(inputs.is_absent(name) for name in _DESTINATIONS):
        yield Problem(
            "workspaceId",
            "is missing: name where the logs go (a workspace, a storage account or an event hub)",
        )
    for name, kind in _DESTINATIONS.items():
        if kind:
            yield from checks.resource_id(name, inputs.optional_string(name), kind)
    for path, _ in inputs.items("logs"):
        names = [f"{path}.{part}" for part in ("category", "categoryGroup")]
        if all(map(inputs.is_absent, names)) or all(map(inputs.is_given, names)):
            yield Problem(path, "must name either a category or a categoryGroup")


def _setting_conflicts(resource: Resource) -> Iterator[Problem]:
    target = resource.id.lower().split("/providers/microsoft.insights/diagnosticsettings/")[0]
    others = [
        made
        for made in resource.world.all(SETTING)
        if not arm.same(made.id, resource.id)
        and made.id.lower().split("/providers/microsoft.insights/diagnosticsettings/")[0] == target
    ]
    # Source: azure-monitor/essentials/diagnostic-settings (up to five for each resource).
    if len(others) >= 5:
        yield Problem("resourceUri", "has five settings already, which is the most")
    for made in others:
        for name in ("workspaceId", "storageAccountId"):
            mine, theirs = resource.optional_string(name), made.inputs.get(name)
            if (
                mine
                and isinstance(theirs, str)
                and arm.same(mine, theirs)
                and (_categories(resource) & _categories(Inputs(made.inputs)))
            ):
                yield Problem(
                    name,
                    f"{made.id.rpartition('/')[2]!r} sends the same category there "
                    "already; leave it out of one of them",
                )
    watched = existing.by_id(resource.world, target)
    yield from links.same_region(resource, "storageAccountId", existing.region_of(watched))


def _categories(inputs: Inputs) -> set[str]:
    found: set[str] = set()
    for name in ("logs", "metrics"):
        for path, _ in inputs.items(name):
            category = inputs.optional_string(f"{path}.category") or inputs.optional_string(
                f"{path}.categoryGroup"
            )
            if category and inputs.at(f"{path}.enabled") is not False:
                found.add(category)
    return found


def _action_group_problems(inputs: Inputs) -> Iterator[Problem]:
    region = places.region(inputs)
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
        for path, _ in inputs.items(kind):
            receiver = inputs.optional_string(f"{path}.name")
            if receiver in names:
                yield Problem(
                    f"{path}.name", f"{receiver!r} is used twice; give each receiver its own name"
                )
            names.add(receiver or "")
    for path, _ in inputs.items("emailReceivers"):
        text = inputs.optional_string(f"{path}.emailAddress")
        if text and not _EMAIL.fullmatch(text):
            yield Problem(f"{path}.emailAddress", f"{text!r} isn't an e-mail address")


def _autoscale_problems(inputs: Inputs) -> Iterator[Problem]:
    profiles = inputs.items("profiles")
    if isinstance(inputs.at("profiles"), list) and not 1 <= len(profiles) <= 20:
        yield Problem("profiles", f"{len(profiles)} are given; allowed are 1 to 20")
    for path, _ in profiles:
        counts = {
            part: _count(inputs, f"{path}.capacity.{part}")
            for part in ("minimum", "default", "maximum")
        }
        for part, count in counts.items():
            if inputs.optional_string(f"{path}.capacity.{part}") and count is None:
                yield Problem(
                    f"{path}.capacity.{part}", "isn't a whole number in quotes, such as '2'"
                )
        low, middle, high = counts["minimum"], counts["default"], counts["maximum"]
        if low is not None and high is not None and low > high:
            yield Problem(f"{path}.capacity.maximum", f"{high} is less than the minimum {low}")
        elif None not in (low, middle, high) and not (low or 0) <= (middle or 0) <= (high or 0):
            yield Problem(f"{path}.capacity.default", f"{middle} isn't between {low} and {high}")
        rules = inputs.items(f"{path}.rules")
        if len(rules) > 10:
            yield Problem(f"{path}.rules", f"{len(rules)} are given; at most 10 are allowed")
        for rule, _ in rules:
            for name in (
                "metricTrigger.timeGrain",
                "metricTrigger.timeWindow",
                "scaleAction.cooldown",
            ):
                text = inputs.optional_string(f"{rule}.{name}")
                if text and not _DURATION.fullmatch(text):
                    yield Problem(f"{rule}.{name}", f"{text!r} isn't a duration such as PT5M")
            yield from checks.resource_id(
                f"{rule}.metricTrigger.metricResourceUri",
                inputs.optional_string(f"{rule}.metricTrigger.metricResourceUri"),
            )


def _count(inputs: Inputs, path: str) -> int | None:
    text = inputs.optional_string(path)
    return int(text) if text and re.fullmatch(r"\d{1,6}", text) else None


def _activity_alert_problems(inputs: Inputs) -> Iterator[Problem]:
    fields = {
        inputs.optional_string(f"{path}.field") for path, _ in inputs.items("condition.allOf")
    }
    if inputs.items("condition.allOf") and None not in fields and "category" not in fields:
        yield Problem(
            "condition.allOf", "names no category; one condition must be of the field 'category'"
        )


_INSIGHTS: Final = "Microsoft.Insights"
_DIAGNOSTICS: Final = f"{_INSIGHTS}/diagnosticSettings/{{name}}"


KINDS: Final = (
    AzureKind(
        SETTING,
        f"{{resourceUri}}/providers/{_DIAGNOSTICS}",
        name=naming.FREE,
        rules=(
            _destinations,
            refused(
                "logs", "is missing: name at least one category of logs or metrics",
                absent("logs[0]", "metrics[0]"),
            ),
            refused(
                "logAnalyticsDestinationType", "goes with a workspaceId only",
                all_of(given("logAnalyticsDestinationType"), absent("workspaceId")),
            ),
            _setting_problems,
        ),
        crosschecks=(_setting_conflicts,),
    ),
    AzureKind(
        "azure-native:monitor:SubscriptionDiagnosticSetting",
        f"/subscriptions/{{subscriptionId}}/providers/{_DIAGNOSTICS}",
        name=naming.FREE,
        rules=(
            _destinations,
            required("logs[0]", "name at least one category"),
            one_of("logs[].category", _ACTIVITY),
        ),
    ),
    AzureKind(
        "azure-native:monitor:ActionGroup",
        f"{_INSIGHTS}/actionGroups/{{actionGroupName}}",
        name=naming.FREE,
        location="any",
        rules=(sized("groupShortName", 0, 12, "characters"), _action_group_problems),
    ),
    AzureKind(
        "azure-native:monitor:AutoscaleSetting",
        f"{_INSIGHTS}/autoscaleSettings/{{autoscaleSettingName}}",
        name=naming.FREE,
        replaces=("targetResourceUri",),
        rules=(required("targetResourceUri", "name what is to be scaled"), _autoscale_problems),
    ),
    AzureKind(
        "azure-native:monitor:ActivityLogAlert",
        f"{_INSIGHTS}/activityLogAlerts/{{activityLogAlertName}}",
        name=naming.FREE,
        location="any",
        rules=(
            refused(
                "condition.allOf", "is missing: one condition must name the category",
                absent("condition.allOf[0]"),
            ),
            _activity_alert_problems,
        ),
        references=(
            links.to("scopes[]"),
            links.to("actions.actionGroups[].actionGroupId", "Microsoft.Insights/actionGroups"),
        ),
    ),
    AzureKind(
        "azure-native:monitor:MetricAlert",
        f"{_INSIGHTS}/metricAlerts/{{ruleName}}",
        name=naming.FREE,
        location="global",
    ),
    AzureKind(
        "azure-native:monitor:ScheduledQueryRule",
        f"{_INSIGHTS}/scheduledQueryRules/{{ruleName}}",
        name=naming.FREE,
    ),
    AzureKind(
        "azure-native:monitor:PrivateLinkScope",
        f"{_INSIGHTS}/privateLinkScopes/{{scopeName}}",
        name=naming.FREE,
        location="global",
        is_held_by_children=True,
    ),
    AzureKind(
        "azure-native:monitor:PrivateLinkScopedResource",
        f"{_INSIGHTS}/privateLinkScopes/{{scopeName}}/scopedResources/{{name}}",
        name=naming.FREE,
    ),
)  # fmt: skip
