"""Arguments of `TrainingFileSystem`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class TrainingFileSystemArgs(PlacedArgs):
    """Arguments of `TrainingFileSystem`."""

    data_key_id: pulumi.Input[str]
    """Key of the data: ``KeyRing.key_ids["data"]``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_identity_id``. Needed on Azure."""
    key_ring_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_ring_id``. Needed on Azure."""
    network_id: pulumi.Input[str]
    """``Network.network_id``."""
    storage_subnet_ids: pulumi.Input[dict[str, str]]
    """``Network.storage_subnet_ids``."""
    endpoint_subnet_id: NotRequired[pulumi.Input[str]]
    """Subnet of the private endpoint of shared homes. Needed on Azure."""
    security_group_id: pulumi.Input[str]
    """``Network.security_group_ids["storage"]``."""
    zone: NotRequired[str]
    """Zone of the fast file system; put it where the GPUs are. Default: the first zone of the
    subnets."""
    zones: NotRequired[list[str]]
    """Zones of ``storage_subnet_ids``, as plain values. Default: every zone of the region that is
    not reported as impaired."""
    service: NotRequired[str]
    """``lustre``, or ``netapp`` on Azure. Default: ``lustre`` on AWS, ``netapp`` on Azure."""
    capacity_gib: NotRequired[int]
    """Size of the fast file system. Default: 1200 (Lustre), 2048 (NetApp): the smallest."""
    throughput_mbs_per_tib: NotRequired[int]
    """Throughput for each TiB: 125, 250, 500 or 1000 MB/s. Default: 250. Lustre only."""
    homes: NotRequired[bool]
    """Shared homes beside the fast file system (EFS; Azure Files premium). Default: true."""
    homes_gib: NotRequired[int]
    """Size of the homes where it has to be said. Default: 256. Azure only."""
