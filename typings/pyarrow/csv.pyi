from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from pyarrow import BufferReader, DataType, Table

class InvalidRow(NamedTuple):
    expected_columns: int
    actual_columns: int
    number: int | None
    text: str

class ReadOptions:
    def __init__(
        self,
        *,
        use_threads: bool = True,
        block_size: int | None = None,
        skip_rows_after_names: int = 0,
        column_names: Sequence[str] | None = None,
    ) -> None: ...

class ParseOptions:
    def __init__(
        self,
        *,
        delimiter: str = ",",
        newlines_in_values: bool = False,
        invalid_row_handler: Callable[[InvalidRow], str] | None = None,
    ) -> None: ...

class ConvertOptions:
    def __init__(
        self,
        *,
        column_types: Mapping[str, DataType] | None = None,
        strings_can_be_null: bool = False,
    ) -> None: ...

def read_csv(
    input_file: BufferReader,
    read_options: ReadOptions | None = None,
    parse_options: ParseOptions | None = None,
    convert_options: ConvertOptions | None = None,
) -> Table: ...
