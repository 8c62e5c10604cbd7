"""How files of rows are read that a packaged model predicts: the same on one machine and in a
cluster."""

from typing import Annotated, NotRequired, TypedDict

from falaj.components.specification.arguments import Default
from falaj.components.specification.workload_bounds import decimals


class PredictedRowsArgs(TypedDict):
    """What is read of the rows, and what becomes of bad ones."""

    keep: NotRequired[list[str]]
    """Columns of the input that go along with the predictions; ``*`` is all of them. Default:
    none, and rows are told apart by their number."""
    encoding: NotRequired[str]
    """Encoding of CSV files. Default: UTF-8, or what the byte order mark says."""
    decimal: NotRequired[Annotated[str, decimals()]]
    """What stands before decimals. Default: what each column tells."""
    skip_bad_rows: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether rows that can't be predicted go to a file beside, with the reasons; else they are
    refused, and nothing is written."""
