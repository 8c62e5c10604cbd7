"""Arguments of `GpuNodePool`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class GpuNodePoolArgs(PlacedArgs):
    """Arguments of `GpuNodePool`."""

    cluster_id: pulumi.Input[str]
    """``Cluster.cluster_id``."""
    node_subnet_ids: pulumi.Input[dict[str, str]]
    """``Network.node_subnet_ids``."""
    node_identity_id: pulumi.Input[str]
    """``Cluster.node_identity_id``."""
    security_group_id: pulumi.Input[str]
    """``Network.security_group_ids["nodes"]``."""
    disk_encryption_id: pulumi.Input[str]
    """``KeyRing.disk_encryption_id``."""
    gpu: str
    """Model of the GPU: ``H200``, ``H100``, ``A100``, ``L40S``, ``L4``, ``A10`` …; the catalogue
    finds the machine."""
    count: float
    """GPUs of each machine; a fraction where the cloud sells fractions (Azure A10: 1/6, 1/3,
    1/2)."""
    machine: NotRequired[str]
    """Instance type or VM size. Default: the cheapest that has what is asked."""
    zones: NotRequired[list[str]]
    """Zones to use. Default: every zone of the subnets that sells the machine and is not reported
    as impaired."""
    capacity: NotRequired[str]
    """``on-demand``, ``spot``, ``reservation`` or ``capacity-block``. Default: ``on-demand``."""
    reservation_id: NotRequired[str]
    """Reservation (``cr-…``), or id of a capacity reservation group. Needed for ``reservation``
    and ``capacity-block``."""
    fabric: NotRequired[str]
    """``none``, ``efa`` (AWS) or ``infiniband`` (Azure). Default: ``none``."""
    placement_group: NotRequired[str]
    """``none``, ``cluster`` (made here) or ``existing``. Default: ``none``."""
    placement_group_name: NotRequired[str]
    """Name (AWS) or id (Azure proximity placement group) of the existing one. Needed for
    ``existing``."""
    sharing: NotRequired[str]
    """``none``, a MIG profile (``mig-1g.18gb``) or ``time-slicing``. Default: ``none``."""
    time_slices: NotRequired[int]
    """Pods for each GPU with ``time-slicing``, 2 to 16. Default: 4."""
    min_nodes: NotRequired[int]
    """Fewest nodes. Default: 0."""
    max_nodes: NotRequired[int]
    """Most nodes. Default: 1."""
    nodes: NotRequired[int]
    """Nodes at the beginning; later the autoscaler decides. Default: ``min_nodes``."""
    disk_gib: NotRequired[int]
    """System disk, encrypted. Default: 200."""
    labels: NotRequired[dict[str, str]]
    """Labels of the nodes beside Falaj's own. Default: none."""
    taints: NotRequired[list[str]]
    """``key=value:Effect``, beside ``nvidia.com/gpu=present:NoSchedule``. Default: none."""
    kubernetes_version: NotRequired[str]
    """Minor version. Default: ``1.35``."""
