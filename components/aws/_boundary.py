"""The boundary of every role: what not even a policy that allows it lets it do.

A permissions boundary grants nothing. It names the services that roles may be given, and refuses
what would take data out of the country, hide what was done, or lift the boundary itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from falaj.components.aws._arn import arn, iam_arn
from falaj.components.aws._iam import Statement, document

#: Services that roles may be given by their policies.
_SERVICES = (
    *("access-analyzer", "acm", "acm-pca", "application-autoscaling", "autoscaling", "budgets"),
    *("cloudtrail", "cloudwatch", "ec2", "ecr", "ecs", "eks", "eks-auth", "elasticfilesystem"),
    *("elasticloadbalancing", "fsx", "guardduty", "iam", "kms", "logs", "network-firewall"),
    *("route53", "s3", "secretsmanager", "servicequotas", "sqs", "ssm", "ssmmessages", "sts"),
    *("ec2messages", "tag"),
)
#: Services that have no region, or whose one is abroad: they hold names and permissions, not data.
#: https://docs.aws.amazon.com/organizations/latest/userguide/
#: orgs_manage_policies_scps_examples_general.html
_GLOBAL = ("budgets:*", "iam:*", "route53:*", "s3:ListAllMyBuckets", "sts:*")


@dataclass(frozen=True)
class Limits:
    """What the boundary is about."""

    account: str
    regions: tuple[str, ...]
    boundary: str
    """Name of the boundary's own policy."""
    duties: Sequence[str]
    """Names of the roles that it was made for."""
    log_prefix: str
    audit_bucket: str | None
    """ARN of the audit bucket."""


def boundary_policy(limits: Limits) -> pulumi.Output[str]:
    """The boundary's document; AWS takes 6,144 characters."""
    return document(
        Statement("Ceiling", [f"{service}:*" for service in _SERVICES], ["*"]),
        _elsewhere(limits),
        *_out(),
        *_hiding(limits),
        *_lifting(limits),
    )


def _deny(
    sid: str,
    actions: Sequence[str],
    resources: Sequence[str] = ("*",),
    conditions: dict[str, dict[str, str]] | None = None,
) -> Statement:
    return Statement(sid, actions, resources, effect="Deny", conditions=conditions or {})


def _elsewhere(limits: Limits) -> Statement:
    return Statement(
        "OnlyInCountry",
        [],
        ["*"],
        effect="Deny",
        not_actions=_GLOBAL,
        conditions={"StringNotEquals": {"aws:RequestedRegion": list(limits.regions)}},
    )


def _out() -> list[Statement]:
    """Copies and shares that start in the region and end elsewhere, or with somebody else."""
    return [
        _deny(
            "NoCopiesOut",
            [
                "ec2:CopyImage",
                "ec2:CopySnapshot",
                "ec2:CreateStoreImageTask",
                "ec2:ExportImage",
                "ec2:ModifyImageAttribute",
                "ec2:ModifySnapshotAttribute",
                "ecr:*RegistryPolicy",
                "ecr:PutReplicationConfiguration",
                "ecr:SetRepositoryPolicy",
                "elasticfilesystem:CreateReplicationConfiguration",
                "kms:ReplicateKey",
                "s3:DeleteBucketPolicy",
                "s3:PutAccelerateConfiguration",
                "s3:PutBucketPolicy",
                "s3:PutReplicationConfiguration",
                "secretsmanager:PutResourcePolicy",
                "secretsmanager:ReplicateSecretToRegions",
            ],
        ),
    ]


def _hiding(limits: Limits) -> list[Statement]:
    groups = arn("logs", "*", limits.account, f"log-group:{limits.log_prefix}/*")
    found = [
        _deny(
            "KeepWatching",
            [
                "cloudtrail:DeleteTrail",
                "cloudtrail:PutEventSelectors",
                "cloudtrail:StopLogging",
                "cloudtrail:UpdateTrail",
                "ec2:DeleteFlowLogs",
                # Filters and trusted addresses keep findings from being told.
                "guardduty:*Filter",
                "guardduty:*IPSet",
                "guardduty:ArchiveFindings",
                "guardduty:Delete*",
                "guardduty:Disassociate*",
                "guardduty:Stop*",
                "guardduty:UpdateDetector",
                "s3:BypassGovernanceRetention",
                "s3:PutBucketPublicAccessBlock",
            ],
        ),
        _deny(
            "KeepLogs",
            [
                "logs:Delete*",
                "logs:DisassociateKmsKey",
                "logs:PutRetentionPolicy",
            ],
            [groups],
        ),
    ]
    if limits.audit_bucket:
        found.append(
            _deny(
                "KeepAudit",
                [
                    "s3:DeleteBucket*",
                    "s3:DeleteObject*",
                    "s3:PutBucket*",
                    "s3:PutLifecycleConfiguration",
                    "s3:PutObject*",
                ],
                [limits.audit_bucket, f"{limits.audit_bucket}/*"],
            )
        )
    return found


def _lifting(limits: Limits) -> list[Statement]:
    own = iam_arn(limits.account, f"policy/{limits.boundary}")
    duties = [iam_arn(limits.account, f"role/{name}") for name in limits.duties]
    return [
        # A role without the boundary could be made, or an older one be given more, and used to do
        # whatever it refuses.
        _deny(
            "NewRolesHaveIt",
            [
                "iam:AttachRolePolicy",
                "iam:CreateRole",
                "iam:PutRolePermissionsBoundary",
                "iam:PutRolePolicy",
            ],
            conditions={"StringNotEquals": {"iam:PermissionsBoundary": own}},
        ),
        _deny(
            "KeepIt",
            [
                "iam:CreatePolicyVersion",
                "iam:DeletePolicy*",
                "iam:SetDefaultPolicyVersion",
            ],
            [own],
        ),
        _deny("KeepItOnRoles", ["iam:DeleteRolePermissionsBoundary"]),
        _deny(
            "KeepDuties",
            [
                "iam:*RolePolicy",
                "iam:DeleteRole",
                "iam:UpdateAssumeRolePolicy",
                "iam:UpdateRole",
            ],
            duties,
        ),
        # People sign in by roles; nobody gets a key or password that lasts.
        _deny(
            "NoLastingCredentials",
            [
                "iam:CreateAccessKey",
                "iam:CreateLoginProfile",
                "iam:CreateUser",
                "iam:*MFADevice",
            ],
        ),
    ]
