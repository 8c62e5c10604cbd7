"""Predictions of a published model for files of rows, kept in the site."""

import pulumi

from falaj.components.local.arguments.batch_inference import BatchInferenceArgs
from falaj.components.local.local_provider import LocalComponent


class BatchInference(LocalComponent):
    """Predictions of a published model for files of rows, kept in the site.

    The same input, package and options are predicted once.
    """

    path: pulumi.Output[str]
    """The file with the predictions."""
    rows: pulumi.Output[int]
    """Rows that were predicted."""
    bad_rows: pulumi.Output[int]
    """Rows that were set aside."""
    digest: pulumi.Output[str]
    """SHA-256 of the predictions, before they are sealed."""

    def __init__(
        self, name: str, args: BatchInferenceArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(name, {**args}, opts)
