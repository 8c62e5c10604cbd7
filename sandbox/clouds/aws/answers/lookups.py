"""Queries for what was made in the sandbox, and for what AWS keeps beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.naming import ACCOUNT, hexdigits, marked, partition, region_of
from falaj.sandbox.clouds.aws.services.clusters import VERSION, addon_version
from falaj.sandbox.clouds.inputs import Inputs
from falaj.sandbox.clouds.kinds import Answers
from falaj.sandbox.clouds.model import Made, World


def _lookup(token: str, *keys: tuple[str, str]) -> Callable[[Inputs, World], dict[str, Any]]:
    """An answer that finds a made resource by the first argument given.

    Args:
        token: the resource's type.
        keys: pairs of the query's argument and the resource's output (or ``id``).
    """

    def found(inputs: Inputs, world: World) -> dict[str, Any]:
        for argument, output in keys:
            wanted = inputs.string(argument)
            if wanted:
                for made in world.all(token):
                    if wanted in (_output(made, output), made.id if output == "id" else None):
                        return {**made.outputs, "id": made.id}
        asked = ", ".join(f"{key} {inputs.string(key)!r}" for key, _ in keys if inputs.string(key))
        raise LookupError(
            f"the sandbox has no {token.rsplit(':', 1)[-1]} with {asked or 'what is asked for'}; "
            f"it can be asked for by {', '.join(key for key, _ in keys)}"
        )

    return found


def _output(made: Made, path: str) -> object:
    return next((value for _, value in Inputs(made.outputs).each(path)), None)


def _cluster(inputs: Inputs, world: World) -> dict[str, Any]:
    made = _lookup(t.CLUSTER, ("name", "name"))(inputs, world)
    plurals = {
        "accessConfigs": "accessConfig",
        "kubernetesNetworkConfigs": "kubernetesNetworkConfig",
        "upgradePolicies": "upgradePolicy",
    }
    lists = {
        many: [made[one]] if isinstance(made.get(one), Mapping) else []
        for many, one in plurals.items()
    }
    return {**made, **lists, "clusterId": ""}


def _cluster_auth(inputs: Inputs, _world: World) -> dict[str, Any]:
    name = inputs.string("name")
    return {"id": name, "name": name, "token": f"k8s-aws-v1.sandbox-{hexdigits(32, name)}"}


def _addon_version(inputs: Inputs, _world: World) -> dict[str, Any]:
    name = inputs.string("addonName")
    return {"id": name, "version": addon_version(name), "mostRecent": True}


def _cluster_versions(_draft: Inputs, _world: World) -> dict[str, Any]:
    return {"clusterVersions": [{"clusterVersion": VERSION, "defaultVersion": True}]}


def _prefix_list(inputs: Inputs, world: World) -> dict[str, Any]:
    """AWS's own list of a service's addresses, or one that was made here."""
    name = inputs.string("name") or inputs.string("filters[].values[]")
    for made in world.all(t.PREFIX_LIST):
        if made.id in (inputs.string("id"), inputs.string("prefixListId")) or (
            name and made.outputs.get("name") == name
        ):
            return {**made.outputs, "id": made.id, "prefixListId": made.id}
    if not name.startswith("com.amazonaws."):
        raise LookupError(f"the sandbox has no prefix list {name!r}")
    found = "pl-" + marked(8, region_of(inputs), name)
    return {
        "id": found,
        "prefixListId": found,
        "name": name,
        "arn": f"arn:{partition(inputs)}:ec2:{region_of(inputs)}:aws:prefix-list/{found}",
        "cidrBlocks": ["198.51.100.0/24"],
        "entries": [{"cidr": "198.51.100.0/24", "description": "documentation addresses"}],
        "addressFamily": "IPv4",
        "ownerId": "AWS",
        "maxEntries": 1,
        "version": 1,
        "tags": {},
    }


def _endpoint_service(inputs: Inputs, _world: World) -> dict[str, Any]:
    name = (
        inputs.string("serviceName")
        or f"com.amazonaws.{region_of(inputs)}.{inputs.string('service')}"
    )
    return {
        "id": name,
        "serviceName": name,
        "serviceId": "vpce-svc-" + marked(17, name),
        "serviceType": inputs.string("serviceType") or "Interface",
        "owner": "amazon",
        "serviceRegion": region_of(inputs),
        "acceptanceRequired": False,
        "vpcEndpointPolicySupported": True,
    }


def _managed_policy(inputs: Inputs, world: World) -> dict[str, Any]:
    """AWS's policies are known by name only; those that were made here wholly."""
    arn = inputs.string("arn")
    if ":iam::aws:policy/" in arn:
        return {"id": arn, "arn": arn, "name": arn.rsplit("/", 1)[-1], "path": "/"}
    return _lookup(t.POLICY, ("arn", "arn"), ("name", "name"))(inputs, world)


