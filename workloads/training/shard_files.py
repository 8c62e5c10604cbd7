"""Files that a streamed dataset is made of, read block by block: Parquet, Arrow, JSON lines, tar.

Of each a few thousand records are in memory. Tar files have the form of WebDataset: what has one
name up to the first dot is one record (https://github.com/webdataset/webdataset). What is wrong is
told by file and record, counted from 1.
"""

from __future__ import annotations

import os
import tarfile
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from falaj.workloads.documents import is_dictionary
from falaj.workloads.errors import WorkloadError, printable, some
from falaj.workloads.training.header import check_header, refuse_damaged
from falaj.workloads.training.picture_folder import SUFFIXES as PICTURES

BLOCK_ROWS: Final = 4_096
BLOCK_BYTES: Final = 8 << 20
"""Records and bytes of a block at most, but for a single larger record."""
LARGEST_RECORD: Final = 64 << 20
"""Bytes of a line, and of a file in a tar: more is taken for a mistake."""

LABEL: Final = ".cls"
_FIELDS: Final = ".json"
_BUFFER_BYTES: Final = 1 << 20
_END_OF_TAR: Final = bytes(1_024)
_SHOWN: Final = 5

NUMERIC, TEXT, EMPTY, OTHER = "numeric", "text", "empty", "neither numbers nor texts"
"""Kinds of a block's column: ``empty`` has no value in it, ``other`` is none that is learned."""


@dataclass(frozen=True)
class Column:
    """A column of a block.

    Attributes:
        kind: one of the four.
        values: (rows,) float64 with NaN where missing, or texts as objects with "".
    """

    kind: str
    values: NDArray[Any]


@dataclass(frozen=True)
class Block:
    """Some records of a shard.

    Attributes:
        shard: the file's name.
        first: number of its first record, from 1 on.
        rows: how many there are.
        columns: by name, in the file's order.
        pictures: of each record, as a file has it; empty: there are none.
    """

    shard: str
    first: int
    rows: int
    columns: dict[str, Column] = field(default_factory=dict[str, Column])
    pictures: tuple[bytes, ...] = ()


def blocks(path: Path, rows: int = 0, only: str | None = None) -> Iterator[Block]:
    """Yield the records of a shard, some at a time.

    Args:
        path: the shard.
        rows: of a block of Parquet or Arrow, at most, whose texts may be long. Default (0):
            `BLOCK_ROWS`.
        only: name of a column; of Parquet the others aren't read where it is there. Default: all
            are needed.

    Raises:
        WorkloadError: it is damaged, or a record can't be used; names it.
    """
    suffix = path.suffix.lower()
    with _reading(path):
        if suffix == ".jsonl":
            yield from _json_lines(path)
        elif suffix == ".tar":
            yield from _tar(path)
        else:
            yield from _arrow(path, rows or BLOCK_ROWS, only)


@contextmanager
def _reading(path: Path) -> Generator[None]:
    try:
        yield
    except (pa.ArrowException, tarfile.TarError, OSError, EOFError) as error:
        reason = printable(str(error).splitlines()[0] if str(error) else type(error).__name__)
        raise WorkloadError(
            f"the shard {path.name} can't be read, it is cut short or damaged: {reason}; put the "
            f"whole file to {path}"
        ) from error


def _arrow(path: Path, rows: int, only: str | None) -> Iterator[Block]:
    first = 1
    for batch in _batches(path, rows, only):
        names = list(batch.schema.names)
        if first == 1:
            check_header(names, path)
        for start in range(0, batch.num_rows, rows):
            part = batch.slice(start, rows)
            for name in names:
                what = f"the column {name!r} of the shard {path.name} behind record {first - 1:,}"
                refuse_damaged(part.column(name), what)
            columns = {name: _of_arrow(part.column(name)) for name in names}
            yield Block(path.name, first, part.num_rows, columns)
            first += part.num_rows
    if first == 1:
        yield Block(path.name, 1, 0)


def _batches(path: Path, rows: int, only: str | None) -> Iterator[Any]:
    if path.suffix.lower() == ".parquet":
        # One thread: see `snapshot`, which reads with one for the same reason. By a buffer: else a
        # row group is read as a whole, and some files have but one.
        parquet: Any = pq
        with parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER_BYTES) as file:
            check_header(list(file.schema_arrow.names), path)
            names = list(file.schema_arrow.names)
            names = [only] if only in names else names
            yield from file.iter_batches(batch_size=rows, columns=names, use_threads=False)
        return
    arrow: Any = pa
    with arrow.OSFile(str(path)) as file:
        begin = file.read(6)
        file.seek(0)
        if begin == b"ARROW1":
            with arrow.ipc.open_file(file) as reader:
                for place in range(reader.num_record_batches):
                    yield reader.get_batch(place)
        else:
            with arrow.ipc.open_stream(file) as reader:
                yield from reader


