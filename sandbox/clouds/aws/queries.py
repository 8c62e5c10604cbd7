"""Answers to queries: who asks and where, what is sold, images, documents, and what was made."""

from __future__ import annotations

import base64
import fnmatch
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
    network,
    region_of,
    zone_id,
    zone_ids,
    zone_name,
)
from falaj.sandbox.clouds.aws.sdk import shape
from falaj.sandbox.clouds.aws.services.clusters import VERSION, addon_version
from falaj.sandbox.clouds.inputs import Inputs, as_list, as_map
from falaj.sandbox.clouds.kinds import Answers
from falaj.sandbox.clouds.model import Made, Properties, World
from falaj.wire.documents import is_dictionary, is_mapping


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


def _registry_login(inputs: Inputs, _world: World) -> dict[str, Any]:
    """A login that opens nothing, in the form of a real one: the user is always ``AWS``.

    https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_AuthorizationData.html
    """
    region, account = region_of(inputs), inputs.string("registryId") or ACCOUNT
    password = "none-made-by-the-sandbox"  # noqa: S105 - it is none
    return {
        "id": region,
        "registryId": account,
        "userName": "AWS",
        "password": password,
        "authorizationToken": base64.b64encode(f"AWS:{password}".encode()).decode(),
        "proxyEndpoint": f"https://{account}.dkr.ecr.{region}.{dns_suffix(region)}",
        "expiresAt": "2026-01-01T12:00:00Z",
    }


