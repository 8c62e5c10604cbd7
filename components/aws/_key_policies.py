"""Who may do what with a key: administrators never use it, users never manage it.

The account's IAM policies decide which principals are users; the key's own policy decides through
which services and for what. Both have to agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi

from falaj.components.aws._arn import arn, iam_arn, service_host
from falaj.components.aws._iam import Statement, document

#: Actions that manage a key and none that use it:
#: https://docs.aws.amazon.com/kms/latest/developerguide/key-policy-default.html
ADMINISTRATION = (
    "kms:CancelKeyDeletion",
    "kms:CreateAlias",
    "kms:DeleteAlias",
    "kms:DescribeKey",
    "kms:DisableKey",
    "kms:DisableKeyRotation",
    "kms:EnableKey",
    "kms:EnableKeyRotation",
    "kms:GetKeyPolicy",
    "kms:GetKeyRotationStatus",
    "kms:ListAliases",
    "kms:ListGrants",
    "kms:ListKeyPolicies",
    "kms:ListKeyRotations",
    "kms:ListResourceTags",
    "kms:PutKeyPolicy",
    "kms:RevokeGrant",
    "kms:RotateKeyOnDemand",
    "kms:ScheduleKeyDeletion",
    "kms:TagResource",
    "kms:UntagResource",
    "kms:UpdateAlias",
    "kms:UpdateKeyDescription",
)
#: Actions that use a key.
USE = (
    "kms:Decrypt",
    "kms:DescribeKey",
    "kms:Encrypt",
    "kms:GenerateDataKey",
    "kms:GenerateDataKeyWithoutPlaintext",
    "kms:ReEncryptFrom",
    "kms:ReEncryptTo",
)
_GRANTS = ("kms:CreateGrant", "kms:ListGrants")
#: In a key's policy this means the key itself.
_THIS = ("*",)

#: Services through which principals use the keys. State is encrypted by whoever deploys, and the
#: cluster's secrets by EKS under a grant: these two have no service in between.
_VIA: Mapping[str, Sequence[str]] = {
    "data": ("s3", "fsx", "elasticfilesystem", "secretsmanager"),
    "disks": ("ec2",),
    "cluster": (),
    "logs": ("s3", "logs", "sns", "network-firewall"),
    "registry": ("ecr",),
    "state": (),
}
#: Roles of AWS that start machines, by their path.
_STARTERS = (
    "autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
    "spot.amazonaws.com/AWSServiceRoleForEC2Spot",
)
#: Purposes whose services work with the key on their own afterwards, by a grant.
_GRANTED = ("data", "disks", "cluster", "logs", "registry")


@dataclass(frozen=True)
class KeyHolder:
    """The account and region whose key it is, and who administers it."""

    account: str
    region: str
    administrators: tuple[str, ...]
    """Empty: whoever the account's IAM policies allow to."""

    @property
    def root(self) -> str:
        """The account: "whoever its IAM policies allow to"."""
        return iam_arn(self.account, "root")


def key_policy(purpose: str, holder: KeyHolder) -> pulumi.Output[str]:
    """The policy of the key for a purpose."""
    statements = [*_administration(holder), _use(purpose, holder)]
    if purpose in _GRANTED:
        statements.append(_grants(purpose, holder))
    if purpose == "registry":
        statements.append(_end_of_grants(holder))
    if purpose == "disks":
        statements.extend(_scaling(holder))
    if purpose == "logs":
        statements.extend(_log_services(holder))
    return document(*statements)


def _administration(holder: KeyHolder) -> list[Statement]:
    """Administrators, or the account's IAM; always the root user, so that no key is orphaned."""
    if not holder.administrators:
        return [Statement("Administer", ADMINISTRATION, _THIS, principals={"AWS": [holder.root]})]
    return [
        Statement(
            "Administer", ADMINISTRATION, _THIS, principals={"AWS": list(holder.administrators)}
        ),
        Statement(
            "Recover",
            ("kms:DescribeKey", "kms:GetKeyPolicy", "kms:PutKeyPolicy"),
            _THIS,
            principals={"AWS": [holder.root]},
            conditions={"ArnEquals": {"aws:PrincipalArn": holder.root}},
        ),
    ]


