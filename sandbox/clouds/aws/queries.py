"""Answers to queries: who asks and where, what is sold, images, documents, and what was made."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from falaj.components.catalogue import MachineType
from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws.naming import ACCOUNT, digits, hexdigits, marked, partition
from falaj.sandbox.clouds.aws.regions import (
    catalogued,
    dns_suffix,
    region_of,
    zone_id,
    zone_ids,
    zone_name,
)
from falaj.sandbox.clouds.aws.services.clusters import VERSION, addon_version
from falaj.sandbox.clouds.inputs import Inputs, as_list, as_map
from falaj.sandbox.clouds.kinds import Answers
from falaj.sandbox.clouds.model import Made, Properties, World


def _caller(inputs: Inputs, _world: World) -> dict[str, Any]:
    return {
        "id": ACCOUNT,
        "accountId": ACCOUNT,
        "arn": f"arn:{partition(inputs)}:sts::{ACCOUNT}:assumed-role/sandbox/falaj",
        "userId": "AROASANDBOX0000000000:falaj",
    }


def _partition(inputs: Inputs, _world: World) -> dict[str, Any]:
    suffix = dns_suffix(region_of(inputs))
    reverse = ".".join(reversed(suffix.split(".")))
    return {
        "id": partition(inputs),
        "partition": partition(inputs),
        "dnsSuffix": suffix,
        "reverseDnsPrefix": reverse,
    }


def _region(inputs: Inputs, _world: World) -> dict[str, Any]:
    name = inputs.string("name") or region_of(inputs)
    return {
        "id": name,
        "name": name,
        "region": name,
        "description": name,
        "endpoint": f"ec2.{name}.{dns_suffix(name)}",
    }


def _zones(inputs: Inputs, _world: World) -> dict[str, Any]:
    ids = [
        item
        for item in zone_ids(region_of(inputs))
        if item not in as_list(inputs.get("excludeZoneIds"))
        and zone_name(region_of(inputs), item) not in as_list(inputs.get("excludeNames"))
    ]
    return {
        "zoneIds": ids,
        "names": [zone_name(region_of(inputs), item) for item in ids],
        "groupNames": [region_of(inputs)],
    }


def _zone(inputs: Inputs, _world: World) -> dict[str, Any]:
    region, wanted = region_of(inputs), inputs.string("zoneId")
    if not wanted and inputs.string("name"):
        wanted = zone_id(region, inputs.string("name")) or ""
    if wanted not in zone_ids(region):
        raise LookupError(
            f"{region} has no zone {inputs.string('zoneId') or inputs.string('name')!r}; "
            f"it has {', '.join(zone_ids(region))}"
        )
    name = zone_name(region, wanted)
    return {
        "id": name,
        "name": name,
        "zoneId": wanted,
        "nameSuffix": name[-1],
        "region": region,
        "groupName": region,
        "groupLongName": region,
        "networkBorderGroup": region,
        "optInStatus": "opt-in-not-required",
        "state": "available",
        "zoneType": "availability-zone",
        "parentZoneId": "",
        "parentZoneName": "",
    }


def _default_tags(inputs: Inputs, _world: World) -> dict[str, Any]:
    return {"tags": dict(as_map(as_map(inputs.config.get("defaultTags")).get("tags")))}


def _service_principal(inputs: Inputs, _world: World) -> dict[str, Any]:
    service = inputs.string("serviceName")
    suffix = dns_suffix(region_of(inputs)) if partition(inputs) == "aws-cn" else "amazonaws.com"
    return {"id": f"{service}.{suffix}", "name": f"{service}.{suffix}", "suffix": suffix}


def _organization(_draft: Inputs, _world: World) -> dict[str, Any]:
    raise LookupError(
        "AWSOrganizationsNotInUseException: the sandbox's account is no member of an organization"
    )


_PLACES: Final[Answers] = {
    "aws:index/getServicePrincipal:getServicePrincipal": _service_principal,
    "aws:organizations/getOrganization:getOrganization": _organization,
    "aws:index/getCallerIdentity:getCallerIdentity": _caller,
    "aws:index/getPartition:getPartition": _partition,
    "aws:index/getRegion:getRegion": _region,
    "aws:index/getAvailabilityZones:getAvailabilityZones": _zones,
    "aws:index/getAvailabilityZone:getAvailabilityZone": _zone,
    "aws:index/getDefaultTags:getDefaultTags": _default_tags,
}


def _machines(inputs: Inputs) -> tuple[MachineType, ...]:
    known = catalogued(region_of(inputs))
    if known is None:
        raise LookupError(
            f"the catalogue doesn't say what {region_of(inputs)} sells; ask for me-central-1"
        )
    return known.machines()


def _filters(inputs: Inputs) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for _, item in inputs.each("filters[]"):
        entry = as_map(item)
        found[str(entry.get("name"))] = [str(value) for value in as_list(entry.get("values"))]
    return found


def _offered(inputs: Inputs) -> Iterator[tuple[str, str, str]]:
    """Each offer as its type, its place, and the kind of place."""
    kind = inputs.string("locationType") or "region"
    filters = _filters(inputs)
    wanted, places = filters.get("instance-type"), filters.get("location")
    for machine in _machines(inputs):
        if wanted is not None and machine.name not in wanted:
            continue
        where = {
            "region": (region_of(inputs),),
            "availability-zone": tuple(
                zone_name(region_of(inputs), zone) for zone in machine.zone_ids
            ),
            "availability-zone-id": machine.zone_ids,
        }.get(kind, ())
        for place in where:
            if places is None or place in places:
                yield machine.name, place, kind


def _offerings(inputs: Inputs, _world: World) -> dict[str, Any]:
    offers = list(_offered(inputs))
    return {
        "instanceTypes": [name for name, _, _ in offers],
        "locations": [place for _, place, _ in offers],
        "locationTypes": [kind for _, _, kind in offers],
    }


def _offering(inputs: Inputs, _world: World) -> dict[str, Any]:
    preferred = [str(name) for name in as_list(inputs.get("preferredInstanceTypes"))]
    offered = {name for name, _, _ in _offered(inputs)}
    for name in preferred or sorted(offered):
        if name in offered:
            return {"instanceType": name, "id": name}
    raise LookupError(f"none of {', '.join(preferred) or 'the types asked for'} is sold there")


def _types(inputs: Inputs, _world: World) -> dict[str, Any]:
    wanted = _filters(inputs).get("instance-type")
    return {
        "instanceTypes": [
            machine.name
            for machine in _machines(inputs)
            if wanted is None or machine.name in wanted
        ]
    }


def _type(inputs: Inputs, _world: World) -> dict[str, Any]:
    name = inputs.string("instanceType")
    for machine in _machines(inputs):
        if machine.name == name:
            return _described(machine)
    raise LookupError(f"{name!r} isn't sold in {region_of(inputs)}")


def _described(machine: MachineType) -> dict[str, Any]:
    gpus: list[dict[str, Any]] = []
    if machine.gpu is not None:
        gpus.append(
            {
                "count": int(machine.gpu_count),
                "manufacturer": "NVIDIA",
                "memorySize": 0,
                "name": machine.gpu.name,
            }
        )
    return {
        "id": machine.name,
        "currentGeneration": True,
        "defaultVcpus": machine.vcpu or 0,
        "efaMaximumInterfaces": machine.efa_interfaces,
        "efaSupported": machine.efa_interfaces > 0,
        "gpuses": gpus,
        "instanceStorageSupported": bool(machine.local_nvme_gb),
        "maximumNetworkCards": machine.network_cards or 1,
        "memorySize": int((machine.memory_gib or 0) * 1024),
        "networkPerformance": machine.network_performance or "",
        "supportedArchitectures": [machine.arch],
        "supportedUsagesClasses": list(machine.usage_classes),
        "totalInstanceStorage": machine.local_nvme_gb or 0,
    }


_OFFERINGS: Final[Answers] = {
    "aws:ec2/getInstanceTypeOfferings:getInstanceTypeOfferings": _offerings,
    "aws:ec2/getInstanceTypeOffering:getInstanceTypeOffering": _offering,
    "aws:ec2/getInstanceTypes:getInstanceTypes": _types,
    "aws:ec2/getInstanceType:getInstanceType": _type,
}


_PARAMETER: Final = "aws:ssm/parameter:Parameter"
_ARM: Final = re.compile(r"arm64|aarch64")


def image_id(region: str, name: str) -> str:
    """The id of the image that a name stands for in a region."""
    return "ami-" + marked(17, region, name)


def _parameter(inputs: Inputs, world: World) -> dict[str, Any]:
    """A public parameter of AWS holds an image's id; others have to exist."""
    name = inputs.string("name")
    if name.startswith("/aws/service/"):
        if re.search(r"(image_id|image-id|/ami-|ami_id|recommended)", name) is None:
            value, kind = "sandbox", "String"
        else:
            value, kind = image_id(region_of(inputs), name), "String"
        arn = f"arn:{partition(inputs)}:ssm:{region_of(inputs)}::parameter{name}"
        return {"arn": arn, "id": name, "type": kind, "value": value, "insecureValue": value,
                "version": 1}  # fmt: skip
    for made in world.find(_PARAMETER, name=name):
        value = made.outputs.get("value") or made.outputs.get("insecureValue") or ""
        # Of a secret the provider tells the marked value alone.
        plain = "" if made.outputs.get("type") == "SecureString" else value
        return {**made.outputs, "id": name, "value": value, "insecureValue": plain}
    raise LookupError(f"ParameterNotFound: the sandbox has no parameter {name!r}")


