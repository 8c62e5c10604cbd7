"""An immutable snapshot of rows to learn from, named by the digest of its content."""

import pulumi

from falaj.components.local.arguments.dataset import DatasetArgs
from falaj.components.local.local_provider import LocalComponent


class Dataset(LocalComponent, named={"task": "resolved_task", "target": "target_name"}):
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
        super().__init__(name, {**args}, opts)
