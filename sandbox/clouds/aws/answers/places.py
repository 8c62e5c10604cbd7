"""Who asks, and where: account, partition, region, zones."""

from __future__ import annotations

from typing import Any, Final

from falaj.sandbox.clouds.aws.naming import ACCOUNT, partition, region_of
from falaj.sandbox.clouds.aws.regions import dns_suffix, zone_id, zone_ids, zone_name
from falaj.sandbox.clouds.inputs import Inputs, as_list, as_map
from falaj.sandbox.clouds.kinds import Answers
from falaj.sandbox.clouds.model import World


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


ANSWERS: Final[Answers] = {
    "aws:index/getServicePrincipal:getServicePrincipal": _service_principal,
    "aws:organizations/getOrganization:getOrganization": _organization,
    "aws:index/getCallerIdentity:getCallerIdentity": _caller,
    "aws:index/getPartition:getPartition": _partition,
    "aws:index/getRegion:getRegion": _region,
    "aws:index/getAvailabilityZones:getAvailabilityZones": _zones,
    "aws:index/getAvailabilityZone:getAvailabilityZone": _zone,
    "aws:index/getDefaultTags:getDefaultTags": _default_tags,
}
