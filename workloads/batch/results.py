"""What comes out of a batch: its columns, and their text as CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import decimal
import io
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, TypeGuard

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from falaj.workloads.batch.reading import Chunk
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.protocol.oip import TensorSpec

FORMATS: Final[Mapping[str, str]] = {
    ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".parquet": "parquet",
}  # fmt: skip
ROW: Final = "row"
FILE: Final = "file"
#: What spreadsheets take for a formula, in full width too; a number may begin with a sign.
#: https://owasp.org/www-community/attacks/CSV_Injection
_FORMULA: Final = re.compile("[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_NUMBER: Final = re.compile(r"[+-]?(\d[\d., ']*|\.\d+)([eE][+-]?\d+)?%?")
_ARROW: Final[Mapping[str, pa.DataType]] = {
    "i": pa.int64(), "u": pa.uint64(), "f": pa.float64(), "b": pa.bool_(), "O": pa.string(),
}  # fmt: skip


class Writes(Protocol):
    """What takes the bytes of a result."""

    def write(self, data: bytes, /) -> int:
        """Take some."""
        ...


def format_of(path: Path) -> str:
    """``csv``, ``jsonl`` or ``parquet``, by a file's extension.

    Raises:
        WorkloadError: it is another one.
    """
    found = FORMATS.get(path.suffix.lower())
    if found is None:
        raise WorkloadError(
            f"the output {path} has the extension {path.suffix or '(none)'!r}: allowed are "
            f"{', '.join(FORMATS)}"
        )
    return found


@dataclass(frozen=True)
class Answered:
    """One output of the model, and the columns that it becomes."""

    spec: TensorSpec
    columns: tuple[str, ...]
    classes: tuple[str, ...] = ()
    """Names of what it numbers; none where it says values."""


@dataclass(frozen=True)
class Layout:
    """The columns of the results: the row's number, what is kept of it, and the answers.

    Attributes:
        row: what the column of the rows' numbers is called.
        file: likewise of the files' names; "" where there is one file.
        kept: columns of the input.
        answered: the model's outputs.
    """

    row: str
    file: str
    kept: tuple[str, ...]
    answered: tuple[Answered, ...]

    @property
    def columns(self) -> list[str]:
        """All names, in order."""
        answers = [name for each in self.answered for name in each.columns]
        return [*filter(None, (self.file,)), self.row, *self.kept, *answers]

    def table(
        self, name: str, chunk: Chunk, good: Sequence[int], answers: Sequence[Any]
    ) -> list[Any]:
        """The columns' values for the good rows of a chunk: lists, or arrays of numbers.

        Args:
            name: the file's.
            chunk: its rows.
            good: positions of those that were predicted.
            answers: the model's outputs for these.
        """
        rows = [chunk.rows[index] for index in good]
        files = [[name] * len(rows)] if self.file else []
        kept = [[chunk.columns[each][index] for index in good] for each in self.kept]
        found: list[Any] = [*files, rows, *kept]
        for answered, values in zip(self.answered, answers, strict=True):
            array = np.asarray(values)
            if array.shape[:1] != (len(rows),):
                raise WorkloadError(
                    f"the model answered {len(rows):,} rows with an output "
                    f"{answered.spec.name!r} of the shape {list(array.shape)}: it doesn't answer "
                    "row by row"
                )
            array = array.reshape(len(rows), -1)
            if answered.classes:
                found.append([answered.classes[int(number)] for number in array[:, 0]])
            else:
                found += [np.ascontiguousarray(array[:, i]) for i in range(array.shape[1])]
        return found


def layout_of(
    outputs: Sequence[TensorSpec], manifest: Mapping[str, Any], kept: Sequence[str], *, files: bool
) -> Layout:
    """The results' columns for a model.

    Args:
        outputs: of the model.
        manifest: of its package: roles of outputs, names of classes.
        kept: columns of the input that go along.
        files: whether there is more than one file.

    Raises:
        WorkloadError: an output has more than one free size.
    """
    roles = {each.get("name"): each.get("role") for each in manifest.get("outputs") or ()}
    classes = tuple(map(str, manifest.get("classes") or ()))
    taken = set(kept)
    answered: list[Answered] = []
    for spec in outputs:
        if -1 in spec.shape[1:]:
            raise WorkloadError(
                f"the model's output {spec.name!r} has the shape {list(spec.shape)}: only models "
                "whose first size alone is free (-1) answer files of rows"
            )
        width = math.prod(spec.shape[1:])
        named = spec.name
        if width == 1:
            columns = [named]
        elif roles.get(spec.name) == "probabilities" and len(classes) == width:
            columns = [f"probability_{name}" for name in classes]
        else:
            columns = [f"{named}_{index}" for index in range(width)]
        columns = [_free(each, taken, "predicted_") for each in columns]
        numbered = roles.get(spec.name) == "label" and spec.dtype.kind in "iu"
        answered.append(Answered(spec, tuple(columns), classes if numbered else ()))
    row = _free(ROW, taken, "input_")
    file = _free(FILE, taken, "input_") if files else ""
    return Layout(row, file, tuple(kept), tuple(answered))


def _free(name: str, taken: set[str], prefix: str) -> str:
    while name in taken:
        name = prefix + name
    taken.add(name)
    return name


class Encoder:
    """Turns tables into a part's bytes, and parts into a file.

    Args:
        kind: ``csv``, ``jsonl`` or ``parquet``.
        layout: the columns.
        escape: whether text in a CSV that a spreadsheet would take for a formula gets "'" before.
    """

    def __init__(self, kind: str, layout: Layout, *, escape: bool) -> None:
        self.kind = kind
        self._layout = layout
        self._escape = escape and kind == "csv"
        self.escaped = 0

    def encode(self, table: Sequence[Any]) -> bytes:
        """The bytes of some rows. Parquet's are Arrow's stream until the parts become one file."""
        if self.kind == "parquet":
            sink = io.BytesIO()
            batch = self._batch(table)
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            return sink.getvalue()
        if self.kind == "jsonl":
            names = self._layout.columns
            columns = [_plain(each) for each in table]
            rows = zip(*columns, strict=True)
            lines = (orjson.dumps(dict(zip(names, row, strict=True))) for row in rows)
            return b"".join(line + b"\n" for line in lines)
        columns = [self._written(each) for each in table]
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(zip(*columns, strict=True))
        return text.getvalue().encode()

    def join(self, parts: Iterable[bytes], target: Writes) -> None:
        """Write a whole file of the parts' bytes."""
        if self.kind == "parquet":
            self._join_parquet(parts, target)
            return
        if self.kind == "csv":
            text = io.StringIO()
            writer = csv.writer(text, lineterminator="\n")
            writer.writerow([self._safe(name) for name in self._layout.columns])
            target.write(text.getvalue().encode())
        for part in parts:
            target.write(part)

    def _join_parquet(self, parts: Iterable[bytes], target: Writes) -> None:
        sink = pa.PythonFile(_Forward(target), mode="w")
        with pq.ParquetWriter(sink, self._schema(), compression="zstd") as writer:
            for part in parts:
                source = pa.BufferReader(part)
                batches: list[Any] = []
                while source.tell() < len(part):
                    batches += list(pa.ipc.open_stream(source))
                if batches:
                    table = pa.Table.from_batches(batches)
                    writer.write_table(table, row_group_size=max(1, table.num_rows))

    def _schema(self) -> Any:
        layout = self._layout
        before = [(layout.file, pa.string())] if layout.file else []
        kept = [(name, pa.string()) for name in layout.kept]
        answers = [
            (name, pa.string() if each.classes else _arrow_type(each.spec))
            for each in layout.answered
            for name in each.columns
        ]
        return pa.schema([*before, (layout.row, pa.int64()), *kept, *answers])

    def _batch(self, table: Sequence[Any]) -> Any:
        schema = self._schema()
        kept = set(self._layout.kept)
        arrays = [
            pa.array(
                [_text(v) for v in values] if field.name in kept else _fitting(values, field.type),
                field.type,
            )
            for field, values in zip(schema, table, strict=True)
        ]
        return pa.record_batch(arrays, schema=schema)

    def _written(self, values: Any) -> list[Any]:
        """Texts of a column; numbers as short as they can be read back."""
        if _is_array(values) and values.dtype.kind in "fiub":
            return _figures(values)
        return [self._safe(_text(value)) for value in values]

    def _safe(self, text: str | None) -> str:
        if not text:
            return ""
        if self._escape and _FORMULA.match(text) and not _NUMBER.fullmatch(text):
            self.escaped += 1
            return "'" + text
        return text


