"""Making of a dataset snapshot: read, check, split, describe, write once under its digest."""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import shutil
import tempfile
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from falaj.workloads import bounds, pictures
from falaj.workloads.chat import CHATML, Template
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import (
    TEMPORARY_PREFIX,
    replacing_folder,
    storage_errors,
    write_json_atomic,
)
from falaj.workloads.pictures import CLASS, IMAGE
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import artifact_path, write_artifact
from falaj.workloads.training import (
    conversations,
    feature_tables,
    language,
    picture_folder,
    shard_folder,
    shards,
    snapshot,
    text_folder,
)
from falaj.workloads.training.byte_pairs import learn
from falaj.workloads.training.folder_files import reading
from falaj.workloads.training.frequencies import frequencies
from falaj.workloads.training.numerals import Mark
from falaj.workloads.training.randomness import generator
from falaj.workloads.training.record import LANGUAGE
from falaj.workloads.training.snapshot import make_folder
from falaj.workloads.training.tables import (
    Column,
    Excluded,
    decimal_mark,
    interpret,
    interpret_target,
    read_table,
    useless,
)
from falaj.workloads.vocabulary import BytePairs, Vocabulary

if TYPE_CHECKING:
    from falaj.workloads.training import picture_set, shard_set, text_set

LARGEST_PIXEL = 16.0
"""Each pixel counts the inked points of a 4x4 block of the 32x32 scan."""

SOURCE = "digits"
TARGET = "digit"


def load() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the images, (1797, 1, 8, 8) with pixels from 0 to 16, and the digits, (1797,)."""
    from sklearn.datasets import load_digits  # noqa: PLC0415 - half a second, only for digits

    bunch = cast("Any", load_digits())
    images = np.asarray(bunch.images, dtype=np.float32)[:, None]
    return images, np.asarray(bunch.target, dtype=np.int64)


Indices = NDArray[np.int64]

_TARGET_BINS = 10


def strata_of(labels: NDArray[np.generic], classification: bool) -> NDArray[np.int64]:
    """Return each row's stratum: its class, or its decile of a continuous target."""
    if classification:
        return labels.astype(np.int64)
    values = labels.astype(np.float64)
    edges = np.quantile(values, np.linspace(0, 1, _TARGET_BINS + 1)[1:-1])
    return np.searchsorted(edges, values, side="right").astype(np.int64)


def stratified(
    strata: NDArray[np.int64], fraction: float, random: np.random.Generator
) -> tuple[Indices, Indices]:
    """Split rows so that each stratum gives ``fraction`` of its rows to the second part.

    A stratum of one row stays in the first part; a larger one gives at least one row and keeps
    at least one. Both parts are shuffled.

    Args:
        strata: stratum of each row, shape (rows,).
        fraction: share of the second part, between 0 and 1.
        random: the source of the shuffle.

    Returns:
        The row numbers of the first and of the second part.
    """
    kept: list[Indices] = []
    given: list[Indices] = []
    for stratum in np.unique(strata):
        rows = random.permutation(np.flatnonzero(strata == stratum))
        count = len(rows)
        share = 0 if count == 1 else min(max(1, round(fraction * count)), count - 1)
        given.append(rows[:share])
        kept.append(rows[share:])
    first, second = np.concatenate(kept), np.concatenate(given)
    return random.permutation(first), random.permutation(second)


_BINS = 10
_CATEGORIES = 100


