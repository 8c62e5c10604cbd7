"""The keys of a foundation on AWS: one KMS key for each purpose, and who may do what with it.

Administrators never use a key, users never manage it. The account's IAM policies decide which
principals are users; the key's own policy decides through which services and for what. Both have
to agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import account_of, child, named, stateful, token, written
from falaj.components.aws._iam import Statement, arn, document, iam_arn, service_host
from falaj.components.catalogue.tag_names import tag_name
from falaj.components.specification.key_ring import PURPOSES, KeyRingArgs, KeyRingSpec, check
from falaj.components.specification.property_names import engine_inputs

#: Actions that manage a key and none that use it:
#: https://docs.aws.amazon.com/kms/latest/developerguide/key-policy-default.html
KEY_ADMINISTRATION = (
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
KEY_USE = (
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

#: The tag that says what a key is for.
PURPOSE_TAG = tag_name("aws", "purpose")
#: The purpose of a key that a tier makes for its sessions, and that is in no ring.
SESSIONS = "sessions"

#: Services through which principals use the keys. State is encrypted by whoever deploys, and the
#: cluster's secrets by EKS under a grant: these two have no service in between.
_VIA: Mapping[str, Sequence[str]] = {
    "data": ("s3", "fsx", "elasticfilesystem", "secretsmanager"),
    "disks": ("ec2", "fsx"),
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
_GRANTED = frozenset(PURPOSES) - {"state"}


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
        return [
            Statement("Administer", KEY_ADMINISTRATION, _THIS, principals={"AWS": [holder.root]})
        ]
    return [
        Statement(
            "Administer",
            KEY_ADMINISTRATION,
            _THIS,
            principals={"AWS": list(holder.administrators)},
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
        KEY_USE,
        _THIS,
        principals={"AWS": [holder.root]},
        conditions=_own(holder, _VIA[purpose]),
    )


def _grants(purpose: str, holder: KeyHolder) -> Statement:
    """Only for services: a person can't hand the key on, except to a cluster.

    EKS makes its grant in the name of whoever makes the cluster, without the condition, and its
    role lists grants without it: docs.aws.amazon.com/eks/latest/userguide/enable-kms.html and
    github.com/terraform-aws-modules/terraform-aws-eks/issues/2371. There the policies of the
    account's principals decide.
    """
    conditions = _own(holder, _VIA[purpose])
    if purpose != "cluster":
        conditions["Bool"] = {"kms:GrantIsForAWSResource": "true"}
    return Statement(
        "GrantToServices",
        _GRANTS,
        _THIS,
        principals={"AWS": [holder.root]},
        conditions=conditions,
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
            KEY_USE,
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
            KEY_USE,
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


__all__ = ["KeyRing", "KeyRingArgs"]


class KeyRing(pulumi.ComponentResource):
    """One KMS key for each purpose, managed by people who can't use it.

    ::

        keys = KeyRing("keys", {
            "region": "me-central-1", "tenant": "acme", "owner": "platform@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "administrators": ["arn:aws:iam::000000000000:role/key-administrators"],
        }, pulumi.ResourceOptions(providers=[provider]))

    Makes for each purpose a `kms.Key` (never multi-region, rotated) and a `kms.Alias`
    ``alias/<tenant>-<stack>-<name>-<purpose>``. Its policy lets administrators manage and never
    use it, and lets the account's principals use it only through the purpose's services and only
    if their own policy says so, too. Name the role that deploys among the administrators: KMS
    refuses a policy that locks out whoever sets it. Without administrators the account's IAM
    policies say who manages keys.

    Keys are protected and retained in production; elsewhere they are deleted after the shortest
    window, seven days.
    """

    key_ring_id: pulumi.Output[str]
    """ARN of the first key; on AWS the ring itself is no resource."""
    key_ids: pulumi.Output[dict[str, str]]
    """ARNs of the keys by purpose."""
    disk_encryption_id: pulumi.Output[str]
    """ARN of the key for disks; empty without that purpose."""
    key_identity_id: pulumi.Output[str | None]
    """Always none: on AWS every service uses keys as itself or as its caller."""

    def __init__(
        self, name: str, args: KeyRingArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("KeyRing"), name, engine_inputs(args), opts)
        account = account_of(self)
        keys = {purpose: self._key(name, purpose, spec, account) for purpose in spec.purposes}
        arns: dict[str, pulumi.Output[str]] = {each: key.arn for each, key in keys.items()}
        self.key_ids = pulumi.Output.all(**arns)
        self.key_ring_id = arns[spec.purposes[0]]
        self.disk_encryption_id = pulumi.Output.from_input(arns.get("disks", ""))
        self.key_identity_id = pulumi.Output.from_input(None)
        outputs: dict[str, Any] = {
            "key_ring_id": self.key_ring_id,
            "key_ids": self.key_ids,
            "disk_encryption_id": self.disk_encryption_id,
            "key_identity_id": self.key_identity_id,
        }
        self.register_outputs(written(outputs))

    def _key(
        self, name: str, purpose: str, spec: KeyRingSpec, account: pulumi.Output[str]
    ) -> aws.kms.Key:
        def policy(number: str) -> pulumi.Output[str]:
            return key_policy(purpose, KeyHolder(number, spec.placed.region, spec.administrators))

        key = aws.kms.Key(
            f"{name}-{purpose}",
            description=f"{purpose} of {spec.placed.tenant}, {pulumi.get_stack()}",
            policy=account.apply(policy),
            enable_key_rotation=True,
            rotation_period_in_days=spec.rotation_days,
            deletion_window_in_days=spec.deletion_window_days,
            multi_region=False,
            bypass_policy_lockout_safety_check=False,
            tags={**spec.placed.tags(name), PURPOSE_TAG: purpose},
            opts=stateful(self, spec.placed),
        )
        aws.kms.Alias(
            f"{name}-{purpose}",
            name=f"alias/{named(spec.placed, name, purpose, limit=200)}",
            target_key_id=key.key_id,
            opts=child(self),
        )
        return key
