"""What each duty may do, and what nobody may: the policies of the roles and their boundary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi

from falaj.components.aws._iam import PULL_IMAGES, Statement, arn, document, iam_arn, service_host
from falaj.components.aws.key_ring import KEY_ADMINISTRATION, PURPOSE_TAG, SESSIONS
from falaj.components.specification.identity import (
    AUDITOR,
    DEPLOYER,
    KEY_ADMINISTRATOR,
    PROVISIONER,
    TRAINER,
)

_CRYPTOGRAPHY = (
    "kms:CreateGrant",
    "kms:Decrypt",
    "kms:Encrypt",
    "kms:GenerateDataKey*",
    "kms:ReEncrypt*",
)
READ_OBJECTS = ("s3:GetObject", "s3:GetObjectVersion")
WRITE_OBJECTS = ("s3:AbortMultipartUpload", "s3:PutObject")
_PULL = tuple(sorted((*PULL_IMAGES, "ecr:DescribeImages")))
_PUSH = (
    "ecr:CompleteLayerUpload",
    "ecr:InitiateLayerUpload",
    "ecr:PutImage",
    "ecr:UploadLayerPart",
)
#: What makes infrastructure. None of it reads what is in buckets, images or secrets.
_INFRASTRUCTURE = (
    "acm-pca:*",
    "acm:*",
    "application-autoscaling:*",
    "autoscaling:*",
    "budgets:*",
    "cloudwatch:*",
    "ec2:*",
    "ecs:*",
    "eks:*",
    "elasticfilesystem:*",
    "elasticloadbalancing:*",
    "fsx:*",
    "logs:*",
    "network-firewall:*",
    "route53:*",
    "servicequotas:*",
    "ssm:GetParameter*",
    "tag:*",
)


@dataclass(frozen=True)
class Realm:
    """The resources that duties are about, by their ARNs."""

    account: str
    region: str
    prefix: str
    """What names of the tenant's roles begin with."""
    log_prefix: str
    """What names of its log groups begin with."""
    buckets: dict[str, str]
    repositories: dict[str, str]
    keys: dict[str, str]

    def objects(self, *purposes: str) -> list[str]:
        """All objects of the buckets that exist."""
        return [f"{self.buckets[each]}/*" for each in purposes if each in self.buckets]

    def lists(self, *purposes: str) -> list[str]:
        """The buckets that exist."""
        return [self.buckets[each] for each in purposes if each in self.buckets]

    def key(self, *purposes: str) -> list[str]:
        """The keys that exist."""
        return [self.keys[each] for each in purposes if each in self.keys]

    def secrets(self, pattern: str) -> str:
        """The tenant's secrets whose names end like this; six characters of AWS's follow."""
        return arn("secretsmanager", self.region, self.account, f"secret:{self.prefix}-{pattern}")

    def images(self, *repositories: str) -> list[str]:
        """The repositories that exist; all of them without names."""
        wanted = repositories or tuple(self.repositories)
        return [self.repositories[each] for each in wanted if each in self.repositories]


def duty_policy(duty: str, realm: Realm) -> pulumi.Output[str]:
    """What a duty may do."""
    statements = _DUTIES[duty](realm)
    # A statement about resources that the foundation doesn't have would be about all of them.
    return document(*(each for each in statements if each.resources))


