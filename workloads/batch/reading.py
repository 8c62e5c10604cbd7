"""Input of a batch: CSV, JSON lines, Parquet and dataset snapshots, read chunk by chunk.

A chunk is what is in memory at a time. Where chunks begin depends on the content alone, so that a
run that goes on finds the same ones.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from falaj.workloads.documents import is_dictionary, is_sequence
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import fingerprint
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import snapshot
from falaj.workloads.training.header import (
    names_of,
    not_parquet,
    odd_quotes,
    read_beginning,
    read_header,
    refuse_damaged,
)

CHUNK_ROWS: Final = 4_096
_CHUNK_CHARACTERS: Final = 4 << 20
LONGEST_LINE: Final = 16 << 20
"""Bytes or letters; also of one value."""
SUFFIXES: Final = (".csv", ".jsonl", ".ndjson", ".parquet")
_SHOWN_CHARACTERS: Final = 1_000
_BLOCK: Final = 1 << 20

# Arrow makes these functions at import time and ships no types.
_compute: Any = pyarrow.compute


@dataclass(frozen=True)
class BadRow:
    """A row that can't be predicted.

    Attributes:
        row: its number in the file, from 1; the header isn't counted.
        line: where it begins in the file, from 1; None where the format has no lines.
        reason: why, in words.
        values: what it holds, as JSON can say it.
    """

    row: int
    line: int | None
    reason: str
    values: Any


@dataclass
class Chunk:
    """Some rows of one file.

    Attributes:
        count: how many rows of the file it covers, bad ones too.
        rows: numbers of the rows in ``columns``, from 1.
        lines: where they begin; empty where the format has no lines.
        columns: their values by column: text of a CSV, else what JSON or Parquet holds.
        bad: rows that have no columns.
    """

    count: int = 0
    rows: list[int] = field(default_factory=list[int])
    lines: list[int] = field(default_factory=list[int])
    columns: dict[str, Sequence[Any]] = field(default_factory=dict[str, Sequence[Any]])
    bad: list[BadRow] = field(default_factory=list[BadRow])

    def refused(self, index: int, reason: str) -> BadRow:
        """The row at ``index``, as one that can't be predicted."""
        values = {name: _jsonable(each[index]) for name, each in self.columns.items()}
        line = self.lines[index] if self.lines else None
        return BadRow(self.rows[index], line, reason, values)


def _jsonable(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return cast("Any", value).tolist()
    plain = value is None or isinstance(value, str | int | float) or is_sequence(value)
    return value if plain else str(value)


class Source(ABC):
    """One file, or one snapshot.

    Args:
        path: where it is.
        name: what results call it: its path below what was given.
    """

    sealed = False
    """Whether it is encrypted where it lies."""

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.name = name
        self.digest = ""
        self.chunk_rows = CHUNK_ROWS
        """Most rows of a chunk."""
        self._seen = fingerprint(path)

    @abstractmethod
    def header(self) -> list[str] | None:
        """Names of its columns; None where it has no row that says them.

        Raises:
            WorkloadError: it can't be read.
        """

    @abstractmethod
    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Its rows with these columns. At the end ``digest`` is the SHA-256 of the file.

        Raises:
            WorkloadError: it can't be read further.
        """

    def check_unchanged(self) -> None:
        """Refuse a file that somebody writes to.

        Raises:
            WorkloadError: it isn't the file that it was when it was first looked at.
        """
        if fingerprint(self.path) != self._seen:
            raise self.changed()

    def changed(self) -> WorkloadError:
        """The refusal of a file that changed."""
        return WorkloadError(
            f"{self.path} changed while it was read: run again once it is complete, best on a "
            "copy that nobody writes to"
        )


class _Hashing(io.RawIOBase):
    """A file whose bytes are counted into a digest as they are read."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb", buffering=0)
        self.state = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer)
        self.state.update(memoryview(buffer)[:count])
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


