"""EKS: where pods run: node groups and Fargate profiles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.aws import links
from falaj.sandbox.clouds.aws import tokens as t
from falaj.sandbox.clouds.aws.arns import arn_of, region_of
from falaj.sandbox.clouds.aws.hashes import uuid
from falaj.sandbox.clouds.aws.kinds import AutoName, AwsKind, AwsKinds
from falaj.sandbox.clouds.aws.machines import sold, sold_in_subnets
from falaj.sandbox.clouds.aws.services.clusters import VERSION
from falaj.sandbox.clouds.aws.services.compute import launch_templates
from falaj.sandbox.clouds.aws.services.trust import trusts
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import Reference
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import (
    at_most,
    between,
    matches,
    not_together,
    sized,
)

_NODE_NAME: Final = r"[0-9A-Za-z][A-Za-z0-9_-]{0,62}"


def _template_conflicts(resource: Resource) -> Iterator[Problem]:
    """What stands in the launch template can't be asked for again by the node group."""
    for made in launch_templates(resource, "launchTemplate", resource.world):
        both = (("instanceTypes", "instanceType"), ("amiType", "imageId"))
        for own, theirs in both:
            if resource.is_given(own) and made.outputs.get(theirs) not in (None, ""):
                if own == "amiType" and resource.get(own) == "CUSTOM":
                    continue
                yield Problem(
                    own, f"is given here and as {theirs} in the launch template {made.id}; "
                    "leave one of them out",
                )  # fmt: skip
        if made.outputs.get("iamInstanceProfile"):
            yield Problem(
                "launchTemplate", f"{made.id} has an instance profile; a node group brings its own"
            )


def _sold_in_zones(resource: Resource) -> Iterator[Problem]:
    subnets = [str(subnet_id) for _, subnet_id in resource.each("subnetIds[]")]
    for path, machine in resource.each("instanceTypes[]"):
        if isinstance(machine, str):
            yield from sold_in_subnets(path, machine, subnets, resource.world)
    for made in launch_templates(resource, "launchTemplate", resource.world):
        machine = made.outputs.get("instanceType")
        if isinstance(machine, str):
            yield from sold_in_subnets("launchTemplate", machine, subnets, resource.world)


def _node_group(resource: Resource) -> Mapping[str, Any]:
    cluster, _, name = resource.id.partition(":")
    own = uuid("node group", region_of(resource), resource.id)
    scaling = f"eks-{name}-{own}"
    return {
        "arn": arn_of(resource, "eks", f"nodegroup/{cluster}/{name}/{own}"),
        "resources": [
            {"autoscalingGroups": [{"name": scaling}], "remoteAccessSecurityGroupId": ""}
        ],
        "status": "ACTIVE",
        "version": resource.get("version") or VERSION,
        "releaseVersion": resource.get("releaseVersion") or f"{VERSION}.0-20260101",
        "amiType": resource.get("amiType") or "AL2023_x86_64_STANDARD",
        "capacityType": resource.get("capacityType") or "ON_DEMAND",
    }


def _capacity_block(inputs: Inputs) -> Iterator[Problem]:
    if inputs.get("capacityType") == "CAPACITY_BLOCK" and not inputs.is_given("launchTemplate"):
        yield Problem(
            "launchTemplate",
            "is missing; CAPACITY_BLOCK needs a launch template that names the reservation and "
            "the market type 'capacity-block'",
        )
    if inputs.is_given("launchTemplate"):
        for path in ("diskSize", "remoteAccess"):
            if inputs.is_given(path):
                yield Problem(path, "can't go with launchTemplate; put it into the template")


KINDS: Final[AwsKinds] = {
    t.NODE_GROUP: AwsKind(
        id="{clusterName}:{nodeGroupName}",
        arn="eks:{region}:{account}:nodegroup/{id}",
        name=AutoName(property="nodeGroupName", longest=63, unless=("nodeGroupNamePrefix",)),
        replaces=("amiType", "capacityType", "clusterName", "diskSize", "instanceTypes",
                  "launchTemplate.id", "launchTemplate.name", "nodeGroupName",
                  "nodeGroupNamePrefix", "nodeRoleArn", "remoteAccess", "subnetIds"),
        rules=(
            matches("nodeGroupName", _NODE_NAME, "up to 63 letters, digits, '-' and '_'"),
            sized("nodeGroupNamePrefix", 1, 37, "characters"),
            between("scalingConfig.minSize", 0, 450), between("scalingConfig.maxSize", 1, 450),
            between("scalingConfig.desiredSize", 0, 450),
            at_most("scalingConfig.minSize", "scalingConfig.desiredSize"),
            at_most("scalingConfig.desiredSize", "scalingConfig.maxSize"),
            at_most("scalingConfig.minSize", "scalingConfig.maxSize"),
            not_together(
                "launchTemplate.id", "launchTemplate.name"),
            not_together("updateConfig.maxUnavailable", "updateConfig.maxUnavailablePercentage"),
            between("updateConfig.maxUnavailable", 1, 100),
            between("updateConfig.maxUnavailablePercentage", 1, 100),
            sold("instanceTypes[]"),
            sized("taints", 0, 50), sized("taints[].key", 1, 63, "characters"),
            sized("taints[].value", 0, 63, "characters"),
            sized("subnetIds", 1, 100),
            _capacity_block,
        ),
        references=(
            links.cluster(holds=True),
            links.role("nodeRoleArn"),
            links.subnet(),
            Reference("launchTemplate.id", (t.LAUNCH_TEMPLATE,), holds=False),
            Reference("launchTemplate.name", (t.LAUNCH_TEMPLATE,), by=("name",), holds=False),
        ),
        crosschecks=(
            _template_conflicts, _sold_in_zones,
            trusts("nodeRoleArn", "ec2.amazonaws.com", "nodes' role"),
        ),
        unique=("clusterName", "nodeGroupName"),
        computed=_node_group,
    ),
    "aws:eks/fargateProfile:FargateProfile": AwsKind(
        id="{clusterName}:{fargateProfileName}",
        arn="eks:{region}:{account}:fargateprofile/{clusterName}/{fargateProfileName}",
        name=AutoName(property="fargateProfileName", longest=63),
        replaces=("clusterName", "fargateProfileName", "podExecutionRoleArn", "selectors",
                  "subnetIds"),
        references=(links.cluster(holds=True), links.role("podExecutionRoleArn"), links.subnet()),
        crosschecks=(
            trusts("podExecutionRoleArn", "eks-fargate-pods.amazonaws.com", "pods' role"),
        ),
    ),
}  # fmt: skip