def _provisioner(realm: Realm) -> list[Statement]:
    roles = [iam_arn(realm.account, f"role/{realm.prefix}-*")]
    profiles = [iam_arn(realm.account, f"instance-profile/{realm.prefix}-*")]
    return [
        Statement("Infrastructure", _INFRASTRUCTURE, ["*"]),
        Statement(
            "OwnRoles",
            [
                "iam:*InstanceProfile",
                "iam:*RolePolicy",
                "iam:CreateRole",
                "iam:DeleteRole",
                "iam:Get*",
                "iam:List*",
                "iam:PassRole",
                "iam:PutRolePermissionsBoundary",
                "iam:TagRole",
                "iam:UntagRole",
                "iam:UpdateAssumeRolePolicy",
                "iam:UpdateRole",
                "iam:UpdateRoleDescription",
            ],
            [*roles, *profiles],
        ),
        Statement(
            "ServiceRoles",
            ["iam:CreateServiceLinkedRole"],
            [iam_arn(realm.account, "role/aws-service-role/*")],
        ),
        # Made, never filled or read.
        Statement(
            "EmptySecrets",
            [
                "secretsmanager:CreateSecret",
                "secretsmanager:DeleteSecret",
                "secretsmanager:DescribeSecret",
                "secretsmanager:GetResourcePolicy",
                "secretsmanager:TagResource",
                "secretsmanager:UntagResource",
            ],
            [realm.secrets("*")],
        ),
        Statement("StateList", ["s3:ListBucket"], realm.lists("state")),
        Statement(
            "State", [*READ_OBJECTS, *WRITE_OBJECTS, "s3:DeleteObject"], realm.objects("state")
        ),
        Statement(
            "StateKey", ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"], realm.key("state")
        ),
        Statement(
            "HandKeysToServices",
            ["kms:CreateGrant", "kms:DescribeKey", "kms:ListGrants"],
            realm.key("data", "disks", "registry"),
            conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}},
        ),
        # EKS makes its grant in the provisioner's name, and doesn't support that condition:
        # https://docs.aws.amazon.com/eks/latest/userguide/enable-kms.html
        Statement(
            "HandKeyToClusters",
            ["kms:CreateGrant", "kms:DescribeKey", "kms:ListGrants"],
            realm.key("cluster"),
        ),
        # EFS asks for one as whoever makes a file system, who never sees it:
        # https://docs.aws.amazon.com/efs/latest/ug/EFSKMS.html
        Statement(
            "KeysOfFileSystems",
            ["kms:GenerateDataKeyWithoutPlaintext"],
            realm.key("data"),
            conditions={
                "StringEquals": {"kms:ViaService": service_host("elasticfilesystem", realm.region)}
            },
        ),
        *_sessions(realm),
        Statement(
            "UseKeysOfServices",
            ["kms:DescribeKey"],
            list(realm.keys.values()),
        ),
        Statement(
            "NotTheData",
            ["s3:GetObject*", "s3:PutObject*"],
            realm.objects("datasets", "models", "checkpoints", "audit"),
            effect="Deny",
        ),
    ]


def _sessions(realm: Realm) -> list[Statement]:
    """What a tier's sessions are made of: a document, and a key that goes with the tier.

    The key has its policy from the call that makes it, and gets another by a key administrator.
    KMS takes no narrower right to tag a key as it is made than one for all keys
    (https://docs.aws.amazon.com/kms/latest/developerguide/tag-permissions.html): so those that
    have a purpose are left out, as all of a ring have. Others of the account are not, as far as
    their policies leave them to IAM. None gets another purpose: a key that whoever deploys made
    and gave its policy never passes for one of a ring.
    """
    asked = {f"aws:RequestTag/{PURPOSE_TAG}": SESSIONS}
    is_one = f"aws:ResourceTag/{PURPOSE_TAG}"
    return [
        Statement(
            "DocumentsOfSessions",
            [
                "ssm:AddTagsToResource",
                "ssm:CreateDocument",
                "ssm:DeleteDocument",
                "ssm:DescribeDocument*",
                "ssm:GetDocument",
                "ssm:ListTagsForResource",
                "ssm:RemoveTagsFromResource",
                "ssm:UpdateDocument*",
            ],
            [arn("ssm", realm.region, realm.account, f"document/{realm.prefix}-*")],
        ),
        Statement(
            "MakeKeysOfSessions", ["kms:CreateKey"], ["*"], conditions={"StringEquals": asked}
        ),
        Statement(
            "TagKeysOfSessions",
            ["kms:TagResource"],
            ["*"],
            conditions={"StringEquals": asked, "Null": {is_one: "true"}},
        ),
        Statement(
            "KeysOfSessions",
            [
                "kms:DescribeKey",
                "kms:*KeyRotation",
                "kms:GetKeyPolicy",
                "kms:GetKeyRotationStatus",
                "kms:ListResourceTags",
                "kms:ScheduleKeyDeletion",
                "kms:TagResource",
                "kms:UntagResource",
                "kms:UpdateKeyDescription",
            ],
            ["*"],
            # If there are any: of these actions one alone has tags in its request.
            conditions={"StringEquals": {is_one: SESSIONS}, "StringEqualsIfExists": asked},
        ),
    ]