class CsvSource(Source):
    """A CSV, in the forms that training takes: any usual separator, encoding and end of lines."""

    def __init__(self, path: Path, name: str, encoding: str | None = None) -> None:
        super().__init__(path, name)
        text, self._encoding = read_beginning(path, encoding)
        if not text.strip():
            raise WorkloadError(f"{path} is empty: it needs a header line and rows")
        self._names, self._delimiter = names_of(text, path)

    def header(self) -> list[str]:
        """Names of its columns."""
        return self._names

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Its rows, chunk by chunk."""
        positions = [self._names.index(name) for name in columns]
        width, size = len(self._names), 0
        chunk, cells = Chunk(), list[list[str]]()
        csv.field_size_limit(LONGEST_LINE)

        def flush() -> Chunk:
            by_column = list(zip(*cells, strict=True)) if cells else [()] * width
            chunk.columns = {
                name: list(by_column[position])
                for name, position in zip(columns, positions, strict=True)
            }
            return chunk

        for row, (line, values) in enumerate(self._rows(), 1):
            chunk.count += 1
            size += sum(map(len, values))
            if len(values) == width:
                chunk.rows.append(row)
                chunk.lines.append(line)
                cells.append(values)
            else:
                reason = (
                    f"it has {len(values)} values, the header has {width} (separated by "
                    f"{self._delimiter!r}; a value that holds it must be quoted)"
                )
                shown = [value[:_SHOWN_CHARACTERS] for value in values[: width + 1]]
                chunk.bad.append(BadRow(row, line, reason, shown))
            if chunk.count >= self.chunk_rows or size >= _CHUNK_CHARACTERS:
                yield flush()
                chunk, cells, size = Chunk(), [], 0
        if chunk.count:
            yield flush()

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        """Rows behind the header, each with the number of the line that it begins in."""
        raw = _Hashing(self.path)
        with io.TextIOWrapper(
            io.BufferedReader(raw, _BLOCK), encoding=self._encoding, newline=""
        ) as text:
            lines = _Lines(text, self.path)
            reader = csv.reader(lines, delimiter=self._delimiter)
            started, before = False, 0
            try:
                for values in reader:
                    begun, before = before + 1, reader.line_num
                    if not values:
                        continue
                    if started:
                        yield begun, values
                    started = True
            except csv.Error as error:
                raise WorkloadError(
                    f"{self.path}, line {before + 1:,} and following: {error}; a quotation mark "
                    'that is never closed does that. Inside a quoted value write "" for "'
                ) from error
            except UnicodeError as error:
                raise self._undecodable(error) from None
        if lines.quotes % 2:
            raise odd_quotes(self.path, lines.last_quote)
        self.digest = raw.state.hexdigest()

    def _undecodable(self, error: UnicodeError) -> WorkloadError:
        """Where the file isn't of its encoding; it is read again for that."""
        decoder = codecs.getincrementaldecoder(self._encoding)()
        line, place = 1, ""
        with self.path.open("rb") as file:
            while block := file.read(_BLOCK):
                try:
                    line += decoder.decode(block).count("\n")
                except UnicodeDecodeError as found:
                    # With what was left of the block before, so a line may begin in it.
                    line += found.object.count(b"\n", 0, found.start)
                    place = f": byte 0x{found.object[found.start]:02x} in line {line:,} is invalid"
                    break
        return WorkloadError(
            f"{self.path} is not {self._encoding}{place or f': {error}'}; save the file as UTF-8, "
            "or name its encoding (--encoding windows-1256, for instance)"
        )


class _Lines:
    """Lines of a text of bounded length; counts quotation marks."""

    def __init__(self, text: io.TextIOWrapper, path: Path) -> None:
        self._text = text
        self._path = path
        self._number = 0
        self.quotes = 0
        self.last_quote = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(LONGEST_LINE + 1):
            self._number += 1
            if self._number == 1:
                line = line.removeprefix("\ufeff")
            if len(line) > LONGEST_LINE:
                raise too_long(self._path, self._number)
            if "\0" in line:
                raise WorkloadError(
                    f"{self._path} holds a NUL character in line {self._number:,}: it is not a "
                    "text file, or its encoding is another (--encoding utf-16, for instance)"
                )
            if '"' in line:
                self.quotes += line.count('"')
                self.last_quote = self._number
            yield line


