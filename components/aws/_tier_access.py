"""What the inference tier may do on AWS: read its package and key ring, pull its image, log."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import ROLE_LIMIT, child, named, stateful
from falaj.components.aws._iam import Statement, document, trust
from falaj.components.specification.cpu_inference_tier import (
    CpuInferenceTierArgs,
    CpuInferenceTierSpec,
)


@dataclass(frozen=True)
class Needs:
    """ARNs of what the tier uses."""

    bucket: pulumi.Input[str]
    repository: pulumi.Input[str]
    data_key: pulumi.Input[str]
    keyring: pulumi.Output[str]
    log_group: pulumi.Output[str]

    def read_package(self, prefix: str) -> list[Statement]:
        """Read one package and the key ring; nothing else in the bucket or the vault."""
        bucket = pulumi.Output.from_input(self.bucket)
        return [
            Statement(
                "ReadPackage", ["s3:GetObject"], [bucket.apply(lambda arn: f"{arn}/{prefix}/*")]
            ),
            Statement(
                "ListPackage",
                ["s3:ListBucket"],
                [bucket],
                conditions={"StringLike": {"s3:prefix": f"{prefix}/*"}},
            ),
            Statement("ReadKeyRing", ["secretsmanager:GetSecretValue"], [self.keyring]),
            Statement("Decrypt", ["kms:Decrypt"], [self.data_key]),
        ]

    def pull_and_log(self) -> list[Statement]:
        """Pull from one repository and write to one log group."""
        return [
            # The login is to the account's registry; it names no resource.
            Statement("RegistryLogin", ["ecr:GetAuthorizationToken"], ["*"]),
            Statement(
                "PullImage",
                [
                    "ecr:BatchCheckLayerAvailability",
                    "ecr:BatchGetImage",
                    "ecr:GetDownloadUrlForLayer",
                ],
                [self.repository],
            ),
            Statement(
                "WriteLog",
                ["logs:CreateLogStream", "logs:PutLogEvents"],
                [self.log_group.apply(lambda arn: f"{arn}:*")],
            ),
        ]


def keyring_secret(
    parent: pulumi.Resource, spec: CpuInferenceTierSpec, args: CpuInferenceTierArgs
) -> pulumi.Output[str]:
    """ARN of the key ring's secret: the one that was given, or an empty one made here."""
    given = args.get("keyring_secret_id")
    if given is not None:
        return pulumi.Output.from_input(given)
    secret = aws.secretsmanager.Secret(
        f"{spec.name}-keyring",
        name=named(spec.placed, spec.name, "keyring", limit=512),
        description=f"Key ring of {spec.model}: a tar archive in base64",
        kms_key_id=args["data_key_id"],
        # Zero: a test's secret is gone at once, and its name free.
        recovery_window_in_days=30 if spec.placed.retained else 0,
        tags=spec.placed.tags(spec.name),
        opts=stateful(parent, spec.placed),
    )
    return secret.arn


def role(
    parent: pulumi.Resource,
    spec: CpuInferenceTierSpec,
    duty: str,
    *statements: Statement,
    trusted: pulumi.Output[str],
    boundary: pulumi.Input[str] | None,
) -> tuple[aws.iam.Role, aws.iam.RolePolicy]:
    """A role of the tier with its one policy."""
    made = aws.iam.Role(
        f"{spec.name}-{duty}",
        name=named(spec.placed, spec.name, duty, limit=ROLE_LIMIT),
        description=f"{duty} of the inference tier {spec.name}",
        assume_role_policy=trusted,
        permissions_boundary=boundary,
        tags=spec.placed.tags(spec.name),
        opts=child(parent),
    )
    policy = aws.iam.RolePolicy(
        f"{spec.name}-{duty}", role=made.name, policy=document(*statements), opts=child(parent)
    )
    return made, policy


def machine_trust() -> pulumi.Output[str]:
    """Trust in machines. EC2 tells no account when it takes a role; there is none to compare."""
    return document(
        Statement("Machines", ["sts:AssumeRole"], principals={"Service": ["ec2.amazonaws.com"]})
    )


def task_trust(account: pulumi.Output[str]) -> pulumi.Output[str]:
    """Trust in this account's containers."""
    return account.apply(lambda number: trust("ecs-tasks.amazonaws.com", number))
