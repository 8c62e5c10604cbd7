"""Accounts, tenants and galleries that data is shared with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    get,
    indeterminate,
    is_true,
    is_unknown,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.iam import Statement, account_of, is_anybody, lets_anybody, read
from falaj.policies.reading.images import is_allowed, parse
from falaj.policies.reading.place import format_places
from falaj.policies.reading.resource_policies import RESOURCE_POLICIES
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency import destinations
from falaj.policies.rules.residency.destinations import AZURE_CONTROLS, only_account, own_accounts
from falaj.policies.rules.residency.everywhere import CONTROLS
from falaj.policies.rules.residency.images import SYSTEM

# What an account or organisation sets up in other regions: stacks, bills, messages.

_STACKS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cloudformation/stackSetInstance:StackSetInstance": ("stackSetInstanceRegion", "region"),
    "aws:cloudformation/stackInstances:StackInstances": ("regions",),
    "aws:servicecatalog/provisionedProduct:ProvisionedProduct": (
        "stackSetProvisioningPreferences.regions",
    ),
    "aws:codepipeline/pipeline:Pipeline": ("artifactStores.region", "stages.actions.region"),
}  # fmt: skip


@rule(
    "residency-aws-stack-region",
    "Nothing is rolled out to regions abroad",
    Severity.CRITICAL,
    frozenset(_STACKS),
    CONTROLS,
    "Name allowed regions only. What a stack set or a pipeline makes there isn't judged by any "
    "rule.",
)
def stack_region(resource: Resource, context: Context) -> Iterator[Finding]:
    """Regions of stack sets, pipelines and products."""
    for path in _STACKS[resource.kind]:
        yield from destinations.region(resource, context, path, "what is rolled out")


#: Types that make resources which no rule sees.
_HIDING: Final[dict[str, str]] = {
    "aws:cloudformation/stack:Stack": "the resources of its template",
    "aws:cloudformation/stackSet:StackSet": "the resources of its template",
    "aws:serverlessrepository/cloudFormationStack:CloudFormationStack": "what it deploys",
    "aws:servicecatalog/provisionedProduct:ProvisionedProduct": "what the product deploys",
    "aws-native:cloudformation:Stack": "the resources of its template",
    "aws-native:cloudformation:StackSet": "the resources of its template",
}


@rule(
    "residency-aws-hidden-resources",
    "Every resource is declared where rules can see it",
    Severity.HIGH,
    frozenset(_HIDING) | {"aws:cloudformation/cloudFormationType:CloudFormationType"},
    ("pdpl:22", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.8.9", "uae-ia:T6.3.1"),
    "Declare the resources in the program instead of a template, or have the template judged by "
    "other means and a waiver approved.",
)
def hidden_resources(resource: Resource, context: Context) -> Iterator[Finding]:
    """Templates and products: presence is the violation."""
    if (what := _HIDING.get(resource.kind)) and resource.custom:
        yield violation("", f"no rule can see {what}; {format_places(context)}")


_BILLS: Final[dict[str, tuple[str, ...]]] = {
    "aws:cur/reportDefinition:ReportDefinition": ("s3Region",),
    "aws:bcmdata/export:Export": (
        "export.destinationConfigurations.s3Destinations.s3Region",
    ),
}  # fmt: skip


@rule(
    "residency-aws-billing-export",
    "Reports of costs go to buckets in allowed regions",
    Severity.MEDIUM,
    frozenset(_BILLS),
    CONTROLS,
    "Deliver the report to a bucket of an allowed region: it holds names and tags of resources.",
)
def billing_export(resource: Resource, context: Context) -> Iterator[Finding]:
    """The region of the report's bucket."""
    for path in _BILLS[resource.kind]:
        yield from destinations.region(resource, context, path, "the report's bucket")


_MESSAGES: Final[dict[str, tuple[str, ...]]] = {
    "aws:cognito/userPool:UserPool": ("smsConfiguration.snsRegion",),
}


@rule(
    "residency-aws-user-messages",
    "Messages to users are sent from allowed regions",
    Severity.HIGH,
    frozenset(_MESSAGES),
    CONTROLS,
    "Send messages with the SNS and SES of an allowed region, or with a function of one's own "
    "(customSmsSender, customEmailSender): they hold names, numbers and codes.",
)
def user_messages(resource: Resource, context: Context) -> Iterator[Finding]:
    """The region of SNS, and of the identity in SES that mail is sent from."""
    for path in _MESSAGES[resource.kind]:
        yield from destinations.region(resource, context, path, "the sender")
    yield from destinations.arn(resource, context, "emailConfiguration.sourceArn", "the sender")