def of_numbers(values: NDArray[np.floating[Any]]) -> dict[str, Any]:
    """Describe numbers: moments, range, deciles and the share of rows in each decile bin.

    Edges and values are compared as they are served, in 32 bits: a value that is an edge, such as
    0.7, falls into the same bin then and there. A value that is several deciles has a bin of its
    own: else a flag that is seldom set, or always the same, could become anything unseen.

    Args:
        values: the training rows' values, any shape, NaN where missing.

    Returns:
        count, missing, mean, standard_deviation (population), minimum, maximum, edges (inner
        bin edges, ascending and distinct) and shares (one more than edges, sum 1).
    """
    flat = values.reshape(-1).astype(np.float64)
    present = flat[~np.isnan(flat)]
    if len(present) == 0:
        return {"kind": "numeric", "count": 0, "missing": len(flat)}
    deciles = np.quantile(present, np.linspace(0, 1, _BINS + 1)[1:-1])
    with np.errstate(over="ignore"):
        edges, times = np.unique(deciles.astype(np.float32), return_counts=True)
        ends = np.nextafter(edges[times > 1], np.float32(np.inf))
        # Some processors' modes take what is smaller than a normal number for 0.
        least = np.finfo(np.float32).tiny
        ends = np.where((ends > 0) & (ends < least), least, ends)
        edges = np.union1d(edges, ends[np.isfinite(ends)])
        bins = np.searchsorted(edges, present.astype(np.float32), side="right")
    shares = np.bincount(bins, minlength=len(edges) + 1) / len(present)
    return {
        "kind": "numeric",
        "count": len(present),
        "missing": len(flat) - len(present),
        "mean": float(present.mean()),
        "standard_deviation": float(present.std()),
        "minimum": float(present.min()),
        "maximum": float(present.max()),
        "edges": edges.tolist(),
        "shares": shares.tolist(),
    }


def of_texts(values: NDArray[Any]) -> dict[str, Any]:
    """Describe texts: the counts of the most frequent ones, the rest and the missing together.

    Args:
        values: the training rows' texts, shape (rows,), "" where missing.
    """
    counts = frequencies(values)
    present = sum(counts.values())
    frequent = dict(list(counts.items())[:_CATEGORIES])
    return {
        "kind": "text",
        "count": present,
        "missing": len(values) - present,
        "distinct": len(counts),
        "categories": frequent,
        "others": present - sum(frequent.values()),
    }


def lengths(values: NDArray[Any]) -> NDArray[np.float64]:
    """Return the characters of each text, NaN where it is missing."""
    return np.array([len(value) or np.nan for value in values], dtype=np.float64)


def _parts(images: NDArray[Any]) -> dict[str, Any]:
    """Describe pictures by what `pictures` says of each."""
    columns = pictures.described(images).T
    names = pictures.names(images.shape[1:])
    return {name: of_numbers(column) for name, column in zip(names, columns, strict=True)}


def of_classes(labels: NDArray[np.int64], classes: list[str]) -> dict[str, Any]:
    """Return how many rows of each class there are."""
    counts = np.bincount(labels, minlength=len(classes))
    return {"kind": "classes", "counts": dict(zip(classes, counts.tolist(), strict=True))}


_OF_TEXTS = sorted(bounds.DATASET.keys() - {"seed", "holdout"})
"""Options that nothing else has."""

MINIMUM_ROWS = 20
"""With fewer rows neither part of the split says anything."""


@dataclass(frozen=True)
class Source:
    """Where a dataset comes from and what is to be learned from it.

    Attributes:
        location: ``digits``, the path of a .csv, .parquet, .txt or .jsonl file, or a folder of
            pictures, of texts or of shards.
        target: the column to predict; digits, pictures and texts have their own. Of shards whose
            task is ``language`` the column of texts.
        task: ``auto``, ``classification``, ``regression`` or ``language``.
        encoding: the CSV file's encoding; None means UTF-8 or its byte order mark's.
        seed: fixes the split, together with the content's digest.
        holdout: the share of rows that training never sees, 0.05 to 0.5.
        context: tokens of a text's row; None: `language.CONTEXT`. Of anything
            else None.
        vocabulary: of a text: how many tokens are learned as pairs of bytes, or those that it is
            cut with, as of a model that is to learn from it; None: its characters, of
            conversations `conversations.VOCABULARY` pairs. Of anything else None.
        template: that conversations are worded with; None: `chat.CHATML`.
        features: tables that a table's rows get further columns from; None: there are none.
    """

    location: str
    target: str | None = None
    task: str = bounds.CHOICES["dataset"]["task"].default
    encoding: str | None = None
    seed: int = 0
    holdout: float = 0.2
    context: int | None = None
    vocabulary: int | Vocabulary | None = None
    template: Template | None = None
    features: feature_tables.Features | None = None


@dataclass(frozen=True)
class _Rows:
    """What a source gives before it is split."""

    inputs: dict[str, NDArray[Any]]
    labels: NDArray[Any]
    fields: dict[str, Any]