_PLACES: Final[Answers] = {
    "aws:ecr/getAuthorizationToken:getAuthorizationToken": _registry_login,
    "aws:ecr/getCredentials:getCredentials": _registry_login,
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
    known = catalogued(region_of(inputs))
    if known is not None and known.is_uncertain(name):
        raise LookupError(f"the catalogue doesn't know whether {region_of(inputs)} sells {name!r}")
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


def _images(inputs: Inputs, world: World) -> dict[str, Any]:
    return {"ids": [_image(inputs, world)["id"]]}


def _image(inputs: Inputs, _world: World) -> dict[str, Any]:
    """The newest image that fits: always one, as AWS's catalogue isn't known here."""
    wanted: list[str] = []
    for _, item in inputs.each("filters[]"):
        entry = dict(item) if is_dictionary(item) else {}
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
    "aws:ec2/getAmiIds:getAmiIds": _images,
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
    """An answer that finds a resource by all that is asked for: arguments, tags and filters.

    Args:
        token: the resource's type.
        keys: pairs of the query's argument and the resource's output (or ``id``); any of several
            outputs for one argument.
    """

    def found(inputs: Inputs, world: World) -> dict[str, Any]:
        asked = [f"{key} {inputs.at(key)!r}" for key in dict(keys) if _is_asked(inputs.at(key))]
        asked += [f"{key} {inputs.at(key)!r}" for key in _WITH_ANY if inputs.at(key)]
        for made in _matching(token, inputs, world, keys) if asked else ():
            return {**made.outputs, "id": made.id}
        raise LookupError(
            f"the sandbox has no {token.rsplit(':', 1)[-1]} with "
            f"{', '.join(asked) or 'what is asked for'}; it can be asked for by "
            f"{', '.join((*dict(keys), *_WITH_ANY))}; `falaj sandbox add` adds what exists "
            "outside of every stack"
        )

    return found


_WITH_ANY: Final = ("tags", "filters")
"""Arguments by which resources of every type can be asked for."""


def _is_asked(value: object) -> bool:
    """Whether an argument says what is wanted: nothing, an empty text and a no don't."""
    return value not in (None, "", False)


def _matching(
    token: str, inputs: Inputs, world: World, keys: tuple[tuple[str, str], ...] = ()
) -> Iterator[Made]:
    """The resources of the region that have all that is asked for."""
    known = shape(token)
    outputs: dict[str, list[str]] = {}
    for argument, output in keys:
        outputs.setdefault(argument, []).append(output)
    for made in world.all(token):
        if known is not None and known.regional and made.region != region_of(inputs):
            continue
        values = {argument: inputs.at(argument) for argument in outputs}
        tags = _tags(made)
        if (
            all(
                value in _values(made, outputs[argument])
                for argument, value in values.items()
                if _is_asked(value)
            )
            and all(tags.get(key) == value for key, value in inputs.mapping("tags").items())
            and all(_passes(made, name, given) for name, given in _filters(inputs).items())
        ):
            yield made


def _values(made: Made, outputs: list[str]) -> list[object]:
    return [made.id if one == "id" else _output(made, one) for one in outputs] + (
        [_output(made, "id")] if "id" in outputs else []
    )


def _tags(made: Made) -> Mapping[str, Any]:
    return as_map(made.outputs.get("tagsAll")) or as_map(made.outputs.get("tags"))


_FILTERS: Final = {
    "cidr": "cidrBlock",
    "isDefault": "default",
    "groupName": "name",
    "attachment.vpcId": "vpcId",
}
"""Filters of EC2 (DescribeVpcs and its like) that are called otherwise than outputs."""
_OWN_IDS: Final = {
    t.VPC: "vpcId",
    t.SUBNET: "subnetId",
    t.SECURITY_GROUP: "groupId",
    t.ROUTE_TABLE: "routeTableId",
    t.VPC_ENDPOINT: "vpcEndpointId",
    t.INTERNET_GATEWAY: "internetGatewayId",
}


def _passes(made: Made, name: str, wanted: list[str]) -> bool:
    """Whether a filter lets a resource through; values have ``*`` and ``?`` as EC2 has them."""
    if name.startswith("tag:"):
        values: list[object] = [_tags(made).get(name.removeprefix("tag:"))]
    elif name == "tag-key":
        values = list(_tags(made))
    elif name in ("state", "status"):
        values = ["available"]
    else:
        camel = re.sub(r"-([a-z])", lambda found: found[1].upper(), name)
        output = _FILTERS.get(camel, camel)
        known = shape(made.token)
        answered = {*made.outputs, *(known.outputs if known else ()), "default", "defaultForAz"}
        if output == _OWN_IDS.get(made.token):
            values = [made.id]
        elif output in answered:
            values = [made.outputs.get(output, False if output.startswith("default") else None)]
        else:
            raise LookupError(
                f"the sandbox can't filter {made.token.rsplit(':', 1)[-1]} by {name!r}; it can by "
                "tag:KEY, tag-key, and what the resource itself answers with, such as vpc-id"
            )
    texts = [str(value).lower() if isinstance(value, bool) else str(value) for value in values]
    return any(fnmatch.fnmatchcase(text, pattern) for text in texts for pattern in wanted)


def _listed(token: str, *keys: tuple[str, str]) -> Callable[[Inputs, World], dict[str, Any]]:
    """An answer with the ids of all that have what is asked for; none is an answer, too."""

    def found(inputs: Inputs, world: World) -> dict[str, Any]:
        matching = list(_matching(token, inputs, world, keys))
        return {
            "ids": [made.id for made in matching],
            "arns": [made.outputs.get("arn") for made in matching],
            "vpcIds": [made.outputs.get("vpcId") for made in matching],
        }

    return found


def _vpc(inputs: Inputs, world: World) -> dict[str, Any]:
    asked = (("id", "id"), ("cidrBlock", "cidrBlock"), ("default", "default"),
             ("dhcpOptionsId", "dhcpOptionsId"))  # fmt: skip
    found = {"default": False, **_lookup(t.VPC, *asked)(inputs, world), "state": "available"}
    block = {
        "associationId": "vpc-cidr-assoc-" + marked(17, str(found["id"])),
        "cidrBlock": found.get("cidrBlock"),
        "state": "associated",
    }
    return {**found, "cidrBlockAssociations": [block]}


def _subnet(inputs: Inputs, world: World) -> dict[str, Any]:
    asked = ("cidrBlock", "vpcId", "availabilityZone", "availabilityZoneId", "defaultForAz",
             "ipv6CidrBlock")  # fmt: skip
    keys = (("id", "id"), *((name, name) for name in asked))
    found = _lookup(t.SUBNET, *keys)(inputs, world)
    block = network(found.get("cidrBlock"))
    # AWS keeps five addresses of each subnet ("Subnet CIDR blocks", Amazon VPC user guide).
    free = block.num_addresses - 5 if block is not None else 0
    return {
        "defaultForAz": False,
        "availableIpAddressCount": free,
        **found,
        "state": "available",
    }


def _security_group(inputs: Inputs, world: World) -> dict[str, Any]:
    """One that was made, or the one that a VPC begins with."""
    filters = _filters(inputs)
    (name,) = filters.get("group-name", [])[:1] or [inputs.string("name")]
    (vpc_id,) = filters.get("vpc-id", [])[:1] or [inputs.string("vpcId")]
    for vpc in world.all(t.VPC):
        id = str(vpc.outputs.get("defaultSecurityGroupId"))
        if inputs.string("id") == id or (name == "default" and vpc_id == vpc.id):
            return {
                "id": id,
                "name": "default",
                "vpcId": vpc.id,
                "arn": f"arn:{partition(inputs)}:ec2:{vpc.region}:{ACCOUNT}:security-group/{id}",
                "description": "default VPC security group",
                "tags": {},
            }
    keys = (("id", "id"), ("name", "name"), ("vpcId", "vpcId"))
    return _lookup(t.SECURITY_GROUP, *keys)(inputs, world)


def _hosted_zone(inputs: Inputs, world: World) -> dict[str, Any]:
    """A zone by its id, name (with or without its last dot), VPC and tags."""
    name = inputs.string("name").rstrip(".")
    for made in _matching(t.ZONE, inputs, world, (("zoneId", "id"),)):
        vpcs = [item.get("vpcId") for item in map(as_map, as_list(made.outputs.get("vpcs")))]
        if (
            (not name or str(made.outputs.get("name")).rstrip(".") == name)
            and (inputs.at("privateZone") is not True or vpcs)
            and inputs.string("vpcId") in ("", *vpcs)
        ):
            return {
                **made.outputs,
                "id": made.id,
                "zoneId": made.id,
                "name": str(made.outputs.get("name")).rstrip("."),
                "privateZone": bool(vpcs),
            }
    asked = name or inputs.string("zoneId") or "what is asked for"
    raise LookupError(
        f"the sandbox has no hosted zone {asked!r}; make it in a stack, or add it with `falaj "
        f"sandbox add {t.ZONE} NAME name={name or 'example.ae'}`"
    )


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
        many: [made[one]] if is_mapping(made.get(one)) else [] for many, one in plurals.items()
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
    "aws:ec2/getVpc:getVpc": _vpc,
    "aws:ec2/getVpcs:getVpcs": _listed(t.VPC),
    "aws:ec2/getSubnet:getSubnet": _subnet,
    "aws:ec2/getSubnets:getSubnets": _listed(t.SUBNET),
    "aws:ec2/getSecurityGroup:getSecurityGroup": _security_group,
    "aws:ec2/getSecurityGroups:getSecurityGroups": _listed(t.SECURITY_GROUP),
    "aws:ec2/getRouteTable:getRouteTable": _lookup(
        t.ROUTE_TABLE, ("routeTableId", "id"), ("vpcId", "vpcId")
    ),
    "aws:ec2/getRouteTables:getRouteTables": _listed(t.ROUTE_TABLE, ("vpcId", "vpcId")),
    "aws:ec2/getInternetGateway:getInternetGateway": _lookup(
        t.INTERNET_GATEWAY, ("internetGatewayId", "id")
    ),
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
    "aws:route53/getZone:getZone": _hosted_zone,
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
