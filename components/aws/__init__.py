"""Components for AWS; the only package of Falaj that needs its SDK."""

from components.aws.cluster import Cluster, ClusterArgs
from components.aws.cpu_node_pool import CpuNodePool, CpuNodePoolArgs
from components.aws.gpu_node_pool import GpuNodePool, GpuNodePoolArgs
from components.aws.key_ring import KeyRing, KeyRingArgs
from components.aws.provider import RegionProvider

__all__ = [
    "Cluster",
    "ClusterArgs",
    "CpuNodePool",
    "CpuNodePoolArgs",
    "GpuNodePool",
    "GpuNodePoolArgs",
    "KeyRing",
    "KeyRingArgs",
    "RegionProvider",
]