@contextlib.contextmanager
def staging(output: Path) -> Generator[Path]:
    """Give a folder below ``output`` for what a dataset is made of, until it is written.

    Raises:
        StorageFullError: there is no space.
        WorkloadError: ``output`` can't be written.
    """
    make_folder(output)
    with storage_errors(output):
        folder = tempfile.mkdtemp(prefix=TEMPORARY_PREFIX, dir=output)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def build(
    source: Source, stage: Path | None = None, keyring: KeyRing | None = None
) -> snapshot.Dataset:
    """Read, check and split ``source``.

    Args:
        source: what is read.
        stage: an empty folder, which has to be there until the dataset is written: what streamed
            texts and pictures become is kept in it. Default: nothing is written, and it is made
            again.
        keyring: that seals them there. Default: they are plain.

    Raises:
        WorkloadError: an option is out of range, or the data can't be learned from.
    """
    _check_options(source)
    path = Path(source.location)
    is_folder = source.location != SOURCE and path.is_dir()
    tables = bounds.ENDINGS["tables"]
    if source.features is not None and (is_folder or path.suffix.lower() not in tables):
        raise WorkloadError(
            f"feature tables (--features) give columns to one {' or '.join(tables)} file, and "
            f"{source.location} is none: leave them out, or join its rows before"
        )
    if _is_streamed_text(source):
        return _streamed(source, _wanted_texts(source).make(stage, keyring))
    if path.suffix.lower() in bounds.ENDINGS["texts"] and not is_folder:
        return _text(source)
    if path.suffix.lower() in bounds.ENDINGS["conversations"] and not is_folder:
        return _conversations(source)
    _refuse_options_of_texts(source)
    if _is_streamed(source):
        return _streamed(source, _wanted(source).make())
    if _is_streamed_pictures(source):
        return _streamed(source, _wanted_pictures(source).make(stage, keyring))
    if source.location == SOURCE:
        rows = _digits(source)
    elif is_folder:
        rows = _pictures(source)
    else:
        rows = _table(source)
    count = len(rows.labels)
    if count < MINIMUM_ROWS:
        raise WorkloadError(
            f"there are {count} rows with a target; at least {MINIMUM_ROWS} are needed, "
            "and some hundreds for a model of use"
        )
    content = snapshot.digest_rows(rows.inputs, rows.labels)
    classification = rows.fields["task"] == "classification"
    random = generator(source.seed, int(content[:16], 16))
    strata = strata_of(rows.labels, classification)
    train, held_out = stratified(strata, source.holdout, random)
    order = np.concatenate([train, held_out])
    inputs = {name: values[order] for name, values in rows.inputs.items()}
    return _described_as(source, content, replace(rows, inputs=inputs, labels=rows.labels[order]),
                         train=len(train), held_out=held_out, notes=_notes(rows))  # fmt: skip


def _described_as(
    source: Source,
    content: str,
    rows: _Rows,
    *,
    train: int,
    held_out: Indices,
    notes: list[str],
    pairs: BytePairs | None = None,
) -> snapshot.Dataset:
    """A snapshot of rows that are in order, the training part first.

    Args:
        source: where they come from.
        content: digest of what was read.
        rows: both parts.
        train: rows of the training part.
        held_out: places of what is held out, in what was read.
        notes: for people.
        pairs: vocabulary of a text. Default: its characters, or it is none.
    """
    inputs, labels = rows.inputs, rows.labels
    dropped, read = int(rows.fields.pop("dropped")), rows.fields.pop("read")
    description = {
        "format": snapshot.FORMAT,
        **rows.fields,
        "rows": {
            "total": len(labels), "train": train, "held_out": len(labels) - train,
            "dropped": dropped,
        },
        "seed": source.seed,
        "holdout": source.holdout,
        "content_digest": content,
        "stored_digest": snapshot.digest_rows(inputs, labels),
        "split_digest": hashlib.sha256(held_out.astype("<i8").tobytes()).hexdigest(),
        "statistics": statistics_of(inputs, labels, rows.fields, train),
        "notes": [*notes, *read],
    }  # fmt: skip
    description["digest"] = snapshot.describe_identity(description)
    return snapshot.Dataset(description, inputs, labels, pairs)


