"""Settings of a Kubernetes cluster with its pools of GPU and CPU machines."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from falaj.components.specification import (
    cluster,
    cpu_node_pool,
    gpu_node_pool,
    training_file_system,
    workload_identity,
)
from falaj.components.specification.forms import OBJECT
from falaj.components.specification.kubernetes_version import VERSIONS
from falaj.components.specification.limits import OneOf
from falaj.stacks.settings.cloud import PoolName
from falaj.stacks.settings.derived import cloud_section
from falaj.stacks.settings.foundation import Days, OnFoundation
from falaj.stacks.settings.section import Section


class ControlPlaneSettings(Section):
    """The cluster itself."""

    described_by: ClassVar = cluster.ClusterArgs
    administrators: list[str] | None = None
    viewers: list[str] | None = None
    kubernetes_version: Annotated[str, VERSIONS] | None = None
    service_cidr: str | None = None
    log_days: Days | None = None
    strict_network_policy: bool | None = None


class GpuPoolSettings(cloud_section(gpu_node_pool.GpuNodePoolArgs, ("kubernetes_version",))):
    """A pool of machines with GPUs; the catalogue finds the machine for the demand."""


class CpuPoolSettings(cloud_section(cpu_node_pool.CpuNodePoolArgs, ("kubernetes_version",))):
    """A pool of machines without GPUs."""


class FileSystemSettings(Section):
    """The fast file system for training data and checkpoints."""

    described_by: ClassVar = training_file_system.TrainingFileSystemArgs
    service: Annotated[str, training_file_system.SERVICES] | None = None
    zone: str | None = None
    capacity_gib: Annotated[int, training_file_system.CAPACITY_GIB] | None = None
    throughput_mbs_per_tib: Annotated[int, training_file_system.THROUGHPUTS] | None = None
    homes: bool = True
    homes_gib: Annotated[int, training_file_system.HOMES_GIB] | None = None


class WorkloadSettings(Section):
    """What the pods of one service account may do."""

    described_by: ClassVar = workload_identity.WorkloadIdentityArgs
    namespace: Annotated[str, OBJECT]
    service_account: Annotated[str, OBJECT]
    duty: Annotated[str, OneOf(workload_identity.DUTIES)]


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
