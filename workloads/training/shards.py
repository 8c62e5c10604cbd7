"""The shards of a streamed dataset on disk: each sealed for itself, opened one at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import artifact_path, read_artifact, write_artifact
from falaj.workloads.training import snapshot
from falaj.workloads.training.snapshot import Dataset, ShardRows

FOLDER: Final = "shards"
_CHANGED: Final = "make the dataset again from its source"


class Shards:
    """Reads the shards of a dataset; each call opens one, and keeps nothing.

    Args:
        dataset: a streamed one, that was opened from its folder.
    """

    def __init__(self, dataset: Dataset) -> None:
        stream, folder = dataset.stream, dataset.folder
        if stream is None or folder is None:
            raise AssertionError("only a streamed dataset that was written has shards")
        self._folder, self._keyring = folder, dataset.keyring
        self._description, self._made_of = dataset.description, str(stream["made_of"])
        self._digests = [str(digest) for _, digest in stream["shards"]]
        self.rows = [int(rows) for rows, _ in stream["shards"]]
        """Rows of each."""

    def read(self, index: int) -> ShardRows:
        """Return the rows of a shard, decrypted in memory, as they were when it was made.

        Raises:
            WorkloadError: it is missing, was changed, or is sealed with other keys; names it.
        """
        path = place(self._folder, index)
        data = read_artifact(path, self._keyring, context_of(self._made_of, index))
        try:
            inputs, labels, _ = snapshot.decode(data, self._description)
        except (KeyError, TypeError, ValueError, pa.ArrowException) as error:
            raise WorkloadError(f"the shard {path} is damaged: {_CHANGED}") from error
        if snapshot.digest_rows(inputs, labels) != self._digests[index]:
            raise WorkloadError(f"the shard {path} isn't what was written: {_CHANGED}")
        return inputs, labels

    def check_there(self) -> None:
        """Refuse a folder that lacks a shard.

        Raises:
            WorkloadError: names the first.
        """
        for index in range(len(self.rows)):
            path = artifact_path(place(self._folder, index), self._keyring)
            if not path.is_file():
                raise WorkloadError(f"the shard {path} is missing: {_CHANGED}")


class Stage:
    """Shards that are kept, sealed as they will be, until it is known what their dataset is.

    Args:
        folder: of their own, which is empty.
        keyring: that seals them; None leaves them plain.
        description: of their dataset: features and target.
        made_of: of their dataset, to which they are bound.
    """

    def __init__(
        self, folder: Path, keyring: KeyRing | None, description: dict[str, Any], made_of: str
    ) -> None:
        self._folder, self._keyring = folder, keyring
        self._description, self._made_of = description, made_of
        self._count = 0
        (folder / FOLDER).mkdir(mode=0o700)

    def add(self, inputs: dict[str, NDArray[Any]], labels: NDArray[Any]) -> None:
        """Keep the rows of a further shard.

        Raises:
            StorageFullError: no space.
        """
        data = snapshot.encode(inputs, labels, self._description["target"])
        context = context_of(self._made_of, self._count)
        write_artifact(place(self._folder, self._count), data, self._keyring, context)
        self._count += 1

    def rows(self) -> Iterator[ShardRows]:
        """Yield the rows of each, in order."""
        for index in range(self._count):
            context = context_of(self._made_of, index)
            data = read_artifact(place(self._folder, index), self._keyring, context)
            inputs, labels, _ = snapshot.decode(data, self._description)
            yield inputs, labels


def place(folder: Path, index: int) -> Path:
    """Return where a shard lies, without the ending of sealed ones."""
    return folder / FOLDER / f"{index:06d}.parquet"


def context_of(made_of: str, index: int) -> bytes:
    """Return the role that a sealed shard is bound to: its dataset and its place in it."""
    return f"dataset:{made_of}:shard:{index}".encode()


def write(
    folder: Path, rows: Iterator[ShardRows], dataset: Dataset, keyring: KeyRing | None
) -> None:
    """Write the shards of a dataset, one in memory at a time.

    Raises:
        StorageFullError: no space.
        WorkloadError: the source has changed since the dataset was described.
    """
    described: Any = dataset.description[snapshot.STREAM]
    (folder / FOLDER).mkdir(mode=0o700)
    count = -1
    for count, (inputs, labels) in enumerate(rows):
        expected = described["shards"][count] if count < len(described["shards"]) else None
        if expected != [len(labels), snapshot.digest_rows(inputs, labels)]:
            raise _changed()
        data = snapshot.encode(inputs, labels, dataset.description["target"])
        context = context_of(described["made_of"], count)
        write_artifact(place(folder, count), data, keyring, context)
    if count + 1 != len(described["shards"]):
        raise _changed()


def _changed() -> WorkloadError:
    return WorkloadError(
        "the files changed while they were read: run again once they are complete, best on a "
        "copy that nobody writes to"
    )
