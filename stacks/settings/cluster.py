"""Settings of a Kubernetes cluster with its pools of GPU and CPU machines."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from falaj.components.specification import (
    cluster,
    cpu_demand,
    cpu_node_pool,
    gpu_capacity,
    gpu_node_pool,
    gpu_sharing,
    node_pools,
    training_file_system,
    workload_identity,
)
from falaj.components.specification.forms import OBJECT
from falaj.components.specification.kubernetes_version import VERSIONS
from falaj.components.specification.limits import Between, OneOf, of_any
from falaj.stacks.settings.cloud import PoolName
from falaj.stacks.settings.foundation import Days, OnFoundation
from falaj.stacks.settings.section import Section

Nodes = Annotated[int, node_pools.NODES]


class ControlPlaneSettings(Section):
    """The cluster itself."""

    described_by: ClassVar = cluster.ClusterArgs
    administrators: list[str] | None = None
    viewers: list[str] | None = None
    kubernetes_version: Annotated[str, VERSIONS] | None = None
    service_cidr: str | None = None
    log_days: Days | None = None
    strict_network_policy: bool | None = None


class PoolSettings(Section):
    """What pools of all kinds may say."""

    machine: str | None = None
    zones: list[str] | None = None
    min_nodes: Nodes | None = None
    max_nodes: Annotated[int, node_pools.CEILING] | None = None
    nodes: Nodes | None = None
    disk_gib: Annotated[int, node_pools.DISK_GIB] | None = None
    labels: dict[str, str] | None = None
    taints: list[str] | None = None


class GpuPoolSettings(PoolSettings):
    """A pool of machines with GPUs; the catalogue finds the machine for the demand."""

    described_by: ClassVar = gpu_node_pool.GpuNodePoolArgs
    gpu: str = Field(examples=["H200"])
    count: Annotated[float, Between(0, 16, above=True)]
    capacity: Annotated[str, of_any(gpu_capacity.CAPACITIES)] | None = None
    reservation_id: str | None = None
    fabric: Annotated[str, of_any(gpu_capacity.FABRICS)] | None = None
    placement_group: Annotated[str, OneOf(gpu_capacity.PLACEMENT_GROUPS)] | None = None
    placement_group_name: str | None = None
    sharing: str | None = None
    time_slices: Annotated[int, gpu_sharing.TIME_SLICES] | None = None


class CpuPoolSettings(PoolSettings):
    """A pool of machines without GPUs."""

    described_by: ClassVar = cpu_node_pool.CpuNodePoolArgs
    vcpu: Annotated[int, cpu_demand.VCPU] | None = None
    memory_gib: Annotated[int, cpu_demand.MEMORY_GIB] | None = None
    int8: Annotated[str, OneOf(cpu_demand.INT8)] | None = None
    arch: Annotated[str, OneOf(cpu_demand.ARCHITECTURES)] | None = None
    capacity: Annotated[str, OneOf(cpu_node_pool.CAPACITIES)] | None = None
    system: bool = False


class FileSystemSettings(Section):
    """The fast file system for training data and checkpoints."""

    described_by: ClassVar = training_file_system.TrainingFileSystemArgs
    service: Annotated[str, of_any(training_file_system.SERVICES)] | None = None
    zone: str | None = None
    capacity_gib: Annotated[int, training_file_system.CAPACITY_GIB] | None = None
    throughput_mbs_per_tib: Annotated[int, of_any(training_file_system.THROUGHPUTS)] | None = None
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
