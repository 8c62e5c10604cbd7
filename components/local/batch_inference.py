"""Predictions of a published model for files of rows, kept in the site."""

from typing import Any, NotRequired, TypedDict

import pulumi

from falaj.components.local.local_provider import LocalComponent
from falaj.components.specification.described import described


@described
class BatchInferenceArgs(TypedDict):
    """Arguments of `BatchInference`."""

    site: pulumi.Input[str]
    """Folder of the site (``Workspace.path``)."""
    name: pulumi.Input[str]
    """Name of the predictions, in the names of their files."""
    inputs: pulumi.Input[list[str]]
    """Absolute paths of .csv, .jsonl and .parquet files, folders of them, and dataset snapshots. A
    changed file is another input."""
    model: pulumi.Input[str]
    """Name of the model (``ModelPackage.model``)."""
    version: pulumi.Input[int]
    """Its version (``ModelPackage.version``)."""
    package_digest: pulumi.Input[str]
    """Digest of the version (``ModelPackage.digest``)."""
    keyring: pulumi.Input[str]
    """Folder of the key ring (``KeyRing.path``): it opens the package, and seals predictions."""
    format: NotRequired[pulumi.Input[str]]
    """``csv``, ``jsonl`` or ``parquet``. Default: ``csv``."""
    keep: NotRequired[pulumi.Input[list[str]]]
    """Columns of the input that go along with the predictions; ``*`` is all of them. Default:
    none, and rows are told apart by their number."""
    encoding: NotRequired[pulumi.Input[str] | None]
    """Encoding of CSV files. Default: UTF-8, or what the byte order mark says."""
    decimal: NotRequired[pulumi.Input[str] | None]
    """What stands before decimals: ``point`` or ``comma``. Default: what each column tells."""
    skip_bad_rows: NotRequired[pulumi.Input[bool]]
    """Whether rows that can't be predicted go to a file beside, with the reasons. Default: they
    are refused, and nothing is written."""
    plain: NotRequired[pulumi.Input[bool]]
    """Whether the predictions lie unencrypted; refused for ``restricted`` data and sealed input.
    Default: false."""
    threads: NotRequired[pulumi.Input[int] | None]
    """Threads of the runtime. Default: one for each core. A change of it predicts nothing
    again."""
    retain: NotRequired[pulumi.Input[bool]]
    """Keep it when it is replaced or destroyed; a later one with the same content adopts it.
    Default: it is removed."""


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
