"""What resources are drawn as, by type; the rest are settings and parts of others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from falaj.policies.model import Resource, Stack
from falaj.policies.reading.types import azure
from falaj.policies.rules.encryption.at_rest import encryption_of
from falaj.stacks.costs import billed
from falaj.stacks.drawing.model import NodeKind


def aws(*names: str) -> frozenset[str]:
    """Tokens of AWS types given as ``ec2/vpc``."""
    found: set[str] = set()
    for name in names:
        last = name.rpartition("/")[2]
        found.add(f"aws:{name}:{last[0].upper()}{last[1:]}")
    return frozenset(found)


VPCS: Final = aws("ec2/vpc", "ec2/defaultVpc")
AWS_SUBNETS: Final = aws("ec2/subnet", "ec2/defaultSubnet")
VNETS: Final = azure("network:VirtualNetwork")
AZURE_SUBNETS: Final = azure("network:Subnet")
SUBNETS: Final = AWS_SUBNETS | AZURE_SUBNETS
GROUPS: Final = aws("ec2/securityGroup", "ec2/defaultSecurityGroup")
AWS_KEYS: Final = aws("kms/key", "kms/replicaKey", "kms/externalKey", "kms/replicaExternalKey")
AZURE_KEYS: Final = azure("keyvault:Key", "keyvault:ManagedHsmKey")
KEYS: Final = AWS_KEYS | AZURE_KEYS
ALIASES: Final = aws("kms/alias")
DISK_SETS: Final = azure("compute:DiskEncryptionSet")
TEMPLATES: Final = aws("ec2/launchTemplate", "ec2/launchConfiguration")
ROLES: Final = aws("iam/role")
IDENTITIES: Final = azure("managedidentity:UserAssignedIdentity")

_TABLE: Final[Mapping[NodeKind, frozenset[str]]] = {
    "cluster": aws("eks/cluster", "ecs/cluster") | azure("containerservice:ManagedCluster"),
    "pool": aws(
        "eks/nodeGroup", "autoscaling/group", "ec2/fleet", "ec2/spotFleetRequest",
        "batch/computeEnvironment", "eks/fargateProfile", "emr/cluster",
    ) | azure(
        "containerservice:AgentPool", "compute:VirtualMachineScaleSet", "batch:Pool",
        "machinelearningservices:Compute",
    ),
    "machine": aws("ec2/instance", "ec2/spotInstanceRequest", "lightsail/instance")
    | azure("compute:VirtualMachine"),
    "tier": aws(
        "ecs/service", "lambda/function", "sagemaker/endpoint", "sagemaker/notebookInstance",
        "apprunner/service", "bedrock/provisionedModelThroughput",
    ) | azure(
        "app:ContainerApp", "app:Job", "app:ManagedEnvironment",
        "containerinstance:ContainerGroup",
        "web:WebApp", "machinelearningservices:OnlineEndpoint", "cognitiveservices:Deployment",
        "machinelearningservices:OnlineDeployment",
    ),
    "balancer": aws("lb/loadBalancer", "alb/loadBalancer", "elb/loadBalancer")
    | azure("network:LoadBalancer", "network:ApplicationGateway", "frontdoor:FrontDoor"),
    "endpoint": aws("ec2/vpcEndpoint") | azure("network:PrivateEndpoint"),
    "gateway": aws(
        "ec2/natGateway", "ec2/internetGateway", "ec2/egressOnlyInternetGateway",
        "ec2/vpnGateway", "ec2/vpnConnection", "networkfirewall/firewall", "ec2clientvpn/endpoint",
        "ec2transitgateway/transitGateway", "ec2transitgateway/vpcAttachment",
        "ec2/vpcPeeringConnection", "apigateway/restApi", "apigatewayv2/api",
        "cloudfront/distribution", "globalaccelerator/accelerator", "directconnect/gateway",
    ) | azure(
        "network:NatGateway", "network:AzureFirewall", "network:VirtualNetworkGateway",
        "network:BastionHost", "network:VirtualHub", "network:PublicIPAddress",
        "network:VirtualNetworkPeering", "apimanagement:ApiManagementService",
    ),
    "file system": aws(
        "fsx/lustreFileSystem", "fsx/ontapFileSystem", "fsx/openZfsFileSystem",
        "fsx/windowsFileSystem", "fsx/fileCache", "efs/fileSystem",
    ) | azure("netapp:CapacityPoolVolume", "storage:FileShare", "storagecache:AmlFilesystem"),
    "store": aws("s3/bucket", "s3/bucketV2", "s3/directoryBucket", "s3tables/tableBucket")
    | azure("storage:StorageAccount", "storage:BlobContainer"),
    "database": aws(
        "rds/instance", "rds/cluster", "rds/clusterInstance", "dynamodb/table",
        "elasticache/cluster", "elasticache/replicationGroup", "memorydb/cluster",
        "docdb/cluster", "neptune/cluster", "redshift/cluster", "opensearch/domain",
        "timestreamwrite/table", "keyspaces/table",
    ) | azure(
        "sql:Server", "sql:Database", "sql:ManagedInstance", "dbforpostgresql:Server",
        "dbformysql:Server", "cosmosdb:DatabaseAccount", "redis:Redis",
        "redisenterprise:RedisEnterprise", "search:Service",
    ),
    "registry": aws("ecr/repository") | azure("containerregistry:Registry"),
    "volume": aws("ebs/volume") | azure("compute:Disk"),
    "records": aws("cloudwatch/logGroup", "cloudtrail/trail", "cloudtrail/eventDataStore")
    | azure("operationalinsights:Workspace", "operationalinsights:Cluster"),
    "key": KEYS,
    "vault": azure("keyvault:Vault", "keyvault:ManagedHsm") | aws("cloudhsmv2/cluster"),
    "secret": aws("secretsmanager/secret") | azure("keyvault:Secret"),
    "authority": aws("acmpca/certificateAuthority"),
    "watch": aws(
        "guardduty/detector", "securityhub/account", "inspector2/enabler", "macie2/account",
        "cfg/recorder",
    ) | azure("securityinsights:SentinelOnboardingState"),
    "names": aws("route53/zone", "route53/resolverEndpoint")
    | azure("privatedns:PrivateZone", "dns:Zone"),
}  # fmt: skip
_KINDS: Final[Mapping[str, NodeKind]] = {
    token: kind for kind, tokens in _TABLE.items() for token in tokens
}
#: Charged for or keeping something, and still only a setting of what is drawn.
_SETTINGS: Final = aws(
    "ec2/flowLog", "guardduty/detectorFeature", "ec2/eip", "acm/certificate", "acmpca/certificate",
    "autoscaling/policy", "efs/backupPolicy", "eks/addon", "ec2/vpcEndpointSubnetAssociation",
    "ebs/snapshot", "ec2/capacityReservation", "xray/samplingRule", "ssm/parameter",
    "cloudwatch/eventBus", "cloudwatch/metricAlarm", "lb/trustStore",
) | azure(
    "network:FlowLog", "monitor:DiagnosticSetting", "monitor:SubscriptionDiagnosticSetting",
    "security:Pricing", "netapp:CapacityPool", "compute:DiskEncryptionSet", "netapp:Account",
    "monitor:MetricAlert", "monitor:ScheduledQueryRule", "monitor:ActionGroup",
    "storage:FileServiceProperties", "storage:BlobServiceProperties", "storage:EncryptionScope",
)  # fmt: skip
_HELD_ELSEWHERE: Final = (*GROUPS, *TEMPLATES, *ROLES, *IDENTITIES, *ALIASES)


def kind_of_node(resource: Resource, stack: Stack) -> NodeKind | None:
    """What a resource of a cloud is drawn as; None for what is a part of others.

    Types that the table doesn't have are drawn where they keep data, are charged for, or aren't
    known at all: nothing that matters is left out because nobody thought of it.
    """
    if not resource.custom or resource.package in {"pulumi", "kubernetes"}:
        return None
    if (found := _KINDS.get(resource.kind)) is not None:
        return found
    if resource.kind in _SETTINGS or resource.kind in _HELD_ELSEWHERE:
        return None
    known = billed(resource.kind)
    if known is not None and not known.meters:
        return None
    keeps = encryption_of(resource, stack).at_rest != "not stored here"
    return "store" if keeps else "other"
