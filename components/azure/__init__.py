"""The components on Azure, in the region UAE North (and UAE Central for recovery)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.components.exports import lazy

if TYPE_CHECKING:
    from falaj.components.azure.audit_trail import AuditTrail, AuditTrailArgs
    from falaj.components.azure.budget import Budget, BudgetArgs
    from falaj.components.azure.cluster import Cluster, ClusterArgs
    from falaj.components.azure.cpu_inference_tier import CpuInferenceTier, CpuInferenceTierArgs
    from falaj.components.azure.cpu_node_pool import CpuNodePool, CpuNodePoolArgs
    from falaj.components.azure.gpu_node_pool import GpuNodePool, GpuNodePoolArgs
    from falaj.components.azure.identity import Identity, IdentityArgs
    from falaj.components.azure.key_ring import KeyRing, KeyRingArgs
    from falaj.components.azure.network import Network, NetworkArgs
    from falaj.components.azure.object_store import ObjectStore, ObjectStoreArgs
    from falaj.components.azure.provider import RegionProvider
    from falaj.components.azure.registry import Registry, RegistryArgs
    from falaj.components.azure.training_file_system import (
        TrainingFileSystem,
        TrainingFileSystemArgs,
    )
    from falaj.components.azure.workload_identity import WorkloadIdentity, WorkloadIdentityArgs
else:
    __getattr__ = lazy(__name__, {"RegionProvider": "provider"})

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


def __dir__() -> list[str]:
    return [*globals(), *__all__]
