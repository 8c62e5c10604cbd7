"""Components of a Kubernetes cluster: its platform, its tenants, and the workloads they run."""

from components.kubernetes._placed import InClusterArgs
from components.kubernetes.provider import ClusterProvider, ClusterProviderArgs

__all__ = ["ClusterProvider", "ClusterProviderArgs", "InClusterArgs"]
