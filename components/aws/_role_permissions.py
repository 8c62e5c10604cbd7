"""What each duty may do, and what nobody may: the policies of the roles and their boundary."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from falaj.components.aws._arn import arn, iam_arn, service_host
from falaj.components.aws._iam import Statement, document
from falaj.components.aws._key_policies import ADMINISTRATION
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
_READ = ("s3:GetObject", "s3:GetObjectVersion")
_WRITE = ("s3:AbortMultipartUpload", "s3:PutObject")
_PULL = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:DescribeImages",
    "ecr:GetDownloadUrlForLayer",
)
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
        Statement("State", [*_READ, *_WRITE, "s3:DeleteObject"], realm.objects("state")),
        Statement(
            "StateKey", ["kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey"], realm.key("state")
        ),
        Statement(
            "HandKeysToServices",
            ["kms:CreateGrant", "kms:DescribeKey", "kms:ListGrants"],
            realm.key("data", "disks", "cluster", "registry"),
            conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}},
        ),
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


def _trainer(realm: Realm) -> list[Statement]:
    return [
        Statement("List", ["s3:ListBucket"], realm.lists("datasets", "checkpoints", "models")),
        Statement("ReadDatasets", _READ, realm.objects("datasets")),
        Statement(
            "Checkpoints", [*_READ, *_WRITE, "s3:DeleteObject"], realm.objects("checkpoints")
        ),
        Statement("HandInModels", [*_READ, *_WRITE], realm.objects("models")),
        *_data_key(realm, "s3"),
        Statement("Pull", _PULL, realm.images()),
        Statement("Push", _PUSH, realm.images("training")),
        *_cluster(realm),
    ]


def _deployer(realm: Realm) -> list[Statement]:
    return [
        Statement("List", ["s3:ListBucket"], realm.lists("models")),
        Statement("ReadModels", _READ, realm.objects("models")),
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
        Statement("ReadAudit", [*_READ, "s3:GetObjectRetention"], realm.objects("audit")),
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
        Statement("Administer", ADMINISTRATION, list(realm.keys.values())),
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
