"""An immutable snapshot of rows to learn from, named by the digest of its content."""

from typing import Any, NotRequired, TypedDict

import pulumi

from falaj.components.local.local_provider import LocalComponent
from falaj.components.specification.described import described


@described
class DatasetArgs(TypedDict):
    """Arguments of `Dataset`."""

    site: pulumi.Input[str]
    """Folder of the site (``Workspace.path``)."""
    source: NotRequired[pulumi.Input[str]]
    """``digits``, or the absolute path of a .csv or .parquet file, of a .txt or .md text, of a
    .jsonl file of conversations, or of a folder with a folder of pictures for each class. A
    changed file is another dataset. Default: ``digits``, 1,797 scans that ship inside
    scikit-learn."""
    target: NotRequired[pulumi.Input[str] | None]
    """Column to predict; a table needs one, digits, pictures and texts take none."""
    task: NotRequired[pulumi.Input[str]]
    """``auto``, ``classification`` or ``regression``. Default: ``auto``, decided by the target
    column."""
    seed: NotRequired[pulumi.Input[int]]
    """Fixes the split. Default: 7."""
    holdout: NotRequired[pulumi.Input[float]]
    """Share of the rows that training never sees, 0.05 to 0.5. Default: 0.2."""
    context: NotRequired[pulumi.Input[int] | None]
    """Tokens of a text that a language model looks back on; of texts alone. Default: 128."""
    vocabulary: NotRequired[pulumi.Input[int] | None]
    """Tokens that are learned from a text as pairs of bytes, 256 to 65,536; of texts alone.
    Default: its characters are its tokens; of conversations 1,024."""
    vocabulary_of: NotRequired[pulumi.Input[str] | None]
    """Folder of the language model that is to learn from a text, of a finished run or in Llama's
    form: the text is cut with its vocabulary. Of texts alone, and in place of ``vocabulary``.
    Default: the text's own."""
    keyring: NotRequired[pulumi.Input[str]]
    """Folder of the key ring (``KeyRing.path``) that seals the rows. Default: they lie
    unencrypted."""
    retain: NotRequired[pulumi.Input[bool]]
    """Keep it when it is replaced or destroyed; a later one with the same content adopts it.
    Default: it is removed."""


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