def _image(inputs: Inputs, _world: World) -> dict[str, Any]:
    """The newest image that fits: always one, as AWS's catalogue isn't known here."""
    wanted: list[str] = []
    for _, item in inputs.each("filters[]"):
        entry = dict(item) if isinstance(item, dict) else {}
        wanted.append(f"{entry.get('name')}={','.join(map(str, as_list(entry.get('values'))))}")
    name = "|".join([*sorted(wanted), inputs.string("nameRegex")])
    owner = inputs.string("owners[]") or "amazon"
    found = image_id(region_of(inputs), f"{owner}|{name}")
    return {
        "id": found,
        "imageId": found,
        "arn": f"arn:{partition(inputs)}:ec2:{region_of(inputs)}::image/{found}",
        "name": "sandbox-image",
        "architecture": "arm64" if _ARM.search(name) else "x86_64",
        "ownerId": owner if owner.isdigit() else "000000000000",
        "rootDeviceName": "/dev/xvda",
        "rootDeviceType": "ebs",
        "virtualizationType": "hvm",
        "state": "available",
        "creationDate": "2026-01-01T00:00:00.000Z",
    }


_IMAGES: Final[Answers] = {
    "aws:ssm/getParameter:getParameter": _parameter,
    "aws:ec2/getAmi:getAmi": _image,
}


