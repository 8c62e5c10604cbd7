"""Policy documents of typed statements, and the ARNs that they name.

No statement grants everything on everything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

_VERSION = "2012-10-17"
#: docs.aws.amazon.com/AmazonECR/latest/userguide/repository-policy-examples.html
PULL_IMAGES = (
    "ecr:BatchCheckLayerAvailability",
    "ecr:BatchGetImage",
    "ecr:GetDownloadUrlForLayer",
)
#: https://docs.aws.amazon.com/efs/latest/ug/iam-access-control-nfs-efs.html
MOUNT_FILES = (
    "elasticfilesystem:ClientMount",
    "elasticfilesystem:ClientRootAccess",
    "elasticfilesystem:ClientWrite",
)

Texts = Sequence[pulumi.Input[str]]
Conditions = Mapping[str, Mapping[str, pulumi.Input[str] | Texts]]


@dataclass(frozen=True)
class Statement:
    """One statement of a document."""

    sid: str
    """Letters and digits: what the statement is for."""
    actions: Sequence[str]
    resources: Texts = ()
    """Empty in trust policies, which are about the role itself."""
    effect: str = "Allow"
    principals: Mapping[str, Texts] = field(default_factory=dict[str, Texts])
    """By kind: ``AWS``, ``Service``, ``Federated``. Empty in policies of identities. ``*`` under
    ``AWS`` stands for anybody and needs conditions."""
    conditions: Conditions = field(default_factory=dict[str, Mapping[str, pulumi.Input[str]]])
    not_actions: Sequence[str] = ()
    """Everything but these; for denials only."""
    not_resources: Texts = ()
    """Everywhere but on these; for denials only."""

    def __post_init__(self) -> None:
        """Refuse what grants too much. Raises ValueError."""
        if not self.sid.isalnum():
            raise ValueError(f"statement {self.sid!r}: its id has to be letters and digits")
        if not self.actions and not self.not_actions:
            raise ValueError(f"statement {self.sid!r}: names no action")
        if self.effect == "Deny":
            return
        if self.not_actions or self.not_resources:
            raise ValueError(
                f"statement {self.sid!r}: allows all but something, and with it whatever a cloud "
                "adds later; name what is allowed"
            )
        if any(action in ("*", "*:*") for action in self.actions):
            raise ValueError(f"statement {self.sid!r}: allows every action; name the actions")
        anybody = "*" in [each for kind in self.principals.values() for each in kind]
        if anybody and not self.conditions:
            raise ValueError(f"statement {self.sid!r}: allows anybody; name principals")

    def plain(self) -> dict[str, Any]:
        """The statement as it stands in a document; values may still be outputs."""
        written: dict[str, Any] = {"Sid": self.sid, "Effect": self.effect}
        if self.principals:
            written["Principal"] = {kind: list(who) for kind, who in self.principals.items()}
        if self.not_actions:
            written["NotAction"] = sorted(self.not_actions)
        else:
            written["Action"] = sorted(self.actions)
        if self.not_resources:
            written["NotResource"] = list(self.not_resources)
        elif self.resources:
            written["Resource"] = list(self.resources)
        if self.conditions:
            written["Condition"] = {test: dict(keys) for test, keys in self.conditions.items()}
        return written


def document(*statements: Statement) -> pulumi.Output[str]:
    """A policy document; its text is the same in each run.

    Raises:
        ValueError: two statements share an id, or there is none.
    """
    ids = [statement.sid for statement in statements]
    if not ids or len(set(ids)) != len(ids):
        raise ValueError(f"statement ids {ids}: at least one is needed, each only once")
    plain = {"Version": _VERSION, "Statement": [each.plain() for each in statements]}
    # Whatever is resolved by now was checked above; the resolved text is checked once more, since
    # an output may have turned out to be '*'.
    return pulumi.Output.from_input(plain).apply(_text)


def trust(service: str, account: pulumi.Input[str] | None) -> pulumi.Output[str]:
    """Who may become a role: a service, acting for this account only.

    Without the account, another customer could have the service use the role (the "confused
    deputy": https://docs.aws.amazon.com/IAM/latest/UserGuide/confused-deputy.html). It is None
    only for services that may not say for whom they ask; IAM lets nobody pass them the role but
    this account's principals.
    """
    conditions: Conditions = {}
    if account is not None:
        conditions = {"StringEquals": {"aws:SourceAccount": account}}
    return document(
        Statement(
            "Service",
            ["sts:AssumeRole"],
            principals={"Service": [service]},
            conditions=conditions,
        )
    )


def pod_trust(
    account: str, cluster_arn: str, namespace: str, service_account: str
) -> pulumi.Output[str]:
    """Pods of one service account in one cluster may become a role, by EKS Pod Identity.

    https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html
    """
    return document(
        Statement(
            "Pods",
            ["sts:AssumeRole", "sts:TagSession"],
            principals={"Service": ["pods.eks.amazonaws.com"]},
            conditions={
                "StringEquals": {
                    "aws:SourceAccount": account,
                    "aws:RequestTag/kubernetes-namespace": namespace,
                    "aws:RequestTag/kubernetes-service-account": service_account,
                },
                "ArnEquals": {"aws:SourceArn": cluster_arn},
            },
        )
    )


def _text(plain: dict[str, Any]) -> str:
    for statement in plain["Statement"]:
        actions: list[str] = statement.get("Action", [])
        resources: list[str] = statement.get("Resource", [])
        if statement["Effect"] == "Allow" and "*" in actions and "*" in resources:
            raise ValueError(f"statement {statement['Sid']!r}: grants everything on everything")
    return json.dumps(plain, separators=(",", ":"))


#: Accounts of the commercial clouds; the country has none of another partition.
PARTITION = "aws"


def arn(service: str, region: str, account: str, resource: str) -> str:
    """The ARN of a regional resource, such as ``log-group:/falaj/acme`` of ``logs``."""
    return f"arn:{PARTITION}:{service}:{region}:{account}:{resource}"


def iam_arn(account: str, resource: str) -> str:
    """The ARN of a principal or policy, such as ``role/acme-trainer``; IAM knows no region."""
    return arn("iam", "", account, resource)


def bucket_arn(bucket: str, key: str = "") -> str:
    """The ARN of a bucket, or of objects in it (``*``); S3 writes neither region nor account."""
    return arn("s3", "", "", f"{bucket}/{key}" if key else bucket)


def service_host(service: str, region: str) -> str:
    """The host that stands for a service in conditions: ``s3.me-central-1.amazonaws.com``."""
    return f"{service}.{region}.amazonaws.com"


def role_of(principal: str) -> str:
    """Name of the role in ``arn:aws:iam::…:role/path/name``."""
    return principal.rpartition("/")[2]
