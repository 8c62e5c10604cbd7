"""A training run, named by the digests of dataset and code, and the hyperparameters."""

import pulumi

from falaj.components.local.arguments.training_run import TrainingRunArgs
from falaj.components.local.local_provider import LocalComponent


class TrainingRun(LocalComponent):
    """A training run, named by the digest of the dataset and the hyperparameters."""

    path: pulumi.Output[str]
    """Folder of the run."""
    digest: pulumi.Output[str]
    """Digest that names the run."""
    metric_name: pulumi.Output[str]
    """``accuracy`` (0 to 1); ``rmse`` for regression; ``nats_per_character`` for a text."""
    score: pulumi.Output[float]
    """The metric on held-out rows."""
    epochs_run: pulumi.Output[int]
    """Epochs that were run."""
    seconds: pulumi.Output[float]
    """How long it trained, in seconds."""

    def __init__(
        self, name: str, args: TrainingRunArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, {**args}, opts)