def made_before(
    source: Source, output: Path, keyring: KeyRing | None
) -> tuple[dict[str, Any], Path] | None:
    """Return description and folder of a streamed dataset that was made of the same files before.

    Args:
        source: of the dataset.
        output: folder that datasets are kept in.
        keyring: that they are sealed with.

    Returns:
        None where there is none whole, or the source isn't streamed, but read anew.

    Raises:
        WorkloadError: an option is out of range, or a file can't be read.
    """
    _check_options(source)
    if _is_streamed_text(source):
        wanted = _wanted_texts(source)
    elif _is_streamed(source):
        _refuse_options_of_texts(source)
        wanted = _wanted(source)
    elif _is_streamed_pictures(source):
        _refuse_options_of_texts(source)
        wanted = _wanted_pictures(source)
    else:
        return None
    from falaj.workloads.training import shard_set  # noqa: PLC0415 - imports torch

    return shard_set.made_before(wanted.made_of(), output, keyring)


def _is_streamed(source: Source) -> bool:
    path = Path(source.location)
    if source.location == SOURCE or not path.is_dir():
        return False
    return shard_folder.holds_shards(path)


def _is_streamed_text(source: Source) -> bool:
    """Whether texts are in a folder: files, or rows of a column of shards."""
    path = Path(source.location)
    if source.location == SOURCE or not path.is_dir():
        return False
    with reading(path):
        if shard_folder.holds_shards(path):
            return source.task == LANGUAGE
        return text_folder.holds_texts(path)


def _is_streamed_pictures(source: Source) -> bool:
    path = Path(source.location)
    return source.location != SOURCE and path.is_dir() and picture_folder.is_streamed(path)


def _wanted(source: Source) -> shard_set.Wanted:
    from falaj.workloads.training import shard_set  # noqa: PLC0415 - imports torch

    return shard_set.Wanted(
        Path(source.location), source.target, source.task, source.seed, source.holdout
    )


def _wanted_pictures(source: Source) -> picture_set.Wanted:
    from falaj.workloads.training import picture_set  # noqa: PLC0415 - imports torch

    _check_target(source, "pictures in folders", CLASS)
    return picture_set.Wanted(Path(source.location), source.seed, source.holdout)


def _wanted_texts(source: Source) -> text_set.Wanted:
    from falaj.workloads.training import text_set  # noqa: PLC0415 - imports torch

    folder, is_column = Path(source.location), _is_streamed(source)
    if not is_column:
        _check_language(source, "a folder of texts")
    elif source.target is None:
        raise WorkloadError(
            f"name the column of texts (--target) of the shards of {folder}, which a language "
            f"model is to learn from (--task {LANGUAGE})"
        )
    elif source.encoding is not None:
        raise WorkloadError(
            f"--encoding {source.encoding} is of text files, and shards are UTF-8: leave it out"
        )
    return text_set.Wanted(
        folder, source.target, source.encoding, source.seed, source.holdout,
        language.CONTEXT if source.context is None else source.context, source.vocabulary,
    )  # fmt: skip


def _streamed(source: Source, made: shard_set.Made) -> snapshot.Dataset:
    rows, stream = _Rows(made.inputs, made.labels, made.fields), made.stream
    content = snapshot.digest([[each["name"], each["sha256"]] for each in stream["sources"]])
    notes = _notes(replace(rows, fields={**rows.fields, "classes": None}))
    dataset = _described_as(
        source, content, rows,
        train=made.sample, held_out=made.held_out, notes=notes, pairs=made.pairs,
    )  # fmt: skip
    description = dataset.description
    if made.characters is not None:
        description["statistics"]["target"] = _of_characters(made.characters)
    description["rows"]["total"] += stream["rows"]
    description["rows"]["train"] += stream["rows"]
    description[snapshot.STREAM] = stream
    description["digest"] = snapshot.describe_identity(description)
    return replace(dataset, rest=made.rest)


def _check_language(source: Source, what: str) -> None:
    if source.target is not None:
        raise WorkloadError(
            f"{what} has one target, the token that follows, not {source.target!r}: leave "
            "--target away"
        )
    if source.task not in ("auto", LANGUAGE):
        raise WorkloadError(
            f"of {what} a language model learns: use --task auto or {LANGUAGE}, not {source.task}"
        )