_LISTS: Final = {
    "actions": "Action",
    "notActions": "NotAction",
    "resources": "Resource",
    "notResources": "NotResource",
}


def _document(inputs: Inputs, _world: World) -> dict[str, Any]:
    document: dict[str, Any] = {
        "Version": inputs.string("version") or "2012-10-17",
        "Statement": [_statement(as_map(item)) for _, item in inputs.each("statements[]")],
    }
    if inputs.string("policyId"):
        document["Id"] = inputs.string("policyId")
    text = json.dumps(document, indent=2)
    minified = json.dumps(document, separators=(",", ":"))
    return {"id": digits(10, minified), "json": text, "minifiedJson": minified}


def _statement(item: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"Effect": item.get("effect") or "Allow"}
    if item.get("sid"):
        found["Sid"] = item["sid"]
    for name, element in _LISTS.items():
        values = [str(value) for value in as_list(item.get(name))]
        if values:
            found[element] = values[0] if len(values) == 1 else values
    for name, element in (("principals", "Principal"), ("notPrincipals", "NotPrincipal")):
        principals = as_list(item.get(name))
        if principals:
            found[element] = _principals(principals)
    conditions: dict[str, dict[str, Any]] = {}
    for entry in map(as_map, as_list(item.get("conditions"))):
        values = [str(value) for value in as_list(entry.get("values"))]
        conditions.setdefault(str(entry.get("test")), {})[str(entry.get("variable"))] = (
            values[0] if len(values) == 1 else values
        )
    if conditions:
        found["Condition"] = conditions
    return found


def _principals(principals: Any) -> Any:
    found: dict[str, Any] = {}
    for entry in map(as_map, principals):
        names = [str(value) for value in as_list(entry.get("identifiers"))]
        if entry.get("type") == "*":
            return "*"
        found[str(entry.get("type"))] = names[0] if len(names) == 1 else names
    return found


_DOCUMENTS: Final[Answers] = {"aws:iam/getPolicyDocument:getPolicyDocument": _document}


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


_LOOKUPS: Final[Answers] = {
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


ANSWERS: Final[Answers] = {
    **_PLACES,
    **_OFFERINGS,
    **_IMAGES,
    **_LOOKUPS,
    **_DOCUMENTS,
}


def answer(token: str, args: Properties, config: Properties, world: World) -> dict[str, Any]:
    """The answer to a query.

    Raises:
        LookupError: the query isn't known here, or what it asks for doesn't exist.
    """
    known = ANSWERS.get(token)
    if known is None:
        raise LookupError(
            f"the sandbox has no answer to the query {token}; known are: "
            f"{', '.join(sorted(name.rsplit(':', 1)[-1] for name in ANSWERS))}"
        )
    inputs = Inputs(args, config, token)
    given = {key: value for key, value in args.items() if value is not None}
    own = {"region": region_of(inputs)} if region_of(inputs) else {}
    return {"id": region_of(inputs) or ACCOUNT, **own, **given, **known(inputs, world)}