def _trainer(realm: Realm) -> list[Statement]:
    return [
        Statement("List", ["s3:ListBucket"], realm.lists("datasets", "checkpoints", "models")),
        Statement("ReadDatasets", READ_OBJECTS, realm.objects("datasets")),
        Statement(
            "Checkpoints",
            [*READ_OBJECTS, *WRITE_OBJECTS, "s3:DeleteObject"],
            realm.objects("checkpoints"),
        ),
        Statement("HandInModels", [*READ_OBJECTS, *WRITE_OBJECTS], realm.objects("models")),
        *_data_key(realm, "s3"),
        Statement("Pull", _PULL, realm.images()),
        Statement("Push", _PUSH, realm.images("training")),
        *_cluster(realm),
    ]


def _deployer(realm: Realm) -> list[Statement]:
    return [
        Statement("List", ["s3:ListBucket"], realm.lists("models")),
        Statement("ReadModels", READ_OBJECTS, realm.objects("models")),
        # Key rings of inference tiers can be filled and not be read.
        Statement(
            "FillKeyRings",
            ["secretsmanager:DescribeSecret", "secretsmanager:PutSecretValue"],
            [realm.secrets("*-keyring-*")],
        ),
        *_data_key(realm, "s3", "secretsmanager"),
        Statement("Pull", _PULL, realm.images()),
        Statement("Push", _PUSH, realm.images("inference", "platform")),
        *_cluster(realm),
    ]


def _auditor(realm: Realm) -> list[Statement]:
    groups = arn("logs", realm.region, realm.account, f"log-group:{realm.log_prefix}/*")
    return [
        Statement("List", ["s3:ListBucket"], realm.lists("audit")),
        Statement("ReadAudit", [*READ_OBJECTS, "s3:GetObjectRetention"], realm.objects("audit")),
        Statement("ReadKey", ["kms:Decrypt"], realm.key("logs")),
        Statement(
            "ReadLogs",
            ["logs:FilterLogEvents", "logs:Get*", "logs:StartQuery"],
            [groups],
        ),
        Statement(
            "LookAtConfiguration",
            [
                "access-analyzer:List*",
                "budgets:ViewBudget",
                "cloudtrail:Describe*",
                "cloudtrail:Get*",
                "cloudtrail:LookupEvents",
                "ec2:Describe*",
                "ecr:Describe*",
                "eks:Describe*",
                "eks:List*",
                "guardduty:Get*",
                "guardduty:List*",
                "iam:GenerateCredentialReport",
                "iam:Get*",
                "iam:List*",
                "kms:Describe*",
                "kms:GetKeyPolicy",
                "kms:GetKeyRotationStatus",
                "kms:List*",
                "logs:Describe*",
                "s3:GetBucket*",
                "s3:GetEncryptionConfiguration",
                "s3:ListAllMyBuckets",
            ],
            ["*"],
        ),
        Statement(
            "NotTheData",
            ["s3:GetObject*"],
            realm.objects("datasets", "models", "checkpoints", "state"),
            effect="Deny",
        ),
    ]


def _key_administrator(realm: Realm) -> list[Statement]:
    return [
        Statement("Administer", KEY_ADMINISTRATION, list(realm.keys.values())),
        Statement("Overview", ["kms:ListAliases", "kms:ListKeys"], ["*"]),
        Statement("NeverUse", _CRYPTOGRAPHY, ["*"], effect="Deny"),
    ]


def _data_key(realm: Realm, *services: str) -> list[Statement]:
    return [
        Statement(
            "DataKey",
            ["kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKey"],
            realm.key("data"),
            conditions={
                "StringEquals": {
                    "kms:ViaService": [service_host(each, realm.region) for each in services]
                },
            },
        )
    ]


def _cluster(realm: Realm) -> list[Statement]:
    """To get at a cluster at all; what they may do there its own access rules say."""
    clusters = arn("eks", realm.region, realm.account, f"cluster/{realm.prefix}-*")
    return [
        Statement("SeeClusters", ["eks:AccessKubernetesApi", "eks:DescribeCluster"], [clusters]),
        Statement("LogInToRegistry", ["ecr:GetAuthorizationToken"], ["*"]),
    ]


_DUTIES = {
    PROVISIONER: _provisioner,
    TRAINER: _trainer,
    DEPLOYER: _deployer,
    AUDITOR: _auditor,
    KEY_ADMINISTRATOR: _key_administrator,
}


# A permissions boundary grants nothing. It names the services that roles may have, and refuses,
# whatever a policy allows, what would take data out of the country, hide what was done, or lift
# the boundary itself.

#: Services that roles may be given by their policies.
BOUNDARY_SERVICES = (
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
        Statement("Ceiling", [f"{service}:*" for service in BOUNDARY_SERVICES], ["*"]),
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