def _text(source: Source) -> snapshot.Dataset:
    path = Path(source.location)
    _check_language(source, "a text")
    context = language.CONTEXT if source.context is None else source.context
    points, following = language.windows(language.read(path, source.encoding), path, context)
    content = snapshot.digest_rows({language.TOKENS: points}, following)
    out = language.held_out(
        len(points), source.holdout, generator(source.seed, int(content[:16], 16))
    )
    train, held_out = np.flatnonzero(~out), np.flatnonzero(out)
    given = source.vocabulary
    if isinstance(given, int | BytePairs):
        return _pairs(source, given, content, points, out)
    order = np.concatenate([train, held_out])
    characters = language.vocabulary(points[train]) if given is None else given.names
    tokens = language.numbered(points[order], characters)
    fields = language.fields_of(_source_of(path), characters, context)
    unknown = int((tokens == 0).sum())
    different = len(np.unique(tokens[tokens > 0]))
    notes = [f"{points.size:,} characters, {different:,} different ones; a row is a window of "
             f"{context}"]  # fmt: skip
    if given is not None:
        notes.append(
            f"cut with the {len(characters) - 1:,} characters of a model; {unknown:,} "
            f"({unknown / points.size:.2%}) aren't among them, and stand as one that is unknown"
        )
    elif unknown:
        notes.append(f"{unknown:,} characters are too rare to be learned, and stand as one")
    rows = _Rows(
        {language.TOKENS: tokens}, language.numbered(following[order], characters), fields
    )
    return _described_as(source, content, rows, train=len(train), held_out=held_out, notes=notes)


def _source_of(path: Path) -> dict[str, str]:
    return {"kind": path.suffix.lower().lstrip("."), "name": path.name}


def _pairs(
    source: Source,
    given: int | BytePairs,
    content: str,
    points: NDArray[np.int64],
    out: NDArray[np.bool_],
) -> snapshot.Dataset:
    """A snapshot of windows of tokens: the same characters are held out as without them."""
    path, context = Path(source.location), points.shape[1]
    learned, judged = language.runs(points, out)
    pairs = learn(learned, given) if isinstance(given, int) else given
    (tokens, after), (more, next_after) = (
        language.cut(each, pairs, context) for each in (learned, judged)
    )
    language.check_windows(len(after) + len(next_after), len(next_after), context, path)
    fields = language.fields_of(_source_of(path), pairs.names, context, pairs)
    count = len(after) + len(next_after)
    notes = [
        f"{points.size:,} characters, in {count * context:,} tokens of {pairs.size:,} different "
        f"ones; a row is a window of {context}"
    ]
    if isinstance(given, BytePairs):
        notes.append(f"cut with the {pairs.size:,} tokens of a model")
    elif pairs.size < given:
        notes.append(
            f"the vocabulary has {pairs.size:,} tokens, not {given:,}: no more pairs are there "
            "twice in the training part"
        )
    return _described_in_tokens(
        source, content, fields, ((tokens, after), (more, next_after)),
        held_out=np.flatnonzero(out), notes=notes, pairs=pairs, learned=points[~out],
    )  # fmt: skip


def _described_in_tokens(
    source: Source,
    content: str,
    fields: dict[str, Any],
    parts: tuple[tuple[Indices, Indices], tuple[Indices, Indices]],
    *,
    held_out: Indices,
    notes: list[str],
    pairs: BytePairs,
    learned: NDArray[np.int64],
) -> snapshot.Dataset:
    """A snapshot of rows of tokens, as `_described_as`.

    Args:
        source: where they come from.
        content: digest of what was read.
        fields: of the description.
        parts: of the training part and of what is held out, rows and the token after each.
        held_out: places of what is held out, in what was read.
        notes: for people.
        pairs: the vocabulary.
        learned: characters of the training part.
    """
    (tokens, after), (more, next_after) = parts
    rows = _Rows(
        {language.TOKENS: np.concatenate([tokens, more])},
        np.concatenate([after, next_after]),
        fields,
    )
    made = _described_as(
        source, content, rows, train=len(after), held_out=held_out, notes=notes, pairs=pairs
    )
    # Of tokens, which are words of the text, nothing is said in the open: of its characters, how
    # often each is there, as where they are the tokens.
    made.description["statistics"]["target"] = _of_characters(language.counts(learned))
    return made


def _of_characters(counts: dict[str, int]) -> dict[str, Any]:
    return {"kind": "characters", "counts": counts}


