"""Components for AWS; the only package of Falaj that needs its SDK."""

from components.aws.audit_trail import AuditTrail, AuditTrailArgs
from components.aws.budget import Budget, BudgetArgs
from components.aws.cluster import Cluster, ClusterArgs
from components.aws.cpu_inference_tier import CpuInferenceTier, CpuInferenceTierArgs
from components.aws.cpu_node_pool import CpuNodePool, CpuNodePoolArgs
from components.aws.gpu_node_pool import GpuNodePool, GpuNodePoolArgs
from components.aws.identity import Identity, IdentityArgs
from components.aws.key_ring import KeyRing, KeyRingArgs
from components.aws.network import Network, NetworkArgs
from components.aws.object_store import ObjectStore, ObjectStoreArgs
from components.aws.provider import RegionProvider
from components.aws.registry import Registry, RegistryArgs
from components.aws.training_file_system import TrainingFileSystem, TrainingFileSystemArgs
from components.aws.workload_identity import WorkloadIdentity, WorkloadIdentityArgs

__all__ = [
    "AuditTrail",
    "AuditTrailArgs",
    "Budget",
    "BudgetArgs",
    "Cluster",
    "ClusterArgs",
    "CpuInferenceTier",
    "CpuInferenceTierArgs",
    "CpuNodePool",
    "CpuNodePoolArgs",
    "GpuNodePool",
    "GpuNodePoolArgs",
    "Identity",
    "IdentityArgs",
    "KeyRing",
    "KeyRingArgs",
    "Network",
    "NetworkArgs",
    "ObjectStore",
    "ObjectStoreArgs",
    "RegionProvider",
    "Registry",
    "RegistryArgs",
    "TrainingFileSystem",
    "TrainingFileSystemArgs",
    "WorkloadIdentity",
    "WorkloadIdentityArgs",
]