def _account_alias(_draft: Inputs, _world: World) -> dict[str, Any]:
    return {"id": ACCOUNT, "accountAlias": "sandbox"}


ANSWERS: Final[Answers] = {
    "aws:ec2/getVpc:getVpc": _lookup(t.VPC, ("id", "id"), ("cidrBlock", "cidrBlock")),
    "aws:ec2/getSubnet:getSubnet": _lookup(t.SUBNET, ("id", "id"), ("cidrBlock", "cidrBlock")),
    "aws:ec2/getSecurityGroup:getSecurityGroup": _lookup(
        t.SECURITY_GROUP, ("id", "id"), ("name", "name")
    ),
    "aws:ec2/getRouteTable:getRouteTable": _lookup(t.ROUTE_TABLE, ("routeTableId", "id")),
    "aws:ec2/getVpcEndpoint:getVpcEndpoint": _lookup(
        t.VPC_ENDPOINT, ("id", "id"), ("serviceName", "serviceName")
    ),
    "aws:ec2/getLaunchTemplate:getLaunchTemplate": _lookup(
        t.LAUNCH_TEMPLATE, ("id", "id"), ("name", "name")
    ),
    "aws:kms/getKey:getKey": _lookup(t.KEY, ("keyId", "id"), ("keyId", "arn")),
    "aws:kms/getAlias:getAlias": _lookup(t.KEY_ALIAS, ("name", "name")),
    "aws:s3/getBucket:getBucket": _lookup(t.BUCKET, ("bucket", "bucket")),
    "aws:iam/getRole:getRole": _lookup(t.ROLE, ("name", "name")),
    "aws:iam/getPolicy:getPolicy": _managed_policy,
    "aws:iam/getAccountAlias:getAccountAlias": _account_alias,
    "aws:ecr/getRepository:getRepository": _lookup(t.REPOSITORY, ("name", "name")),
    "aws:efs/getFileSystem:getFileSystem": _lookup(
        t.FILE_SYSTEM, ("fileSystemId", "id"), ("creationToken", "creationToken")
    ),
    "aws:lb/getLoadBalancer:getLoadBalancer": _lookup(
        t.LOAD_BALANCER, ("arn", "arn"), ("name", "name")
    ),
    "aws:lb/getTargetGroup:getTargetGroup": _lookup(
        t.TARGET_GROUP, ("arn", "arn"), ("name", "name")
    ),
    "aws:cloudwatch/getLogGroup:getLogGroup": _lookup(t.LOG_GROUP, ("name", "name")),
    "aws:route53/getZone:getZone": _lookup(t.ZONE, ("zoneId", "id"), ("name", "name")),
    "aws:secretsmanager/getSecret:getSecret": _lookup(t.SECRET, ("arn", "arn"), ("name", "name")),
    "aws:eks/getCluster:getCluster": _cluster,
    "aws:eks/getClusterAuth:getClusterAuth": _cluster_auth,
    "aws:eks/getAddonVersion:getAddonVersion": _addon_version,
    "aws:eks/getClusterVersions:getClusterVersions": _cluster_versions,
    "aws:ec2/getPrefixList:getPrefixList": _prefix_list,
    "aws:ec2/getManagedPrefixList:getManagedPrefixList": _prefix_list,
    "aws:ec2/getVpcEndpointService:getVpcEndpointService": _endpoint_service,
}
