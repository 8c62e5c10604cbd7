"""Microsoft.OperationalInsights: workspaces, clusters with an own key, and tables."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, invented, keys, known, naming
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.model import Problem

WORKSPACE: Final = "azure-native:operationalinsights:Workspace"
CLUSTER: Final = "azure-native:operationalinsights:Cluster"
_PATH: Final = "Microsoft.OperationalInsights/workspaces/{workspaceName}"
# Source: azure-monitor/logs/cost-logs (commitment tiers), logs-dedicated-clusters (from 100).
_TIERS: Final = (100, 200, 300, 400, 500, 1000, 2000, 5000, 10000, 25000, 50000)
# Source: azure-monitor/logs/data-retention-configure: analytics 4 to 730, in all to 12 years.
_TOTAL: Final = (
    *range(4, 731), 1095, 1460, 1826, 2191, 2556, 2922, 3288, 3653, 4018, 4383,
)  # fmt: skip


def _workspace_problems(ask: Ask) -> Iterator[Problem]:
    sku = ask.text("sku.name")
    days = ask.number("retentionInDays")
    if days is not None and days != -1:
        if sku == "Free" and days != 7:
            yield Problem("retentionInDays", f"{days:g} isn't allowed; Free keeps 7 days")
        elif sku != "Free" and not 30 <= days <= 730:
            yield Problem("retentionInDays", f"{days:g} isn't allowed; allowed are 30 to 730 days")
    if sku in ("Free", "Standard", "Premium", "PerNode", "Standalone"):
        yield Problem("sku.name", f"{sku} can't be chosen for new workspaces; choose PerGB2018")
    level = ask.number("sku.capacityReservationLevel")
    if level is not None and level not in _TIERS:
        yield Problem(
            "sku.capacityReservationLevel",
            f"{level:g} isn't allowed; allowed are {', '.join(map(str, _TIERS))} GB a day",
        )
    if sku == "CapacityReservation":
        yield from checks.needs(
            ask, "sku.capacityReservationLevel", "CapacityReservation needs it"
        )
    quota = ask.number("workspaceCapping.dailyQuotaGb")
    if quota is not None and quota != -1 and quota < 0.023:
        yield Problem(
            "workspaceCapping.dailyQuotaGb",
            f"{quota:g} isn't allowed; allowed are -1 (no cap) and 0.023 GB or more",
        )


def _cluster_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.needs(ask, "identity.type", "a cluster reads its key by a managed identity")
    capacity = ask.number("sku.capacity")
    if capacity is not None and capacity not in _TIERS:
        yield Problem(
            "sku.capacity",
            f"{capacity:g} isn't allowed; allowed are {', '.join(map(str, _TIERS))} GB a day",
        )
    base = "keyVaultProperties"
    uri = ask.text(f"{base}.keyVaultUri")
    if uri and keys.parse(uri) is None:
        yield Problem(
            f"{base}.keyVaultUri",
            f"{uri!r} isn't the address of a vault; it looks like https://NAME.vault.azure.net/",
        )
    size = ask.number(f"{base}.keyRsaSize")
    if size is not None and size not in (2048, 3072, 4096):
        yield Problem(
            f"{base}.keyRsaSize", f"{size:g} isn't allowed; allowed are 2048, 3072, 4096"
        )
    for name in ("keyName", "keyVersion"):
        if ask.is_given(f"{base}.keyVaultUri"):
            yield from checks.needs(
                ask,
                f"{base}.{name}",
                "a key is named by vault, name and version (an empty version follows the newest)",
            )


def _cluster_conflicts(ask: Ask) -> Iterator[Problem]:
    base = "keyVaultProperties"
    # Source: azure-monitor/logs/customer-managed-keys: same region, purge protection.
    yield from keys.usable(
        ask,
        f"{base}.keyVaultUri",
        ask.text(f"{base}.keyVaultUri"),
        key=ask.text(f"{base}.keyName"),
        region=location(ask),
    )


def _linked_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.one_of(
        "linkedServiceName",
        ask.text("linkedServiceName"),
        ("Cluster", "cluster", "Automation", "automation"),
    )
    if ask.is_absent("resourceId") and ask.is_absent("writeAccessResourceId"):
        yield Problem("writeAccessResourceId", "is missing: name what the workspace is linked to")
    if (ask.text("linkedServiceName") or "").lower() == "cluster":
        yield from checks.needs(
            ask, "writeAccessResourceId", "a link to a cluster names it here, not in resourceId"
        )


def _linked_conflicts(ask: Ask) -> Iterator[Problem]:
    target = ask.text("writeAccessResourceId")
    if ask.world is None or ask.id is None or target is None:
        return
    workspace = known.by_id(ask.world, ask.id.rsplit("/", 2)[0])
    cluster = known.by_id(ask.world, target)
    here, there = known.region_of(workspace), known.region_of(cluster)
    if here and there and here != there:
        yield Problem(
            "writeAccessResourceId",
            f"the cluster is in {there}, the workspace in {here}; they must be in the same region",
        )


def _table_problems(ask: Ask) -> Iterator[Problem]:
    kept, total = ask.number("retentionInDays"), ask.number("totalRetentionInDays")
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
    name = ask.text("schema.name")
    if name and ask.text("tableName") and name != ask.text("tableName"):
        yield Problem("schema.name", f"{name!r} isn't the table's name")
    own = ask.text("tableName")
    if own and ask.items("schema.columns") and not re.search(r"_(?:CL|RST|SRCH)$", own):
        yield Problem("tableName", f"{own!r} must end in _CL: so do own tables")


def _workspace_outputs(ask: Ask) -> dict[str, Any]:
    return {
        "customerId": invented.guid("workspace", ask.id or ""),
        "createdDate": invented.MOMENT,
        "modifiedDate": invented.MOMENT,
        "retentionInDays": ask.number("retentionInDays") or 30,
        "sku": ask.known("sku", {"name": "PerGB2018", "lastSkuUpdate": invented.MOMENT}),
        "publicNetworkAccessForIngestion": ask.text("publicNetworkAccessForIngestion")
        or "Enabled",
        "publicNetworkAccessForQuery": ask.text("publicNetworkAccessForQuery") or "Enabled",
        "workspaceCapping": ask.known("workspaceCapping", {"dailyQuotaGb": -1}),
    }


def _cluster_outputs(ask: Ask) -> dict[str, Any]:
    return {
        "clusterId": invented.guid("cluster", ask.id or ""),
        "createdDate": invented.MOMENT,
        "lastModifiedDate": invented.MOMENT,
        "associatedWorkspaces": [],
    }


def _table_outputs(ask: Ask) -> dict[str, Any]:
    kept = ask.number("retentionInDays")
    days = 30 if kept in (None, -1) else kept
    total = ask.number("totalRetentionInDays")
    whole = days if total in (None, -1) else total
    return {
        "retentionInDays": days,
        "totalRetentionInDays": whole,
        "archiveRetentionInDays": (whole or 0) - (days or 0),
        "retentionInDaysAsDefault": kept in (None, -1),
        "totalRetentionInDaysAsDefault": total in (None, -1),
        "plan": ask.text("plan") or "Analytics",
    }


KINDS: Final = (
    Kind(
        WORKSPACE,
        _PATH,
        name=naming.WORKSPACE,
        problems=_workspace_problems,
        outputs=_workspace_outputs,
    ),
    Kind(
        CLUSTER,
        "Microsoft.OperationalInsights/clusters/{clusterName}",
        name=naming.WORKSPACE,
        is_held_by_references=True,
        replaces=frozenset({"isDoubleEncryptionEnabled", "isAvailabilityZonesEnabled"}),
        problems=_cluster_problems,
        conflicts=_cluster_conflicts,
        outputs=_cluster_outputs,
    ),
    Kind(
        "azure-native:operationalinsights:LinkedService",
        f"{_PATH}/linkedServices/{{linkedServiceName}}",
        problems=_linked_problems,
        conflicts=_linked_conflicts,
    ),
    Kind(
        "azure-native:operationalinsights:Table",
        f"{_PATH}/tables/{{tableName}}",
        name=naming.NameRule(
            1,
            63,
            r"[A-Za-z][A-Za-z0-9_]*",
            "letters, digits and underscores, starting with a letter",
        ),
        problems=_table_problems,
        outputs=_table_outputs,
    ),
    Kind(
        "azure-native:operationalinsights:DataExport",
        f"{_PATH}/dataExports/{{dataExportName}}",
        name=naming.WORKSPACE,
    ),
)
