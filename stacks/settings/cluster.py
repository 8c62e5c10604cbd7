"""Settings of a Kubernetes cluster with its pools of GPU and CPU machines."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from falaj.stacks.settings.cloud import Days, PoolName
from falaj.stacks.settings.foundation import OnFoundation
from falaj.stacks.settings.section import Section

Nodes = Annotated[int, Field(ge=0, le=1_000)]


class ControlPlaneSettings(Section):
    """The cluster itself."""

    administrators: list[str] | None = None
    viewers: list[str] | None = None
    kubernetes_version: Annotated[str, Field(pattern=r"^1\.\d{2}$")] | None = None
    service_cidr: str | None = None
    log_days: Days | None = None
    strict_network_policy: bool | None = None


class PoolSettings(Section):
    """What pools of all kinds may say."""

    machine: str | None = None
    zones: list[str] | None = None
    min_nodes: Nodes | None = None
    max_nodes: Nodes | None = None
    nodes: Nodes | None = None
    disk_gib: Annotated[int, Field(ge=30, le=16_384)] | None = None
    labels: dict[str, str] | None = None
    taints: list[str] | None = None


class GpuPoolSettings(PoolSettings):
    """A pool of machines with GPUs; the catalogue finds the machine for the demand."""

    gpu: str
    count: Annotated[float, Field(gt=0, le=16)]
    capacity: Literal["on-demand", "spot", "reservation", "capacity-block"] | None = None
    reservation_id: str | None = None
    fabric: Literal["none", "efa", "infiniband"] | None = None
    placement_group: Literal["none", "cluster", "existing"] | None = None
    placement_group_name: str | None = None
    sharing: str | None = None
    time_slices: Annotated[int, Field(ge=2, le=16)] | None = None


class CpuPoolSettings(PoolSettings):
    """A pool of machines without GPUs."""

    vcpu: Annotated[int, Field(ge=1, le=448)] | None = None
    memory_gib: Annotated[int, Field(ge=1, le=24_576)] | None = None
    int8: Literal["amx", "vnni", "i8mm"] | None = None
    arch: Literal["x86_64", "arm64"] | None = None
    capacity: Literal["on-demand", "spot"] | None = None
    system: bool = False


class FileSystemSettings(Section):
    """The fast file system for training data and checkpoints."""

    service: Literal["lustre", "netapp"] | None = None
    zone: str | None = None
    capacity_gib: Annotated[int, Field(ge=1_024, le=1_000_000)] | None = None
    throughput_mbs_per_tib: Literal[125, 250, 500, 1000] | None = None
    homes: bool = True
    homes_gib: Annotated[int, Field(ge=100, le=102_400)] | None = None


class WorkloadSettings(Section):
    """What the pods of one service account may do."""

    namespace: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]
    service_account: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?$")]
    duty: Literal["trainer", "deployer"]


class ClusterSettings(OnFoundation):
    """Everything that a ``cluster`` stack may say."""

    blueprint: Literal["cluster"]
    cluster: ControlPlaneSettings = ControlPlaneSettings()
    gpu_pools: dict[PoolName, GpuPoolSettings] = Field(default_factory=dict)
    cpu_pools: Annotated[dict[PoolName, CpuPoolSettings], Field(min_length=1)]
    file_system: FileSystemSettings | None = None
    workloads: dict[PoolName, WorkloadSettings] = Field(default_factory=dict)
