"""What a training workload is, once its arguments were checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from falaj.components.kubernetes._placed import InCluster


@dataclass(frozen=True)
class PodSize:
    """What each pod asks for."""

    resources: Mapping[str, str]
    """Requests, which are the limits as well: cores, memory, disk, GPUs, interfaces."""
    gpus: int
    processes: int
    shared_memory_mib: int
    scratch_gib: int


@dataclass(frozen=True)
class Placement:
    """Where its pods may be."""

    flavor: str
    spot: bool
    topology_level: str | None
    """Label of the nodes."""
    topology_mode: str
    fabric: str


@dataclass(frozen=True)
class Run:
    """What every training workload is."""

    placed: InCluster
    name: str
    namespace: str
    service_account: str
    image: str
    size: PodSize
    placement: Placement
    queue: str
    priority: str
    checkpoints: str
    data: str
    dataset: str
    arguments: tuple[str, ...]
    grace_seconds: int
    env: Mapping[str, str]
    telemetry: bool
    monitoring_namespace: str


@dataclass(frozen=True)
class Elastic:
    """How far a job may shrink and grow."""

    least: int
    most: int


@dataclass(frozen=True)
class TrainingJobSpec:
    """The arguments of `TrainingJob`, checked."""

    run: Run
    program: tuple[str, ...]
    framework: str
    nodes: int
    parameter_servers: int
    elastic: Elastic | None
    max_restarts: int
    ttl_seconds: int | None
    launcher_image: str = ""
    """Falaj's, which brings Horovod's launcher; empty for other frameworks."""
