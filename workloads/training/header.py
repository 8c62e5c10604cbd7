"""Names of a table's columns, read from its beginning: no row is needed for them."""

from __future__ import annotations

import codecs
import csv
import io
from pathlib import Path
from typing import Any, Final

from falaj.workloads.errors import WorkloadError

MAXIMUM_COLUMNS: Final = 1_000
"""Every column is one input tensor of every request to the served model."""

_DELIMITERS: Final = ",;\t|"
_BYTE_ORDER_MARKS: Final = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: A thousand names of columns are shorter.
_BEGINNING_BYTES: Final = 1 << 20


def read_header(path: Path, encoding: str | None = None) -> list[str]:
    """The names of a table's columns, in order; a column without a name is "".

    Args:
        path: a .csv or .parquet file.
        encoding: the CSV file's encoding; None means UTF-8, or what its byte order mark says.

    Raises:
        WorkloadError: it is empty, can't be read, or its column names repeat.
        OSError: the file can't be opened.
    """
    if path.suffix.lower() == ".parquet":
        return _parquet_names(path)
    text, _ = read_beginning(path, encoding)
    if not text.strip():
        raise WorkloadError(f"{path} holds no text: it needs a header line and rows")
    return names_of(text, path)[0]


def read_beginning(path: Path, encoding: str | None) -> tuple[str, str]:
    """The text that a CSV begins with, its header in it, and the encoding that it has.

    Args:
        path: the file.
        encoding: None means UTF-8, or what the byte order mark says.

    Raises:
        WorkloadError: the encoding is unknown, or isn't the file's.
        OSError: the file can't be opened.
    """
    with path.open("rb") as file:
        data = file.read(_BEGINNING_BYTES)
    chosen = encoding_of(data, encoding)
    return decode(data, path, chosen, whole=len(data) < _BEGINNING_BYTES), chosen


def names_of(text: str, path: Path) -> tuple[list[str], str]:
    """The names of a CSV's columns, and what separates them."""
    text = text.lstrip("\r\n")
    delimiter = _delimiter_of(text.split("\n", 1)[0].rstrip("\r"))
    try:
        # strict=False: an unusual quote in the header is the reader's business.
        header = next(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error as error:
        raise WorkloadError(f"{path}: the header line can't be read: {error}") from error
    names = [name.strip() for name in header]
    check_header(names, path)
    return names, delimiter


def check_header(names: list[str], path: Path) -> None:
    """Refuse more than `MAXIMUM_COLUMNS` columns and names that occur twice."""
    if len(names) > MAXIMUM_COLUMNS:
        raise WorkloadError(
            f"{path} has {len(names):,} columns; at most {MAXIMUM_COLUMNS:,} are allowed: keep "
            "the informative ones, or reduce them first (for instance by principal components)"
        )
    repeated = sorted({name for name in names if name and names.count(name) > 1})
    if repeated:
        raise WorkloadError(
            f"{path} has column names that occur more than once: {', '.join(map(repr, repeated))};"
            " rename them so that each is unique"
        )


def _parquet_names(path: Path) -> list[str]:
    import pyarrow as pa  # noqa: PLC0415 - a CSV's header needs none of it
    import pyarrow.parquet as pq  # noqa: PLC0415

    try:
        names = list(pq.read_schema(path).names)
    except pa.ArrowException as error:
        raise not_parquet(path, error) from error
    check_header(names, path)
    return names


def not_parquet(path: Path, error: Exception) -> WorkloadError:
    """The refusal of a file that only says that it is Parquet."""
    return WorkloadError(f"{path} is not a readable Parquet file: {str(error).splitlines()[0]}")


def refuse_damaged(column: Any, what: str) -> None:
    """Refuse values of Parquet or Arrow that can't be what their type says.

    Such are texts that aren't UTF-8, and places outside of what they are of, which Arrow itself
    would follow.

    Args:
        column: a pyarrow.Array or pyarrow.ChunkedArray.
        what: the column, for messages.

    Raises:
        WorkloadError: there is such a value.
    """
    import pyarrow as pa  # noqa: PLC0415 - a CSV's header needs none of it

    try:
        column.validate(full=True)
    except pa.ArrowException as error:
        reason = str(error).splitlines()[0].rpartition("Invalid: ")[2]
        raise WorkloadError(
            f"{what} is damaged: {reason} (type {column.type}); write the file again, with texts "
            "in UTF-8"
        ) from error


def odd_quotes(path: Path, line: int) -> WorkloadError:
    """The refusal of a CSV with an odd number of quotation marks, the last in ``line``."""
    return WorkloadError(
        f"{path} has an odd number of quotation marks (the last is in line {line:,}): one is "
        'never closed, and would swallow rows. Inside a quoted value write "" for "'
    )


def encoding_of(data: bytes, encoding: str | None) -> str:
    """The encoding that is named, else what the byte order mark before ``data`` says, else UTF-8.

    Raises:
        WorkloadError: there is no such encoding.
    """
    chosen = encoding
    if chosen is None:
        chosen = next(
            (e for mark, e in _BYTE_ORDER_MARKS.items() if data.startswith(mark)), "utf-8"
        )
    try:
        b"a".decode(chosen)
    except UnicodeDecodeError:  # it has two bytes for a letter
        return chosen
    except (LookupError, ValueError):  # base64 and others that Python knows are none of texts
        raise WorkloadError(
            f"unknown encoding {chosen!r}: use for instance utf-8, windows-1256 or latin-1"
        ) from None
    return chosen


def decode(data: bytes, path: Path, encoding: str | None, *, whole: bool = True) -> str:
    """The text of a CSV file, without its byte order mark, its lines ended by line feeds.

    Args:
        data: the file's bytes.
        path: the file, for messages.
        encoding: None means UTF-8, or what the byte order mark says.
        whole: whether these are all bytes; else the last letter may be cut off.

    Raises:
        WorkloadError: the encoding is unknown, or isn't the file's.
    """
    chosen = encoding_of(data, encoding)
    try:
        if whole:
            text = data.decode(chosen)
        else:
            text = codecs.getincrementaldecoder(chosen)().decode(data)
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise WorkloadError(
            f"{path} is not {chosen}: byte 0x{data[error.start]:02x} at position {error.start:,} "
            f"(line {line:,}) is invalid; save the file as UTF-8, or name its encoding "
            "(--encoding windows-1256, for instance)"
        ) from None
    except UnicodeError as error:
        raise WorkloadError(f"{path} is not {chosen}: {error}") from None
    refuse_nul(text, path)
    text = text.removeprefix("\ufeff")
    # Old spreadsheets end lines by a carriage return alone.
    return text if "\n" in text else text.replace("\r", "\n")


def refuse_nul(text: str, path: Path, before: int = 0) -> None:
    """Refuse a text, or a part of it, that holds what no text does.

    Args:
        text: the part.
        path: the file, for messages.
        before: characters before the part.

    Raises:
        WorkloadError: it holds a NUL character.
    """
    if "\0" in text:
        raise WorkloadError(
            f"{path} holds a NUL character at position {before + text.index(chr(0)):,}: it is not "
            "a text file, or its encoding is another (--encoding utf-16, for instance)"
        )


def _delimiter_of(line: str) -> str:
    """Return the separator that splits the header into the most names, a comma if none does."""
    outside = "".join(part for index, part in enumerate(line.split('"')) if index % 2 == 0)
    return max(_DELIMITERS, key=outside.count)
