"""Who asks, and where: account, partition, region, zones."""

from __future__ import annotations

from typing import Any, Final

from falaj.sandbox.clouds.aws.draft import ACCOUNT, Draft, as_list, as_map
from falaj.sandbox.clouds.aws.kinds import Answers
from falaj.sandbox.clouds.aws.regions import dns_suffix, zone_id, zone_ids, zone_name
from falaj.sandbox.clouds.model import World


def _caller(draft: Draft, _world: World) -> dict[str, Any]:
    return {
        "id": ACCOUNT,
        "accountId": ACCOUNT,
        "arn": f"arn:{draft.partition}:sts::{ACCOUNT}:assumed-role/sandbox/falaj",
        "userId": "AROASANDBOX0000000000:falaj",
    }


def _partition(draft: Draft, _world: World) -> dict[str, Any]:
    suffix = dns_suffix(draft.region)
    reverse = ".".join(reversed(suffix.split(".")))
    return {
        "id": draft.partition,
        "partition": draft.partition,
        "dnsSuffix": suffix,
        "reverseDnsPrefix": reverse,
    }


def _region(draft: Draft, _world: World) -> dict[str, Any]:
    name = draft.text("name") or draft.region
    return {
        "id": name,
        "name": name,
        "region": name,
        "description": name,
        "endpoint": f"ec2.{name}.{dns_suffix(name)}",
    }


def _zones(draft: Draft, _world: World) -> dict[str, Any]:
    ids = [
        item
        for item in zone_ids(draft.region)
        if item not in as_list(draft.get("excludeZoneIds"))
        and zone_name(draft.region, item) not in as_list(draft.get("excludeNames"))
    ]
    return {
        "zoneIds": ids,
        "names": [zone_name(draft.region, item) for item in ids],
        "groupNames": [draft.region],
    }


def _zone(draft: Draft, _world: World) -> dict[str, Any]:
    region, wanted = draft.region, draft.text("zoneId")
    if not wanted and draft.text("name"):
        wanted = zone_id(region, draft.text("name")) or ""
    if wanted not in zone_ids(region):
        raise LookupError(
            f"{region} has no zone {draft.text('zoneId') or draft.text('name')!r}; "
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


def _default_tags(draft: Draft, _world: World) -> dict[str, Any]:
    return {"tags": dict(as_map(as_map(draft.config.get("defaultTags")).get("tags")))}


def _service_principal(draft: Draft, _world: World) -> dict[str, Any]:
    service = draft.text("serviceName")
    suffix = dns_suffix(draft.region) if draft.partition == "aws-cn" else "amazonaws.com"
    return {"id": f"{service}.{suffix}", "name": f"{service}.{suffix}", "suffix": suffix}


def _organization(_draft: Draft, _world: World) -> dict[str, Any]:
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
