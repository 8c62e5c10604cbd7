"""Microsoft.OperationalInsights: workspaces, clusters with an own key, and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, existing, generated, keys, naming
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import absent, equals, given, one_of, refused, required, when

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
    uri = inputs.optional_string(f"{base}.keyVaultUri")
    if uri and keys.parse(uri) is None:
        yield Problem(
            f"{base}.keyVaultUri",
            f"{uri!r} isn't the address of a vault; it looks like https://NAME.vault.azure.net/",
        )


def _cluster_conflicts(resource: Resource) -> Iterator[Problem]:
    base = "keyVaultProperties"
    # Source: azure-monitor/logs/customer-managed-keys: same region, purge protection.
    yield from keys.usable(
        resource,
        f"{base}.keyVaultUri",
        resource.optional_string(f"{base}.keyVaultUri"),
        key=resource.optional_string(f"{base}.keyName"),
        region=location(resource),
    )


def _linked_problems(inputs: Inputs) -> Iterator[Problem]:
    if (inputs.optional_string("linkedServiceName") or "").lower() == "cluster":
        yield from checks.needs(
            inputs, "writeAccessResourceId", "a link to a cluster names it here, not in resourceId"
        )


def _linked_conflicts(resource: Resource) -> Iterator[Problem]:
    target = resource.optional_string("writeAccessResourceId")
    if target is None:
        return
    workspace = existing.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    cluster = existing.by_id(resource.world, target)
    here, there = existing.region_of(workspace), existing.region_of(cluster)
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
        "customerId": generated.guid("workspace", resource.id),
        "createdDate": generated.MOMENT,
        "modifiedDate": generated.MOMENT,
        "retentionInDays": resource.number("retentionInDays") or 30,
        "sku": resource.get("sku", {"name": "PerGB2018", "lastSkuUpdate": generated.MOMENT}),
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
        "clusterId": generated.guid("cluster", resource.id),
        "createdDate": generated.MOMENT,
        "lastModifiedDate": generated.MOMENT,
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

KINDS: Final = (
    AzureKind(
        WORKSPACE,
        _PATH,
        name=naming.WORKSPACE,
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
        name=naming.WORKSPACE,
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
        name=naming.NameRule(
            1, 63, r"[A-Za-z][A-Za-z0-9_]*",
            "letters, digits and underscores, starting with a letter",
        ),
        rules=(_table_problems,),
        computed=_table_outputs,
    ),
    AzureKind(
        "azure-native:operationalinsights:DataExport",
        f"{_PATH}/dataExports/{{dataExportName}}",
        name=naming.WORKSPACE,
    ),
)  # fmt: skip
