"""The components on Azure, in the region UAE North (and UAE Central for recovery)."""

from falaj.components.azure.audit_trail import AuditTrail
from falaj.components.azure.budget import Budget
from falaj.components.azure.cluster import Cluster
from falaj.components.azure.cpu_inference_tier import CpuInferenceTier
from falaj.components.azure.cpu_node_pool import CpuNodePool
from falaj.components.azure.gpu_node_pool import GpuNodePool
from falaj.components.azure.identity import Identity
from falaj.components.azure.key_ring import KeyRing
from falaj.components.azure.network import Network
from falaj.components.azure.object_store import ObjectStore
from falaj.components.azure.provider import RegionProvider
from falaj.components.azure.registry import Registry
from falaj.components.azure.training_file_system import TrainingFileSystem
from falaj.components.azure.workload_identity import WorkloadIdentity

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
