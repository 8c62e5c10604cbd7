"""Settings of what makes a cluster ready for AI workloads: add-ons, queues, tenants, admission."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from falaj.components.kubernetes.gateway import GatewayArgs
from falaj.components.kubernetes.gpu_queues import GpuQueuesArgs
from falaj.components.kubernetes.platform import PlatformArgs
from falaj.components.kubernetes.residency import ResidencyArgs
from falaj.components.kubernetes.storage_classes import StorageClassesArgs
from falaj.components.kubernetes.tenant import TenantArgs
from falaj.stacks.settings.derived import component_section
from falaj.stacks.settings.in_cluster import InClusterSettings
from falaj.stacks.settings.section import Section

TenantName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]{0,18}[a-z0-9]$")]

if TYPE_CHECKING:
    GatewaySection = InstallationSection = QueueSection = Section
    ResidencySection = StorageSection = TenantSection = Section
else:
    GatewaySection = component_section(GatewayArgs, "gateway")
    InstallationSection = component_section(PlatformArgs, "installation")
    QueueSection = component_section(GpuQueuesArgs, "queues")
    ResidencySection = component_section(ResidencyArgs, "residency")
    StorageSection = component_section(StorageClassesArgs, "storage")
    TenantSection = component_section(TenantArgs, "tenant")


class PlatformSettings(InClusterSettings):
    """Everything that a stack may say that makes a cluster ready for workloads."""

    blueprint: Literal["platform", "cluster"]
    """``platform`` on a cluster of AWS or Azure; of an existing one this is its ``cluster``."""
    installation: InstallationSection
    """Arguments of `Platform`: its add-ons and where the API server is."""
    storage: StorageSection | None = None
    """Arguments of `StorageClasses`. Default: the cluster's classes are left as they are."""
    queues: QueueSection | None = None
    """Arguments of `GpuQueues`. Default: no queues."""
    gateway: GatewaySection | None = None
    """Arguments of `Gateway`, whose name is ``falaj``. Default: no gateway."""
    residency: ResidencySection
    """Arguments of `Residency`."""
    tenants: dict[TenantName, TenantSection] = Field(default_factory=dict)
    """Arguments of `Tenant`, by the tenants' names."""
