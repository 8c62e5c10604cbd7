"""Scaling groups and what belongs to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import arn_of
from falaj.sandbox.clouds.aws.hashes import hexdigits, marked
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.machines import sold, sold_in_subnets
from falaj.sandbox.clouds.aws.services.compute import launch_templates
from falaj.sandbox.clouds.inputs import Inputs, Resource, as_list, as_map
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import (
    at_most,
    between,
    matches,
    not_together,
    sized,
)

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
            links.subnet("vpcZoneIdentifiers[]"),
            Reference("targetGroupArns[]", (t.TARGET_GROUP,), by=("arn",), holds=False),
            Reference("launchTemplate.id", (t.LAUNCH_TEMPLATE,), holds=False),
            Reference("launchTemplate.name", (t.LAUNCH_TEMPLATE,), by=("name",), holds=False),
            Reference(
                "mixedInstancesPolicy.launchTemplate.launchTemplateSpecification.launchTemplateId",
                (t.LAUNCH_TEMPLATE,), holds=False,
            ),
            Reference("placementGroup", (t.PLACEMENT_GROUP,), by=("name",)),
        ),
        crosschecks=(_template_sold,),
        unique=("name",),
        computed=_group,
        defaults={"healthCheckGracePeriod": 300, "defaultCooldown": 300},
    ),
    "aws:autoscaling/policy:Policy": AwsKind(
        id="{name}",
        name=AutoName(longest=255),
        replaces=("name", "autoscalingGroupName"),
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
            links.role("roleArn"),
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
