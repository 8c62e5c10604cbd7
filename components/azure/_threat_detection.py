"""Defender for Cloud: which plans watch the subscription, and who is told."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native import security


@dataclass(frozen=True)
class _Plan:
    name: str
    sub_plan: str | None
    extensions: dict[str, bool]
    """What the plan may do besides; what would look into data or copy disks is off."""


#: https://learn.microsoft.com/azure/defender-for-cloud/defender-for-cloud-introduction
_PLANS = (
    _Plan("Arm", "PerSubscription", {}),
    _Plan("KeyVaults", "PerKeyVault", {}),
    _Plan(
        "StorageAccounts",
        "DefenderForStorageV2",
        {"OnUploadMalwareScanning": False, "SensitiveDataDiscovery": False},
    ),
    _Plan(
        "Containers",
        None,
        {
            "ContainerRegistriesVulnerabilityAssessments": True,
            # These come into the cluster from outside of the network.
            "AgentlessDiscoveryForKubernetes": False,
            "AgentlessVmScanning": False,
            "ContainerSensor": False,
        },
    ),
    _Plan("VirtualMachines", "P1", {"MdeDesignatedSubscription": False}),
)


def threat_detection(
    name: str,
    subscription: pulumi.Input[str],
    emails: Sequence[str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Switch the plans on, one after the other, and name who is told of findings.

    Plans are the subscription's, whichever stack sets them: they stay on after it is destroyed.
    Azure deletes none, and refuses to be asked
    (https://github.com/Azure/terraform-provider-azapi/issues/818).

    They are told by Defender itself: an action group's messages may be worked on in any region of
    the world (https://learn.microsoft.com/azure/azure-monitor/alerts/action-groups).
    """
    scope = pulumi.Output.concat("subscriptions/", subscription)
    before: list[pulumi.Resource] = []
    for plan in _PLANS:
        made = security.Pricing(
            f"{name}-{plan.name}",
            pricing_name=plan.name,
            scope_id=scope,
            pricing_tier=security.PricingTier.STANDARD,
            sub_plan=plan.sub_plan,
            extensions=[
                security.ExtensionArgs(
                    name=title,
                    is_enabled=security.IsEnabled.TRUE if on else security.IsEnabled.FALSE,
                )
                for title, on in plan.extensions.items()
            ]
            or None,
            opts=pulumi.ResourceOptions.merge(
                opts, pulumi.ResourceOptions(depends_on=before, retain_on_delete=True)
            ),
        )
        before = [made]
    if not emails:
        return
    security.SecurityContact(
        f"{name}-contact",
        security_contact_name="default",
        emails=";".join(emails),
        is_enabled=True,
        notifications_by_role=security.SecurityContactPropertiesNotificationsByRoleArgs(
            state=security.State.OFF, roles=[]
        ),
        notifications_sources=[
            security.NotificationsSourceAlertArgs(
                source_type="Alert", minimal_severity=security.MinimalSeverity.MEDIUM
            )
        ],
        opts=opts,
    )
