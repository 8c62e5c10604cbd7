"""What the cluster autoscaler has to know of a pool that has no node yet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import child
from falaj.components.specification.node_labels import Taint

#: github.com/kubernetes/autoscaler: cluster-autoscaler/cloudprovider/aws/README.md
_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"


def hints(
    labels: Mapping[str, str], taints: Sequence[Taint], resources: Mapping[str, int]
) -> dict[str, str]:
    """Tags that describe a pool's nodes: labels, taints and extended resources."""
    found = {f"{_TEMPLATE}/label/{key}": value for key, value in labels.items()}
    found |= {f"{_TEMPLATE}/taint/{each.key}": f"{each.value}:{each.effect}" for each in taints}
    return found | {f"{_TEMPLATE}/resources/{key}": str(n) for key, n in resources.items()}


def autoscaler_tags(
    parent: pulumi.Resource, name: str, group: aws.eks.NodeGroup, tags: Mapping[str, str]
) -> None:
    """Tag the node group's scaling group, on which EKS itself writes which cluster owns it.

    EKS doesn't pass a node group's tags on to it, so that each is a resource of its own.
    """
    scaling_group = group.resources.apply(
        lambda made: made[0].autoscaling_groups[0].name  # pyright: ignore[reportOptionalSubscript]
    )
    for key, value in tags.items():
        aws.autoscaling.Tag(
            f"{name}-{key.removeprefix(_TEMPLATE + '/')}",
            autoscaling_group_name=scaling_group,
            tag=aws.autoscaling.TagTagArgs(key=key, value=value, propagate_at_launch=False),
            opts=child(parent),
        )
