"""A trained model, optimised, signed, encrypted and published in the site's registry."""

from typing import Any

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
    """``int8`` or ``float``: which of the two is packaged."""
    reason: pulumi.Output[str]
    """Why."""
    metric_name: pulumi.Output[str]
    """``accuracy`` (0 to 1); ``rmse`` for regression; ``nats_per_character`` for a text."""
    accuracy_float: pulumi.Output[float]
    """The metric of the float model on held-out rows."""
    accuracy_int8: pulumi.Output[float | None]
    """The metric of the 8-bit model, where there is one."""
    size_float: pulumi.Output[int]
    """Size of the float model in bytes."""
    size_int8: pulumi.Output[int | None]
    """Size of the 8-bit model in bytes."""
    latency_float: pulumi.Output[float]
    """Latency of the float model for one row on one thread, in microseconds."""
    latency_int8: pulumi.Output[float | None]
    """The same of the 8-bit model."""

    def __init__(
        self, name: str, args: ModelPackageArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        outputs = (
            "version",
            "path",
            "digest",
            "registry",
            "accepted",
            "reason",
            "metric_name",
            "accuracy_float",
            "accuracy_int8",
            "size_float",
            "size_int8",
            "latency_float",
            "latency_int8",
        )
        given: dict[str, Any] = {**args}
        super().__init__("ModelPackage", name, given, outputs, opts)
        self.model = self._output("model")
        self.version = self._output("version")
        self.path = self._output("path")
        self.digest = self._output("digest")
        self.registry = self._output("registry")
        self.accepted = self._output("accepted")
        self.reason = self._output("reason")
        self.metric_name = self._output("metric_name")
        self.accuracy_float = self._output("accuracy_float")
        self.accuracy_int8 = self._output("accuracy_int8")
        self.size_float = self._output("size_float")
        self.size_int8 = self._output("size_int8")
        self.latency_float = self._output("latency_float")
        self.latency_int8 = self._output("latency_int8")
        self.register_outputs(
            {
                "model": self.model,
                "version": self.version,
                "path": self.path,
                "digest": self.digest,
                "registry": self.registry,
                "accepted": self.accepted,
                "reason": self.reason,
                "metric_name": self.metric_name,
                "accuracy_float": self.accuracy_float,
                "accuracy_int8": self.accuracy_int8,
                "size_float": self.size_float,
                "size_int8": self.size_int8,
                "latency_float": self.latency_float,
                "latency_int8": self.latency_int8,
            }
        )
