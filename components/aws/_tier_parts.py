"""What both kinds of inference tier are put together from."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from falaj.components.aws._tier_balancer import Balancer
from falaj.components.aws.serving.boot import Serving
from falaj.components.specification.cpu_inference_tier import (
    CpuInferenceTierArgs,
    CpuInferenceTierSpec,
    is_by_digest,
)


@dataclass(frozen=True)
class Tier:
    """One tier: its component, its arguments, and what stands in front of its machines."""

    component: pulumi.Resource
    spec: CpuInferenceTierSpec
    args: CpuInferenceTierArgs
    balancer: Balancer
    log_group: aws.cloudwatch.LogGroup
    serving: pulumi.Output[Serving]

    @property
    def name(self) -> str:
        """The component's name in the program."""
        return self.spec.name

    @property
    def tags(self) -> dict[str, str]:
        """Tags of all that the tier makes."""
        return self.spec.placed.tags(self.spec.name)


def by_digest(image: str) -> str:
    """The image, where it is named by its digest; it may have been an output.

    Raises:
        ValueError: it is named by a tag.
    """
    if is_by_digest(image):
        return image
    raise ValueError(
        f"image is {image!r}; allowed: an image of the registry by digest: host/name@sha256:…; "
        "a tag can be moved to another image"
    )
