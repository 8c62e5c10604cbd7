"""A dataset snapshot on disk: its description, its rows, and the proof that neither changed."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from falaj.workloads import bounds
from falaj.workloads.chat import Template, template_of
from falaj.workloads.documents import is_dictionary
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import make_missing_folders, read_json, storage_errors
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import read_artifact
from falaj.workloads.training import conversations, language
from falaj.workloads.training.language import FAMILY, TOKENS
from falaj.workloads.vocabulary import (
    METADATA,
    BytePairs,
    Characters,
    Vocabulary,
    described_pairs,
    of_bytes,
)

if TYPE_CHECKING:
    from falaj.workloads.registry.keyring import KeyRing


def open_keyring(path: Path | None) -> KeyRing | None:
    """Return the key ring in folder ``path``, or None where no path is given.

    Raises:
        WorkloadError: there is no usable key ring.
    """
    return None if path is None else KeyRing.open(path)


def make_folder(path: Path) -> Path:
    """Make ``path`` (mode 0700) where it is missing; one that exists keeps its mode.

    Raises:
        StorageFullError: no space.
        WorkloadError: a file stands there, or no permission.
    """
    with storage_errors(path):
        make_missing_folders(path)
    return path


def digest(value: Any) -> str:
    """Return the SHA-256 (hex) of ``value``'s canonical JSON: sorted keys, no white space."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


FORMAT = "falaj.dataset/1"
DESCRIPTION = "dataset.json"
DATA = "data.parquet"
_PAIRS = METADATA.encode()

Part = Literal["train", "held_out"]
ShardRows = tuple[dict[str, NDArray[Any]], NDArray[Any]]
"""A shard's inputs by name, and its labels."""

STREAM = "stream"
"""Of a description: what of the training part lies in shards."""

_IDENTITY = (
    "format", "family", "task", "target", "classes", "features", "seed", "holdout",
    "content_digest", "stored_digest", "split_digest", "rows",
)  # fmt: skip


