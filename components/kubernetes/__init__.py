"""Components of a Kubernetes cluster: its platform, its tenants, and the workloads they run."""

from components.kubernetes._placed import InClusterArgs
from components.kubernetes.provider import ClusterProvider, ClusterProviderArgs
from components.kubernetes.residency import Residency, ResidencyArgs
from components.kubernetes.training_job import TrainingJob, TrainingJobArgs

__all__ = [
    "ClusterProvider",
    "ClusterProviderArgs",
    "InClusterArgs",
    "Residency",
    "ResidencyArgs",
    "TrainingJob",
    "TrainingJobArgs",
]
