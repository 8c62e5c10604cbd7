"""Fragments of launch templates, each with the rule of EC2 or EKS behind its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_aws as aws

from falaj.components import catalogue

#: Root device of Amazon Linux 2023: docs.aws.amazon.com/linux/al2023/ug/naming-and-versioning.html
ROOT_DEVICE = "/dev/xvda"
#: What gp3 gives without extra charge: docs.aws.amazon.com/ebs/latest/userguide/
#: general-purpose.html
_BASE_IOPS, _BASE_THROUGHPUT = 3000, 125
#: A training image is tens of GB: a node that pulls it at 125 MiB/s idles its GPUs for minutes.
_GPU_IOPS, _GPU_THROUGHPUT = 6000, 500


def encrypted_disk(
    gib: int, key_id: pulumi.Input[str], *, fast: bool = False
) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgs:
    """The root disk, encrypted with the disks' key and gone with the machine."""
    return aws.ec2.LaunchTemplateBlockDeviceMappingArgs(
        device_name=ROOT_DEVICE,
        ebs=aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
            volume_size=gib,
            volume_type="gp3",
            iops=_GPU_IOPS if fast else _BASE_IOPS,
            throughput=_GPU_THROUGHPUT if fast else _BASE_THROUGHPUT,
            encrypted="true",
            kms_key_id=key_id,
            delete_on_termination="true",
        ),
    )


def session_metadata() -> aws.ec2.LaunchTemplateMetadataOptionsArgs:
    """Metadata by session tokens only (IMDSv2), one hop away: pods and containers can't reach it.

    Pods get credentials from Pod Identity instead of the machine's role:
    docs.aws.amazon.com/eks/latest/best-practices/identity-and-access-management.html
    """
    return aws.ec2.LaunchTemplateMetadataOptionsArgs(
        http_endpoint="enabled",
        http_tokens="required",
        http_put_response_hop_limit=1,
        instance_metadata_tags="disabled",
    )


def efa_interfaces(
    machine: catalogue.MachineType, security_group_id: pulumi.Input[str]
) -> Sequence[aws.ec2.LaunchTemplateNetworkInterfaceArgs]:
    """One EFA interface on each network card: the first carries IP, the others RDMA only.

    The first has device index 0, those of other cards 1; interfaces without IP use up no
    addresses of the subnet:
    docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html
    """
    return [
        aws.ec2.LaunchTemplateNetworkInterfaceArgs(
            description=f"EFA {card}",
            network_card_index=card,
            device_index=0 if card == 0 else 1,
            interface_type="efa" if card == 0 else "efa-only",
            security_groups=[security_group_id],
            delete_on_termination="true",
        )
        for card in range(machine.efa_interfaces)
    ]


def tag_specifications(
    tags: Mapping[str, str],
) -> Sequence[aws.ec2.LaunchTemplateTagSpecificationArgs]:
    """Tags of what a machine brings along; a scaling group's own tags don't reach all of it."""
    return [
        aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags=dict(tags))
        for kind in ("instance", "volume", "network-interface")
    ]


def reserved_capacity(
    capacity: str, reservation_id: str | None
) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs:
    """Which reservation machines are taken from.

    Without one named, none is used, not even an open one that happens to match: it may be kept for
    something else.
    """
    if capacity in ("reservation", "capacity-block"):
        return aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
            capacity_reservation_target=(
                aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
                    capacity_reservation_id=reservation_id
                )
            )
        )
    return aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(
        capacity_reservation_preference="none"
    )


def market(capacity: str) -> aws.ec2.LaunchTemplateInstanceMarketOptionsArgs | None:
    """The market of capacity blocks.

    Spot machines are asked for by the node group, which refuses a template that asks, too:
    docs.aws.amazon.com/eks/latest/userguide/launch-templates.html
    """
    if capacity != "capacity-block":
        return None
    return aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")
