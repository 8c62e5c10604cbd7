"""Azure Monitor: workspaces, collection, diagnostic settings, alerts and scaling."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from falaj.components.nearest import nearest
from falaj.sandbox.clouds.azure import checks, kinds, naming, regions, relations, resources
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.resources import location
from falaj.sandbox.clouds.azure.services import key_vault
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    absent,
    all_of,
    equals,
    given,
    one_of,
    refused,
    required,
    sized,
    texts,
    when,
)
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.vendor import MADE_AT
from falaj.wire.documents import is_dictionary, is_sequence

WORKSPACE: Final = "azure-native:operationalinsights:Workspace"
CLUSTER: Final = "azure-native:operationalinsights:Cluster"
_PATH: Final = "Microsoft.OperationalInsights/workspaces/{workspaceName}"
# Source: azure-monitor/logs/cost-logs (commitment tiers), logs-dedicated-clusters (from 100).
_TIERS: Final = (100, 200, 300, 400, 500, 1000, 2000, 5000, 10000, 25000, 50000)
# Source: azure-monitor/logs/data-retention-configure: analytics 4 to 730, in all to 12 years.
_TOTAL: Final = (
    *range(4, 731), 1095, 1460, 1826, 2191, 2556, 2922, 3288, 3653, 4018, 4383,
)  # fmt: skip


def _workspace_problems(inputs: Inputs) -> Iterator[Problem]:
    sku = inputs.optional_string("sku.name")
    days = inputs.number("retentionInDays")
    if days is not None and days != -1:
        if sku == "Free" and days != 7:
            yield Problem("retentionInDays", f"{days:g} isn't allowed; Free keeps 7 days")
        elif sku != "Free" and not 30 <= days <= 730:
            yield Problem("retentionInDays", f"{days:g} isn't allowed; allowed are 30 to 730 days")
    if sku in ("Free", "Standard", "Premium", "PerNode", "Standalone"):
        yield Problem("sku.name", f"{sku} can't be chosen for new workspaces; choose PerGB2018")
    quota = inputs.number("workspaceCapping.dailyQuotaGb")
    if quota is not None and quota != -1 and quota < 0.023:
        yield Problem(
            "workspaceCapping.dailyQuotaGb",
            f"{quota:g} isn't allowed; allowed are -1 (no cap) and 0.023 GB or more",
        )


def _cluster_problems(inputs: Inputs) -> Iterator[Problem]:
    base = "keyVaultProperties"
    uri = f"{base}.keyVaultUri"
    yield from key_vault.vault_address(uri, inputs.optional_string(uri))


def _cluster_conflicts(resource: Resource) -> Iterator[Problem]:
    base = "keyVaultProperties"
    # Source: azure-monitor/logs/customer-managed-keys: same region, purge protection.
    yield from key_vault.usable(
        resource,
        f"{base}.keyVaultUri",
        resource.optional_string(f"{base}.keyVaultUri"),
        key=resource.optional_string(f"{base}.keyName"),
        region=location(resource),
    )


def _linked_problems(inputs: Inputs) -> Iterator[Problem]:
    if (inputs.optional_string("linkedServiceName") or "").lower() == "cluster":
        yield from required(
            "writeAccessResourceId", "a link to a cluster names it here, not in resourceId"
        )(inputs)


def _linked_conflicts(resource: Resource) -> Iterator[Problem]:
    target = resource.optional_string("writeAccessResourceId")
    if target is None:
        return
    workspace = resources.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    cluster = resources.by_id(resource.world, target)
    here, there = resources.region_of(workspace), resources.region_of(cluster)
    if here and there and here != there:
        yield Problem(
            "writeAccessResourceId",
            f"the cluster is in {there}, the workspace in {here}; they must be in the same region",
        )


def _table_problems(inputs: Inputs) -> Iterator[Problem]:
    kept, total = inputs.number("retentionInDays"), inputs.number("totalRetentionInDays")
    if kept is not None and kept != -1 and not 4 <= kept <= 730:
        yield Problem(
            "retentionInDays",
            f"{kept:g} isn't allowed; allowed are 4 to 730 days, or -1 for the workspace's",
        )
    if total is not None and total != -1 and total not in _TOTAL:
        yield Problem(
            "totalRetentionInDays",
            f"{total:g} isn't allowed; allowed are 4 to 730 "
            "days, or 3 to 12 years as 1095, 1460, 1826, 2191, 2556, 2922, 3288, 3653, "
            "4018, 4383",
        )
    if kept is not None and total is not None and -1 not in (kept, total) and total < kept:
        yield Problem("totalRetentionInDays", f"{total:g} is less than retentionInDays {kept:g}")
    name = inputs.optional_string("schema.name")
    if (
        name
        and inputs.optional_string("tableName")
        and name != inputs.optional_string("tableName")
    ):
        yield Problem("schema.name", f"{name!r} isn't the table's name")
    own = inputs.optional_string("tableName")
    if own and inputs.items("schema.columns") and not re.search(r"_(?:CL|RST|SRCH)$", own):
        yield Problem("tableName", f"{own!r} must end in _CL: so do own tables")


def _workspace_outputs(resource: Resource) -> dict[str, Any]:
    return {
        "customerId": naming.guid("workspace", resource.id),
        "createdDate": MADE_AT,
        "modifiedDate": MADE_AT,
        "retentionInDays": resource.number("retentionInDays") or 30,
        "sku": resource.get("sku", {"name": "PerGB2018", "lastSkuUpdate": MADE_AT}),
        "publicNetworkAccessForIngestion": resource.optional_string(
            "publicNetworkAccessForIngestion"
        )
        or "Enabled",
        "publicNetworkAccessForQuery": resource.optional_string("publicNetworkAccessForQuery")
        or "Enabled",
        "workspaceCapping": resource.get("workspaceCapping", {"dailyQuotaGb": -1}),
    }


def _cluster_outputs(resource: Resource) -> dict[str, Any]:
    return {
        "clusterId": naming.guid("cluster", resource.id),
        "createdDate": MADE_AT,
        "lastModifiedDate": MADE_AT,
        "associatedWorkspaces": [],
    }


def _table_outputs(inputs: Inputs) -> dict[str, Any]:
    kept = inputs.number("retentionInDays")
    days = 30 if kept in (None, -1) else kept
    total = inputs.number("totalRetentionInDays")
    whole = days if total in (None, -1) else total
    return {
        "retentionInDays": days,
        "totalRetentionInDays": whole,
        "archiveRetentionInDays": (whole or 0) - (days or 0),
        "retentionInDaysAsDefault": kept in (None, -1),
        "totalRetentionInDaysAsDefault": total in (None, -1),
        "plan": inputs.optional_string("plan") or "Analytics",
    }


_NAMED_BY: Final = (
    "a key is named by vault, name and version (an empty version follows the newest)"
)


def _collection_problems(inputs: Inputs) -> Iterator[Problem]:
    names: set[str] = set()
    destinations = inputs.at("destinations")
    for kind in inputs.keys("destinations"):
        value = destinations.get(kind)
        for path, _ in inputs.items(f"destinations.{kind}"):
            names.add(inputs.optional_string(f"{path}.name") or "")
        if is_dictionary(value):
            names.add(inputs.optional_string(f"destinations.{kind}.name") or "")
    for path, _ in inputs.items("dataFlows"):
        for where, text in inputs.strings(f"{path}.destinations"):
            if names and text not in names:
                yield Problem(
                    where,
                    f"there is no destination {text!r}; name one of "
                    f"{', '.join(sorted(item for item in names if item))}",
                )
        if inputs.is_absent(f"{path}.streams[0]"):
            yield Problem(f"{path}.streams", "is missing: name the streams that flow")


def _association_problems(inputs: Inputs) -> Iterator[Problem]:
    given = [
        name
        for name in ("dataCollectionRuleId", "dataCollectionEndpointId")
        if inputs.is_given(name)
    ]
    if len(given) != 1:
        yield Problem(
            "dataCollectionRuleId", "must be given, or dataCollectionEndpointId; one of them"
        )
    if given == ["dataCollectionEndpointId"]:
        yield from checks.one_of(
            "associationName",
            inputs.optional_string("associationName"),
            ("configurationAccessEndpoint",),
        )


def _rule_outputs(resource: Resource) -> dict[str, Any]:
    return {"immutableId": f"dcr-{naming.digest(32, resource.id)}"}


def _endpoint_outputs(resource: Resource) -> dict[str, Any]:
    id, region = resource.id, location(resource) or "unknown"
    host = f"{id.rpartition('/')[2].lower()}-{naming.digest(4, id)}.{region}-1"
    return {
        "immutableId": f"dce-{naming.digest(32, id)}",
        "logsIngestion": {"endpoint": f"https://{host}.ingest.monitor.azure.com"},
        "metricsIngestion": {"endpoint": f"https://{host}.metrics.ingest.monitor.azure.com"},
        "configurationAccess": {"endpoint": f"https://{host}.handler.control.monitor.azure.com"},
    }


def _collection_workspace_outputs(resource: Resource) -> dict[str, Any]:
    id, region = resource.id, location(resource) or "unknown"
    name = f"{id.rpartition('/')[2].lower()}-{naming.digest(4, id)}"
    return {
        "accountId": naming.guid("account", id),
        "metrics": {
            "internalId": naming.digest(32, id),
            "prometheusQueryEndpoint": f"https://{name}.{region}.prometheus.monitor.azure.com",
        },
    }


_INSIGHTS: Final = "Microsoft.Insights"


SETTING: Final = "azure-native:monitor:DiagnosticSetting"
_DESTINATIONS: Final = {
    "workspaceId": "Microsoft.OperationalInsights/workspaces",
    "storageAccountId": "Microsoft.Storage/storageAccounts",
    "eventHubAuthorizationRuleId": "Microsoft.EventHub/namespaces/authorizationRules",
    "marketplacePartnerId": "",
    "serviceBusRuleId": "",
}
_DURATION: Final = re.compile(r"P(?=.)(?:\d+D)?(?:T(?=.)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?")
_OF_WATCHED: Final = re.compile(r"/providers/microsoft\.insights/diagnosticsettings/", re.I)
_ALIKE: Final = 0.75
"""From where on a category counts as another one misspelt: Azure adds some now and then."""
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


def _watched(id: str) -> str:
    """The id of the resource that a diagnostic setting is about."""
    return _OF_WATCHED.split(id)[0]


def _known_categories(resource: Resource) -> Iterator[Problem]:
    """What is asked for is among the logs that the resource writes."""
    table = kinds.load_table("log_categories")
    target = naming.parse(_watched(resource.id))
    own: Sequence[str] = next(
        (
            names
            for type_, names in table["types"].items()
            if target is not None and type_.lower() == target.type.lower()
        ),
        (),
    )
    others = {name for names in table["types"].values() for name in names}
    for path, _ in resource.items("logs"):
        group = resource.optional_string(f"{path}.categoryGroup")
        if group and group.lower() not in (each.lower() for each in table["groups"]):
            yield Problem(
                f"{path}.categoryGroup",
                f"{group!r} isn't a group; allowed: {', '.join(table['groups'])}",
            )
        name = resource.optional_string(f"{path}.category")
        if not own or name is None or name in own:
            continue
        if name in others or nearest(name, own, alike=_ALIKE):
            yield Problem(
                f"{path}.category", f"{name!r} isn't a log of it; allowed: {', '.join(own)}"
            )


def _setting_conflicts(resource: Resource) -> Iterator[Problem]:
    target = _watched(resource.id)
    others = [
        made
        for made in resource.world.all(SETTING)
        if not naming.same(made.id, resource.id) and naming.same(_watched(made.id), target)
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
                and naming.same(mine, theirs)
                and (_categories(resource) & _categories(Inputs(made.inputs)))
            ):
                yield Problem(
                    name,
                    f"{made.id.rpartition('/')[2]!r} sends the same category there "
                    "already; leave it out of one of them",
                )
    watched = resources.by_id(resource.world, target)
    yield from relations.same_region(resource, "storageAccountId", resources.region_of(watched))


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
    region = regions.region_of(inputs)
    # Source: azure-monitor/alerts/action-groups (regional processing).
    allowed = (
        regions.GLOBAL,
        "swedencentral",
        "germanywestcentral",
        "northcentralus",
        "southcentralus",
        "eastus2",
        "southindia",
        "australiaeast",
        "southeastasia",
    )
    if region is not None and regions.is_known(region) and region not in allowed:
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
    if is_sequence(inputs.at("profiles")) and not 1 <= len(profiles) <= 20:
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
            window = checks.minutes(inputs.string(f"{rule}.metricTrigger.timeWindow"))
            if window is not None and not 5 <= window <= 720:
                # Source: azure-monitor/autoscale/autoscale-understanding-settings.
                yield Problem(
                    f"{rule}.metricTrigger.timeWindow",
                    f"{window} minutes isn't allowed; allowed: PT5M to PT12H",
                )
            yield from checks.resource_id(
                f"{rule}.metricTrigger.metricResourceUri",
                inputs.optional_string(f"{rule}.metricTrigger.metricResourceUri"),
            )


def _contradictions(inputs: Inputs) -> Iterator[Problem]:
    """Where a set grows at a load at which it shrinks, it never shrinks.

    azure-monitor/autoscale/autoscale-flapping: before it scales in, the service estimates the load
    after that, and leaves it where it would scale out again.
    """
    for profile, _ in inputs.items("profiles"):
        grows: dict[tuple[str | None, str | None], float] = {}
        shrinks: dict[tuple[str | None, str | None], tuple[str, float]] = {}
        for path, _ in inputs.items(f"{profile}.rules"):
            trigger = f"{path}.metricTrigger"
            metric = (
                inputs.optional_string(f"{trigger}.metricName"),
                inputs.optional_string(f"{trigger}.metricResourceUri"),
            )
            threshold = inputs.number(f"{trigger}.threshold")
            operator = inputs.optional_string(f"{trigger}.operator") or ""
            direction = inputs.optional_string(f"{path}.scaleAction.direction")
            if threshold is None:
                continue
            if direction == "Increase" and operator.startswith("GreaterThan"):
                grows[metric] = min(threshold, grows.get(metric, threshold))
            elif direction == "Decrease" and operator.startswith("LessThan"):
                shrinks[metric] = (f"{trigger}.threshold", threshold)
        for metric, (path, low) in shrinks.items():
            if metric in grows and low >= grows[metric]:
                yield Problem(
                    path,
                    f"it shrinks below {low:g} and grows above {grows[metric]:g} already; leave "
                    "room between the two",
                )


#: learn.microsoft.com/azure/azure-monitor/logs/logs-data-export (supported tables), those that
#: stacks of clusters, keys and stores fill (November 2026).
_TABLES: Final = (
    "AKSAudit", "AKSAuditAdmin", "AKSControlPlane", "AZFWApplicationRule", "AZFWDnsQuery",
    "AZFWNetworkRule", "AzureActivity", "AzureDiagnostics", "AzureMetrics",
    "ContainerAppConsoleLogs", "ContainerAppSystemLogs", "ContainerLogV2",
    "ContainerRegistryLoginEvents", "ContainerRegistryRepositoryEvents", "Heartbeat",
    "KubeEvents", "KubePodInventory", "LAQueryLogs", "SecurityAlert", "SigninLogs",
    "StorageBlobLogs", "Syslog",
)  # fmt: skip


def _exported(path: str, name: str) -> Iterator[Problem]:
    """Tables come with each service: a name that resembles none of these is let through."""
    near = nearest(name, _TABLES, alike=0.85)
    if name not in _TABLES and near and not name.endswith("_CL"):
        yield Problem(path, f"{name!r} isn't a table; did you mean {near[0]!r}?")


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


_DIAGNOSTICS: Final = f"{_INSIGHTS}/diagnosticSettings/{{name}}"


KINDS: Final = (
    AzureKind(
        WORKSPACE,
        _PATH,
        name=kinds.WORKSPACE,
        rules=(
            one_of("sku.capacityReservationLevel", _TIERS),
            when(
                equals("sku.name", "CapacityReservation"),
                required("sku.capacityReservationLevel", "CapacityReservation needs it"),
            ),
            _workspace_problems,
        ),
        computed=_workspace_outputs,
    ),
    AzureKind(
        CLUSTER,
        "Microsoft.OperationalInsights/clusters/{clusterName}",
        name=kinds.WORKSPACE,
        is_held_by_references=True,
        replaces=("isDoubleEncryptionEnabled", "isAvailabilityZonesEnabled"),
        rules=(
            required("identity.type", "a cluster reads its key by a managed identity"),
            one_of("sku.capacity", _TIERS),
            one_of("keyVaultProperties.keyRsaSize", (2048, 3072, 4096)),
            when(
                given("keyVaultProperties.keyVaultUri"),
                required("keyVaultProperties.keyName", _NAMED_BY),
                required("keyVaultProperties.keyVersion", _NAMED_BY),
            ),
            _cluster_problems,
        ),
        crosschecks=(_cluster_conflicts,),
        computed=_cluster_outputs,
    ),
    AzureKind(
        "azure-native:operationalinsights:LinkedService",
        f"{_PATH}/linkedServices/{{linkedServiceName}}",
        rules=(
            one_of("linkedServiceName", ("Cluster", "cluster", "Automation", "automation")),
            refused(
                "writeAccessResourceId", "is missing: name what the workspace is linked to",
                absent("resourceId", "writeAccessResourceId"),
            ),
            _linked_problems,
        ),
        crosschecks=(_linked_conflicts,),
    ),
    AzureKind(
        "azure-native:operationalinsights:Table",
        f"{_PATH}/tables/{{tableName}}",
        name=kinds.NameRule(
            1, 63, r"[A-Za-z][A-Za-z0-9_]*",
            "letters, digits and underscores, starting with a letter",
        ),
        rules=(_table_problems,),
        computed=_table_outputs,
    ),
    AzureKind(
        "azure-native:operationalinsights:DataExport",
        f"{_PATH}/dataExports/{{dataExportName}}",
        name=kinds.WORKSPACE,
        rules=(texts("tableNames[]", _exported),),
    ),
    AzureKind(
        "azure-native:monitor:DataCollectionRule",
        f"{_INSIGHTS}/dataCollectionRules/{{dataCollectionRuleName}}",
        name=kinds.FREE,
        is_held_by_references=True,
        replaces=("kind",),
        rules=(_collection_problems,),
        references=(
            relations.to("dataCollectionEndpointId", "Microsoft.Insights/dataCollectionEndpoints"),
        ),
        computed=_rule_outputs,
    ),
    AzureKind(
        "azure-native:monitor:DataCollectionEndpoint",
        f"{_INSIGHTS}/dataCollectionEndpoints/{{dataCollectionEndpointName}}",
        name=kinds.FREE,
        is_held_by_references=True,
        replaces=("kind",),
        computed=_endpoint_outputs,
    ),
    AzureKind(
        "azure-native:monitor:DataCollectionRuleAssociation",
        f"{{resourceUri}}/providers/{_INSIGHTS}/dataCollectionRuleAssociations/"
        "{associationName}",
        rules=(_association_problems,),
    ),
    AzureKind(
        "azure-native:monitor:AzureMonitorWorkspace",
        "Microsoft.Monitor/accounts/{azureMonitorWorkspaceName}",
        name=kinds.WORKSPACE,
        computed=_collection_workspace_outputs,
    ),
    AzureKind(
        SETTING,
        f"{{resourceUri}}/providers/{_DIAGNOSTICS}",
        name=kinds.FREE,
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
        crosschecks=(_setting_conflicts, _known_categories),
    ),
    AzureKind(
        "azure-native:monitor:SubscriptionDiagnosticSetting",
        f"/subscriptions/{{subscriptionId}}/providers/{_DIAGNOSTICS}",
        name=kinds.FREE,
        rules=(
            _destinations,
            required("logs[0]", "name at least one category"),
            one_of("logs[].category", _ACTIVITY),
        ),
    ),
    AzureKind(
        "azure-native:monitor:ActionGroup",
        f"{_INSIGHTS}/actionGroups/{{actionGroupName}}",
        name=kinds.FREE,
        location="any",
        rules=(sized("groupShortName", 0, 12, "characters"), _action_group_problems),
    ),
    AzureKind(
        "azure-native:monitor:AutoscaleSetting",
        f"{_INSIGHTS}/autoscaleSettings/{{autoscaleSettingName}}",
        name=kinds.FREE,
        replaces=("targetResourceUri",),
        rules=(
            required("targetResourceUri", "name what is to be scaled"),
            _autoscale_problems,
            _contradictions,
        ),
    ),
    AzureKind(
        "azure-native:monitor:ActivityLogAlert",
        f"{_INSIGHTS}/activityLogAlerts/{{activityLogAlertName}}",
        name=kinds.FREE,
        location="any",
        rules=(
            refused(
                "condition.allOf", "is missing: one condition must name the category",
                absent("condition.allOf[0]"),
            ),
            _activity_alert_problems,
        ),
        references=(
            relations.to("scopes[]"),
            relations.to(
                "actions.actionGroups[].actionGroupId", "Microsoft.Insights/actionGroups",
            ),
        ),
    ),
    AzureKind(
        "azure-native:monitor:MetricAlert",
        f"{_INSIGHTS}/metricAlerts/{{ruleName}}",
        name=kinds.FREE,
        location="global",
    ),
    AzureKind(
        "azure-native:monitor:ScheduledQueryRule",
        f"{_INSIGHTS}/scheduledQueryRules/{{ruleName}}",
        name=kinds.FREE,
    ),
    AzureKind(
        "azure-native:monitor:PrivateLinkScope",
        f"{_INSIGHTS}/privateLinkScopes/{{scopeName}}",
        name=kinds.FREE,
        location="global",
        is_held_by_children=True,
    ),
    AzureKind(
        "azure-native:monitor:PrivateLinkScopedResource",
        f"{_INSIGHTS}/privateLinkScopes/{{scopeName}}/scopedResources/{{name}}",
        name=kinds.FREE,
    ),
)  # fmt: skip