@dataclass(frozen=True)
class Dataset:
    """The rows of a snapshot, the training part first.

    Attributes:
        description: the content of dataset.json.
        inputs: the served inputs by name. Images: ``image`` float32 (rows, 1, 8, 8), pixels 0 to
            16. Texts: ``tokens`` int64 (rows, `context`). Tables: float64 (rows,) with
            NaN, or str objects (rows,) with "" where missing (texts, dates and words).
        labels: int64 class numbers, or float64 values, (rows,).
        pairs: vocabulary of a text whose tokens aren't its characters.
        folder: that it was read from. Default: it is being made.
        keyring: the keys it is sealed with. Default: it is plain.
        rest: of a streamed dataset that is being made, gives the rows of its shards.

    Of a streamed dataset the rows are the sample that training is validated with, and what is held
    out; `shards.Shards` has the others.
    """

    description: dict[str, Any]
    inputs: dict[str, NDArray[Any]]
    labels: NDArray[Any]
    pairs: BytePairs | None = None
    folder: Path | None = None
    keyring: KeyRing | None = None
    rest: Callable[[], Iterator[ShardRows]] | None = None

    @property
    def stream(self) -> dict[str, Any] | None:
        """Return what of the training part lies in shards; None: all rows are at hand."""
        return self.description.get(STREAM)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Return the tokens of a text; None of anything else."""
        return vocabulary_of(self.family, self.classes, self.pairs)

    @property
    def digest(self) -> str:
        """Return the SHA-256 that names the snapshot: content, target, task and split."""
        return self.description["digest"]

    @property
    def family(self) -> str:
        """Return ``images``, ``table`` or ``text``."""
        return self.description["family"]

    @property
    def task(self) -> str:
        """Return ``classification``, ``regression`` or ``language``."""
        return self.description["task"]

    @property
    def classes(self) -> list[str] | None:
        """Return the classes' names in the order of the labels, None for a regression.

        Of a text they are the characters of its vocabulary, or the numbers of its tokens.
        """
        return self.description["classes"]

    @property
    def context(self) -> int:
        """Return how many tokens a row of a text has; 1 of anything else."""
        if self.family != FAMILY:
            return 1
        return int(self.description["features"][0]["shape"][0])

    @property
    def template(self) -> Template | None:
        """Return what stands around messages, if rows are conversations."""
        return template_of(self.description)

    def wanted(self, part: Part) -> NDArray[np.int64]:
        """Return what is learned after each token of a text's rows (N, `context`).

        It is the token that follows; of conversations where the assistant says it, else
        `language.IGNORED`.
        """
        rows, template, vocabulary = self.rows(part), self.template, self.vocabulary
        tokens, after = self.inputs[TOKENS][rows], self.labels[rows]
        if template is None or vocabulary is None:
            return language.following(tokens, after)
        return conversations.wanted(tokens, after, template, vocabulary)

    def rows(self, part: Part) -> slice:
        """Return where the rows of ``part`` lie; of a streamed dataset, those at hand."""
        stream = self.stream
        train = int(self.description["rows"]["train"] if stream is None else stream["sample"])
        return slice(0, train) if part == "train" else slice(train, None)


def vocabulary_of(
    family: str, classes: list[str] | None, pairs: BytePairs | None
) -> Vocabulary | None:
    """Return the tokens of a text, which are its characters without ``pairs``; else None."""
    if family != FAMILY:
        return None
    return pairs or Characters(tuple(classes or ()))


def describe_identity(description: dict[str, Any]) -> str:
    """Return the digest over the fields of ``description`` that make a dataset what it is."""
    also = (STREAM,) if STREAM in description else ()
    return digest({key: description[key] for key in (*_IDENTITY, *also)})


def digest_rows(inputs: dict[str, NDArray[Any]], labels: NDArray[Any]) -> str:
    """Return the SHA-256 of the rows, independent of file formats and library versions."""
    state = hashlib.sha256()
    for name, values in (*inputs.items(), ("", labels)):
        encoded = name.encode()
        state.update(len(encoded).to_bytes(8, "little") + encoded)
        if values.dtype == object:
            texts = [str(value).encode() for value in values]
            state.update(np.array([len(text) for text in texts], dtype="<i8").tobytes())
            state.update(b"".join(texts))
        else:
            plain = values.astype(values.dtype.newbyteorder("<"))
            if plain.dtype.kind == "f":
                plain = np.where(np.isnan(plain), np.nan, plain)  # one bit pattern of NaN
            state.update(np.ascontiguousarray(plain).tobytes())
    return state.hexdigest()


def context_of(identity: str) -> bytes:
    """Return the role that a sealed data file is bound to."""
    return f"dataset:{identity}:data".encode()


def encode(
    inputs: dict[str, NDArray[Any]],
    labels: NDArray[Any],
    target: str,
    pairs: BytePairs | None = None,
) -> bytes:
    """Return the rows as a Parquet file, with a vocabulary in the metadata of its schema."""
    arrays: dict[str, pa.Array] = {}
    for name, values in inputs.items():
        if values.ndim > 1:
            flat = pa.array(values.reshape(-1))
            arrays[name] = pa.FixedSizeListArray.from_arrays(flat, int(np.prod(values.shape[1:])))
        else:
            arrays[name] = pa.array(values, pa.string() if values.dtype == object else None)
    arrays[target] = pa.array(labels)
    buffer = io.BytesIO()
    noted = {_PAIRS: pairs.to_bytes()} if pairs is not None else None
    pq.write_table(pa.table(arrays).replace_schema_metadata(noted), buffer, compression="zstd")
    return buffer.getvalue()


def open_dataset(path: Path, keyring: KeyRing | None) -> Dataset:
    """Read a snapshot and check that neither its description nor its rows changed.

    Args:
        path: the snapshot's folder (the one that holds dataset.json).
        keyring: the keys it is sealed with; None for a plain snapshot.

    Raises:
        WorkloadError: it is no snapshot, needs other keys, or was changed on disk.
    """
    description = read_json(path / DESCRIPTION, "the dataset description")
    if not is_dictionary(description) or description.get("format") != FORMAT:
        raise WorkloadError(
            f"{path / DESCRIPTION} is not a description of the format {FORMAT!r}, "
            "which this version reads: make the dataset again"
        )
    changed = (
        f"the dataset in {path} was changed after it was made: its digests no longer match. "
        "Remove the folder and make the dataset again from its source"
    )
    try:
        if describe_identity(description) != description["digest"]:
            raise WorkloadError(changed)
        data = read_artifact(path / DATA, keyring, context_of(description["digest"]))
        inputs, labels, noted = decode(data, description)
        pairs = None
        if (described := described_pairs(description)) is not None:
            pairs = of_bytes(noted[_PAIRS])
            if pairs.described != described or pairs.names != description["classes"]:
                raise WorkloadError(changed)
    except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
        raise WorkloadError(changed) from error
    if digest_rows(inputs, labels) != description["stored_digest"]:
        raise WorkloadError(changed)
    return Dataset(description, inputs, labels, pairs, path, keyring)


def require_whole(dataset: Dataset, what: str) -> Dataset:
    """Return a dataset whose rows are all at hand.

    Raises:
        WorkloadError: it is a streamed one, which ``what`` has no use for.
    """
    if dataset.stream is not None:
        raise WorkloadError(
            f"the dataset in {dataset.folder} is streamed from shards, and {what} needs all rows "
            "in memory: make a dataset of one table (--source FILE), or of "
            f"{bounds.PICTURES_IN_MEMORY:,} pictures at most"
        )
    return dataset


def decode(
    data: bytes, description: dict[str, Any]
) -> tuple[dict[str, NDArray[Any]], NDArray[Any], dict[bytes, bytes]]:
    """Return inputs, labels, and what is noted beside them, of what `encode` wrote.

    Raises:
        pyarrow.ArrowException, KeyError, ValueError: it is something else.
    """
    # Arrow's thread pools and torch's in one process sometimes abort it at its end ("terminate
    # called without an active exception"): one thread is enough here.
    table = pq.ParquetFile(pa.BufferReader(data), pre_buffer=False).read(use_threads=False)
    inputs: dict[str, NDArray[Any]] = {}
    for feature in description["features"]:
        column = table.column(feature["name"]).combine_chunks()
        if feature["kind"] in {"image", TOKENS}:
            flat = column.flatten().to_numpy(zero_copy_only=False)
            inputs[feature["name"]] = flat.reshape(-1, *feature["shape"])
        elif feature["kind"] != "numeric":
            inputs[feature["name"]] = np.asarray(column.to_pylist(), dtype=object)
        else:
            inputs[feature["name"]] = column.to_numpy(zero_copy_only=False)
    labels = table.column(description["target"]).to_numpy()
    return inputs, labels, table.schema.metadata or {}


@dataclass(frozen=True)
class Rows:
    """Rows as the served model gets them.

    Attributes:
        inputs: by name. Images: float32 (N, 1, 8, 8), pixels 0 to 16. Texts: ``tokens`` int64
            (N, `Dataset.context`). Tables: one (N, 1) array per column, float32 with NaN where
            missing or str objects with "" where missing.
        labels: int64 class numbers, or float32 values, (N,).
        wanted: of a text `Dataset.wanted`; None of anything else.
    """

    inputs: dict[str, NDArray[Any]]
    labels: NDArray[Any]
    wanted: NDArray[np.int64] | None = None

    def spread(self, most: int) -> Rows:
        """Return ``most`` of them at most, spread evenly."""
        places = pick_rows(len(self.labels), most)
        return Rows(
            {key: each[places] for key, each in self.inputs.items()}, self.labels[places],
            self.wanted[places] if self.wanted is not None else None,
        )  # fmt: skip


def pick_rows(count: int, limit: int) -> NDArray[np.int64]:
    """Return which of ``count`` rows are taken: ``limit`` at most, spread evenly."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).round().astype(np.int64))


def load_rows(dataset_dir: Path, keyring: KeyRing | None, part: Part) -> Rows:
    """Read one part of a dataset snapshot as served inputs.

    Raises:
        WorkloadError: as `snapshot.open_dataset`.
    """
    return served_rows(open_dataset(dataset_dir, keyring), part)


def served_rows(dataset: Dataset, part: Part) -> Rows:
    """Return one part of a dataset as served inputs."""
    rows = dataset.rows(part)
    inputs: dict[str, NDArray[Any]] = {}
    for name, values in dataset.inputs.items():
        chosen = values[rows]
        if chosen.dtype.kind == "f":
            chosen = chosen.astype(np.float32)
        inputs[name] = chosen if chosen.ndim > 1 else chosen[:, None]
    labels = dataset.labels[rows]
    kind = np.int64 if dataset.classes is not None else np.float32
    wanted = dataset.wanted(part) if dataset.family == FAMILY else None
    return Rows(inputs, labels.astype(kind), wanted)