class _Forward(io.RawIOBase):
    """A file for Arrow, which asks for more than to write."""

    def __init__(self, target: Writes) -> None:
        self._target = target
        self._place = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._target.write(bytes(data))
        self._place += len(data)
        return len(data)

    def tell(self) -> int:
        return self._place


def _is_array(values: object) -> TypeGuard[NDArray[Any]]:
    return isinstance(values, np.ndarray)


def _fitting(values: Any, kind: Any) -> Any:
    """Arrow takes no half floats for others."""
    if _is_array(values) and values.dtype == np.float16:
        return values.astype(kind.to_pandas_dtype())
    return values


def _arrow_type(spec: TensorSpec) -> Any:
    kind = spec.dtype.kind
    return pa.float32() if spec.datatype == "FP32" else _ARROW[kind]


def _figures(values: NDArray[Any]) -> list[str]:
    data = values.astype(np.float32) if values.dtype == np.float16 else values
    text = orjson.dumps(np.ascontiguousarray(data), option=orjson.OPT_SERIALIZE_NUMPY)
    inner = text[1:-1].decode()
    # JSON has no NaN: a cell without a number is empty.
    return ["" if each == "null" else each for each in inner.split(",")] if inner else []


def _plain(values: Any) -> list[Any]:
    """Values that orjson takes; floats of 32 bits as short as they can be read back."""
    if _is_array(values):
        if values.dtype.kind == "f":
            return [float(each) if each else None for each in _figures(values)]
        return values.tolist()
    return [
        each if each is None or isinstance(each, str | int | float | bool | list) else _text(each)
        for each in values
    ]


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    if isinstance(value, bool | list | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "" if isinstance(value, float) and math.isnan(value) else str(value)