def too_long(path: Path, line: int) -> WorkloadError:
    """The refusal of a line that would take too much memory."""
    return WorkloadError(
        f"{path}, line {line:,} is longer than {LONGEST_LINE:,}: rows have a line each"
    )


class JsonLinesSource(Source):
    """One JSON object a line, in UTF-8."""

    def header(self) -> list[str] | None:
        """Keys of its first object; None where no line is one."""
        for chunk in self.chunks(()):
            if chunk.columns:
                return list(chunk.columns)
        return None

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Its rows, chunk by chunk."""
        chunk, objects, size = Chunk(), list[dict[str, Any]](), 0

        def flush() -> Chunk:
            # Without columns asked for, those of the first row tell the header.
            names = columns or (list(objects[0]) if objects else ())
            chunk.columns = {name: [each.get(name) for each in objects] for name in names}
            return chunk

        for row, (line, text) in enumerate(self._lines(), 1):
            chunk.count += 1
            size += len(text)
            found = _object(text, columns)
            if isinstance(found, str):
                shown = text[:_SHOWN_CHARACTERS].decode("utf-8", "replace")
                chunk.bad.append(BadRow(row, line, found, shown))
            else:
                chunk.rows.append(row)
                chunk.lines.append(line)
                objects.append(found)
            if chunk.count >= self.chunk_rows or size >= _CHUNK_CHARACTERS:
                yield flush()
                chunk, objects, size = Chunk(), [], 0
        if chunk.count:
            yield flush()

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        raw = _Hashing(self.path)
        number = 0
        with io.BufferedReader(raw, _BLOCK) as file:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise too_long(self.path, number)
                if number == 1:
                    line = line.removeprefix(codecs.BOM_UTF8)
                if line := line.strip():
                    yield number, line
        self.digest = raw.state.hexdigest()


def _object(text: bytes, columns: Sequence[str]) -> dict[str, Any] | str:
    """The object of a line, or why it can't be used."""
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return f"it isn't JSON in UTF-8: {error}"
    if not is_dictionary(found):
        return "it isn't a JSON object: write one object a line, with the columns as its keys"
    lacking = [name for name in columns if name not in found]
    if lacking:
        return f"it lacks {', '.join(map(repr, lacking))}; write null for a missing value"
    return found


