"""A trained model, optimised, signed, encrypted and published in the site's registry."""

import pulumi

from falaj.components.local.arguments.model_package import ModelPackageArgs
from falaj.components.local.local_provider import LocalComponent


class ModelPackage(LocalComponent):
    """A trained model, optimised, signed, encrypted and published in the site's registry."""

    model: pulumi.Output[str]
    """Name of the model."""
    version: pulumi.Output[int]
    """The version that was published."""
    path: pulumi.Output[str]
    """Folder of the version."""
    digest: pulumi.Output[str]
    """Digest of the version's manifest."""
    registry: pulumi.Output[str]
    """Folder of the registry."""
    accepted: pulumi.Output[str]
    """``int8``, ``int4`` or ``float``: which of them is packaged."""
    reason: pulumi.Output[str]
    """Why."""
    metric_name: pulumi.Output[str]
    """``accuracy`` (0 to 1); ``rmse`` for regression; ``nats_per_character`` for a text."""
    accuracy_float: pulumi.Output[float]
    """The metric of the float model on held-out rows."""
    accuracy_int8: pulumi.Output[float | None]
    """The metric of the 8-bit model, where there is one."""
    accuracy_int4: pulumi.Output[float | None]
    """The metric of the model with weights of 4 bits, where there is one."""
    size_float: pulumi.Output[int]
    """Size of the float model in bytes."""
    size_int8: pulumi.Output[int | None]
    """Size of the 8-bit model in bytes."""
    size_int4: pulumi.Output[int | None]
    """Size of the model with weights of 4 bits in bytes."""
    latency_float: pulumi.Output[float]
    """Latency of the float model for one row on one thread, in microseconds."""
    latency_int8: pulumi.Output[float | None]
    """The same of the 8-bit model."""
    latency_int4: pulumi.Output[float | None]
    """The same of the model with weights of 4 bits."""

    def __init__(
        self, name: str, args: ModelPackageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, {**args}, opts)
