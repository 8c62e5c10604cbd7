"""One run: survey the input, go on behind what was done, and put the parts together."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import orjson

from falaj.workloads.batch.columns import Input, Numbers, Refusals, check_columns
from falaj.workloads.batch.parts import FORMAT, Done, Parts
from falaj.workloads.batch.reading import (
    CHUNK_ROWS,
    BadRow,
    Chunk,
    SnapshotSource,
    Source,
    open_sources,
)
from falaj.workloads.batch.results import Encoder, Layout, Writes, format_of, layout_of
from falaj.workloads.bounds import DECIMALS
from falaj.workloads.documents import is_dictionary, mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import (
    make_missing_folders,
    read_json,
    replacing,
    shred,
    storage_errors,
    write_json_atomic,
)
from falaj.workloads.inference.models import model as inference_model
from falaj.workloads.inference.models.model import MODEL_FILE, Model
from falaj.workloads.inference.protocol.oip import Inference, TensorSpec
from falaj.workloads.inference.settings import Limits
from falaj.workloads.registry.keyring import KeyRing, VerifyKey
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.sealed import SUFFIX as SEALED
from falaj.workloads.registry.sealed import artifact_path, sealing, unsealed_chunks
from falaj.workloads.registry.store import Store
from falaj.workloads.training.numerals import Mark, most_used
from falaj.workloads.training.record import LANGUAGE

PART_ROWS: Final = 65_536
PART_BYTES: Final = 8 << 20
"""A part ends with the chunk that brings it to one of both."""
_RUN_VALUES: Final = 1 << 22
"""Values of the inputs that the model is given at once."""
_SHOWN: Final = 10
RECORD: Final = ".json"
BAD_ROWS: Final = ".bad-rows.jsonl"
SEALED_CLASS: Final = "restricted"
"""Of this class nothing is written plain."""


class StoppedError(Exception):
    """The run was asked to stop; what it has done is kept."""


@dataclass(frozen=True)
class Request:
    """What a run is to do.

    Attributes:
        inputs: files, folders and dataset snapshots.
        output: what to write, .csv, .jsonl or .parquet; sealed it gets ``.sealed`` behind.
        registry: folder of the registry of packages.
        model: the model's name there.
        version: of the model; None takes what the alias stands for.
        alias: such as ``production``.
        keyring: opens the package, and seals the output.
        package_keyring: opens the package in its stead; None: that one does.
        verify_key: of who signed the package; None takes that of what opens it.
        keep: columns of the input that go along; ``*`` is all of them.
        encoding: of CSV files; None means UTF-8, or what the byte order mark says.
        decimal: ``point`` or ``comma``; None tells it by each column.
        plain: whether the output isn't sealed.
        skip_bad_rows: whether rows that can't be predicted go to a file beside, with the reasons.
        raw_text: whether text of a CSV that a spreadsheet would run stays as it is.
        threads: of the runtime.
        shard: which of how many equal shares of the rows is predicted, from 0.
        restart: whether what an earlier run has done is thrown away.
        overwrite: whether an output that is there is replaced.
    """

    inputs: tuple[Path, ...]
    output: Path
    registry: Path
    model: str
    keyring: KeyRing
    version: int | None = None
    alias: str = "production"
    package_keyring: KeyRing | None = None
    verify_key: VerifyKey | None = None
    keep: tuple[str, ...] = ()
    encoding: str | None = None
    decimal: str | None = None
    plain: bool = False
    skip_bad_rows: bool = False
    raw_text: bool = False
    threads: int = 1
    shard: tuple[int, int] = (0, 1)
    restart: bool = False
    overwrite: bool = False

    @property
    def seals(self) -> KeyRing | None:
        """The key ring that seals the output; None where it is plain."""
        return None if self.plain else self.keyring


Tell = Callable[[str, int, int], None]
"""Shows how far a run is: what it does, rows done, rows in all (0: not known yet)."""


@dataclass
class _Surveyed:
    """One source, as the survey has left it."""

    source: Source
    header: list[str] | None
    inputs: list[Input]
    columns: list[str]
    chunks: int = 0
    rows: int = 0
    digest: str = ""


class Batch:
    """A run, checked as far as that goes without reading rows.

    Raises:
        WorkloadError: the package isn't what was signed, the input doesn't fit it, or the output
            can't be where it should.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self._format = format_of(request.output)
        _check_output(request)
        self.package = open_package(request)
        manifest = self.package.manifest
        if manifest.get("task") == LANGUAGE:
            raise WorkloadError(
                f"{self.package.model} is a language model: it continues texts, and there are no "
                "rows of a file to predict. Ask its server at /v1/completions"
            )
        self._model = load_model(self.package, request.threads)
        schema = self._model.schema
        sources, self.others = open_sources(request.inputs, request.encoding, request.keyring)
        self._check_sealed(sources)
        # What people read of a run goes to terminals and to logs, which nobody seals.
        self._shows = manifest.get("data_class") != SEALED_CLASS and not any(
            each.sealed for each in sources
        )
        headers = [each.header() for each in sources]
        self._kept = self._keep(sources, headers)
        self._sources = [
            self._prepared(source, header) for source, header in zip(sources, headers, strict=True)
        ]
        self.beside = sorted({name for each in self._sources for name in self._beside(each)})
        self._layout: Layout = layout_of(
            list(schema.outputs.values()), manifest, self._kept, files=len(sources) > 1
        )
        self._width = sum(each.width for each in self._sources[0].inputs)
        for each in self._sources:
            each.source.chunk_rows = max(1, min(CHUNK_ROWS, _RUN_VALUES // self._width))
        self._bad: list[str] = []
        self.bad_rows = 0

    @property
    def rows(self) -> int:
        """Rows of all sources, once they were surveyed."""
        return sum(each.rows for each in self._sources)

    @property
    def columns(self) -> list[str]:
        """Names of the results' columns."""
        return self._layout.columns

    @property
    def path(self) -> Path:
        """The file that is written."""
        return artifact_path(self._request.output, self._request.seals)

    def _check_sealed(self, sources: Sequence[Source]) -> None:
        if not self._request.plain:
            return
        reason = ""
        if self.package.manifest.get("data_class") == SEALED_CLASS:
            reason = f"the model was made from data of class {SEALED_CLASS!r}"
        for source in sources:
            if source.sealed:
                reason = f"{source.name} is sealed"
        if reason:
            raise WorkloadError(
                f"--plain: {reason}, so its predictions are sealed as well: leave it away"
            )

    def _keep(
        self, sources: Sequence[Source], headers: Sequence[list[str] | None]
    ) -> tuple[str, ...]:
        asked = self._request.keep
        if "*" in asked:
            asked = tuple(name for name in headers[0] or () if name)
        for source, header in zip(sources, headers, strict=True):
            missing = [name for name in asked if header is not None and name not in header]
            if missing:
                has = ", ".join(map(repr, (header or ())[:20]))
                raise WorkloadError(
                    f"--keep: {source.name} has no column {', '.join(map(repr, missing))}; it "
                    f"has {has}"
                )
        return tuple(dict.fromkeys(asked))

    def _prepared(self, source: Source, header: list[str] | None) -> _Surveyed:
        decimal = self._request.decimal
        mark: Mark | None = DECIMALS[decimal] if decimal is not None else None
        # A snapshot's texts were read once; its numbers are some.
        mark = "." if isinstance(source, SnapshotSource) else mark
        specs = self._model.schema.inputs.values()
        learned = mapping(self.package.manifest.get("dataset"))
        forms = {each.get("name"): each.get("form") for each in learned.get("features") or ()}
        inputs = [
            Input(spec, header, mark, shows=self._shows, form=forms.get(spec.name))
            for spec in specs
        ]
        if header is not None:
            check_columns(source.name, header, inputs)
        wanted = [name for each in inputs for name in each.columns]
        return _Surveyed(source, header, inputs, list(dict.fromkeys([*wanted, *self._kept])))

    def _beside(self, each: _Surveyed) -> list[str]:
        return [name for name in each.header or () if name not in each.columns]

    def survey(self, tell: Tell, stop: Callable[[], bool]) -> None:
        """Read all rows once: count them, tell decimal marks apart, find what can't be used.

        Raises:
            WorkloadError: there are bad rows and they aren't to be skipped, or no rows.
            StoppedError: asked to.
        """
        read = 0
        for each in self._sources:
            for chunk in each.source.chunks(each.columns):
                _stop_if(stop)
                refused: Refusals = {}
                for one in each.inputs:
                    refused |= one.survey(chunk.columns)
                for bad in self._all_bad(chunk, refused):
                    self._note(each.source, bad)
                each.chunks += 1
                each.rows += chunk.count
                read += chunk.count
                tell("checking", read, 0)
            each.digest = each.source.digest
            each.source.check_unchanged()
            self._settle(each)
        if self.bad_rows and not self._request.skip_bad_rows:
            raise self._refusal()
        if not self.rows:
            raise WorkloadError("there are no rows to predict: the input has headers alone")

    def _settle(self, each: _Surveyed) -> None:
        numbers = [column for one in each.inputs for column in one.numbers]
        clear = _clear_marks(numbers)
        if not clear and any(column.is_open for column in numbers):
            clear = self._told_by_others(each)
        most = most_used(clear)
        for settle in (*(partial(one.settle, most) for one in numbers),
                       *(one.settle for one in each.inputs)):  # fmt: skip
            try:
                settle()
            except WorkloadError as error:
                raise WorkloadError(f"{each.source.name}: {error}") from error

    def _told_by_others(self, each: _Surveyed) -> Counter[Mark]:
        """Decimal marks of the columns that aren't the model's, which training counts as well."""
        taken = {column.name for one in each.inputs for column in one.numbers}
        names = [name for name in each.header or () if name and name not in taken]
        number = TensorSpec("", "FP64", (-1, 1), missing=True)
        others = {name: Numbers(name, number, None) for name in names}
        for chunk in each.source.chunks(names) if names else ():
            for name in list(others):
                if others[name].survey(chunk.columns[name]):
                    del others[name]  # texts
        return _clear_marks(others.values())

    @staticmethod
    def _all_bad(chunk: Chunk, refused: Refusals) -> list[BadRow]:
        found = [chunk.refused(index, reason) for index, reason in refused.items()]
        return sorted([*chunk.bad, *found], key=lambda bad: bad.row)

    def _note(self, source: Source, bad: BadRow) -> None:
        self.bad_rows += 1
        if len(self._bad) < _SHOWN:
            place = f"row {bad.row:,}" if bad.line is None else f"line {bad.line:,}"
            self._bad.append(f"{source.name}, {place}: {bad.reason}")

    def _refusal(self) -> WorkloadError:
        shown = "\n  ".join(self._bad)
        more = self.bad_rows - len(self._bad)
        rest = f"\n  … and {more:,} more" if more else ""
        return WorkloadError(
            f"{self.bad_rows:,} of {self.rows:,} rows can't be predicted, and nothing was written:"
            f"\n  {shown}{rest}\nmend them, or give --skip-bad-rows, which writes them to a file "
            "beside the output with the reasons"
        )

    def job(self) -> dict[str, Any]:
        """What decides the results, once the input was surveyed."""
        request = self._request
        return {
            "input": [
                {"name": each.source.name, "sha256": each.digest, "rows": each.rows}
                for each in self._sources
            ],
            "model": {
                "name": self.package.model,
                "version": self.package.version,
                "digest": self.package.digest,
            },
            "options": {
                "columns": self.columns,
                "format": self._format,
                "encoding": request.encoding,
                "decimal": request.decimal,
                "skip_bad_rows": request.skip_bad_rows,
                "raw_text": request.raw_text,
                "sealed": not request.plain,
                "shard": list(request.shard),
            },
        }

    def run(
        self, tell: Tell, stop: Callable[[], bool], say: Callable[[str], None]
    ) -> dict[str, Any]:
        """Predict what isn't done, write the output, and return its record.

        Args:
            tell: is told how far it is.
            stop: whether it is to end.
            say: is told what of an earlier run can't be used.

        Raises:
            WorkloadError: the input changed, a row can't be predicted, no space, or an output of
                something else is there.
            StoppedError: asked to; the next run goes on.
        """
        request = self._request
        job = self.job()
        parts = Parts(request.output, job, request.seals, say)
        if (done := self._done(parts)) is not None:
            parts.sweep()
            return done
        # Who goes on may write what the run before it would have written, and nobody else.
        if not parts.folder.exists() or (request.restart and not parts.is_begun()):
            self._require_free()
        with storage_errors(request.output.parent):
            make_missing_folders(request.output.parent)
        with parts.opened(anew=request.restart, replace=request.overwrite):
            if not parts.went_on:
                # Another run may have come to its end since it was looked.
                try:
                    if (done := self._done(parts)) is None:
                        self._require_free()
                except WorkloadError:
                    parts.discard()
                    raise
                if done is not None:
                    parts.discard()
                    return done
            before = sum(each.rows + each.bad for each in parts.done)
            self._predict(parts, tell, stop)
            tell("writing the output", self.rows, self.rows)
            record = self._finish(parts, job)
            parts.discard()
        return {**record, "path": str(self.path), "already": False, "resumed_at": before}

    def _done(self, parts: Parts) -> dict[str, Any] | None:
        """What a run of the same job has done; None where none has, or it is to be done anew."""
        record = None if self._request.restart else _existing(self._request, parts.identity)
        return {**record, "path": str(self.path), "already": True} if record is not None else None

    def _require_free(self) -> None:
        there = _twin(self._request) or (self.path if self.path.exists() else None)
        if there is not None and not self._request.overwrite:
            raise WorkloadError(
                f"{there} is there already, of another input, model or options: give "
                "--overwrite, or another --output"
            )

    def _predict(self, parts: Parts, tell: Tell, stop: Callable[[], bool]) -> None:
        share, shares = self._request.shard
        chunks = sum(each.chunks for each in self._sources)
        end = chunks * (share + 1) // shares
        begun = parts.done[-1].chunks if parts.done else chunks * share // shares
        part = _Part(begun)
        position = 0
        passed = sum(each.rows + each.bad for each in parts.done)
        for each in self._sources:
            if position + each.chunks <= begun or position >= end:
                position += each.chunks
                continue
            for chunk in each.source.chunks(each.columns):
                position += 1
                if not begun < position <= end:
                    continue
                _stop_if(stop)
                self._answer(each, chunk, part)
                part.chunks = position
                passed += chunk.count
                tell("predicting", passed, self.rows)
                if part.is_full:
                    each.source.check_unchanged()
                    part.keep(parts)
                    part = _Part(position)
            if each.source.digest != each.digest:
                raise each.source.changed()
            each.source.check_unchanged()
        if part.rows or part.bad_rows:
            part.keep(parts)

    def _answer(self, each: _Surveyed, chunk: Chunk, part: _Part) -> None:
        refused: Refusals = {}
        feed: dict[str, Any] = {}
        for one in each.inputs:
            feed[one.spec.name], bad = one.read(chunk.columns)
            refused |= bad
        for bad in self._all_bad(chunk, refused):
            if not self._request.skip_bad_rows:
                self._note(each.source, bad)
                raise self._refusal()
            about = {"file": each.source.name, "row": bad.row, "line": bad.line,
                     "reason": bad.reason, "values": bad.values}  # fmt: skip
            part.bad += orjson.dumps(about, default=str) + b"\n"
            part.bad_rows += 1
        good = [index for index in range(len(chunk.rows)) if index not in refused]
        if refused:
            feed = {name: values[good] for name, values in feed.items()}
        encoder = self._encoder()
        if good:
            answers = self._run(feed, len(good), each.source.name, chunk)
            part.results += encoder.encode(
                self._layout.table(each.source.name, chunk, good, answers)
            )
        part.rows += len(good)
        part.escaped += encoder.escaped

    def _encoder(self) -> Encoder:
        return Encoder(self._format, self._layout, escape=not self._request.raw_text)

    def _run(self, feed: dict[str, Any], rows: int, name: str, chunk: Chunk) -> list[Any]:
        inference = Inference()
        inference.feed = feed
        inference.rows = rows
        try:
            return list(self._model.run(inference))
        except Exception as error:  # the runtime's exceptions share no public base class
            raise WorkloadError(
                f"the model failed on rows {chunk.rows[0]:,} to {chunk.rows[-1]:,} of {name}: "
                f"{error}"
            ) from error

    def _finish(self, parts: Parts, job: dict[str, Any]) -> dict[str, Any]:
        request, identity = self._request, parts.identity
        rows, bad = sum(d.rows for d in parts.done), sum(d.bad for d in parts.done)
        stage = parts.folder
        with _output(request.output, request.seals, context_of(identity), stage) as target:
            counted = _Counted(target)
            self._encoder().join(parts.results(), counted)
        beside = request.output.with_name(request.output.name + BAD_ROWS)
        for stale in (beside, artifact_path(beside, request.keyring), _twin(request)):
            if stale is None:
                continue
            if stale.suffix == SEALED or _is_others_too(stale):
                with storage_errors(stale):
                    stale.unlink(missing_ok=True)
            else:
                shred(stale)
        if bad:
            with _output(beside, request.seals, context_of(identity, BAD_ROWS), stage) as target:
                for each in parts.bad_rows():
                    target.write(each)
        record = {
            "format": FORMAT,
            "identity": identity,
            **job,
            "sealed": not request.plain,
            "rows": rows,
            "bad_rows": bad,
            "escaped": sum(each.escaped for each in parts.done),
            "sha256": counted.state.hexdigest(),
            "size": counted.size,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if bad:
            record["bad_rows_file"] = artifact_path(beside, request.seals).name
        write_json_atomic(record_path(request.output), record, stage=stage)
        return record


def _clear_marks(columns: Iterable[Numbers]) -> Counter[Mark]:
    """In how many columns that have one decimal mark it is which."""
    return Counter(mark for each in columns if len(each.clear) == 1 for mark in each.clear)


class _Part:
    """What is answered and not yet kept."""

    def __init__(self, chunks: int) -> None:
        self.chunks = chunks
        self.rows = 0
        self.bad_rows = 0
        self.escaped = 0
        self.bad = bytearray()
        self.results = bytearray()

    @property
    def is_full(self) -> bool:
        return (
            self.rows + self.bad_rows >= PART_ROWS
            or len(self.results) + len(self.bad) >= PART_BYTES
        )

    def keep(self, parts: Parts) -> None:
        done = Done(self.chunks, self.rows, self.bad_rows, self.escaped)
        parts.add(done, bytes(self.bad), bytes(self.results))


class _Counted:
    """Writes on, with a digest and a count of what was written."""

    def __init__(self, target: Writes) -> None:
        self._target = target
        self.state = hashlib.sha256()
        self.size = 0

    def write(self, data: bytes) -> int:
        self.state.update(data)
        self.size += len(data)
        return self._target.write(data)


@contextlib.contextmanager
def _output(
    path: Path, keyring: KeyRing | None, context: bytes, stage: Path
) -> Generator[Writes, None, None]:
    """A file that is there as a whole when the block has ended, sealed where there is a ring."""
    if keyring is None:
        with replacing(path, stage=stage) as file:
            yield file
    else:
        with sealing(artifact_path(path, keyring), keyring, context, stage=stage) as stream:
            yield stream


def context_of(identity: str, name: str = "") -> bytes:
    """The role that a sealed result is bound to; ``name`` is the ending of files beside it."""
    return f"batch:{identity}:results{name}".encode()


def record_path(output: Path) -> Path:
    """Where the record of an output lies."""
    return output.with_name(output.name + RECORD)


def read_record(output: Path) -> dict[str, Any]:
    """The record beside an output.

    Raises:
        WorkloadError: it is missing, or of another format.
    """
    record = read_json(record_path(output), "the record of the predictions")
    if not is_dictionary(record) or record.get("format") != FORMAT:
        raise WorkloadError(
            f"{record_path(output)} is not a record of the format {FORMAT!r}: make the "
            "predictions again"
        )
    return record


def opened(path: Path, keyring: KeyRing) -> Iterator[bytes]:
    """The content of sealed predictions, or of the bad rows beside them, piece by piece.

    Raises:
        IntegrityError: it isn't what was written.
        WorkloadError: the file or its record is missing.
    """
    plain = path.with_name(path.name.removesuffix(SEALED))
    ending = BAD_ROWS if plain.name.endswith(BAD_ROWS) else ""
    record = read_record(plain.with_name(plain.name.removesuffix(ending)) if ending else plain)
    return unsealed_chunks(path, keyring, context_of(str(record.get("identity")), ending))


def _twin(request: Request) -> Path | None:
    """The output that the record is of, where one is plain and the new one not."""
    try:
        sealed = read_record(request.output).get("sealed") is True
    except WorkloadError:
        return None
    path = artifact_path(request.output, request.keyring if sealed else None)
    return path if sealed == request.plain and path.exists() else None


def _is_others_too(path: Path) -> bool:
    """Whether a file isn't one's own to shred.

    It has hard links, as copies of backups are, which would be shredded as well; or it is another
    user's in a shared folder, who alone may write it.
    """
    try:
        found = path.lstat()
    except OSError:
        return False
    return found.st_nlink > 1 or os.geteuid() not in (0, found.st_uid)


def _existing(request: Request, identity: str) -> dict[str, Any] | None:
    """The record of an output that is there, whole, and of the same job."""
    path = artifact_path(request.output, request.seals)
    try:
        record = read_record(request.output)
        if record.get("identity") != identity:
            return None
        state = hashlib.sha256()
        if request.seals is None:
            with path.open("rb") as file:
                state = hashlib.file_digest(file, "sha256")
        else:
            for piece in unsealed_chunks(path, request.seals, context_of(identity)):
                state.update(piece)
    except (WorkloadError, OSError):
        return None
    return record if state.hexdigest() == record.get("sha256") else None


def _check_output(request: Request) -> None:
    output = request.output
    parent = output.parent
    if not parent.is_dir() and not parent.parent.is_dir():
        raise WorkloadError(f"there is no folder {parent} for the output: make it first")
    if output.is_dir():
        raise WorkloadError(f"the output {output} is a folder: give the name of a file")
    for path in (output, artifact_path(output, request.keyring), record_path(output)):
        if path.is_symlink():
            raise WorkloadError(f"{path} is a symbolic link: give the place that is meant")
    where = output.resolve()
    for each in request.inputs:
        given = each.resolve()
        if where == given or (given.is_dir() and where.is_relative_to(given)):
            raise WorkloadError(
                f"the output {output} is (in) the input {each}: it would be read as input the "
                "next time. Give another place"
            )


def open_package(request: Request) -> Package:
    """The package that predicts: by a signed, counted list of aliases, or by its number.

    Raises:
        IntegrityError: it isn't what was signed.
        WorkloadError: there is none.
    """
    keyring = request.package_keyring or request.keyring
    trusted = request.verify_key or keyring.verify_key()
    store = Store(request.registry)
    version = request.version
    if version is None:
        version = store.trusted(request.model, request.alias, keyring).version
    return store.load(request.model, version, keyring, trusted)


def load_model(package: Package, threads: int) -> Model:
    """The model of a package, decrypted in memory, checked and warmed up.

    Raises:
        WorkloadError: it can't be loaded, or isn't what its manifest says.
    """
    return inference_model.load(
        package.read(MODEL_FILE), name=package.model, version=str(package.version),
        manifest=package.manifest, threads=threads, limits=replace(Limits(), max_rows=CHUNK_ROWS),
    )  # fmt: skip


def _stop_if(stop: Callable[[], bool]) -> None:
    if stop():
        raise StoppedError


__all__ = ["Batch", "Request", "StoppedError", "opened", "read_record"]
