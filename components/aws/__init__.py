"""Components for AWS; the only package of Falaj that needs its SDK."""

from __future__ import annotations

from typing import TYPE_CHECKING

from falaj.components.exports import lazy

if TYPE_CHECKING:
    from falaj.components.aws.audit_trail import AuditTrail, AuditTrailArgs
    from falaj.components.aws.budget import Budget, BudgetArgs
    from falaj.components.aws.cluster import Cluster, ClusterArgs
    from falaj.components.aws.cpu_inference_tier import CpuInferenceTier, CpuInferenceTierArgs
    from falaj.components.aws.cpu_node_pool import CpuNodePool, CpuNodePoolArgs
    from falaj.components.aws.gpu_node_pool import GpuNodePool, GpuNodePoolArgs
    from falaj.components.aws.identity import Identity, IdentityArgs
    from falaj.components.aws.key_ring import KeyRing, KeyRingArgs
    from falaj.components.aws.network import Network, NetworkArgs
    from falaj.components.aws.object_store import ObjectStore, ObjectStoreArgs
    from falaj.components.aws.provider import RegionProvider
    from falaj.components.aws.registry import Registry, RegistryArgs
    from falaj.components.aws.training_file_system import (
        TrainingFileSystem,
        TrainingFileSystemArgs,
    )
    from falaj.components.aws.workload_identity import WorkloadIdentity, WorkloadIdentityArgs
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
