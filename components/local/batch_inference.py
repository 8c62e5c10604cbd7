"""Predictions of a published model for files of rows, kept in the site."""

from typing import Any

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
        given: dict[str, Any] = {**args}
        outputs = ("path", "rows", "bad_rows", "digest")
        super().__init__("BatchInference", name, given, outputs, opts)
        self.path = self._output("path")
        self.rows = self._output("rows")
        self.bad_rows = self._output("bad_rows")
        self.digest = self._output("digest")
        self.register_outputs(
            {
                "path": self.path,
                "rows": self.rows,
                "bad_rows": self.bad_rows,
                "digest": self.digest,
            }
        )