def _of_arrow(column: Any) -> Column:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_null(kind):
        return Column(EMPTY, np.full(len(column), np.nan))
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        found = np.asarray([each or "" for each in column.to_pylist()], dtype=object)
        return Column(TEXT, found)
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if not (is_number or pa.types.is_boolean(kind) or pa.types.is_decimal(kind)):
        return Column(OTHER, np.full(len(column), np.nan))
    values = column.cast(pa.float64(), safe=False) if kind != pa.float64() else column
    return Column(NUMERIC, np.array(values.to_numpy(zero_copy_only=False), dtype=np.float64))


def _json_lines(path: Path) -> Iterator[Block]:
    objects: list[dict[str, Any]] = []
    names: list[str] = []
    first, size = 1, 0
    with path.open("rb") as file:
        for number, line in enumerate(_lines(file, path), 1):
            found = _object(line, f"record {number:,} of the shard {path.name}")
            names = names or list(found)
            objects.append(_complete(found, names, path.name, number))
            size += len(line)
            if len(objects) == BLOCK_ROWS or size >= BLOCK_BYTES:
                yield _of_objects(path.name, first, objects, names)
                first, size = first + len(objects), 0
                objects = []
    yield _of_objects(path.name, first, objects, names)


def _lines(file: BinaryIO, path: Path) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LARGEST_RECORD + 1):
        number += 1
        if len(line) > LARGEST_RECORD:
            raise WorkloadError(
                f"line {number:,} of the shard {path.name} is longer than "
                f"{LARGEST_RECORD >> 20} MiB: records have a line each"
            )
        if line := line.strip():
            yield line


def _object(text: bytes, what: str) -> dict[str, Any]:
    try:
        found: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise WorkloadError(f"{what} isn't JSON in UTF-8: {error}") from None
    if not is_dictionary(found):
        raise WorkloadError(
            f'{what} isn\'t a JSON object: its keys are the columns, as {{"age": 3}}'
        )
    return found


def _complete(
    found: dict[str, Any], names: Sequence[str], shard: str, number: int
) -> dict[str, Any]:
    """Refuse a record that has other columns than the first one of its shard."""
    if found.keys() != set(names):
        lacking = [repr(each) for each in names if each not in found]
        more = [repr(each) for each in found if each not in names]
        said = [f"lacks {some(lacking, _SHOWN)}"] if lacking else []
        said += [f"has {some(more, _SHOWN)} more"] if more else []
        raise WorkloadError(
            f"record {number:,} of the shard {shard} {' and '.join(said)}, other than its first "
            "one: write null for a missing value"
        )
    return found


def _of_objects(
    shard: str, first: int, objects: Sequence[dict[str, Any]], names: Sequence[str]
) -> Block:
    columns = {
        name: _of_values([each[name] for each in objects], name, shard, first) for name in names
    }
    return Block(shard, first, len(objects), columns)


def _of_values(values: Sequence[Any], name: str, shard: str, first: int) -> Column:
    """A column of JSON's values, all of one kind."""
    kinds = [_kind(each) for each in values]
    found = sorted(set(kinds) - {EMPTY})
    if len(found) > 1:
        other = next(place for place, each in enumerate(kinds) if each not in (found[0], EMPTY))
        before = next(place for place, each in enumerate(kinds) if each == found[0])
        raise WorkloadError(
            f"the column {name!r} of the shard {shard} is {kinds[before]} in record "
            f"{first + before:,} and {kinds[other]} in record {first + other:,}: write numbers or "
            "texts, not both"
        )
    kind = found[0] if found else EMPTY
    if kind == TEXT:
        return Column(TEXT, np.asarray([each or "" for each in values], dtype=object))
    if kind == OTHER:
        return Column(OTHER, np.full(len(values), np.nan))
    numbers = [np.nan if each is None else float(each) for each in values]
    return Column(kind, np.asarray(numbers, dtype=np.float64))


def _kind(value: Any) -> str:
    if value is None or value == "":
        return EMPTY
    if isinstance(value, bool | int | float):
        return NUMERIC
    return TEXT if isinstance(value, str) else OTHER


def _tar(path: Path) -> Iterator[Block]:
    with path.open("rb") as file:
        file.seek(-min(len(_END_OF_TAR), path.stat().st_size), os.SEEK_END)
        if file.read() != _END_OF_TAR:
            raise tarfile.ReadError("its end is missing, two blocks of zeros")
    pending: list[tuple[str, dict[str, bytes]]] = []
    first, size = 1, 0
    for key, parts in _records(path):
        pending.append((key, parts))
        size += sum(map(len, parts.values()))
        if len(pending) == BLOCK_ROWS or size >= BLOCK_BYTES:
            yield _of_records(path.name, first, pending)
            first, size = first + len(pending), 0
            pending = []
    yield _of_records(path.name, first, pending)


