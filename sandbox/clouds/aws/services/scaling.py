"""Scaling groups and what belongs to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.draft import Draft, as_list, as_map
from falaj.sandbox.clouds.aws.hashes import hexdigits, marked
from falaj.sandbox.clouds.aws.kinds import AutoName, Kind, Kinds, Reference
from falaj.sandbox.clouds.aws.machines import sold, sold_in_subnets
from falaj.sandbox.clouds.aws.rules import (
    at_most,
    between,
    matches,
    not_together,
    sized,
)
from falaj.sandbox.clouds.aws.services.compute import launch_templates
from falaj.sandbox.clouds.model import Problem, World

_SPECIFICATION: Final = "mixedInstancesPolicy.launchTemplate.launchTemplateSpecification"
_OVERRIDES: Final = "mixedInstancesPolicy.launchTemplate.overrides[].instanceType"


def _group(draft: Draft, id: str, world: World) -> Mapping[str, Any]:
    zones: list[str] = []
    for _, subnet_id in draft.each("vpcZoneIdentifiers[]"):
        subnet = world.by_id(t.SUBNET, str(subnet_id))
        if subnet is not None:
            zones.append(str(subnet.outputs.get("availabilityZone", "")))
    found: dict[str, Any] = {
        "arn": draft.arn(
            "autoscaling",
            f"autoScalingGroup:{marked(8, id)}-0000-4000-8000-{hexdigits(12, id)}"
            f":autoScalingGroupName/{id}",
        ),
        "desiredCapacity": draft.get("minSize") or 0,
    }
    if zones:
        found["availabilityZones"] = sorted(set(zones))
    return found


def _one_source(draft: Draft) -> Iterator[Problem]:
    sources = ("launchTemplate", "launchConfiguration", "mixedInstancesPolicy")
    given = [path for path in sources if draft.given(path)]
    if len(given) != 1:
        yield Problem(
            given[1] if given else "launchTemplate",
            f"exactly one of {', '.join(sources)} must be given; given: "
            f"{' and '.join(given) or 'none'}",
        )


def _template_sold(draft: Draft, world: World, _id: str | None) -> Iterator[Problem]:
    """The template's machine type is sold in the group's zones."""
    subnets = [str(id) for _, id in draft.each("vpcZoneIdentifiers[]")]
    for path in ("launchTemplate", _SPECIFICATION):
        for made in launch_templates(draft, path, world):
            machine = made.outputs.get("instanceType")
            if isinstance(machine, str):
                yield from sold_in_subnets(path, machine, subnets, world)
    for where, machine in draft.each(_OVERRIDES):
        if isinstance(machine, str):
            yield from sold_in_subnets(where, machine, subnets, world)


def _tagged_group(draft: Draft, world: World, _id: str | None) -> Iterator[Problem]:
    """The group exists: made by a program, or by EKS for a node group."""
    name = draft.text("autoscalingGroupName")
    made = {as_map(group).get("name")
            for node_group in world.all(t.NODE_GROUP)
            for part in as_list(node_group.outputs.get("resources"))
            for group in as_list(as_map(part).get("autoscalingGroups"))}  # fmt: skip
    if name not in made and not list(world.find(t.AUTO_SCALING_GROUP, name=name)):
        yield Problem(
            "autoscalingGroupName",
            f"{name!r} does not exist: there is no Group of that name, and no NodeGroup's; "
            "create it first, in this stack or another",
        )


KINDS: Final[Kinds] = {
    t.AUTO_SCALING_GROUP: Kind(
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
    "aws:autoscaling/policy:Policy": Kind(
        id="{name}",
        name=AutoName(longest=255),
        replaces=("name", "autoscalingGroupName"),
        references=(
            Reference("autoscalingGroupName", (t.AUTO_SCALING_GROUP,), by=("name",), holds=False),
        ),
        unique=("autoscalingGroupName", "name"),
        computed=lambda draft, id, _world: {
            "arn": draft.arn(
                "autoscaling",
                f"scalingPolicy:{marked(8, id)}-0000-4000-8000-{hexdigits(12, id)}"
                f":autoScalingGroupName/{draft.text('autoscalingGroupName')}:policyName/{id}",
            )
        },
    ),
    "aws:autoscaling/lifecycleHook:LifecycleHook": Kind(
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
    "aws:autoscaling/tag:Tag": Kind(
        id=lambda draft: f"{draft.text('autoscalingGroupName')},{draft.text('tag.key')}",
        replaces=("autoscalingGroupName", "tag.key"),
        crosschecks=(_tagged_group,),
    ),
    "aws:autoscaling/attachment:Attachment": Kind(
        id="{autoscalingGroupName}-{hex26}",
        replaces=("autoscalingGroupName", "elb", "lbTargetGroupArn"),
        references=(
            Reference("autoscalingGroupName", (t.AUTO_SCALING_GROUP,), by=("name",), holds=False),
            Reference("lbTargetGroupArn", (t.TARGET_GROUP,), by=("arn",), holds=False),
        ),
    ),
}  # fmt: skip