def _own(holder: KeyHolder, services: Sequence[str]) -> dict[str, dict[str, str | list[str]]]:
    found: dict[str, str | list[str]] = {"kms:CallerAccount": holder.account}
    if services:
        found["kms:ViaService"] = [service_host(each, holder.region) for each in services]
    return {"StringEquals": found}


def _use(purpose: str, holder: KeyHolder) -> Statement:
    return Statement(
        "Use",
        USE,
        _THIS,
        principals={"AWS": [holder.root]},
        conditions=_own(holder, _VIA[purpose]),
    )


def _grants(purpose: str, holder: KeyHolder) -> Statement:
    """Only for services: a person can't hand the key on."""
    conditions = {
        **_own(holder, _VIA[purpose]),
        "Bool": {"kms:GrantIsForAWSResource": "true"},
    }
    return Statement(
        "GrantToServices", _GRANTS, _THIS, principals={"AWS": [holder.root]}, conditions=conditions
    )


def _end_of_grants(holder: KeyHolder) -> Statement:
    """ECR gives its grants back when a repository is deleted, on behalf of whoever does that.

    https://docs.aws.amazon.com/AmazonECR/latest/userguide/encryption-at-rest.html
    """
    return Statement(
        "EndOfGrants",
        ("kms:RetireGrant",),
        _THIS,
        principals={"AWS": [holder.root]},
        conditions=_own(holder, _VIA["registry"]),
    )


def _scaling(holder: KeyHolder) -> list[Statement]:
    """Scaling groups start machines with encrypted disks by roles that AWS makes; spot by another.

    A role may not exist yet, and a policy that names it as principal would be refused; so they are
    named by a condition: https://docs.aws.amazon.com/autoscaling/ec2/userguide/
    key-policy-requirements-EBS-encryption.html and
    https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/service-linked-roles-spot-instance-requests.html
    """
    roles = [iam_arn(holder.account, f"role/aws-service-role/{each}") for each in _STARTERS]
    who = {"StringEquals": {"kms:CallerAccount": holder.account}}
    is_role = {"ArnEquals": {"aws:PrincipalArn": roles}}
    granted = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    return [
        Statement(
            "UseByScalingGroups",
            USE,
            _THIS,
            principals={"AWS": ["*"]},
            conditions={**who, **is_role},
        ),
        Statement(
            "GrantByScalingGroups",
            ("kms:CreateGrant",),
            _THIS,
            principals={"AWS": ["*"]},
            conditions={**who, **is_role, **granted},
        ),
    ]


def _log_services(holder: KeyHolder) -> list[Statement]:
    """Services that write logs and alerts on their own, each for this account's resources only.

    EventBridge doesn't tell KMS for which rule or account it asks; the topic that is encrypted for
    is known instead: https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html
    """
    groups = arn("logs", holder.region, holder.account, "log-group:*")
    trails = arn("cloudtrail", holder.region, holder.account, "trail/*")
    topics = arn("sns", holder.region, holder.account, "*")
    return [
        Statement(
            "LogGroups",
            USE,
            _THIS,
            principals={"Service": [service_host("logs", holder.region)]},
            conditions={"ArnLike": {"kms:EncryptionContext:aws:logs:arn": groups}},
        ),
        Statement(
            "Trail",
            ("kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"),
            _THIS,
            principals={"Service": ["cloudtrail.amazonaws.com"]},
            conditions={
                "StringEquals": {"aws:SourceAccount": holder.account},
                "ArnLike": {"aws:SourceArn": trails},
            },
        ),
        Statement(
            "Alerts",
            ("kms:Decrypt", "kms:GenerateDataKey"),
            _THIS,
            principals={"Service": ["events.amazonaws.com"]},
            conditions={"ArnLike": {"kms:EncryptionContext:aws:sns:topicArn": topics}},
        ),
    ]