def _conversations(source: Source) -> snapshot.Dataset:
    """A snapshot of conversations, of which some are held out."""
    path, given = Path(source.location), source.vocabulary
    _check_language(source, "a file of conversations")
    if given is not None and not isinstance(given, int | BytePairs):
        raise WorkloadError(
            "the model of --vocabulary-of knows characters alone, and conversations need tokens "
            "that no text has, which pairs of bytes have: begin with a model whose text was cut "
            "with --vocabulary"
        )
    context = language.CONTEXT if source.context is None else source.context
    template = source.template or CHATML
    every = conversations.read(path, source.encoding)
    found: list[conversations.Conversation] = list(dict.fromkeys(every))
    if len(found) < conversations.LEAST:
        raise WorkloadError(
            f"{path} has {len(found):,} different conversations; at least "
            f"{conversations.LEAST} are needed, and some hundreds for a model of use"
        )
    content = snapshot.digest(
        [[[message.role, message.content] for message in each] for each in found]
    )
    train, held_out = stratified(
        np.zeros(len(found), dtype=np.int64), source.holdout,
        generator(source.seed, int(content[:16], 16)),
    )  # fmt: skip
    pairs = given
    parts: list[list[int]] = [train.tolist(), held_out.tolist()]
    texts = [each.content for place in parts[0] for each in found[place]]
    if not isinstance(pairs, BytePairs):
        pairs = learn(texts, pairs or conversations.VOCABULARY)
    learned, judged = (
        conversations.rows([found[place] for place in part], template, pairs, context)
        for part in parts
    )
    left_out = learned.left_out + judged.left_out
    if not len(learned.after) or not len(judged.after):
        raise WorkloadError(
            f"{left_out:,} of {len(found):,} conversations of {path} have no answer that ends "
            f"within {context:,} tokens, so that none is left to learn or to judge by: take a "
            "larger --context"
        )
    fields = language.fields_of(_source_of(path), pairs.names, context, pairs)
    fields["features"][0]["chat"] = template.to_json()
    fields["dropped"] = left_out + len(every) - len(found)
    return _described_in_tokens(
        source, content, fields, ((learned.tokens, learned.after), (judged.tokens, judged.after)),
        held_out=held_out[judged.kept], pairs=pairs,
        notes=_notes_of_conversations(len(every) - len(found), learned, judged, pairs, context),
        learned=language.points_of("".join(texts)),
    )  # fmt: skip


def _notes_of_conversations(
    twice: int,
    learned: conversations.Rows,
    judged: conversations.Rows,
    pairs: BytePairs,
    context: int,
) -> list[str]:
    count = len(learned.after) + len(judged.after)
    notes = [
        f"{count:,} conversations, in tokens of {pairs.size:,} different ones; a row is one of "
        f"up to {context:,}, of which the assistant's are learned"
    ]
    shortened = learned.shortened + judged.shortened
    left_out = learned.left_out + judged.left_out
    if twice:
        notes.append(f"{twice:,} conversations were left out: they are there before")
    if shortened:
        notes.append(f"{shortened:,} are longer, and end with their last answer that fits")
    if left_out:
        notes.append(f"{left_out:,} were left out: not even their first answer fits")
    return notes


def write(dataset: snapshot.Dataset, output: Path, keyring: KeyRing | None) -> Path:
    """Write ``dataset`` below ``output`` unless it is there already; return its folder.

    The folder is named by the first 16 digits of the digest and appears whole or not at all. A
    damaged or differently sealed folder of that name is replaced.

    Raises:
        StorageFullError: there is no space; nothing half written stays.
        WorkloadError: the folder can't be written.
    """
    final = output / dataset.digest[:16]
    if _is_whole(final, keyring):
        return final
    make_folder(output)
    with replacing_folder(final) as stage:
        target = dataset.description["target"]
        data = snapshot.encode(dataset.inputs, dataset.labels, target, dataset.pairs)
        context = snapshot.context_of(dataset.digest)
        write_artifact(stage / snapshot.DATA, data, keyring, context)
        if dataset.rest is not None:
            shards.write(stage, dataset.rest(), dataset, keyring)
        created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        description = {**dataset.description, "sealed": keyring is not None, "created": created}
        write_json_atomic(stage / snapshot.DESCRIPTION, description)
    return final


