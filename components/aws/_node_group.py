"""A managed node group with its launch template: what GPU and CPU pools have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components import catalogue
from falaj.components.aws import _launch_template as fragments
from falaj.components.aws._autoscaler_tags import autoscaler_tags, hints
from falaj.components.aws._component import child
from falaj.components.aws._node_config import user_data
from falaj.components.specification.gpu_node_pool import RESERVED
from falaj.components.specification.machine_choice import subnets_of
from falaj.components.specification.node_pools import ONE_AT_A_TIME, NodePoolSpec

_EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
}
_CAPACITY_TYPES = {
    "on-demand": "ON_DEMAND",
    "spot": "SPOT",
    "reservation": "ON_DEMAND",
    "capacity-block": "CAPACITY_BLOCK",
}


def node_group(
    parent: pulumi.Resource,
    pool: NodePoolSpec,
    args: Mapping[str, Any],
    placement_group: pulumi.Input[str] | None = None,
) -> aws.eks.NodeGroup:
    """Make the launch template, the node group and the autoscaler's tags.

    Args:
        parent: the component.
        pool: its arguments, checked.
        args: its arguments, for those that may be outputs.
        placement_group: name of the placement group; None for none.
    """
    template = _launch_template(parent, pool, args, placement_group)
    labels = {**pool.labels, **pool.operator_labels}
    where = f"node_subnet_ids of node pool {pool.name!r}"

    def subnets(known: Mapping[str, str]) -> list[str]:
        return subnets_of(known, pool.zones, where=where, all_needed=pool.zones_named)

    gpu = pool.machine.gpu is not None
    made = aws.eks.NodeGroup(
        pool.name,
        cluster_name=args["cluster_id"],
        node_role_arn=args["node_identity_id"],
        subnet_ids=pulumi.Output.from_input(args["node_subnet_ids"]).apply(subnets),
        ami_type=_ami_type(pool.machine),
        capacity_type=_CAPACITY_TYPES[pool.capacity],
        version=pool.args["kubernetes_version"],
        launch_template=aws.eks.NodeGroupLaunchTemplateArgs(
            id=template.id, version=template.latest_version.apply(str)
        ),
        scaling_config=aws.eks.NodeGroupScalingConfigArgs(
            min_size=pool.size.least, max_size=pool.size.most, desired_size=pool.size.initial
        ),
        update_config=aws.eks.NodeGroupUpdateConfigArgs(
            max_unavailable=pool.args["max_unavailable"] or ONE_AT_A_TIME,
            # GPU machines are scarce: an update that needs one more first would wait forever.
            update_strategy="MINIMAL" if gpu else "DEFAULT",
        ),
        # The node monitoring agent says which nodes are broken, GPUs included.
        node_repair_config=aws.eks.NodeGroupNodeRepairConfigArgs(enabled=True),
        labels=labels,
        taints=[
            aws.eks.NodeGroupTaintArgs(
                key=taint.key, value=taint.value, effect=_EFFECTS[taint.effect]
            )
            for taint in pool.taints
        ],
        tags=pool.placed.tags(pool.name),
        opts=child(
            parent,
            ignore_changes=None if pool.sized_by_program else ["scalingConfig.desiredSize"],
            # What is reserved can't be taken twice.
            delete_before_replace=pool.capacity in RESERVED or None,
        ),
    )
    tags = hints(labels, pool.taints, pool.resources)
    autoscaler_tags(parent, pool.name, made, tags)
    return made


def _launch_template(
    parent: pulumi.Resource,
    pool: NodePoolSpec,
    args: Mapping[str, Any],
    placement_group: pulumi.Input[str] | None,
) -> aws.ec2.LaunchTemplate:
    efa = pool.args.get("fabric") == "efa"
    tags = pool.placed.tags(pool.name)
    group: pulumi.Input[str] = args["security_group_id"]
    placement = None
    if placement_group is not None:
        placement = aws.ec2.LaunchTemplatePlacementArgs(group_name=placement_group)
    return aws.ec2.LaunchTemplate(
        pool.name,
        description=f"{pool.machine} of node pool {pool.name}",
        # In the template, because capacity blocks need it there.
        instance_type=pool.machine.name,
        update_default_version=True,
        block_device_mappings=[
            fragments.encrypted_disk(
                pool.args["disk_gib"],
                args["disk_encryption_id"],
                fast=pool.machine.gpu is not None,
            )
        ],
        metadata_options=fragments.session_metadata(),
        monitoring=aws.ec2.LaunchTemplateMonitoringArgs(enabled=True),
        # Interfaces name their security groups themselves; EC2 refuses both.
        network_interfaces=fragments.efa_interfaces(pool.machine, group) if efa else None,
        vpc_security_group_ids=None if efa else [group],
        placement=placement,
        capacity_reservation_specification=fragments.reserved_capacity(
            pool.capacity, pool.args.get("reservation_id")
        ),
        instance_market_options=fragments.market(pool.capacity),
        user_data=user_data(pool.machine),
        tag_specifications=fragments.tag_specifications(tags),
        tags=tags,
        opts=child(parent),
    )


def _ami_type(machine: catalogue.MachineType) -> str:
    """EKS's Amazon Linux 2023 for the machine; with NVIDIA's driver where it has GPUs.

    https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateNodegroup.html
    """
    architecture = "ARM_64" if machine.arch == "arm64" else "x86_64"
    return f"AL2023_{architecture}_{'NVIDIA' if machine.gpu else 'STANDARD'}"
