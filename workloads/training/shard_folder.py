"""A folder of shards: files of rows or of pictures, all of one kind, that are streamed."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from falaj.workloads.errors import WorkloadError, some
from falaj.workloads.training.folder_files import reading, require_file

PICTURED: Final = ".tar"
"""Of the names of shards that may hold pictures, whose class needs no name."""
SUFFIXES: Final = (".parquet", ".arrow", ".jsonl", PICTURED)
"""Of the names of files that may be shards; all of a dataset have the same."""

_SHOWN: Final = 5


def holds_shards(folder: Path) -> bool:
    """Whether there are shards in a folder, and not pictures in folders."""
    return any(_is_shard(each) for each in folder.iterdir())


def _is_shard(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith((".", "_"))


def find(folder: Path) -> list[Path]:
    """Return the shards of a folder in the order of their names.

    Names that begin with "." or "_" are left out, as other programs' notes are.

    Raises:
        WorkloadError: there are none, they are of several kinds, links, no files or empty, or
            other files lie beside them.
    """
    with reading(folder):
        entries = sorted(each for each in folder.iterdir() if not each.name.startswith((".", "_")))
    others = [each.name for each in entries if not _is_shard(each)]
    if others or not entries:
        raise WorkloadError(
            f"{folder} has beside its shards {some(others, _SHOWN) or 'nothing'}: a streamed "
            f"dataset is a folder of {', '.join(SUFFIXES)} files alone"
        )
    suffixes = sorted({each.suffix.lower() for each in entries})
    if len(suffixes) > 1:
        raise WorkloadError(
            f"{folder} has shards of several kinds ({', '.join(suffixes)}): all have to be of one"
        )
    for path in entries:
        with reading(folder):
            found = require_file(path, "shard")
        if found.st_size == 0:
            raise WorkloadError(
                f"the shard {path} is empty (0 bytes): remove it, or put the whole file there"
            )
    return entries
