"""Components of a Kubernetes cluster: its platform, its tenants, and the workloads they run."""

from falaj.components.kubernetes._placed import InClusterArgs
from falaj.components.kubernetes.batch_inference import BatchInference, BatchInferenceArgs
from falaj.components.kubernetes.federated_training import FederatedTraining, FederatedTrainingArgs
from falaj.components.kubernetes.gateway import Gateway, GatewayArgs
from falaj.components.kubernetes.gpu_queues import GpuQueues, GpuQueuesArgs
from falaj.components.kubernetes.inference_service import InferenceService, InferenceServiceArgs
from falaj.components.kubernetes.pipeline import Pipeline, PipelineArgs
from falaj.components.kubernetes.platform import Platform, PlatformArgs
from falaj.components.kubernetes.provider import ClusterProvider, ClusterProviderArgs
from falaj.components.kubernetes.residency import Residency, ResidencyArgs
from falaj.components.kubernetes.storage_classes import StorageClasses, StorageClassesArgs
from falaj.components.kubernetes.sweep import Sweep, SweepArgs
from falaj.components.kubernetes.tenant import Tenant, TenantArgs
from falaj.components.kubernetes.training_job import TrainingJob, TrainingJobArgs
from falaj.components.kubernetes.workspace import Workspace, WorkspaceArgs

__all__ = [
    "BatchInference",
    "BatchInferenceArgs",
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
    "Pipeline",
    "PipelineArgs",
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
    "Workspace",
    "WorkspaceArgs",
]
