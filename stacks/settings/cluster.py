"""Settings of a Kubernetes cluster with its pools of GPU and CPU machines."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from falaj.components.specification import (
    cluster,
    cpu_node_pool,
    gpu_node_pool,
    training_file_system,
    workload_identity,
)
from falaj.stacks.settings.cloud import PoolName
from falaj.stacks.settings.derived import cloud_section
from falaj.stacks.settings.foundation import OnFoundation


class ControlPlaneSettings(cloud_section(cluster.ClusterArgs, leaving_out=("zones",))):
    """The cluster itself."""


class GpuPoolSettings(cloud_section(gpu_node_pool.GpuNodePoolArgs, ("kubernetes_version",))):
    """A pool of machines with GPUs; the catalogue finds the machine for the demand."""


class CpuPoolSettings(cloud_section(cpu_node_pool.CpuNodePoolArgs, ("kubernetes_version",))):
    """A pool of machines without GPUs."""


class FileSystemSettings(
    cloud_section(training_file_system.TrainingFileSystemArgs, leaving_out=("zones",))
):
    """The fast file system for training data and checkpoints."""


class WorkloadSettings(cloud_section(workload_identity.WorkloadIdentityArgs)):
    """What the pods of one service account may do."""


class ClusterSettings(OnFoundation):
    """Everything that a ``cluster`` stack may say."""

    blueprint: Literal["cluster"]
    """What the stack makes: here a Kubernetes cluster with pools of machines."""
    cluster: ControlPlaneSettings = ControlPlaneSettings()
    gpu_pools: dict[PoolName, GpuPoolSettings] = Field(default_factory=dict)
    """Pools of machines with GPUs, by name."""
    cpu_pools: Annotated[
        dict[PoolName, CpuPoolSettings],
        Field(min_length=1, examples=[{"cpu": {"system": True}}]),
    ]
    """Pools of machines without GPUs, by name; one at least."""
    file_system: FileSystemSettings | None = None
    workloads: dict[PoolName, WorkloadSettings] = Field(default_factory=dict)
    """What the pods of service accounts may do, by a name for each."""
