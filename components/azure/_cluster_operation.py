"""What runs a cluster: maintenance windows, logs of the control plane, who may look at it."""

from __future__ import annotations

import pulumi
from pulumi_azure_native import containerservice as aks
from pulumi_azure_native import monitor

from falaj.components.azure._cluster_profile import UTC_OFFSET
from falaj.components.azure._roles import Grant, grant
from falaj.components.specification.cluster import ClusterArgs, ClusterSpec

#: Names that AKS gives to the windows of Kubernetes' and of the nodes' images' upgrades:
#: https://learn.microsoft.com/azure/aks/planned-maintenance
_WINDOWS = {
    "aksManagedAutoUpgradeSchedule": aks.WeekDay.SATURDAY,
    "aksManagedNodeOSUpgradeSchedule": aks.WeekDay.SUNDAY,
}
#: https://learn.microsoft.com/azure/aks/monitor-aks-reference#resource-logs
_LOGS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "cluster-autoscaler",
    "cloud-controller-manager",
    "guard",
    "csi-azuredisk-controller",
    "csi-azurefile-controller",
    "csi-snapshot-controller",
)
#: Classes of data where it matters who has read, and not only who has changed.
_READS_MATTER = ("confidential", "restricted")


def audit_category(data_class: str) -> str:
    """Category of audit logs: with reads (``kube-audit``, many times larger) where the data ask
    for it, else changes only (``kube-audit-admin``)."""
    return "kube-audit" if data_class in _READS_MATTER else "kube-audit-admin"


def open_windows(
    name: str,
    group: pulumi.Input[str],
    cluster: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Upgrades happen in the night of the country's weekend, within four hours."""
    for window, day in _WINDOWS.items():
        aks.MaintenanceConfiguration(
            f"{name}-{window}",
            resource_group_name=group,
            resource_name_=cluster,
            config_name=window,
            maintenance_window=aks.MaintenanceWindowArgs(
                duration_hours=4,
                start_time="00:00",
                utc_offset=UTC_OFFSET,
                schedule=aks.ScheduleArgs(
                    weekly=aks.WeeklyScheduleArgs(day_of_week=day, interval_weeks=1)
                ),
            ),
            opts=opts,
        )


def keep_logs(
    name: str,
    spec: ClusterSpec,
    args: ClusterArgs,
    cluster: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
) -> monitor.DiagnosticSetting:
    """Every log of the control plane goes to the workspace, into tables of its own."""
    categories = (*_LOGS, audit_category(spec.placed.data_class))
    return monitor.DiagnosticSetting(
        f"{name}-logs",
        name="audit",
        resource_uri=cluster,
        workspace_id=args.get("log_destination_id"),
        log_analytics_destination_type="Dedicated",
        logs=[
            monitor.DiagnosticsLogSettingsArgs(category=category, enabled=True)
            for category in categories
        ],
        metrics=[monitor.DiagnosticsMetricSettingsArgs(category="AllMetrics", enabled=True)],
        opts=opts,
    )


def admit_people(
    name: str, spec: ClusterSpec, cluster: pulumi.Input[str], opts: pulumi.ResourceOptions
) -> None:
    """Groups may fetch the cluster's address; viewers may read in it, secrets excepted.

    Administrators get their rights inside the cluster from its Entra profile.
    """
    for group in (*spec.administrators, *spec.viewers):
        role = "Azure Kubernetes Service Cluster User Role"
        grant(f"{name}-user-{group}", Grant(role, cluster, group, "Group"), opts)
    for group in spec.viewers:
        role = "Azure Kubernetes Service RBAC Reader"
        grant(f"{name}-viewer-{group}", Grant(role, cluster, group, "Group"), opts)
