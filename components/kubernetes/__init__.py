"""Components of a Kubernetes cluster: its platform, its tenants, and the workloads they run."""

from components.kubernetes._placed import InClusterArgs
from components.kubernetes.federated_training import FederatedTraining, FederatedTrainingArgs
from components.kubernetes.gateway import Gateway, GatewayArgs
from components.kubernetes.gpu_queues import GpuQueues, GpuQueuesArgs
from components.kubernetes.inference_service import InferenceService, InferenceServiceArgs
from components.kubernetes.platform import Platform, PlatformArgs
from components.kubernetes.provider import ClusterProvider, ClusterProviderArgs
from components.kubernetes.residency import Residency, ResidencyArgs
from components.kubernetes.storage_classes import StorageClasses, StorageClassesArgs
from components.kubernetes.sweep import Sweep, SweepArgs
from components.kubernetes.tenant import Tenant, TenantArgs
from components.kubernetes.training_job import TrainingJob, TrainingJobArgs

__all__ = [
    "ClusterProvider",
    "ClusterProviderArgs",
    "FederatedTraining",
    "FederatedTrainingArgs",
    "Gateway",
    "GatewayArgs",
    "GpuQueues",
    "GpuQueuesArgs",
    "InClusterArgs",
    "InferenceService",
    "InferenceServiceArgs",
    "Platform",
    "PlatformArgs",
    "Residency",
    "ResidencyArgs",
    "StorageClasses",
    "StorageClassesArgs",
    "Sweep",
    "SweepArgs",
    "Tenant",
    "TenantArgs",
    "TrainingJob",
    "TrainingJobArgs",
]
