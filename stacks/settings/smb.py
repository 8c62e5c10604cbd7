"""Settings of a small business's tier: a model served from CPU machines or containers."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from falaj.stacks.settings.cloud import Days
from falaj.stacks.settings.foundation import OnFoundation
from falaj.stacks.settings.section import Section

Instances = Annotated[int, Field(ge=1, le=100)]


class InferenceSettings(Section):
    """The served model and its machines; a key that is left out takes the component's default."""

    image_digest: Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")] | None = None
    """Digest of the inference image in the stack's own registry, repository ``inference``. Only
    the sandbox can do without."""
    model_package: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9/._-]{0,511}$")]
    certificate_id: str | None = None
    keyring_secret_id: str | None = None
    host_name: Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])$")] | None = (
        None
    )
    mode: Literal["instances", "serverless"] | None = None
    vcpu: Annotated[int, Field(ge=1, le=192)] | None = None
    memory_gib: Annotated[int, Field(ge=1, le=1_536)] | None = None
    int8: Literal["amx", "vnni", "i8mm", "any"] | None = None
    machine: str | None = None
    machine_image: str | None = None
    zones: list[str] | None = None
    min_instances: Instances | None = None
    max_instances: Instances | None = None
    cpu_target_percent: Annotated[int, Field(ge=10, le=95)] | None = None
    port: Annotated[int, Field(ge=1, le=65_535)] | None = None
    allowed_cidrs: list[str] | None = None
    log_days: Days | None = None


class SmbSettings(OnFoundation):
    """Everything that an ``smb`` stack may say."""

    blueprint: Literal["smb"]
    inference: InferenceSettings
