"""What `falaj.components.local.Dataset` takes."""

from typing import Annotated, Final, NotRequired, TypedDict

from annotated_types import Len

from falaj.components.local.arguments import NOT_EMPTY, PATH, REPLACES, KeptArgs
from falaj.components.specification.arguments import Default, Input, Usual
from falaj.components.specification.described import described
from falaj.components.specification.workload_bounds import bound, choice

#: The dataset that ships inside a Python package.
DIGITS: Final = "digits"
TASK: Final = choice("dataset", "task")
_CONTEXT: Final = bound("dataset", "context")
_DELAY: Final = bound("features", "delay_hours")


class FeatureTableArgs(TypedDict):
    """A table of what was known of whom a row of the dataset is about, and since when.

    A row of the dataset gets the latest row of its keys that was known by its time. A date without
    a time of the day counts in a feature table from the end of the day on, and in the dataset from
    its beginning, so that nothing of the same day is taken that came later.
    """

    source: Annotated[str, PATH]
    """The .csv or .parquet file. A changed file is another dataset."""
    keys: Annotated[list[Annotated[str, NOT_EMPTY]], Len(1)]
    """Columns that the dataset has as well: whose values are the same belongs together. A number
    and its digits are the same."""
    time: NotRequired[Annotated[str | None, NOT_EMPTY]]
    """Column that says from when a row holds. Default: each key has one row, and it always holds.
    """
    columns: NotRequired[Annotated[list[Annotated[str, NOT_EMPTY]] | None, Len(1)]]
    """What is taken, as inputs of the model that are called ``TABLE.COLUMN``. Default: all columns
    beside keys and time."""
    within_days: NotRequired[Annotated[float | None, bound("features", "within_days")]]
    """How old a row may be, in days. Default: however old."""
    delay_hours: NotRequired[Annotated[float, _DELAY, Default(_DELAY.default)]]
    """How long after its time a row is known, in hours, as of tables that are filled at night."""


@described
class DatasetArgs(KeptArgs):
    """Arguments of `Dataset`."""

    source: NotRequired[Annotated[Input[str], Default(DIGITS), REPLACES]]
    """``digits``, 1,797 scans that ship inside scikit-learn; or the absolute path of a .csv or
    .parquet file, of a .txt or .md text, of a .jsonl file of conversations, of a folder with a
    folder of pictures for each class, or of a folder of texts or of shards (.parquet, .arrow,
    .jsonl or .tar), which are streamed, as many pictures are. A changed file is another
    dataset."""
    target: NotRequired[Annotated[Input[str] | None, NOT_EMPTY, REPLACES]]
    """Column of the table to predict; a table needs one, digits, pictures and texts take none. Of
    shards from which a language model learns (``task``), the column of texts."""
    feature_tables: NotRequired[Annotated[dict[str, FeatureTableArgs], Default({}), REPLACES]]
    """Feature tables that give a table further columns, by names that these are called with: of
    each row what was known by its time, and nothing later. Default: none."""
    feature_time: NotRequired[Annotated[Input[str] | None, NOT_EMPTY, REPLACES]]
    """Column of the table that says of which moment a row is, needed where feature tables have
    times. It and the keys are no inputs of the model."""
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
