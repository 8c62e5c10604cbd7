"""Settings of a small business's tier: a model served from CPU machines or containers."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from falaj.components.specification import cpu_demand, cpu_inference_tier
from falaj.components.specification.forms import DIGEST
from falaj.components.specification.limits import OneOf
from falaj.stacks.settings.foundation import Days, OnFoundation
from falaj.stacks.settings.section import Section

Instances = Annotated[int, cpu_inference_tier.INSTANCES]


class InferenceSettings(Section):
    """The served model and its machines; a key that is left out takes the component's default."""

    described_by: ClassVar = cpu_inference_tier.CpuInferenceTierArgs
    image_digest: Annotated[str, DIGEST] | None = None
    """Digest of the inference image in the stack's own registry, repository ``inference``. Only
    the sandbox can do without."""
    model_package: Annotated[str, cpu_inference_tier.PACKAGE]
    certificate_id: str | None = None
    keyring_secret_id: str | None = None
    host_name: Annotated[str, cpu_inference_tier.HOST] | None = None
    mode: Annotated[str, OneOf(cpu_inference_tier.MODES)] | None = None
    vcpu: Annotated[int, cpu_demand.VCPU] | None = None
    memory_gib: Annotated[int, cpu_demand.MEMORY_GIB] | None = None
    int8: Annotated[str, OneOf(cpu_demand.INT8)] | None = None
    machine: str | None = None
    machine_image: str | None = None
    zones: list[str] | None = None
    min_instances: Instances | None = None
    max_instances: Instances | None = None
    cpu_target_percent: Annotated[int, cpu_inference_tier.CPU_TARGET_PERCENT] | None = None
    port: Annotated[int, cpu_inference_tier.PORT] | None = None
    allowed_cidrs: list[str] | None = None
    log_days: Days | None = None


class SmbSettings(OnFoundation):
    """Everything that an ``smb`` stack may say."""

    blueprint: Literal["smb"]
    """What the stack makes: here one served model for a small business."""
    inference: InferenceSettings