def _refuse_options_of_texts(source: Source) -> None:
    for option in _OF_TEXTS:
        if (given := getattr(source, option)) is not None:
            shown = "vocabulary-of" if isinstance(given, Vocabulary) else f"{option} {given}"
            raise WorkloadError(
                f"--{shown} is of texts, and {source.location} is none: leave it out"
                + (f", or learn from a column of texts of shards (--task {LANGUAGE})"
                   if Path(source.location).is_dir() else "")
            )  # fmt: skip
    if source.task == LANGUAGE:
        raise WorkloadError(
            f"--task {LANGUAGE} is of texts, and {source.location} is none: give a "
            f"{', '.join(bounds.ENDINGS['texts'])} file, a folder of such, a "
            f"{', '.join(bounds.ENDINGS['conversations'])} file of conversations, or a folder of "
            "shards with the column of texts as --target"
        )


def _check_options(source: Source) -> None:
    for option, bound in bounds.DATASET.items():
        given = getattr(source, option)
        if given is not None and not isinstance(given, Vocabulary):
            bound.check(f"--{option}", given)
    bounds.CHOICES["dataset"]["task"].check("--task", source.task)


def _digits(source: Source) -> _Rows:
    _check_target(source, "the digits", TARGET)
    images, labels = load()
    fields = {
        "source": {"kind": SOURCE, "name": "scikit-learn digits"},
        "target": TARGET,
        "classes": [str(digit) for digit in range(10)],
        **pictures.fields_of(images.shape[1:], LARGEST_PIXEL),
        "read": [],
        "dropped": 0,
    }
    return _Rows({IMAGE: images}, labels, fields)


def _pictures(source: Source) -> _Rows:
    from falaj.workloads.training import picture_files  # noqa: PLC0415 - only where it is needed

    _check_target(source, "pictures in folders", CLASS)
    folder = Path(source.location)
    found = picture_files.read(folder)
    shape = found.images.shape[1:]
    fields = {
        "source": {"kind": "pictures", "name": folder.resolve().name},
        "target": CLASS,
        "classes": found.classes,
        **pictures.fields_of(shape, picture_files.LARGEST),
        "read": picture_files.described(shape, found.twice, found.contrary, folder),
        "dropped": found.twice,
    }
    return _Rows({IMAGE: found.images}, found.labels, fields)


def _check_target(source: Source, what: str, target: str) -> None:
    if source.target not in {None, target}:
        raise WorkloadError(
            f"{what} have one target, {target!r}, not {source.target!r}: leave --target away"
        )
    if source.task == "regression":
        raise WorkloadError(f"{what} are classified: use --task auto or classification")


def _table(source: Source) -> _Rows:
    path = Path(source.location)
    table = read_table(path, source.encoding)
    names = list(table.column_names)
    listed = ", ".join(repr(name) for name in names[:40]) + (", …" if len(names) > 40 else "")
    if source.target is None:
        raise WorkloadError(f"name the column to predict (--target); {path} has: {listed}")
    if source.target not in names:
        raise WorkloadError(f"{path} has no column {source.target!r} to predict; it has: {listed}")
    mark = decimal_mark(table.columns)
    joined = _joined(source, table, path)
    column = interpret(source.target, table.column(source.target), mark)
    if isinstance(column, Excluded):
        raise WorkloadError(f"the target column {source.target!r} can't be used: {column.reason}")
    target = interpret_target(column, source.task)
    features, excluded = _features(_beside(source, table, mark, joined), target.kept)
    if not features:
        reasons = "; ".join(f"{item.name!r}: {item.reason}" for item in excluded[:10])
        raise WorkloadError(f"{path} has no usable column beside the target ({reasons or 'none'})")
    fields = {
        "source": {
            "kind": path.suffix.lower().lstrip("."),
            "name": path.name,
            **({"tables": [each.described for each in joined]} if joined else {}),
        },
        "family": "table",
        "task": target.task,
        "target": source.target,
        "classes": target.classes,
        "features": [_described(item) for item in features],
        "excluded": [{"name": item.name, "reason": item.reason} for item in excluded],
        "read": [*_readings([column, *features]), *(each.note for each in joined)],
        "dropped": int((~target.kept).sum()),
    }
    return _Rows({item.name: item.values for item in features}, target.labels, fields)


def _readings(columns: list[Column]) -> list[str]:
    """How columns were read, in words, where that isn't plain."""
    by_note: dict[str, list[str]] = {}
    for column in columns:
        if column.note:
            by_note.setdefault(column.note, []).append(repr(column.name))
    return [f"{note}: {', '.join(names)}" for note, names in by_note.items()]