def _records(path: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Yield the records of a tar file: a key, and content by the end of the name."""
    seen: set[str] = set()
    key: str | None = None
    parts: dict[str, bytes] = {}
    with tarfile.open(path, "r|") as archive:
        for member in archive:
            if member.isdir():
                continue
            named, ending = _key_of(member, path.name)
            if named != key:
                if key is not None:
                    yield key, parts
                if named in seen:
                    raise WorkloadError(
                        f"the shard {path.name} has {printable(named)!r} twice, with others in "
                        "between: the files of a record lie one behind the other, and each "
                        "record has a name of its own"
                    )
                seen.add(named)
                key, parts = named, {}
            if ending in parts:
                raise WorkloadError(
                    f"the shard {path.name} has {printable(named + ending)!r} twice: each file of "
                    "a record has an ending of its own"
                )
            content = archive.extractfile(member)
            if content is None:
                raise AssertionError("it is a file")
            parts[ending] = content.read()
    if key is not None:
        yield key, parts


def _key_of(member: tarfile.TarInfo, shard: str) -> tuple[str, str]:
    """The record that a file belongs to, and the end of its name."""
    name, shown = member.name, printable(member.name)
    if not member.isreg():
        raise WorkloadError(
            f"{shown!r} in the shard {shard} is a link or a device: a shard has files alone"
        )
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not name.isprintable():
        raise WorkloadError(
            f"{shown!r} in the shard {shard} leads out of it: names are relative, without '..'"
        )
    if member.size > LARGEST_RECORD:
        raise WorkloadError(
            f"{shown!r} in the shard {shard} has {member.size:,} bytes; at most "
            f"{LARGEST_RECORD >> 20} MiB are allowed"
        )
    stem, dot, ending = path.name.partition(".")
    if not stem or not dot:
        raise WorkloadError(
            f"{shown!r} in the shard {shard} has no name or no ending: files are called as "
            "000001.jpg and 000001.cls"
        )
    return str(path.parent / stem), "." + ending.lower()


def _of_records(shard: str, first: int, records: Sequence[tuple[str, dict[str, bytes]]]) -> Block:
    """A block of records that have a picture and a class each, or the fields of a row."""
    if not records:
        return Block(shard, first, 0)
    pictures: list[bytes] = []
    labels: list[str] = []
    objects: list[dict[str, Any]] = []
    for number, (key, parts) in enumerate(records, first):
        what = f"record {number:,} ({printable(key)}) of the shard {shard}"
        found = [each for each in parts if each in PICTURES]
        if len(found) == 1 and LABEL in parts:
            pictures.append(parts[found[0]])
            labels.append(_label(parts[LABEL], what))
        elif not found and _FIELDS in parts:
            objects.append(_object(parts[_FIELDS], what))
        else:
            raise WorkloadError(
                f"{what} has {some(sorted(parts), _SHOWN)}: needed are one picture "
                f"({', '.join(PICTURES)}) and its class ({LABEL}), or the fields of a row "
                f"({_FIELDS})"
            )
    if pictures and objects:
        raise WorkloadError(
            f"the shard {shard} has records with pictures and others without: all have to be of "
            "one kind"
        )
    if objects:
        names = list(objects[0])
        for number, each in enumerate(objects, first):
            _complete(each, names, shard, number)
        return _of_objects(shard, first, objects, names)
    column = Column(TEXT, np.asarray(labels, dtype=object))
    return Block(shard, first, len(records), {LABEL: column}, tuple(pictures))


def _label(content: bytes, what: str) -> str:
    try:
        label = content.decode().strip()
    except UnicodeDecodeError:
        label = ""
    if not label or not label.isprintable():
        raise WorkloadError(f"the class of {what} is empty, or no text in UTF-8")
    return label


def picture(content: bytes, side: int | None, what: str) -> Any:
    """Return a picture (3, side, side) uint8; without ``side`` its shorter one, and if it is grey.

    Args:
        content: the file.
        side: pixels.
        what: names it in errors.

    Raises:
        WorkloadError: it is none that can be read.
    """
    # Loaded for pictures alone.
    from falaj.workloads.training import picture_files  # noqa: PLC0415

    with warnings.catch_warnings():
        picture_files.take_warnings()
        try:
            if side is None:
                return picture_files.looked_at(BytesIO(content))
            return picture_files.square(BytesIO(content), side).transpose(2, 0, 1)
        except picture_files.BROKEN as error:
            raise WorkloadError(
                f"the picture of {what} can't be read: {picture_files.reason(error)}; remove it, "
                "or put a whole one in its place"
            ) from error
