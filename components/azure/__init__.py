"""The components on Azure, in the region UAE North (and UAE Central for recovery)."""

from components.azure.cluster import Cluster
from components.azure.cpu_inference_tier import CpuInferenceTier
from components.azure.cpu_node_pool import CpuNodePool
from components.azure.gpu_node_pool import GpuNodePool
from components.azure.key_ring import KeyRing
from components.azure.network import Network
from components.azure.object_store import ObjectStore
from components.azure.provider import RegionProvider
from components.azure.registry import Registry

__all__ = [
    "Cluster",
    "CpuInferenceTier",
    "CpuNodePool",
    "GpuNodePool",
    "KeyRing",
    "Network",
    "ObjectStore",
    "RegionProvider",
    "Registry",
]
