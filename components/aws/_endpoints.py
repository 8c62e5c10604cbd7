"""Private endpoints of AWS services, and what may be reached through them.

A gateway or interface endpoint without a policy reaches every customer's resources: data could
leave by a stranger's bucket. These let only this account's (or organisation's) principals reach
only its own resources, apart from the few that AWS itself owns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import child
from falaj.components.aws._iam import PULL_IMAGES, Statement, arn, bucket_arn, document, iam_arn
from falaj.components.specification.network import CLUSTER, SERVING

#: By what stands in the network. What the inference tier pulls, ECR keeps in S3.
GATEWAYS = {CLUSTER: ("s3", "dynamodb"), SERVING: ("s3",)}
#: Services that private nodes, pods and machines call, with the prefix of their actions:
#: https://docs.aws.amazon.com/eks/latest/userguide/private-clusters.html
INTERFACES = {
    "autoscaling": "autoscaling",
    "ec2": "ec2",
    "ec2messages": "ec2messages",
    "ecr.api": "ecr",
    "ecr.dkr": "ecr",
    "eks": "eks",
    "eks-auth": "eks-auth",
    "elasticfilesystem": "elasticfilesystem",
    "elasticloadbalancing": "elasticloadbalancing",
    "fsx": "fsx",
    "kms": "kms",
    "logs": "logs",
    "monitoring": "cloudwatch",
    "secretsmanager": "secretsmanager",
    "sqs": "sqs",
    "ssm": "ssm",
    "ssmmessages": "ssmmessages",
    "sts": "sts",
}
#: What the inference tier calls, on machines and on Fargate: the registry's login and layers, its
#: log, and the secret with its key ring. KMS is called by these services and not by the tier; ECS
#: and the start of machines need no endpoint here:
#: https://docs.aws.amazon.com/AmazonECS/latest/developerguide/vpc-endpoints.html
_SERVING = ("ecr.api", "ecr.dkr", "logs", "secretsmanager")
#: What Session Manager's agent calls; KMS, as sessions are encrypted with a key. It needs no
#: ``ec2messages`` where it may use ``ssmmessages``: https://docs.aws.amazon.com/systems-manager/
#: latest/userguide/systems-manager-setting-up-messageAPIs.html
_SESSIONS = ("kms", "ssm", "ssmmessages")
#: Services every action of which is about a resource with an account. Others have actions about
#: nothing in particular (``ec2:DescribeInstances``), for which AWS tells no account:
#: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_condition-keys.html
_ALWAYS_OWNED = ("s3", "dynamodb", "kms", "secretsmanager")
#: Account from which EKS serves the images of its add-ons, by region:
#: https://docs.aws.amazon.com/eks/latest/userguide/add-ons-images.html
_EKS_IMAGES = {"me-central-1": "759879836304"}


def interfaces(purpose: str, *, sessions: bool = False) -> tuple[str, ...]:
    """Services with an interface endpoint in a network of a purpose, in order.

    Args:
        purpose: what stands in it.
        sessions: whether Session Manager reaches its machines.
    """
    if purpose != SERVING:
        return tuple(INTERFACES)
    return (*_SERVING, *_SESSIONS) if sessions else _SERVING


@dataclass(frozen=True)
class Owner:
    """Whose resources endpoints reach."""

    account: str
    region: str
    vpc_id: str
    organization: str | None

    def conditions(self, *, always: bool) -> dict[str, dict[str, str]]:
        """Only own principals; only own resources, ``always`` or where AWS tells whose it is."""
        if self.organization:
            who, whose, value = "aws:PrincipalOrgID", "aws:ResourceOrgID", self.organization
        else:
            who, whose, value = "aws:PrincipalAccount", "aws:ResourceAccount", self.account
        if always:
            return {"StringEquals": {who: value, whose: value}}
        return {"StringEquals": {who: value}, "StringEqualsIfExists": {whose: value}}

    def own_resources(self) -> dict[str, dict[str, str]]:
        """Only own resources, for callers that have no principal yet."""
        if self.organization:
            return {"StringEquals": {"aws:ResourceOrgID": self.organization}}
        return {"StringEquals": {"aws:ResourceAccount": self.account}}

    def own_principals(self) -> dict[str, dict[str, str]]:
        """Only own principals, for resources that AWS owns."""
        if self.organization:
            return {"StringEquals": {"aws:PrincipalOrgID": self.organization}}
        return {"StringEquals": {"aws:PrincipalAccount": self.account}}


def endpoint_policy(service: str, owner: Owner, purpose: str) -> pulumi.Output[str]:
    """The policy of a service's endpoint; ``service`` as in `GATEWAYS` and `INTERFACES`."""
    if service == "s3" and purpose == SERVING:
        # The tier has nothing in buckets: what it serves comes from the registry.
        return document(*_owned_by_aws(service, owner))
    prefix = INTERFACES.get(service, service)
    own = Statement(
        "OwnResources",
        [f"{prefix}:*"],
        ["*"],
        principals={"AWS": ["*"]},
        conditions=owner.conditions(always=service in _ALWAYS_OWNED),
    )
    return document(own, *_owned_by_aws(service, owner))


