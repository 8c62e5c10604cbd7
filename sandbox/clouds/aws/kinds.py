"""Types of AWS: their tokens, and how ids and names of each are made."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.kinds import ResourceKind


@dataclass(frozen=True)
class AutoName:
    """A name that the provider makes up when none is given."""

    property: str = "name"
    longest: int = 255
    separator: str = "-"
    lower: bool = False
    prefix: str = ""
    unless: tuple[str, ...] = ("namePrefix",)
    """Inputs that make a name unnecessary."""


@dataclass(frozen=True, kw_only=True)
class AwsKind(ResourceKind):
    """One type of AWS."""

    id: str | Callable[[Inputs], str] = ""
    """A template (see `templates`), or a function of the inputs."""
    arn: str = ""
    """A template of what follows the partition; ``*`` where the id is the ARN."""
    name: AutoName | None = None
    unique: tuple[str, ...] = ()
    """Properties that together must be unlike every other's of this type and region."""
    everywhere: bool = False
    """Whether `unique` holds over all regions (S3 buckets, IAM)."""


AwsKinds: TypeAlias = Mapping[str, AwsKind]


@cache
def load_table(name: str) -> dict[str, Any]:
    """The table of that name, such as ``quotas``, which is shipped beside the code."""
    found: dict[str, Any] = json.loads((_DATA / f"{name}.json").read_text("utf-8"))
    return found


_DATA: Final = Path(__file__).parent / "data"


# Tokens of the types that several services refer to.

VPC: Final = "aws:ec2/vpc:Vpc"
SUBNET: Final = "aws:ec2/subnet:Subnet"
SECURITY_GROUP: Final = "aws:ec2/securityGroup:SecurityGroup"
DEFAULT_SECURITY_GROUP: Final = "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"
INGRESS_RULE: Final = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS_RULE: Final = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
ROUTE_TABLE: Final = "aws:ec2/routeTable:RouteTable"
DEFAULT_ROUTE_TABLE: Final = "aws:ec2/defaultRouteTable:DefaultRouteTable"
NETWORK_ACL: Final = "aws:ec2/networkAcl:NetworkAcl"
INTERNET_GATEWAY: Final = "aws:ec2/internetGateway:InternetGateway"
NAT_GATEWAY: Final = "aws:ec2/natGateway:NatGateway"
ELASTIC_IP: Final = "aws:ec2/eip:Eip"
VPC_ENDPOINT: Final = "aws:ec2/vpcEndpoint:VpcEndpoint"
DHCP_OPTIONS: Final = "aws:ec2/vpcDhcpOptions:VpcDhcpOptions"
PREFIX_LIST: Final = "aws:ec2/managedPrefixList:ManagedPrefixList"
LAUNCH_TEMPLATE: Final = "aws:ec2/launchTemplate:LaunchTemplate"
PLACEMENT_GROUP: Final = "aws:ec2/placementGroup:PlacementGroup"
CAPACITY_RESERVATION: Final = "aws:ec2/capacityReservation:CapacityReservation"
NETWORK_INTERFACE: Final = "aws:ec2/networkInterface:NetworkInterface"
INSTANCE: Final = "aws:ec2/instance:Instance"

KEY: Final = "aws:kms/key:Key"
KEY_ALIAS: Final = "aws:kms/alias:Alias"
BUCKET: Final = "aws:s3/bucket:Bucket"
LUSTRE: Final = "aws:fsx/lustreFileSystem:LustreFileSystem"
FILE_SYSTEM: Final = "aws:efs/fileSystem:FileSystem"
ACCESS_POINT: Final = "aws:efs/accessPoint:AccessPoint"
MOUNT_TARGET: Final = "aws:efs/mountTarget:MountTarget"

ROLE: Final = "aws:iam/role:Role"
POLICY: Final = "aws:iam/policy:Policy"
GROUP: Final = "aws:iam/group:Group"
USER: Final = "aws:iam/user:User"
INSTANCE_PROFILE: Final = "aws:iam/instanceProfile:InstanceProfile"
OIDC_PROVIDER: Final = "aws:iam/openIdConnectProvider:OpenIdConnectProvider"

REPOSITORY: Final = "aws:ecr/repository:Repository"
CLUSTER: Final = "aws:eks/cluster:Cluster"
NODE_GROUP: Final = "aws:eks/nodeGroup:NodeGroup"
ACCESS_ENTRY: Final = "aws:eks/accessEntry:AccessEntry"
ADDON: Final = "aws:eks/addon:Addon"
ECS_CLUSTER: Final = "aws:ecs/cluster:Cluster"
TASK_DEFINITION: Final = "aws:ecs/taskDefinition:TaskDefinition"
ECS_SERVICE: Final = "aws:ecs/service:Service"

LOAD_BALANCER: Final = "aws:lb/loadBalancer:LoadBalancer"
TARGET_GROUP: Final = "aws:lb/targetGroup:TargetGroup"
LISTENER: Final = "aws:lb/listener:Listener"
AUTO_SCALING_GROUP: Final = "aws:autoscaling/group:Group"
CERTIFICATE: Final = "aws:acm/certificate:Certificate"
AUTHORITY: Final = "aws:acmpca/certificateAuthority:CertificateAuthority"
AUTHORITY_ISSUED: Final = "aws:acmpca/certificate:Certificate"

LOG_GROUP: Final = "aws:cloudwatch/logGroup:LogGroup"
EVENT_RULE: Final = "aws:cloudwatch/eventRule:EventRule"
TRAIL: Final = "aws:cloudtrail/trail:Trail"
DETECTOR: Final = "aws:guardduty/detector:Detector"
TOPIC: Final = "aws:sns/topic:Topic"
QUEUE: Final = "aws:sqs/queue:Queue"
ZONE: Final = "aws:route53/zone:Zone"
FIREWALL: Final = "aws:networkfirewall/firewall:Firewall"
FIREWALL_POLICY: Final = "aws:networkfirewall/firewallPolicy:FirewallPolicy"
FIREWALL_RULES: Final = "aws:networkfirewall/ruleGroup:RuleGroup"
VAULT: Final = "aws:backup/vault:Vault"
BACKUP_PLAN: Final = "aws:backup/plan:Plan"
SECRET: Final = "aws:secretsmanager/secret:Secret"  # noqa: S105 - a type's name
WEB_ACL: Final = "aws:wafv2/webAcl:WebAcl"


def canonical(token: str) -> str:
    """The one name of a type that the SDK offers under several.

    ``alb`` is an older name of the module ``lb``; the ``V2`` types of S3 are older names of those
    without (pulumi-aws 7).
    """
    if token.startswith("aws:alb/"):
        return "aws:lb/" + token.removeprefix("aws:alb/")
    if token.startswith("aws:s3/") and token.endswith("V2"):
        module, class_name = token.removesuffix("V2").split(":", 2)[1:]
        return f"aws:{module.removesuffix('V2')}:{class_name}"
    return token


def spellings(token: str) -> tuple[str, ...]:
    """Every token under which the SDK offers a type, the one of `canonical` first."""
    if token.startswith("aws:lb/"):
        return token, "aws:alb/" + token.removeprefix("aws:lb/")
    if token.startswith("aws:s3/bucket"):
        module, class_name = token.split(":", 2)[1:]
        return token, f"aws:{module}V2:{class_name}V2"
    return (token,)
