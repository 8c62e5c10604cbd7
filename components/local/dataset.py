"""An immutable snapshot of rows to learn from, named by the digest of its content."""

from typing import Any

import pulumi

from falaj.components.local.arguments.dataset import DatasetArgs
from falaj.components.local.local_provider import LocalComponent


class Dataset(LocalComponent):
    """An immutable snapshot of rows to learn from, named by the digest of its content."""

    path: pulumi.Output[str]
    """Folder of the snapshot."""
    digest: pulumi.Output[str]
    """SHA-256 that names the dataset: content, target and split."""
    family: pulumi.Output[str]
    """``images``, ``table`` or ``text``."""
    task: pulumi.Output[str]
    """``classification``, ``regression`` or ``language``."""
    target: pulumi.Output[str]
    """Name of what is predicted."""
    rows: pulumi.Output[int]
    """Number of rows."""
    features: pulumi.Output[int]
    """Number of inputs."""
    classes: pulumi.Output[list[str]]
    """Names of the classes, of a text its characters; empty for regression and other tokens."""

    def __init__(
        self, name: str, args: DatasetArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        outputs = (
            "path",
            "digest",
            "family",
            "resolved_task",
            "target_name",
            "rows",
            "features",
            "classes",
        )
        given: dict[str, Any] = {**args}
        super().__init__("Dataset", name, given, outputs, opts)
        self.path = self._output("path")
        self.digest = self._output("digest")
        self.family = self._output("family")
        self.task = self._output("resolved_task")
        self.target = self._output("target_name")
        self.rows = self._output("rows")
        self.features = self._output("features")
        self.classes = self._output("classes")
        self.register_outputs(
            {
                "path": self.path,
                "digest": self.digest,
                "family": self.family,
                "task": self.task,
                "target": self.target,
                "rows": self.rows,
                "features": self.features,
                "classes": self.classes,
            }
        )
