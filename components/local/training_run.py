"""A training run, named by the digests of dataset and code, and the hyperparameters."""

from typing import Any

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
        outputs = (
            "path",
            "digest",
            "metric_name",
            "score",
            "epochs_run",
            "seconds",
        )
        given: dict[str, Any] = {**args}
        super().__init__("TrainingRun", name, given, outputs, opts)
        self.path = self._output("path")
        self.digest = self._output("digest")
        self.metric_name = self._output("metric_name")
        self.score = self._output("score")
        self.epochs_run = self._output("epochs_run")
        self.seconds = self._output("seconds")
        self.register_outputs(
            {
                "path": self.path,
                "digest": self.digest,
                "metric_name": self.metric_name,
                "score": self.score,
                "epochs_run": self.epochs_run,
                "seconds": self.seconds,
            }
        )
