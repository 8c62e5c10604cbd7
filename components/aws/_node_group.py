"""A managed node group with its launch template: what GPU and CPU pools have in common.

With it go the user data of its nodes, a `NodeConfig` that EKS merges with its own, and what the
cluster autoscaler has to know of a pool that has no node yet.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pulumi
import pulumi_aws as aws
import yaml
from pulumi_aws.eks.outputs import NodeGroupResource, NodeGroupResourceAutoscalingGroup

from falaj.components import catalogue
from falaj.components.aws import _launch_template as fragments
from falaj.components.aws._component import child
from falaj.components.specification.gpu_node_pool import RESERVED
from falaj.components.specification.machine_choice import subnets_of
from falaj.components.specification.node_pools import ONE_AT_A_TIME, NodePoolSpec, Taint

#: github.com/kubernetes/autoscaler: cluster-autoscaler/cloudprovider/aws/README.md
_TEMPLATE = "k8s.io/cluster-autoscaler/node-template"
#: By it the autoscaler knows that a node has GPUs: it waits until they are there instead of
#: starting another machine, and judges by them whether the node is idle (the same page).
_ACCELERATOR = "k8s.amazonaws.com/accelerator"


def hints(
    labels: Mapping[str, str], taints: Sequence[Taint], resources: Mapping[str, int]
) -> dict[str, str]:
    """Tags that describe a pool's nodes: labels, taints and extended resources."""
    found = {f"{_TEMPLATE}/label/{key}": value for key, value in labels.items()}
    found |= {f"{_TEMPLATE}/taint/{each.key}": f"{each.value}:{each.effect}" for each in taints}
    return found | {f"{_TEMPLATE}/resources/{key}": str(n) for key, n in resources.items()}


def _scaling_group(made: Sequence[NodeGroupResource]) -> str | None:
    """The name of the one scaling group that EKS makes of a node group."""
    groups: Sequence[NodeGroupResourceAutoscalingGroup] = made[0].autoscaling_groups or []
    return groups[0].name


def autoscaler_tags(
    parent: pulumi.Resource, name: str, group: aws.eks.NodeGroup, tags: Mapping[str, str]
) -> None:
    """Tag the node group's scaling group, on which EKS itself writes which cluster owns it.

    EKS doesn't pass a node group's tags on to it, so that each is a resource of its own.
    """
    scaling_group = group.resources.apply(_scaling_group)
    for key, value in tags.items():
        aws.autoscaling.Tag(
            f"{name}-{key.removeprefix(_TEMPLATE + '/')}",
            autoscaling_group_name=scaling_group,
            tag=aws.autoscaling.TagTagArgs(key=key, value=value, propagate_at_launch=False),
            opts=child(parent),
        )


_BOUNDARY = "falaj-node-config"
_MEDIA_TYPE = "application/node.eks.aws"
#: EFA registers memory, which locks it, and a process of an ordinary user may lock what its
#: runtime allows (8 MiB by systemd's default): as much as no machine has. Not RLIM_INFINITY,
#: 2**64 - 1: nodeadm reads numbers of this part as floats, which can't hold it. The list replaces
#: that of the AMI, whose number of files stands here as it is there:
#: github.com/awslabs/amazon-eks-ami, nodeadm/internal/containerd/base-runtime-spec.json
_LIMITS: Final = [
    {"type": "RLIMIT_NOFILE", "soft": 65536, "hard": 1048576},
    {"type": "RLIMIT_MEMLOCK", "soft": 2**50, "hard": 2**50},
]


def node_config(machine: catalogue.MachineType) -> dict[str, Any] | None:
    """What a node of this machine needs beyond EKS's own; None where that is nothing.

    Labels and taints are the node group's, so that autoscalers can read them before there is a
    node. API: awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/
    """
    spec: dict[str, Any] = {}
    if machine.local_nvme_gb:
        # Kubelet, containerd and so every pod's emptyDir lie on the local disks: scratch space
        # that ends with the machine. Instance stores are encrypted by their hardware.
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    if machine.efa_interfaces:
        spec["containerd"] = {"baseRuntimeSpec": {"process": {"rlimits": _LIMITS}}}
    if machine.gpu is not None:
        # GPU, network card and CPUs of one socket where that is possible, and never a pod that
        # doesn't start because it isn't.
        spec["kubelet"] = {"config": {"topologyManagerPolicy": "best-effort"}}
    if not spec:
        return None
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}


def user_data(machine: catalogue.MachineType) -> str | None:
    """The launch template's user data in base64: MIME with one part, as EKS asks for.

    Source: docs.aws.amazon.com/eks/latest/userguide/launch-templates.html
    """
    config = node_config(machine)
    if config is None:
        return None
    lines = [
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"',
        "",
        f"--{_BOUNDARY}",
        f"Content-Type: {_MEDIA_TYPE}",
        "",
        yaml.safe_dump(config, sort_keys=False).rstrip("\n"),
        f"--{_BOUNDARY}--",
        "",
    ]
    return base64.b64encode("\n".join(lines).encode()).decode()


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
    if pool.machine.gpu is not None:
        labels[_ACCELERATOR] = pool.machine.gpu.name
    where = f"node_subnet_ids of node pool {pool.name!r}"

    def subnets(known: Mapping[str, str]) -> list[str]:
        return subnets_of(known, pool.zones, where=where, all_needed=pool.zones_named)

    # CPU pools take no surge: machines for them can be had, and new nodes always come first.
    surge: int | None = pool.args.get("max_surge")
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
            max_unavailable=surge or pool.args["max_unavailable"] or ONE_AT_A_TIME,
            # GPU machines are scarce: an update that needs one more first would wait forever.
            update_strategy="MINIMAL" if surge == 0 else "DEFAULT",
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
