"""Settings of a small business's tier: a model served from CPU machines or containers."""

from __future__ import annotations

from typing import Annotated, Literal

from falaj.components.specification import cpu_inference_tier
from falaj.components.specification.limits import DIGEST
from falaj.stacks.settings.derived import cloud_section
from falaj.stacks.settings.foundation import OnFoundation


class InferenceSettings(
    cloud_section(
        cpu_inference_tier.CpuInferenceTierArgs, taking=("certificate_id", "keyring_secret_id")
    )
):
    """The served model and its machines; a key that is left out takes the component's default."""

    image_digest: Annotated[str, DIGEST] | None = None
    """Digest of the inference image in the stack's own registry, repository ``inference``. Only
    the sandbox can do without."""


class SmbSettings(OnFoundation):
    """Everything that an ``smb`` stack may say."""

    blueprint: Literal["smb"]
    """What the stack makes: here one served model for a small business."""
    inference: InferenceSettings
