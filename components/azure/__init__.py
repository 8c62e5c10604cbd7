"""The components on Azure, in the region UAE North (and UAE Central for recovery)."""

from components.azure.audit_trail import AuditTrail
from components.azure.budget import Budget
from components.azure.cluster import Cluster
from components.azure.cpu_inference_tier import CpuInferenceTier
from components.azure.cpu_node_pool import CpuNodePool
from components.azure.gpu_node_pool import GpuNodePool
from components.azure.identity import Identity
from components.azure.key_ring import KeyRing
from components.azure.network import Network
from components.azure.object_store import ObjectStore
from components.azure.provider import RegionProvider
from components.azure.registry import Registry
from components.azure.training_file_system import TrainingFileSystem
from components.azure.workload_identity import WorkloadIdentity

__all__ = [
    "AuditTrail",
    "Budget",
    "Cluster",
    "CpuInferenceTier",
    "CpuNodePool",
    "GpuNodePool",
    "Identity",
    "KeyRing",
    "Network",
    "ObjectStore",
    "RegionProvider",
    "Registry",
    "TrainingFileSystem",
    "WorkloadIdentity",
]
