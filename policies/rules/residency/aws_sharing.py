"""Data that other accounts are let into: snapshots, images, shares, endpoint services."""

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
    is_true,
    is_unknown,
    rule,
    violation,
)
from falaj.policies.rules.residency import aws_targets

_CONTROLS: Final = (
    "pdpl:22", "health-data:13", "cbuae-outsourcing:6.3", "iso27001:A.5.14", "iso27001:A.8.12",
    "gdpr:44",
)  # fmt: skip
#: Where accounts are named that get the data, by type.
_ACCOUNTS: Final[dict[str, tuple[str, ...]]] = {
    "aws:ec2/amiLaunchPermission:AmiLaunchPermission": ("accountId", "group"),
    "aws:ec2/snapshotCreateVolumePermission:SnapshotCreateVolumePermission": ("accountId",),
    "aws:rds/snapshot:Snapshot": ("sharedAccounts",),
    "aws:rds/clusterSnapshot:ClusterSnapshot": ("sharedAccounts",),
    "aws:rds/snapshotCopy:SnapshotCopy": ("sharedAccounts",),
    "aws:rds/clusterSnapshotCopy:ClusterSnapshotCopy": ("sharedAccounts",),
    "aws:dlm/lifecyclePolicy:LifecyclePolicy": (
        "policyDetails.schedules.shareRule.targetAccounts",
    ),
    "aws:ram/principalAssociation:PrincipalAssociation": ("principal",),
    "aws:ec2/vpcEndpointService:VpcEndpointService": ("allowedPrincipals",),
    "aws:ec2/vpcEndpointServiceAllowedPrinciple:VpcEndpointServiceAllowedPrinciple": (
        "principalArn",
    ),
    "aws:redshift/dataShareAuthorization:DataShareAuthorization": ("consumerIdentifier",),
    "aws:redshift/endpointAuthorization:EndpointAuthorization": ("account",),
    "aws:servicecatalog/portfolioShare:PortfolioShare": ("principalId",),
    "aws:ssm/document:Document": ("permissions.account_ids", "permissions.accountIds"),
    "aws:lambda/layerVersionPermission:LayerVersionPermission": ("principal",),
    "aws:securitylake/subscriber:Subscriber": ("subscriberIdentity.principal",),
    "aws:cleanrooms/collaboration:Collaboration": ("members.accountId",),
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration": (
        "distributions.amiDistributionConfiguration.launchPermission.userIds",
        "distributions.amiDistributionConfiguration.launchPermission.userGroups",
        "distributions.amiDistributionConfiguration.targetAccountIds",
    ),
    "aws:oam/link:Link": ("sinkIdentifier",),
}

#: Types in which programs name their own account as well; data isn't shared with oneself.
_OWN_AS_WELL: Final = frozenset((
    "aws:ec2/vpcEndpointService:VpcEndpointService",
    "aws:ec2/vpcEndpointServiceAllowedPrinciple:VpcEndpointServiceAllowedPrinciple",
    "aws:lambda/layerVersionPermission:LayerVersionPermission",
    "aws:securitylake/subscriber:Subscriber",
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration",
    "aws:ssm/document:Document",
))  # fmt: skip


@rule(
    "residency-aws-sharing",
    "Data is shared with allowed accounts only",
    Severity.HIGH,
    frozenset(_ACCOUNTS),
    _CONTROLS,
    "Remove the share, or add the account to the setting allowedAccounts once it is sure that its "
    "owner keeps data in the country: what is shared may be copied anywhere.",
)
def sharing(resource: Resource, view: View) -> Iterator[Finding]:
    """Accounts by number or ARN; everybody is never allowed."""
    for path in _ACCOUNTS[resource.kind]:
        yield from aws_targets.account(
            resource, view, path, "it is shared with", may_be_own=resource.kind in _OWN_AS_WELL
        )


@rule(
    "residency-aws-resource-share",
    "Resource shares stay within the organisation",
    Severity.HIGH,
    {"aws:ram/resourceShare:ResourceShare"},
    _CONTROLS,
    "Set allowExternalPrincipals to false.",
)
def resource_share(resource: Resource, view: View) -> Iterator[Finding]:
    """Off unless it is switched on."""
    path = "allowExternalPrincipals"
    value = resource.get(path)
    if is_unknown(value):
        yield indeterminate(path, "whether others than the organisation may join can't be known")
    elif is_true(value):
        yield violation(path, "accounts outside of the organisation may join the share")


RULES: tuple[Rule, ...] = (sharing, resource_share)
