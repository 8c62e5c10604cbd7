"""Arguments of `CpuNodePool`."""

from typing import NotRequired

import pulumi

from components.specification.placed import PlacedArgs


class CpuNodePoolArgs(PlacedArgs):
    """Arguments of `CpuNodePool`."""

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
    vcpu: NotRequired[int]
    """Virtual CPUs of each machine. Default: 4."""
    memory_gib: NotRequired[int]
    """Least memory of each machine. Default: whatever the cheapest has."""
    int8: NotRequired[str]
    """Instructions that each machine must have: ``amx``, ``vnni`` or ``i8mm``. Default: any
    machine."""
    arch: NotRequired[str]
    """``x86_64`` or ``arm64``. Default: ``x86_64``."""
    machine: NotRequired[str]
    """Instance type or VM size. Default: the cheapest that has what is asked."""
    zones: NotRequired[list[str]]
    """Zones to use. Default: every zone of the subnets that is not reported as impaired."""
    capacity: NotRequired[str]
    """``on-demand`` or ``spot``. Default: ``on-demand``."""
    min_nodes: NotRequired[int]
    """Fewest nodes. Default: 1."""
    max_nodes: NotRequired[int]
    """Most nodes. Default: 3."""
    nodes: NotRequired[int]
    """Nodes at the beginning. Default: ``min_nodes``."""
    disk_gib: NotRequired[int]
    """System disk, encrypted. Default: 100."""
    labels: NotRequired[dict[str, str]]
    """Labels beside Falaj's own. Default: none."""
    taints: NotRequired[list[str]]
    """``key=value:Effect``. Default: none."""
    system: NotRequired[bool]
    """Whether it carries the cluster's own add-ons. Default: false."""
    kubernetes_version: NotRequired[str]
    """Minor version. Default: ``1.35``."""