def _described(column: Column) -> dict[str, Any]:
    described: dict[str, Any] = {"name": column.name, "kind": column.kind, "shape": [1]}
    return described if column.form is None else {**described, "form": asdict(column.form)}


def _joined(source: Source, table: Any, path: Path) -> list[feature_tables.Joined]:
    """What the feature tables give.

    Raises:
        WorkloadError: they can't be joined, or the target says which row is meant.
    """
    if source.features is None:
        return []
    if source.target in source.features.beside:
        raise WorkloadError(
            f"the target column {source.target!r} says which row of a feature table is meant; "
            "predict another one"
        )
    return feature_tables.join(table, source.features, path)


def _beside(
    source: Source, table: Any, mark: Mark, joined: list[feature_tables.Joined]
) -> Iterator[tuple[str, Any, Mark] | Excluded]:
    """The columns beside the target, with what their file writes before decimals."""
    finding = source.features.beside if source.features is not None else {}
    for name, data in zip(table.column_names, table.columns, strict=True):
        if name in finding:
            yield Excluded(name, finding[name])
        elif name != source.target:
            yield name, data, mark
    for each in joined:
        for name, data in each.columns.items():
            yield name, data, each.mark


def _features(
    columns: Iterable[tuple[str, Any, Mark] | Excluded], kept: NDArray[np.bool_]
) -> tuple[list[Column], list[Excluded]]:
    features: list[Column] = []
    excluded: list[Excluded] = []
    for each in columns:
        if isinstance(each, Excluded):
            excluded.append(each)
            continue
        name, data, mark = each
        column = interpret(name, data.filter(kept), mark)
        if isinstance(column, Column):
            reason = useless(column)
            if reason is None:
                features.append(column)
                continue
            column = Excluded(name, reason)
        excluded.append(column)
    return features, excluded


def statistics_of(
    inputs: dict[str, NDArray[Any]], labels: NDArray[Any], fields: dict[str, Any], train: int
) -> dict[str, Any]:
    """Describe columns and target before anything replaces what is missing.

    Args:
        inputs: by column, (rows, …).
        labels: class numbers or values, (rows,).
        fields: of dataset.json: ``features`` and ``classes``.
        train: how many of the first rows are described; the rest is held out.
    """
    kinds = {item["name"]: item["kind"] for item in fields["features"]}
    features: dict[str, Any] = {}
    for name, values in inputs.items():
        if kinds[name] == language.TOKENS:  # numbers of characters have no distance
            continue
        if values.dtype != object:
            features[name] = of_numbers(values[:train])
            if values.ndim == 4:
                features[name]["parts"] = _parts(values[:train])
            continue
        features[name] = of_texts(values[:train])
        if kinds[name] != "text":
            features[name]["lengths"] = of_numbers(lengths(values[:train]))
        if kinds[name] == "words":
            # What somebody wrote stays in the sealed rows.
            features[name] |= {"categories": {}, "others": features[name]["count"]}
    target = (
        of_classes(labels[:train], fields["classes"])
        if fields["classes"] is not None
        else of_numbers(labels[:train])
    )
    return {"features": features, "target": target}


def _notes(rows: _Rows) -> list[str]:
    notes: list[str] = []
    dropped = int(rows.fields["dropped"])
    if dropped and rows.fields["target"] != CLASS:
        notes.append(f"{dropped:,} rows without a target were dropped")
    for item in rows.fields["excluded"]:
        notes.append(f"column {item['name']!r} was left out: {item['reason']}")
    if rows.fields["classes"] is not None:
        counts = np.bincount(rows.labels)
        single = [rows.fields["classes"][index] for index in np.flatnonzero(counts == 1)]
        if single:
            notes.append(
                f"classes with a single row are trained on but not measured: {', '.join(single)}"
            )
    return notes


def _is_whole(path: Path, keyring: KeyRing | None) -> bool:
    if not artifact_path(path / snapshot.DATA, keyring).exists():
        return False
    try:
        dataset = snapshot.open_dataset(path, keyring)
        if dataset.stream is not None:
            shards.Shards(dataset).check_there()
    except WorkloadError:
        return False
    return True