# Data that other accounts are let into: snapshots, images, shares, endpoint services.

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
    "aws:kms/grant:Grant": ("granteePrincipal", "retiringPrincipal"),
    "aws:lakeformation/permissions:Permissions": ("principal",),
    "aws:lakeformation/optIn:OptIn": ("principals.dataLakePrincipalIdentifier",),
    "aws:lambda/permission:Permission": ("principal", "sourceAccount"),
    "aws:cloudwatch/eventPermission:EventPermission": ("principal",),
    "aws:s3control/accessGrant:AccessGrant": ("grantee.granteeIdentifier",),
}

#: Types in which programs name their own account as well; data isn't shared with oneself.
_OWN_AS_WELL: Final = frozenset((
    "aws:ec2/vpcEndpointService:VpcEndpointService",
    "aws:ec2/vpcEndpointServiceAllowedPrinciple:VpcEndpointServiceAllowedPrinciple",
    "aws:lambda/layerVersionPermission:LayerVersionPermission",
    "aws:securitylake/subscriber:Subscriber",
    "aws:imagebuilder/distributionConfiguration:DistributionConfiguration",
    "aws:ssm/document:Document",
    "aws:kms/grant:Grant",
    "aws:lakeformation/permissions:Permissions",
    "aws:lakeformation/optIn:OptIn",
    "aws:lambda/permission:Permission",
    "aws:s3control/accessGrant:AccessGrant",
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
def sharing(resource: Resource, context: Context) -> Iterator[Finding]:
    """Accounts by number or ARN; everybody is never allowed."""
    for path in _ACCOUNTS[resource.kind]:
        yield from destinations.account(
            resource, context, path, "it is shared with", may_be_own=resource.kind in _OWN_AS_WELL
        )


#: Trust of a role is a policy on who may become it.
_TRUST: Final = "aws:iam/role:Role"
#: Conditions whose values name the account that is let in, or that a service acts for.
_NAMING: Final = frozenset((
    "aws:principalaccount", "aws:principalarn", "aws:sourceaccount", "aws:sourcearn",
    "aws:sourceowner", "kms:calleraccount", "s3:dataaccesspointaccount",
))  # fmt: skip


def _let_in(statement: Statement) -> Iterator[str]:
    """The accounts that a statement lets in, by its principals or, where these are anybody, by
    its conditions."""
    named = [account_of(who) for _, who in statement.principals if not is_anybody(who)]
    yield from filter(None, named)
    if lets_anybody(statement) or all(kind == "Service" for kind, _ in statement.principals):
        for condition in statement.conditions:
            if condition.key in _NAMING and "not" not in condition.operator:
                yield from filter(None, map(account_of, condition.values))


@rule(
    "residency-aws-policy-sharing",
    "Policies let in own and allowed accounts only",
    Severity.HIGH,
    frozenset(RESOURCE_POLICIES) | {_TRUST},
    _CONTROLS,
    "Remove the account from the policy, or add it to the setting allowedAccounts once it is sure "
    "that its owner keeps data in the country: what is shared may be copied anywhere.",
)
def policy_sharing(resource: Resource, context: Context) -> Iterator[Finding]:
    """Accounts by number, by ARN, and by conditions that say which of all callers are meant.

    Where neither the provider nor the cloud has told one's own account, the only one that a whole
    stack names counts as that until it is told.
    """
    path = "assumeRolePolicy" if resource.kind == _TRUST else RESOURCE_POLICIES[resource.kind]
    document = read(resource.get(path), path)
    own = own_accounts(resource, context)
    for statement in document.allowing:
        for number in dict.fromkeys(_let_in(statement)):
            if number in own or number in context.settings.allowed_accounts:
                continue
            reason = (
                f"{statement.label} lets in the account {number}, which the setting "
                "allowedAccounts lacks"
            )
            if own:
                yield violation(statement.path, reason)
            elif context.stack is None or only_account(context.stack) != number:
                yield indeterminate(statement.path, f"{reason}, unless it is one's own")


#: Who delivers the logs of AWS's own edge service
#: (https://docs.aws.amazon.com/AmazonCloudFront/latest/DeveloperGuide/standard-logging-legacy-s3.html).
_DELIVERY: Final = "c4c1ede66af53448b93c283ce9448c4ba468c9432aa01d700d3878632f77d2d0"


@rule(
    "residency-aws-acl-sharing",
    "Lists of access name the owner of a bucket only",
    Severity.HIGH,
    {"aws:s3/bucketAcl:BucketAcl", "aws:s3/bucketAclV2:BucketAclV2"},
    _CONTROLS,
    "Remove the grant, and let others in by a policy that names their account.",
)
def acl_sharing(resource: Resource, context: Context) -> Iterator[Finding]:
    """Grants to users by their canonical id, which says no account, and by mail."""
    holder = "accessControlPolicy"
    owner = resource.get(f"{holder}.owner.id")
    for path, grantee in select(resource.properties, f"{holder}.grants.grantee"):
        who = get(grantee, "id")
        if is_unknown(grantee) or is_unknown(who) or (is_unknown(owner) and text(who)):
            yield indeterminate(path, "with whom it is shared can't be known")
        elif text(get(grantee, "emailAddress")):
            yield violation(path, "it is shared with whoever has an address of mail")
        elif text(who) not in ("", text(owner), _DELIVERY, *context.settings.allowed_accounts):
            yield violation(path, "it is shared with an owner whom allowedAccounts doesn't name")


@rule(
    "residency-aws-resource-share",
    "Resource shares stay within the organisation",
    Severity.HIGH,
    {"aws:ram/resourceShare:ResourceShare"},
    _CONTROLS,
    "Set allowExternalPrincipals to false.",
)
def resource_share(resource: Resource, context: Context) -> Iterator[Finding]:
    """Off unless it is switched on."""
    path = "allowExternalPrincipals"
    value = resource.get(path)
    if is_unknown(value):
        yield indeterminate(path, "whether others than the organisation may join can't be known")
    elif is_true(value):
        yield violation(path, "accounts outside of the organisation may join the share")


# Disks, images and registries of Azure: who may take copies, and from where images come.


@rule(
    "residency-azure-disk-export",
    "Disks and snapshots can't be downloaded over the Internet",
    Severity.HIGH,
    azure("compute:Disk", "compute:Snapshot"),
    AZURE_CONTROLS,
    "Set networkAccessPolicy to DenyAll, or to AllowPrivate with a disk access, and "
    "publicNetworkAccess to Disabled.",
)
def disk_export(resource: Resource, context: Context) -> Iterator[Finding]:
    """AllowAll and Enabled by default: a link then lets anyone, anywhere, copy the disk.

    https://learn.microsoft.com/azure/virtual-machines/disks-restrict-import-export-overview
    """
    del context
    policy = resource.get("networkAccessPolicy")
    public = resource.get("publicNetworkAccess")
    if text(policy).lower() in {"denyall", "allowprivate"}:
        return
    if is_unknown(policy):
        yield indeterminate("networkAccessPolicy", "whether it can be downloaded can't be seen")
    elif is_unknown(public):
        yield indeterminate("publicNetworkAccess", "whether it can be downloaded can't be seen")
    elif text(public).lower() != "disabled":
        given = text(policy) or "not given, and so AllowAll"
        yield violation(
            "networkAccessPolicy",
            f"it is {given}: a link lets anyone copy it; it must be DenyAll or AllowPrivate",
        )


@rule(
    "residency-azure-community-gallery",
    "Galleries aren't shared with the whole world",
    Severity.CRITICAL,
    azure("compute:Gallery"),
    AZURE_CONTROLS,
    "Set sharingProfile.permissions to Private or Groups.",
)
def community_gallery(resource: Resource, context: Context) -> Iterator[Finding]:
    """A community's images can be used by every subscription; galleries are private by default."""
    del context
    path = "sharingProfile.permissions"
    shared = resource.get(path)
    if is_unknown(shared):
        yield indeterminate(path, "with whom it is shared can't be seen")
    elif text(shared).lower() == "community":
        yield violation(path, "it is shared with every subscription of the world")


@rule(
    "residency-azure-registry-cache",
    "Registries cache images of allowed registries only",
    Severity.HIGH,
    azure("containerregistry:CacheRule"),
    AZURE_CONTROLS,
    "Import the images that you have reviewed, or name the registry in the setting "
    "allowedRegistries: a cache tells its source what runs here, and runs what the source says.",
)
def registry_cache(resource: Resource, context: Context) -> Iterator[Finding]:
    """Where a cache gets its images; nodes get their own from Microsoft's whether a cache names
    it or not."""
    path = "sourceRepository"
    source = resource.get(path)
    if is_unknown(source):
        yield indeterminate(path, "the registry that it caches can't be seen")
    elif text(source):
        image = parse(text(source))
        if image.host not in SYSTEM and not is_allowed(image, context.settings):
            yield violation(path, f"it caches {image.host}, which is none of allowedRegistries")


RULES: tuple[Rule, ...] = (
    stack_region,
    hidden_resources,
    billing_export,
    user_messages,
    sharing,
    policy_sharing,
    acl_sharing,
    resource_share,
    disk_export,
    community_gallery,
    registry_cache,
)
