"""Launch templates, instances, placement groups, reservations and scaling groups."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import kinds as t
from falaj.sandbox.clouds.aws import relations
from falaj.sandbox.clouds.aws.key_policies import Caller, Need, keys_at, unusable
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.machine_types import network_cards, volume
from falaj.sandbox.clouds.aws.naming import ACCOUNT, arn_of, hexdigits, marked
from falaj.sandbox.clouds.aws.regions import sold, sold_in_subnets, zone
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_list, as_map
from falaj.sandbox.clouds.kinds import (
    Crosscheck,
    Reference,
    at_most,
    between,
    equals,
    matches,
    needs,
    not_together,
    sized,
    when,
)
from falaj.sandbox.clouds.model import Made, Problem, World
from falaj.wire.documents import is_mapping


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
        if not is_mapping(item):
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
    for root in ("blockDeviceMappings[].ebs", "rootBlockDevice", "ebsBlockDevices[]"):
        for path, asked in inputs.each(root):
            if not is_mapping(asked):
                continue
            yield from volume(path, as_map(asked))
            if asked.get("kmsKeyId") is not None and str(asked.get("encrypted")).lower() not in (
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


_SPECIFICATION: Final = "mixedInstancesPolicy.launchTemplate.launchTemplateSpecification"
_OVERRIDES: Final = "mixedInstancesPolicy.launchTemplate.overrides[].instanceType"


def _group(resource: Resource) -> Mapping[str, Any]:
    zones: list[str] = []
    for _, subnet_id in resource.each("vpcZoneIdentifiers[]"):
        subnet = resource.world.by_id(t.SUBNET, str(subnet_id))
        if subnet is not None:
            zones.append(str(subnet.outputs.get("availabilityZone", "")))
    found: dict[str, Any] = {
        "arn": arn_of(
            resource,
            "autoscaling",
            f"autoScalingGroup:{marked(8, resource.id)}-0000-4000-8000-"
            f"{hexdigits(12, resource.id)}"
            f":autoScalingGroupName/{resource.id}",
        ),
        "desiredCapacity": resource.get("minSize") or 0,
    }
    if zones:
        found["availabilityZones"] = sorted(set(zones))
    return found


def _one_source(inputs: Inputs) -> Iterator[Problem]:
    sources = ("launchTemplate", "launchConfiguration", "mixedInstancesPolicy")
    given = [path for path in sources if inputs.is_given(path)]
    if len(given) != 1:
        yield Problem(
            given[1] if given else "launchTemplate",
            f"exactly one of {', '.join(sources)} must be given; given: "
            f"{' and '.join(given) or 'none'}",
        )


def _template_sold(resource: Resource) -> Iterator[Problem]:
    """The template's machine type is sold in the group's zones."""
    subnets = [str(subnet_id) for _, subnet_id in resource.each("vpcZoneIdentifiers[]")]
    for path in ("launchTemplate", _SPECIFICATION):
        for made in launch_templates(resource, path, resource.world):
            machine = made.outputs.get("instanceType")
            if isinstance(machine, str):
                yield from sold_in_subnets(path, machine, subnets, resource.world)
    for where, machine in resource.each(_OVERRIDES):
        if isinstance(machine, str):
            yield from sold_in_subnets(where, machine, subnets, resource.world)


def _no_rollback(resource: Resource) -> Iterator[Problem]:
    """A failed refresh isn't rolled back to a version or an image that isn't fixed.

    docs.aws.amazon.com/autoscaling/ec2/APIReference/API_RefreshPreferences.html, AutoRollback.
    """
    if resource.get("instanceRefresh.preferences.autoRollback") is not True:
        return
    where = "instanceRefresh.preferences.autoRollback"
    remedy = "give the template a fixed one, or leave autoRollback out"
    for path in ("launchTemplate", _SPECIFICATION):
        if not resource.is_given(path):
            continue
        # The provider asks for $Default where a group names no version.
        version = resource.get(f"{path}.version") or "$Default"
        if version in ("$Latest", "$Default"):
            yield Problem(where, f"can't go with version {version!r} of {path}; {remedy}")
        for made in launch_templates(resource, path, resource.world):
            image = str(made.outputs.get("imageId", ""))
            if image.startswith("resolve:ssm:"):
                yield Problem(
                    where,
                    f"can't go with an image that is an SSM parameter, {image!r} of {made.id}; "
                    f"{remedy}",
                )


def disks_of_groups(*paths: str) -> Crosscheck:
    """The role of scaling groups may use the keys of disks that a launch template names.

    It gets the right from the key's policy alone, by its own ARN:
    https://docs.aws.amazon.com/autoscaling/ec2/userguide/key-policy-requirements-EBS-encryption.html
    and, of node groups, https://docs.aws.amazon.com/eks/latest/userguide/launch-templates.html
    """

    def check(resource: Resource) -> Iterator[Problem]:
        role = resource.string("serviceLinkedRoleArn") or arn_of(
            resource,
            "iam",
            "role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
            regional=False,
        )
        who = Caller(
            role,
            arn=role,
            context={
                "aws:PrincipalArn": role,
                "aws:PrincipalAccount": ACCOUNT,
                "kms:CallerAccount": ACCOUNT,
                "kms:GrantIsForAWSResource": "true",
            },
        )
        for path in paths:
            for made in launch_templates(resource, path, resource.world):
                template = Resource.of(made, resource.world)
                for _, key in keys_at(template, "blockDeviceMappings[].ebs.kmsKeyId"):
                    yield from unusable(path, key, resource.world, who, _DISK_USE)

    return check


_DISK_USE: Final = Need(
    ("kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext"),
    "machines end with Client.InternalError at their launch; allow that role kms:Encrypt, "
    "kms:Decrypt, kms:ReEncrypt*, kms:GenerateDataKey*, kms:DescribeKey and kms:CreateGrant",
)


def _targets_by_instance(resource: Resource) -> Iterator[Problem]:
    """A group registers its machines by their ids ("AttachLoadBalancerTargetGroups")."""
    for path, arn in resource.each("targetGroupArns[]"):
        for made in resource.world.find(t.TARGET_GROUP, arn=arn):
            kind = made.outputs.get("targetType") or "instance"
            if kind != "instance":
                yield Problem(
                    path,
                    f"the target group {made.outputs.get('name')!r} takes targets by {kind!r}; a "
                    "scaling group registers machines: set its targetType to 'instance'",
                )


def _tracking(inputs: Inputs) -> Iterator[Problem]:
    """What is tracked is told whole ("TargetTrackingConfiguration", EC2 Auto Scaling API)."""
    place = "targetTrackingConfiguration.predefinedMetricSpecification"
    kind = inputs.get(f"{place}.predefinedMetricType")
    if kind == "ALBRequestCountPerTarget" and not inputs.is_given(f"{place}.resourceLabel"):
        yield Problem(
            f"{place}.resourceLabel",
            "is missing: requests are counted for a target group of a balancer; give "
            "app/NAME/ID/targetgroup/NAME/ID (arnSuffix of both)",
        )


def _tagged_group(resource: Resource) -> Iterator[Problem]:
    """The group exists: made by a program, or by EKS for a node group."""
    name = resource.string("autoscalingGroupName")
    made = {as_map(group).get("name")
            for node_group in resource.world.all(t.NODE_GROUP)
            for part in as_list(node_group.outputs.get("resources"))
            for group in as_list(as_map(part).get("autoscalingGroups"))}  # fmt: skip
    if name not in made and not list(resource.world.find(t.AUTO_SCALING_GROUP, name=name)):
        yield Problem(
            "autoscalingGroupName",
            f"{name!r} does not exist: there is no Group of that name, and no NodeGroup's; "
            "create it first, in this stack or another",
        )


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
            network_cards,
            _volumes,
        ),
        references=(
            relations.security_group("vpcSecurityGroupIds[]"),
            relations.security_group("networkInterfaces[].securityGroups[]"),
            relations.subnet("networkInterfaces[].subnetId"),
            relations.key("blockDeviceMappings[].ebs.kmsKeyId"),
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
        references=(
            relations.subnet("subnetId"),
            relations.security_group("vpcSecurityGroupIds[]"),
        ),
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
    t.AUTO_SCALING_GROUP: AwsKind(
        id="{name}",
        name=AutoName(longest=255),
        replaces=("name", "namePrefix"),
        rules=(
            sized("name", 1, 255, "characters"),
            between("minSize", 0, 10000), between("maxSize", 0, 10000),
            at_most("minSize", "maxSize"), at_most("minSize", "desiredCapacity"),
            at_most("desiredCapacity", "maxSize"),
            _one_source,
            not_together("vpcZoneIdentifiers", "availabilityZones"),
            matches("healthCheckType", r"(EBS|EC2|ELB|VPC_LATTICE)(,(EBS|EC2|ELB|VPC_LATTICE))*",
                    "EC2, ELB, EBS or VPC_LATTICE"),
            sold(_OVERRIDES),
            sized("terminationPolicies", 0, 30),
        ),
        references=(
            relations.subnet("vpcZoneIdentifiers[]"),
            Reference("targetGroupArns[]", (t.TARGET_GROUP,), by=("arn",), holds=False),
            Reference("launchTemplate.id", (t.LAUNCH_TEMPLATE,), holds=False),
            Reference("launchTemplate.name", (t.LAUNCH_TEMPLATE,), by=("name",), holds=False),
            Reference(
                "mixedInstancesPolicy.launchTemplate.launchTemplateSpecification.launchTemplateId",
                (t.LAUNCH_TEMPLATE,), holds=False,
            ),
            Reference("placementGroup", (t.PLACEMENT_GROUP,), by=("name",)),
        ),
        crosschecks=(
            _template_sold, _targets_by_instance, _no_rollback,
            disks_of_groups("launchTemplate", _SPECIFICATION),
        ),
        unique=("name",),
        computed=_group,
        defaults={"healthCheckGracePeriod": 300, "defaultCooldown": 300},
    ),
    "aws:autoscaling/policy:Policy": AwsKind(
        id="{name}",
        name=AutoName(longest=255),
        replaces=("name", "autoscalingGroupName"),
        rules=(
            _tracking,
            when(
                equals(
                    "targetTrackingConfiguration.predefinedMetricSpecification"
                    ".predefinedMetricType",
                    "ASGAverageCPUUtilization",
                ),
                between("targetTrackingConfiguration.targetValue", 1, 100, "percent"),
            ),
        ),
        references=(
            Reference("autoscalingGroupName", (t.AUTO_SCALING_GROUP,), by=("name",), holds=False),
        ),
        unique=("autoscalingGroupName", "name"),
        computed=lambda resource: {
            "arn": arn_of(resource, "autoscaling",
                f"scalingPolicy:{marked(8, resource.id)}-0000-4000-8000-"
            f"{hexdigits(12, resource.id)}"
                f":autoScalingGroupName/{resource.string('autoscalingGroupName')}:policyName/{resource.id}",
            )
        },
    ),
    "aws:autoscaling/lifecycleHook:LifecycleHook": AwsKind(
        id="{name}",
        name=AutoName(longest=255),
        replaces=("name", "autoscalingGroupName"),
        rules=(
            matches("name", r"[A-Za-z0-9\-_/]{1,255}", "up to 255 letters, digits and -_/"),
            between("heartbeatTimeout", 30, 7200, "seconds"),
        ),
        references=(
            Reference("autoscalingGroupName", (t.AUTO_SCALING_GROUP,), by=("name",), holds=False),
            relations.role("roleArn"),
        ),
    ),
    "aws:autoscaling/tag:Tag": AwsKind(
        id=lambda inputs: f"{inputs.string('autoscalingGroupName')},{inputs.string('tag.key')}",
        replaces=("autoscalingGroupName", "tag.key"),
        crosschecks=(_tagged_group,),
    ),
    "aws:autoscaling/attachment:Attachment": AwsKind(
        id="{autoscalingGroupName}-{hex26}",
        replaces=("autoscalingGroupName", "elb", "lbTargetGroupArn"),
        references=(
            Reference("autoscalingGroupName", (t.AUTO_SCALING_GROUP,), by=("name",), holds=False),
            Reference("lbTargetGroupArn", (t.TARGET_GROUP,), by=("arn",), holds=False),
        ),
    ),
}  # fmt: skip
