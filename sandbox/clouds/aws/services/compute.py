"""Launch templates, instances, placement groups, reservations, scaling groups."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.addresses import zone
from falaj.sandbox.clouds.aws.arns import ACCOUNT
from falaj.sandbox.clouds.aws.hashes import hexdigits, marked
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.machines import sold, sold_in_subnets
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Made, Problem, World
from falaj.sandbox.clouds.rules import (
    between,
    matches,
    needs,
    not_together,
    sized,
)


def _user_data(inputs: Inputs) -> Iterator[Problem]:
    """A launch template takes its user data in base64, 16 KiB at most before encoding."""
    text = inputs.string("userData")
    try:
        size = len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        yield Problem("userData", "isn't base64; encode it (base64.b64encode)")
        return
    if size > 16384:
        yield Problem("userData", f"has {size} bytes before encoding; allowed: 16384")


def _interfaces(inputs: Inputs) -> Iterator[Problem]:
    """Security groups stand either on the template or on its interfaces."""
    if inputs.is_given("networkInterfaces") and inputs.is_given("vpcSecurityGroupIds"):
        yield Problem(
            "vpcSecurityGroupIds",
            "can't go with networkInterfaces; put the groups into each interface's securityGroups",
        )
    seen: set[tuple[object, object]] = set()
    for path, item in inputs.each("networkInterfaces[]"):
        if not isinstance(item, Mapping):
            continue
        key = (item.get("networkCardIndex") or 0, item.get("deviceIndex") or 0)
        if all(isinstance(part, int | float) for part in key):
            if key in seen:
                yield Problem(
                    path,
                    f"network card {key[0]!r} has two interfaces with device index {key[1]!r}",
                )
            seen.add(key)


def _volumes(inputs: Inputs) -> Iterator[Problem]:
    """What each type of volume takes ("Amazon EBS volume types", Amazon EBS user guide)."""
    limits = {"gp3": (1, 65536), "gp2": (1, 16384), "io1": (4, 16384), "io2": (4, 65536),
              "st1": (125, 16384), "sc1": (125, 16384), "standard": (1, 1024)}  # fmt: skip
    for root in ("blockDeviceMappings[].ebs", "rootBlockDevice", "ebsBlockDevices[]"):
        for path, volume in inputs.each(root):
            if not isinstance(volume, Mapping):
                continue
            kind, size = volume.get("volumeType"), volume.get("volumeSize")
            if kind in limits and isinstance(size, int | float):
                least, most = limits[kind]
                if not least <= size <= most:
                    yield Problem(
                        f"{path}.volumeSize",
                        f"{size:g} GiB isn't allowed for {kind}; allowed: {least} to {most}",
                    )
            if kind in ("io1", "io2") and "iops" not in volume:
                yield Problem(f"{path}.iops", f"is missing; {kind} needs it")
            if (
                kind is not None
                and kind != "gp3"
                and isinstance(kind, str)
                and "throughput" in volume
            ):
                yield Problem(f"{path}.throughput", f"applies only to gp3, not to {kind}")
            if volume.get("kmsKeyId") is not None and str(volume.get("encrypted")).lower() not in (
                "true", "unknown",
            ):  # fmt: skip
                yield Problem(f"{path}.kmsKeyId", "needs encrypted to be true; set it")


def _placement(inputs: Inputs) -> Iterator[Problem]:
    strategy = inputs.get("strategy")
    for path, needed in (("partitionCount", "partition"), ("spreadLevel", "spread")):
        if inputs.is_given(path) and isinstance(strategy, str) and strategy != needed:
            yield Problem(path, f"applies only to the strategy {needed!r}, not to {strategy!r}")


def _template(resource: Resource) -> Mapping[str, Any]:
    """A template's version counts up with each change of what it launches, not of its tags."""
    before = resource.world.by_id(t.LAUNCH_TEMPLATE, resource.id)
    if before is None:
        return {"latestVersion": 1, "defaultVersion": 1}
    latest = int(before.outputs.get("latestVersion") or 1)
    if _launches(before.inputs) != _launches(resource.values):
        latest += 1
    first = int(before.outputs.get("defaultVersion") or 1)
    newest = resource.get("updateDefaultVersion") is True
    return {"latestVersion": latest, "defaultVersion": latest if newest else first}


def _launches(inputs: Mapping[str, Any]) -> dict[str, Any]:
    own = {"tags", "tagsAll", "updateDefaultVersion", "defaultVersion"}
    return {key: value for key, value in inputs.items() if key not in own}


def launch_templates(inputs: Inputs, path: str, world: World) -> Iterator[Made]:
    """The launch template that is named under a path, by its id or its name."""
    for key in ("id", "launchTemplateId"):
        found = world.by_id(t.LAUNCH_TEMPLATE, inputs.string(f"{path}.{key}"))
        if found is not None:
            yield found
    for key in ("name", "launchTemplateName"):
        name = inputs.string(f"{path}.{key}")
        if name:
            yield from world.find(t.LAUNCH_TEMPLATE, name=name)


