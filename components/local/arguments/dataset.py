"""What `falaj.components.local.Dataset` takes."""

from typing import Annotated, Final, NotRequired

from falaj.components.local.arguments import NOT_EMPTY, PATH, REPLACES, KeptArgs
from falaj.components.specification.arguments import Default, Input, Usual
from falaj.components.specification.described import described
from falaj.components.specification.workload_bounds import bound, choice

#: The dataset that ships inside a Python package.
DIGITS: Final = "digits"
TASK: Final = choice("dataset", "task")
_CONTEXT: Final = bound("dataset", "context")


@described
class DatasetArgs(KeptArgs):
    """Arguments of `Dataset`."""

    source: NotRequired[Annotated[Input[str], Default(DIGITS), REPLACES]]
    """``digits``, 1,797 scans that ship inside scikit-learn; or the absolute path of a .csv or
    .parquet file, of a .txt or .md text, of a .jsonl file of conversations, of a folder with a
    folder of pictures for each class, or of a folder of texts or of shards (.parquet, .arrow,
    .jsonl or .tar), which are streamed. A changed file is another dataset."""
    target: NotRequired[Annotated[Input[str] | None, NOT_EMPTY, REPLACES]]
    """Column of the table to predict; a table needs one, digits, pictures and texts take none. Of
    shards from which a language model learns (``task``), the column of texts."""
    task: NotRequired[Annotated[Input[str], TASK, Default(TASK.default), REPLACES]]
    """What is learned; ``auto`` decides it by the target column. ``language`` is of texts, and has
    to be said where they are in a column of shards."""
    seed: NotRequired[Annotated[Input[int], bound("dataset", "seed"), Default(7), REPLACES]]
    """Fixes the split."""
    holdout: NotRequired[
        Annotated[Input[float], bound("dataset", "holdout"), Default(0.2), REPLACES]
    ]
    """Share of the rows that training never sees."""
    context: NotRequired[Annotated[Input[int] | None, _CONTEXT, Usual(_CONTEXT.default), REPLACES]]
    """Tokens that a language model looks back on; of texts alone. Another number is another
    dataset."""
    vocabulary: NotRequired[Annotated[Input[int] | None, bound("dataset", "vocabulary"), REPLACES]]
    """Tokens of a language model, learned from the text as pairs of bytes; of texts alone. Another
    number is another dataset. Default: its tokens are the text's characters; of conversations
    1,024 are learned."""
    vocabulary_of: NotRequired[Annotated[Input[str] | None, PATH]]
    """Folder of the language model that is to learn from a text, of a finished run or in Llama's
    form: the text is cut with its vocabulary. Of texts alone, and in place of ``vocabulary``.
    Default: the text's own."""
    keyring: NotRequired[Annotated[Input[str], PATH]]
    """Folder of the key ring (``KeyRing.path``) that seals the rows. Default: they lie
    unencrypted."""