def _owned_by_aws(service: str, owner: Owner) -> list[Statement]:
    """What AWS owns and private machines can't do without; all of it can only be read."""
    region = owner.region
    anybody = {"AWS": ["*"]}
    found: list[Statement] = []
    if service == "s3":
        # ECR redirects to presigned addresses of a bucket of its own, whose signer is ECR:
        # https://docs.aws.amazon.com/AmazonECR/latest/userguide/vpc-endpoints.html
        found.append(
            Statement(
                "ImageLayers",
                ["s3:GetObject"],
                [bucket_arn(f"prod-{region}-starport-layer-bucket", "*")],
                principals=anybody,
                conditions={"StringEquals": {"aws:SourceVpc": owner.vpc_id}},
            )
        )
        # Packages of the machines' Linux: https://docs.aws.amazon.com/linux/al2023/ug/
        # deterministic-upgrades.html
        found.append(
            Statement(
                "LinuxPackages",
                ["s3:GetObject"],
                [bucket_arn(f"al2023-repos-{region}-de612dc2", "*")],
                principals=anybody,
                conditions={"StringEquals": {"aws:SourceVpc": owner.vpc_id}},
            )
        )
    if service in ("ecr.api", "ecr.dkr") and region in _EKS_IMAGES:
        found.append(
            Statement(
                "AddOnImages",
                PULL_IMAGES,
                [arn("ecr", region, _EKS_IMAGES[region], "repository/*")],
                principals=anybody,
                conditions=owner.own_principals(),
            )
        )
    if service == "ssm":
        found.append(
            Statement(
                "PublicParameters",
                ["ssm:GetParameter", "ssm:GetParameters"],
                [arn("ssm", region, "", "parameter/aws/service/*")],
                principals=anybody,
                conditions=owner.own_principals(),
            )
        )
    if service == "ec2":
        found.append(
            Statement(
                "AmazonImages",
                ["ec2:CreateFleet", "ec2:RunInstances"],
                [arn("ec2", region, "", "image/*"), arn("ec2", region, "", "snapshot/*")],
                principals=anybody,
                conditions=owner.own_principals(),
            )
        )
    if service == "sts":
        # A pod that exchanges its token is nobody yet.
        found.append(
            Statement(
                "OwnRolesByToken",
                ["sts:AssumeRoleWithWebIdentity"],
                [iam_arn(owner.account, "role/*")],
                principals=anybody,
                conditions=owner.own_resources(),
            )
        )
    return found


@dataclass(frozen=True)
class Place:
    """Where endpoints are made."""

    region: str
    vpc_id: pulumi.Output[str]
    account: pulumi.Output[str]
    organization: str | None
    purpose: str
    interfaces: tuple[str, ...]
    """Services with an interface endpoint."""
    tags: Mapping[str, str]

    def policy(self, service: str) -> pulumi.Output[str]:
        """The policy of a service's endpoint in this network."""

        def of(known: dict[str, str]) -> pulumi.Output[str]:
            owner = Owner(known["account"], self.region, known["vpc"], self.organization)
            return endpoint_policy(service, owner, self.purpose)

        return pulumi.Output.all(account=self.account, vpc=self.vpc_id).apply(of)

    def service_name(self, service: str) -> str:
        """The service as endpoints name it."""
        return f"com.amazonaws.{self.region}.{service}"


def gateway_endpoints(
    parent: pulumi.Resource, name: str, place: Place, route_table_ids: list[pulumi.Output[str]]
) -> dict[str, aws.ec2.VpcEndpoint]:
    """Endpoints in route tables, by service; they cost nothing."""
    return {
        service: aws.ec2.VpcEndpoint(
            f"{name}-{service}",
            vpc_id=place.vpc_id,
            service_name=place.service_name(service),
            vpc_endpoint_type="Gateway",
            route_table_ids=route_table_ids,
            policy=place.policy(service),
            tags={**place.tags, "Name": f"{name}-{service}"},
            opts=child(parent),
        )
        for service in GATEWAYS[place.purpose]
    }


def interface_endpoints(
    parent: pulumi.Resource,
    name: str,
    place: Place,
    subnet_ids: list[pulumi.Output[str]],
    security_group_id: pulumi.Input[str],
) -> None:
    """Endpoints with addresses in every zone, which the services' own names resolve to."""
    for service in place.interfaces:
        label = f"{name}-{service.replace('.', '-')}"
        aws.ec2.VpcEndpoint(
            label,
            vpc_id=place.vpc_id,
            service_name=place.service_name(service),
            vpc_endpoint_type="Interface",
            private_dns_enabled=True,
            subnet_ids=subnet_ids,
            security_group_ids=[security_group_id],
            policy=place.policy(service),
            tags={**place.tags, "Name": label},
            opts=child(parent),
        )