def _instance_zone(resource: Resource) -> Iterator[Problem]:
    machine, subnet = (
        resource.string("instanceType"),
        resource.string("subnetId"),
    )
    if machine and subnet:
        yield from sold_in_subnets("instanceType", machine, [subnet], resource.world)


def _reserved_zone(inputs: Inputs) -> Iterator[Problem]:
    yield from sold("instanceType", zone="availabilityZone")(inputs)
    yield from sold("instanceType", zone="availabilityZoneId")(inputs)


_IMAGE: Final = r"ami-[0-9a-f]{8}([0-9a-f]{9})?|resolve:ssm:[A-Za-z0-9_./:-]+"


KINDS: Final[AwsKinds] = {
    t.LAUNCH_TEMPLATE: AwsKind(
        id="lt-{hex17}",
        arn="ec2:{region}:{account}:launch-template/{id}",
        name=AutoName(longest=128),
        replaces=("name", "namePrefix"),
        rules=(
            matches("name", r"[a-zA-Z0-9().\-/_]{3,128}", "3 to 128 letters, digits and ().-/_"),
            not_together("name", "namePrefix"),
            matches("imageId", _IMAGE, "an AMI's id such as ami-0123456789abcdef0"),
            sold("instanceType"),
            not_together("instanceType", "instanceRequirements"),
            between("metadataOptions.httpPutResponseHopLimit", 1, 64),
            sized("description", 0, 255, "characters"),
            _user_data,
            _interfaces,
            _volumes,
        ),
        references=(
            links.security_group("vpcSecurityGroupIds[]"),
            links.security_group("networkInterfaces[].securityGroups[]"),
            links.subnet("networkInterfaces[].subnetId"),
            links.key("blockDeviceMappings[].ebs.kmsKeyId"),
            Reference("placement.groupName", (t.PLACEMENT_GROUP,), by=("name",), holds=False),
            Reference("iamInstanceProfile.arn", (t.INSTANCE_PROFILE,), by=("arn",), holds=False,
                      regional=False),
            Reference("iamInstanceProfile.name", (t.INSTANCE_PROFILE,), by=("name",), holds=False,
                      regional=False),
            Reference(
                "capacityReservationSpecification.capacityReservationTarget.capacityReservationId",
                (t.CAPACITY_RESERVATION,), holds=False,
            ),
        ),
        unique=("name",),
        computed=_template,
    ),
    t.INSTANCE: AwsKind(
        id="i-{hex17}",
        arn="ec2:{region}:{account}:instance/{id}",
        replaces=("ami", "availabilityZone", "keyName", "subnetId", "placementGroup", "privateIp",
                  "networkInterfaces", "capacityReservationSpecification", "tenancy"),
        rules=(
            matches("ami", _IMAGE, "an AMI's id such as ami-0123456789abcdef0"),
            sold("instanceType"),
            zone("availabilityZone", by="name"),
            _volumes,
        ),
        references=(links.subnet("subnetId"), links.security_group("vpcSecurityGroupIds[]")),
        crosschecks=(_instance_zone,),
        computed=lambda resource: {
            "instanceState": "running",
            "privateIp": f"10.0.0.{4 + int(hexdigits(2, resource.id), 16) % 250}",
            "primaryNetworkInterfaceId": "eni-" + marked(17, resource.id),
        },
    ),
    t.PLACEMENT_GROUP: AwsKind(
        id="{name}",
        arn="ec2:{region}:{account}:placement-group/{name}",
        name=AutoName(longest=255),
        replaces=("name", "partitionCount", "spreadLevel", "strategy"),
        rules=(
            sized("name", 1, 255, "characters"), between("partitionCount", 1, 7), _placement,
            needs("partitionCount", "strategy"),
        ),
        unique=("name",),
        computed=lambda resource: {"placementGroupId": "pg-" + marked(17, resource.id)},
    ),
    t.CAPACITY_RESERVATION: AwsKind(
        id="cr-{hex17}",
        arn="ec2:{region}:{account}:capacity-reservation/{id}",
        replaces=("availabilityZone", "ebsOptimized", "ephemeralStorage", "instancePlatform",
                  "instanceType", "outpostArn", "placementGroupArn", "tenancy"),
        rules=(sold("instanceType"), zone("availabilityZone", by="name"), _reserved_zone,
               between("instanceCount", 1, 1000)),
        computed=lambda _: {"ownerId": ACCOUNT},
        defaults={"endDateType": "unlimited", "instanceMatchCriteria": "open",
                  "tenancy": "default"},
    ),
}  # fmt: skip