class ParquetSource(Source):
    """A Parquet file."""

    def header(self) -> list[str]:
        """Names of its columns."""
        try:
            return read_header(self.path)
        except OSError as error:
            raise not_parquet(self.path, error) from error

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Its rows, chunk by chunk."""
        row = 0
        try:
            with pq.ParquetFile(self.path, pre_buffer=False) as file:
                batches = file.iter_batches(
                    batch_size=self.chunk_rows, columns=list(columns), use_threads=False
                )
                for batch in batches:
                    chunk = Chunk(batch.num_rows, list(range(row + 1, row + batch.num_rows + 1)))
                    chunk.columns = {
                        name: _values(
                            batch.column(name),
                            f"the column {name!r} of {self.path} behind row {row:,}",
                        )
                        for name in columns
                    }
                    row += batch.num_rows
                    yield chunk
        except (pa.ArrowException, OSError) as error:
            raise not_parquet(self.path, error) from error
        with self.path.open("rb") as whole:
            self.digest = hashlib.file_digest(whole, "sha256").hexdigest()


def _values(column: Any, what: str) -> list[Any]:
    refuse_damaged(column, what)
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    kind = column.type
    if pa.types.is_timestamp(kind):
        # Python's have no nanoseconds.
        column = _compute.cast(column, pa.timestamp("us", kind.tz), safe=False)
    try:
        return column.to_pylist()
    except (ValueError, LookupError, OverflowError) as error:
        raise WorkloadError(f"{what} has a value of type {kind} that is none: {error}") from error


class SnapshotSource(Source):
    """A dataset snapshot: all of its rows, in the order that they are stored in."""

    def __init__(self, path: Path, name: str, keyring: KeyRing | None) -> None:
        super().__init__(path / snapshot.DESCRIPTION, name)
        dataset = snapshot.require_whole(snapshot.open_dataset(path, keyring), "a batch")
        self.sealed = dataset.description.get("sealed") is True
        self.digest = dataset.digest
        self._columns: dict[str, Any] = dict(dataset.inputs)
        labels = dataset.labels
        if dataset.classes is not None:
            labels = np.asarray(dataset.classes, dtype=object)[labels]
        self._columns[str(dataset.description["target"])] = labels
        self._rows = len(labels)

    def header(self) -> list[str]:
        """Names of its columns."""
        return list(self._columns)

    def chunks(self, columns: Sequence[str]) -> Iterator[Chunk]:
        """Its rows, chunk by chunk."""
        for start in range(0, self._rows, self.chunk_rows):
            end = min(start + self.chunk_rows, self._rows)
            chunk = Chunk(end - start, list(range(start + 1, end + 1)))
            chunk.columns = {name: self._columns[name][start:end].tolist() for name in columns}
            yield chunk


def open_sources(
    given: Sequence[Path], encoding: str | None, keyring: KeyRing | None
) -> tuple[list[Source], int]:
    """Everything that is to be read, in order; and how many files of folders are of other kinds.

    Args:
        given: files, snapshots, and folders of files, which are gone through in order of names.
            Names that begin with "." or "_" are left out, as other programs' notes are.
        encoding: of CSV files; None means UTF-8, or what the byte order mark says.
        keyring: opens sealed snapshots.

    Raises:
        WorkloadError: something is missing, can't be read, is a link in a folder, or of a kind
            that isn't read.
    """
    sources: list[Source] = []
    others = 0
    for path in given:
        if "://" in str(path) or ":/" in str(path):
            raise WorkloadError(
                f"{path} is an address: files and folders are read. Mount the bucket, or fetch "
                "what is below the prefix into a folder, and give that"
            )
        if (path / snapshot.DESCRIPTION).is_file():
            sources.append(SnapshotSource(path, path.name, keyring))
        elif path.is_dir():
            found = [each for each in sorted(path.rglob("*")) if not _is_note(path, each)]
            _refuse_links(found)
            files = [each for each in found if each.is_file()]
            read = [each for each in files if each.suffix.lower() in SUFFIXES]
            if not read:
                raise WorkloadError(f"{path} holds no file of the kinds {', '.join(SUFFIXES)}")
            others += len(files) - len(read)
            sources += [_open(each, str(each.relative_to(path)), encoding) for each in read]
        else:
            sources.append(_open(path, path.name, encoding))
    return sources, others


def _is_note(folder: Path, path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)


def _refuse_links(found: Sequence[Path]) -> None:
    for path in found:
        if path.is_symlink():
            raise WorkloadError(
                f"{path} is a symbolic link: of a folder only its own files are read. Give what "
                "it points to by itself, or remove the link"
            )


def _open(path: Path, name: str, encoding: str | None) -> Source:
    kinds = ", ".join(SUFFIXES)
    suffix = path.suffix.lower()
    try:
        found = path.stat()
        if suffix not in SUFFIXES:
            raise WorkloadError(
                f"{path} has the extension {suffix or '(none)'!r}; read are {kinds}, folders of "
                "them, and dataset snapshots"
            )
        if not stat.S_ISREG(found.st_mode):
            raise WorkloadError(f"{path} isn't an ordinary file: write its rows to one first")
        if found.st_size == 0:
            raise WorkloadError(f"{path} is empty: it needs rows")
        if suffix == ".csv":
            return CsvSource(path, name, encoding)
        return ParquetSource(path, name) if suffix == ".parquet" else JsonLinesSource(path, name)
    except OSError as error:
        raise WorkloadError(f"cannot read {path}: {error.strerror or error}") from error
