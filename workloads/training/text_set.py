"""Making of a streamed dataset of texts: tokens of documents, cut into windows that lie in shards.

Documents are the files of a folder, or the rows of a column of shards; a long one is several
parts. Which part is held out its own content decides, by a digest that the seed is mixed into: so
the same document is never both learned from and judged by, however often it is there. That is done
before anything is learned of the texts. Of the source a part is in memory at a time.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError, some
from falaj.workloads.files import reading_errors
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import (
    language,
    shard_files,
    shard_folder,
    shard_set,
    snapshot,
    text_folder,
)
from falaj.workloads.training.byte_pairs import learn
from falaj.workloads.training.folder_files import digest_of_all, links
from falaj.workloads.training.header import encoding_of, refuse_nul
from falaj.workloads.training.shard_set import Made
from falaj.workloads.training.shards import Stage
from falaj.workloads.training.snapshot import ShardRows
from falaj.workloads.vocabulary import BytePairs, Vocabulary

_PART: Final = 1 << 15
"""Characters of a part of a document at most."""
_LEAST_PART: Final = 4
"""Windows of a part of a long document at least, of which a neighbour knows the ends."""
_PARTS: Final = 200
"""With fewer documents longer ones are cut into as many parts, as far as these have so many
windows."""
_ROWS: Final = 64
"""Of Parquet and Arrow that are read at a time: each may be a whole book."""
LEARNED_BYTES: Final = language.MOST_BYTES
"""Of the training part, that pairs of bytes are learned from at most."""
_BEGINNING: Final = 4
"""Bytes that may be a mark of the byte order."""
_SHOWN: Final = 10


@dataclass(frozen=True)
class Wanted:
    """What a streamed dataset of texts is to be.

    Attributes:
        folder: of texts, or of shards.
        column: of the shards, whose rows are documents; None: they are text files.
        encoding: of text files; None: UTF-8, or what their byte order mark says.
        seed: fixes what is held out, and what is validated with.
        holdout: share of the texts that is held out at most.
        context: tokens of a window.
        vocabulary: how many tokens are learned as pairs of bytes, or those that the texts are cut
            with; None: their characters.
    """

    folder: Path
    column: str | None
    encoding: str | None
    seed: int
    holdout: float
    context: int
    vocabulary: int | Vocabulary | None

    def made_of(self) -> str:
        """Return the digest of files and wishes.

        Raises:
            WorkloadError: a file can't be read.
        """
        return self.made_of_files(self.files())

    def made_of_files(self, files: list[dict[str, Any]]) -> str:
        """Return the same of files that were read before."""
        given = self.vocabulary
        wishes = [
            self.column, self.encoding, self.seed, self.holdout, self.context,
            given.digest if isinstance(given, Vocabulary) else given,
            _PART, LEARNED_BYTES, shard_set.LEAST_SHARD, shard_set.MOST_SHARD,
        ]  # fmt: skip
        named = shard_set.named(files)
        return snapshot.digest([snapshot.FORMAT, snapshot.STREAM, language.FAMILY, wishes, named])

    def paths(self) -> list[Path]:
        """Return the files, in order."""
        find = text_folder.find if self.column is None else shard_folder.find
        return find(self.folder)

    def files(self) -> list[dict[str, Any]]:
        """Return name and SHA-256 of each shard; text files, which may be millions, count as one.

        Raises:
            WorkloadError: one can't be read.
        """
        if self.column is not None:
            return shard_set.digests(self.folder)
        paths = self.paths()

        def named() -> Iterator[tuple[str, bytes]]:
            for path in paths:
                with reading_errors(path, "the text"), path.open("rb") as file:
                    digest = hashlib.file_digest(file, "sha256").digest()
                yield str(path.relative_to(self.folder)), digest

        return [{"name": f"{len(paths):,} texts", "sha256": digest_of_all(named())}]

    def make(self, stage: Path | None = None, keyring: KeyRing | None = None) -> Made:
        """Read the source; a part of it is in memory at a time.

        Args:
            stage: an empty folder that keeps the shards until they are written. Default: nothing
                is written, and texts are cut into tokens again when the shards are.
            keyring: that seals them there. Default: they are plain.

        Raises:
            StorageFullError: no space.
            WorkloadError: a text can't be used, or nothing can be learned from them.
        """
        return _make(self, stage, keyring)


def parts(wanted: Wanted, path: Path, most: int) -> Iterator[str]:
    """Yield the documents of a file; a long one is cut at the ends of lines.

    Args:
        wanted: names the column, or the encoding.
        path: the file.
        most: characters of a part.

    Raises:
        WorkloadError: it can't be read, or has no texts.
    """
    if wanted.column is not None:
        for text in _column(path, wanted.column):
            yield from parts_of(io.StringIO(text, newline=None), path, most)
        return
    with reading_errors(path, "the text"):
        with path.open("rb") as file:
            chosen = encoding_of(file.read(_BEGINNING), wanted.encoding)
        with path.open(encoding=chosen, newline=None) as file:
            yield from parts_of(file, path, most)


def _column(path: Path, name: str) -> Iterator[str]:
    """Yield the texts of a column; missing ones are left out."""
    for block in shard_files.blocks(path, _ROWS, name):
        if not block.rows:
            continue
        if name not in block.columns:
            listed = some([repr(each) for each in block.columns], _SHOWN)
            raise WorkloadError(
                f"the shard {block.shard} has no column {name!r} of texts; it has: {listed}"
            )
        column = block.columns[name]
        if column.kind == shard_files.EMPTY:
            continue
        if column.kind != shard_files.TEXT:
            raise WorkloadError(
                f"the column {name!r} of the shard {block.shard} is {column.kind} (from record "
                f"{block.first:,} on), and a language model learns from texts"
            )
        for place, each in enumerate(column.values.tolist(), block.first):
            if "\0" in each:
                raise WorkloadError(
                    f"the column {name!r} of the shard {block.shard} holds a NUL character in "
                    f"record {place:,}: no text has one; take it out"
                )
            if each:
                yield each


def parts_of(file: TextIO, path: Path, most: int) -> Iterator[str]:
    """Yield the parts of an open document, as `parts`."""
    rest, before, lines = "", 0, 0
    while True:
        try:
            # One more than a part has: what comes last is then never empty.
            more = file.read(most + 1 - len(rest))
        except UnicodeError as error:
            raise WorkloadError(
                f"{path} is not {getattr(file, 'encoding', 'utf-8')} behind line {lines:,}: "
                f"{error}; save the file as UTF-8, or name its encoding (--encoding windows-1256, "
                "for instance)"
            ) from None
        if not more:
            break
        refuse_nul(more, path, before)
        more = more if before else more.removeprefix("\ufeff")
        before, lines = before + len(more), lines + more.count("\n")
        rest += more
        if len(rest) > most:
            end = rest.rfind("\n", 0, most) + 1 or most
            yield rest[:end]
            rest = rest[end:]
    if rest:
        # So that documents that follow each other have a line between them.
        yield rest if rest.endswith("\n") else rest + "\n"


class Windows:
    """Tokens that come in parts, and are taken as windows.

    Args:
        context: tokens of a window.
    """

    def __init__(self, context: int) -> None:
        self._context = context
        self._parts: list[NDArray[np.uint16]] = []
        self._tokens = 0

    @property
    def rows(self) -> int:
        """Return how many windows there are."""
        return max(0, self._tokens - 1) // self._context

    def add(self, tokens: NDArray[np.uint16]) -> None:
        """Take the tokens of a further part."""
        self._parts.append(tokens)
        self._tokens += len(tokens)

    def take(self, rows: int) -> ShardRows:
        """Return the first windows, and keep the others."""
        whole = np.concatenate(self._parts)
        inputs, after = language.taken(whole, rows, self._context)
        # Copies: the whole needn't be kept for a rest of it.
        self._parts = [whole[rows * self._context :].copy()]
        self._tokens -= rows * self._context
        return {language.TOKENS: inputs}, after.copy()


@dataclass(frozen=True)
class _Size:
    """What a first pass over the source has found."""

    documents: int
    characters: int
    bytes: int


def _size(wanted: Wanted, paths: list[Path]) -> _Size:
    documents = characters = size = 0
    for path in paths:
        for text in parts(wanted, path, _PART):
            documents += 1
            characters += len(text)
            size += len(text.encode(errors="replace"))
    least = shard_set.LEAST_ROWS * wanted.context
    if characters < least:
        raise WorkloadError(
            f"the texts of {wanted.folder} have {characters:,} characters; at least {least:,} are "
            f"needed to be streamed by {wanted.context:,} at a time: put them into one file, or "
            "take a smaller --context"
        )
    return _Size(documents, characters, size)


class _Plan:
    """What becomes of the texts, once their size is known.

    Args:
        wanted: what is to be made.
        paths: of the files.
        size: of all of them.
    """

    def __init__(self, wanted: Wanted, paths: list[Path], size: _Size) -> None:
        self._wanted, self._paths, self._size = wanted, paths, size
        context, given = wanted.context, wanted.vocabulary
        is_characters = not isinstance(given, int | BytePairs)
        # No token has less than a byte, or than a character where it is one.
        most_tokens = size.characters if is_characters else size.bytes
        least = _LEAST_PART * context
        self._part = _PART
        if size.documents < _PARTS:
            self._part = min(max(size.characters // _PARTS, least), max(_PART, least))
        resident = shard_set.SAMPLE_BYTES // np.dtype(np.int64).itemsize
        self._held = min(wanted.holdout, resident / most_tokens)
        self._sampled = min(shard_set.SAMPLE_SHARE, resident / most_tokens)
        self._learned = min(1.0, LEARNED_BYTES / size.bytes)
        row_bytes = np.dtype(np.uint16).itemsize * (context + 1)
        self._shard_rows = max(1, shard_set.bytes_of_shard(2 * most_tokens) // row_bytes)
        self.counts = language.CharacterCounts()
        """Of the training part."""
        self.pairs: BytePairs | None = None
        self.names: list[str]
        """Of the vocabulary."""
        if isinstance(given, int | BytePairs):
            texts = self._training()
            self.pairs = learn(texts, given) if isinstance(given, int) else given
            for _ in texts:  # where nothing was learned of them, they are counted nevertheless
                pass
            self.names = self.pairs.names
        else:
            for _ in self._training():
                pass
            self.names = self.counts.vocabulary() if given is None else given.names

    def _drawn(self) -> Iterator[tuple[str, float, float]]:
        """Yield the parts of all documents, each with two numbers from 0 to before 1."""
        for path in self._paths:
            for text in parts(self._wanted, path, self._part):
                role, other = shard_set.drawn(self._wanted.seed, text.encode(errors="replace"))
                yield text, role, other

    def _training(self) -> Iterator[str]:
        """Yield the parts of the training part that tokens are learned of, and count all."""
        for text, role, other in self._drawn():
            if role >= self._held:
                self.counts.add(language.points_of(text))
                if other < self._learned:
                    yield text

    def _encode(self, text: str) -> NDArray[np.uint16]:
        if self.pairs is not None:
            return np.array(self.pairs.encode(text), dtype=np.uint16)
        points = language.points_of(text)
        return language.numbered(points, self.names).astype(np.uint16)

    def shards(
        self, sample: list[ShardRows], held: list[ShardRows], places: list[int]
    ) -> Iterator[ShardRows]:
        """Divide the windows, as `shard_set.Divide`; places are parts of documents."""
        learned, judged, kept = (Windows(self._wanted.context) for _ in range(3))
        for place, (text, role, _) in enumerate(self._drawn()):
            tokens = self._encode(text)
            if role < self._held:
                places.append(place)
                kept.add(tokens)
            elif role >= 1 - self._sampled:
                judged.add(tokens)
            else:
                learned.add(tokens)
            while learned.rows >= self._shard_rows:
                yield learned.take(self._shard_rows)
        for windows, to in ((judged, sample), (kept, held)):
            if windows.rows:
                to.append(windows.take(windows.rows))
        if learned.rows:
            yield learned.take(learned.rows)

    def notes(self, rows: int) -> list[str]:
        """Return what people are told of so many windows."""
        size, context, given = self._size, self._wanted.context, self._wanted.vocabulary
        unit = "characters" if self.pairs is None else "tokens"
        found = [
            f"streamed from {len(self._paths):,} files with {size.characters:,} characters, in "
            f"{rows * context:,} {unit} of {len(self.names):,} different ones; a row is a window "
            f"of {context}"
        ]
        if isinstance(given, Vocabulary):
            found.append(f"cut with the {given.size:,} {unit} of a model")
        elif self._learned < 1 and self.pairs is not None:
            found.append(
                f"the vocabulary was learned from {LEARNED_BYTES >> 20} MiB of the training part"
            )
        if self.pairs is not None and isinstance(given, int) and self.pairs.size < given:
            found.append(
                f"the vocabulary has {self.pairs.size:,} tokens, not {given:,}: no more pairs are "
                "there twice in the training part"
            )
        if self._wanted.column is None and (others := text_folder.others(self._wanted.folder)):
            found.append(f"{others:,} files aren't texts by their names")
        if self._wanted.column is None and (count := links(self._wanted.folder)):
            found.append(f"{count:,} links to folders weren't followed")
        return found


def _make(wanted: Wanted, folder: Path | None, keyring: KeyRing | None) -> Made:
    paths, files = wanted.paths(), wanted.files()
    made_of = wanted.made_of_files(files)
    size = _size(wanted, paths)
    plan = _Plan(wanted, paths, size)
    suffix = "" if wanted.column is None else f" of {paths[0].suffix.lower().lstrip('.')}"
    fields = language.fields_of(
        {
            "kind": "texts" if wanted.column is None else f"shards{suffix}",
            "name": wanted.folder.resolve().name,
        },
        plan.names, wanted.context, plan.pairs,
    )  # fmt: skip
    stage = None if folder is None else Stage(folder, keyring, fields, made_of)
    advice = (
        f"of {size.documents:,} documents or parts of such, all copies of which go one way: take "
        "more of them, a smaller --context, or another --seed or --holdout"
    )
    found = shard_set.divide(plan.shards, stage, f"window of the texts of {wanted.folder}", advice)
    inputs, after = found.joined()
    stream = found.stream(made_of, files)
    fields["read"] = plan.notes(stream["rows"] + len(after))
    return Made(
        {language.TOKENS: inputs[language.TOKENS].astype(np.int64)}, after.astype(np.int64),
        fields, found.sampled, np.asarray(found.places, dtype=np.int64), stream,
        (lambda: plan.shards([], [], [])) if stage is None else stage.rows,
        plan.pairs, plan.counts.counts() if plan.pairs is not None else None,
    )  # fmt: skip
