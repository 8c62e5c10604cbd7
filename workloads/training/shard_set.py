"""Making of a streamed dataset: shards of others surveyed, then cut into sealed ones of one size.

The source is gone through twice, a block of it in memory: once for what its columns are, once for
the rows. What is made is named by digests of the files and of what was asked for, so that the same
isn't made again.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError, some
from falaj.workloads.files import read_json, reading_errors
from falaj.workloads.pictures import CLASS, IMAGE, fields_of
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import shard_files, shard_folder, snapshot
from falaj.workloads.training.models import (
    MAXIMUM_CATEGORIES,
    CategoricalColumn,
    NumericColumn,
    TablePreprocessing,
)
from falaj.workloads.training.randomness import generator
from falaj.workloads.training.shard_files import EMPTY, LABEL, NUMERIC, OTHER, TEXT, Block
from falaj.workloads.training.shards import Shards, Stage
from falaj.workloads.training.snapshot import ShardRows
from falaj.workloads.training.tables import FEW_WHOLE_NUMBERS, MAXIMUM_CLASSES
from falaj.workloads.vocabulary import BytePairs

LEAST_ROWS: Final = 200
"""Fewer leave too little to validate with, and fit into one table."""
SAMPLE_SHARE: Final = 0.1
"""Of the rows, at most, that training is validated with."""
SAMPLE_BYTES: Final = 8 << 20
"""What is held out, and what is validated with, is in memory: each at most so much of it."""
LEAST_SHARD, MOST_SHARD = 1 << 18, 16 << 20
_SHARDS: Final = 256
"""As many are made, as far as their bytes are within these: more are shuffled better."""
_MOST_DIFFERENT: Final = 10_000
"""Texts of a column that are counted; with more it is none of categories."""
_TEXT_BYTES: Final = 64
_SHOWN: Final = 10
_ROLES: Final = 5  # stream of randomness below the seed, beside those of training


@dataclass
class _Numbers:
    """Count, mean and sum of squared deviations of numbers that come in parts.

    Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample
    variances", 1979.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, values: NDArray[np.float64]) -> None:
        """Take more of them; missing ones are NaN."""
        values = values[~np.isnan(values)]
        if not len(values):
            return
        mean, before = float(values.mean()), self.count
        self.squares += float(((values - mean) ** 2).sum())
        self.count += len(values)
        apart = mean - self.mean
        self.squares += apart**2 * before * len(values) / self.count
        self.mean += apart * len(values) / self.count

    @property
    def deviation(self) -> float:
        """Return the standard deviation of the population; 0: they are all the same."""
        return math.sqrt(self.squares / self.count) if self.count else 0.0


@dataclass
class _Found:
    """What is known of a column."""

    kind: str
    numbers: _Numbers = field(default_factory=_Numbers)
    texts: Counter[Any] = field(default_factory=Counter[Any])
    many: bool = False

    def count(self, values: NDArray[Any]) -> None:
        """Count different values, as long as there are few."""
        if not self.many:
            self.texts.update(values.tolist())
            self.many = len(self.texts) > _MOST_DIFFERENT
            if self.many:
                self.texts.clear()


@dataclass
class _Survey:
    """What a first pass over the source has found."""

    first: str
    columns: dict[str, _Found]
    target: str
    rows: int = 0
    dropped: int = 0
    sides: int = 0
    is_grey: bool = True
    by_shard: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True)
class Wanted:
    """What a streamed dataset is to be.

    Attributes:
        folder: of the shards.
        target: column to predict; None: of pictures, their class.
        task: ``auto``, ``classification`` or ``regression``.
        seed: fixes what is held out, and what is validated with.
        holdout: share of the rows that is held out at most.
    """

    folder: Path
    target: str | None
    task: str
    seed: int
    holdout: float

    def made_of(self) -> str:
        """Return the digest of files and wishes.

        Raises:
            WorkloadError: as `digests`.
        """
        return self.made_of_files(digests(self.folder))

    def made_of_files(self, files: list[dict[str, Any]]) -> str:
        """Return the same of files that were read before."""
        wishes = [self.target, self.task, self.seed, self.holdout, LEAST_SHARD, MOST_SHARD]
        return snapshot.digest([snapshot.FORMAT, snapshot.STREAM, wishes, named(files)])

    def make(self) -> Made:
        """Read the source; nothing is written, and a part of it is in memory at a time.

        Raises:
            WorkloadError: a shard or a record can't be used, or nothing can be learned from them.
        """
        return _make(self)


def named(files: list[dict[str, Any]]) -> list[list[str]]:
    """Return name and SHA-256 of each file, by which a dataset that is made of them is known."""
    return [[each["name"], each["sha256"]] for each in files]


def drawn(seed: int, content: bytes) -> tuple[float, float]:
    """Return two numbers from 0 to before 1 that the seed and what is drawn for decide alone.

    So what is there twice has the same ones, and is in one part.
    """
    digest = hashlib.sha256(seed.to_bytes(8, "little", signed=True) + content).digest()
    first, second = (int.from_bytes(digest[place : place + 6]) / 2**48 for place in (0, 8))
    return first, second


@dataclass(frozen=True)
class Shares:
    """How a streamed dataset's rows are divided.

    Attributes:
        held: share that is held out.
        sampled: share that training is validated with.
        shard_rows: of each shard.
    """

    held: float
    sampled: float
    shard_rows: int


def shares(rows: int, holdout: float, row_bytes: int, shown: int) -> Shares:
    """Return how so many rows are divided.

    Args:
        rows: how many there are.
        holdout: share that is held out at most.
        row_bytes: of a row in a shard.
        shown: bytes of a row that is in memory.
    """
    share = max(LEAST_ROWS, SAMPLE_BYTES // shown) / rows
    shard_rows = max(1, bytes_of_shard(rows * row_bytes) // row_bytes)
    return Shares(min(holdout, share), min(SAMPLE_SHARE, share), shard_rows)


def bytes_of_shard(every: int) -> int:
    """Return the bytes of each shard, of which all have so many."""
    return min(MOST_SHARD, max(LEAST_SHARD, every // _SHARDS))


def digests(folder: Path) -> list[dict[str, Any]]:
    """Return name and SHA-256 of each shard of a folder, in order.

    Raises:
        WorkloadError: as `shard_folder.find`.
    """
    found: list[dict[str, Any]] = []
    for path in shard_folder.find(folder):
        with reading_errors(path, "the shard"), path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        found.append({"name": path.name, "sha256": digest})
    return found


def made_before(
    made_of: str, output: Path, keyring: KeyRing | None
) -> tuple[dict[str, Any], Path] | None:
    """Return description and folder of the dataset below ``output`` that was made of the same.

    None: there is none that is whole.
    """
    for path in sorted(output.glob(f"*/{snapshot.DESCRIPTION}")):
        try:
            described: Any = read_json(path, "a dataset's description")
            if described.get(snapshot.STREAM, {}).get("made_of") == made_of:
                Shards(snapshot.open_dataset(path.parent, keyring)).check_there()
                return described, path.parent
        except (WorkloadError, AttributeError):
            continue
    return None


@dataclass(frozen=True)
class Made:
    """A streamed dataset that isn't written yet.

    Attributes:
        inputs: of the sample, then of what is held out.
        labels: theirs.
        fields: of its description.
        sample: rows of the sample.
        held_out: places of what is held out, in what was read.
        stream: of its description.
        rest: the shards' rows.
        pairs: of a text whose tokens aren't its characters.
        characters: how often each is in such a text's training part.
    """

    inputs: dict[str, NDArray[Any]]
    labels: NDArray[Any]
    fields: dict[str, Any]
    sample: int
    held_out: NDArray[np.int64]
    stream: dict[str, Any]
    rest: Callable[[], Iterator[ShardRows]]
    pairs: BytePairs | None = None
    characters: dict[str, int] | None = None


class Divide(Protocol):
    """Goes through a source: yields the shards' rows, and puts the others where they belong."""

    def __call__(
        self, sample: list[ShardRows], held: list[ShardRows], places: list[int]
    ) -> Iterator[ShardRows]:
        """Divide the rows.

        Args:
            sample: gets the rows that are validated with.
            held: gets those that are held out.
            places: gets where these were, in what was read.
        """
        ...


@dataclass(frozen=True)
class Parts:
    """What a source is divided into.

    Attributes:
        sample: rows that are validated with.
        held: rows that are held out.
        places: of what is held out, in what was read.
        shards: rows and digest of each.
    """

    sample: list[ShardRows]
    held: list[ShardRows]
    places: list[int]
    shards: list[list[Any]]

    def joined(self) -> ShardRows:
        """Return the rows of the sample, then those that are held out."""
        every = [*self.sample, *self.held]
        inputs = {name: np.concatenate([each[name] for each, _ in every]) for name in every[0][0]}
        return inputs, np.concatenate([labels for _, labels in every])

    @property
    def sampled(self) -> int:
        """Return how many rows are validated with."""
        return sum(len(labels) for _, labels in self.sample)

    def stream(self, made_of: str, files: list[dict[str, Any]]) -> dict[str, Any]:
        """Return what a description says of the shards."""
        return {
            "rows": sum(int(rows) for rows, _ in self.shards),
            "sample": self.sampled,
            "made_of": made_of,
            "recipe": None,
            "scale": None,
            "shards": self.shards,
            "sources": files,
        }


def divide(by: Divide, stage: Stage | None, what: str, advice: str) -> Parts:
    """Go through a source, and keep what belongs into shards.

    Args:
        by: goes through it.
        stage: keeps the shards' rows. Default: they are needed again.
        what: names a row in errors, as "row of data/visits".
        advice: what to do where there are too few.

    Raises:
        StorageFullError: no space.
        WorkloadError: a part has no row.
    """
    parts = Parts([], [], [], [])
    for inputs, labels in by(parts.sample, parts.held, parts.places):
        parts.shards.append([len(labels), snapshot.digest_rows(inputs, labels)])
        if stage is not None:
            stage.add(inputs, labels)
    for role, found in (
        ("validated with", parts.sample), ("held out", parts.held), ("learned from", parts.shards),
    ):  # fmt: skip
        if not found:
            raise WorkloadError(f"no {what} is {role}, {advice}")
    return parts


def _make(wanted: Wanted) -> Made:
    files = digests(wanted.folder)
    survey = _survey(wanted, [each["name"] for each in files])
    for each in files:
        each["rows"] = survey.by_shard[each["name"]]
    plan = _Plan(wanted, survey)
    advice = f"of {survey.rows:,}: take more rows, or another --seed or --holdout"
    parts = divide(plan.shards, None, f"row of {wanted.folder}", advice)
    inputs, labels = parts.joined()
    resident = {name: plan.resident(values) for name, values in inputs.items()}
    stream = {
        **parts.stream(wanted.made_of_files(files), files),
        "recipe": plan.recipe.to_json() if plan.recipe is not None else None,
        "scale": plan.scale,
    }
    return Made(
        resident, labels, plan.fields, parts.sampled, np.asarray(parts.places, dtype=np.int64),
        stream, lambda: plan.shards([], [], []),
    )  # fmt: skip


def _blocks(folder: Path, names: list[str]) -> Iterator[Block]:
    for name in names:
        yield from shard_files.blocks(folder / name)


def _survey(wanted: Wanted, names: list[str]) -> _Survey:
    survey: _Survey | None = None
    for block in _blocks(wanted.folder, names):
        rows_before = survey.by_shard.get(block.shard, 0) if survey else 0
        if block.rows:
            if survey is None:
                survey = _begin(wanted, block)
            _check_columns(survey, block)
            _add(survey, wanted, block)
        if survey is not None:
            survey.by_shard[block.shard] = rows_before + block.rows
    if survey is None:
        raise WorkloadError(f"the shards of {wanted.folder} have no rows")
    for name in names:
        survey.by_shard.setdefault(name, 0)
    if survey.rows < LEAST_ROWS:
        raise WorkloadError(
            f"the shards of {wanted.folder} have {survey.rows:,} rows with a target; a streamed "
            f"dataset has at least {LEAST_ROWS}: make one of a table of so few (--source FILE)"
        )
    return survey


def _begin(wanted: Wanted, block: Block) -> _Survey:
    columns = {name: _Found(column.kind) for name, column in block.columns.items()}
    if block.pictures:
        if wanted.target not in {None, CLASS}:
            raise WorkloadError(
                f"pictures in shards have one target, {CLASS!r}, not {wanted.target!r}: leave "
                "--target away"
            )
        if wanted.task == "regression":
            raise WorkloadError("pictures are classified: use --task auto or classification")
        return _Survey(block.shard, columns, LABEL)
    listed = some([repr(name) for name in columns], _SHOWN)
    if wanted.target is None:
        raise WorkloadError(f"name the column to predict (--target); {block.shard} has: {listed}")
    if wanted.target not in columns:
        raise WorkloadError(
            f"{block.shard} has no column {wanted.target!r} to predict; it has: {listed}"
        )
    return _Survey(block.shard, columns, wanted.target)


def _check_columns(survey: _Survey, block: Block) -> None:
    """Refuse a shard whose columns are others than those of the first."""
    if (LABEL in block.columns) != (LABEL in survey.columns):
        raise WorkloadError(
            f"the shard {block.shard} has pictures, and {survey.first} fields, or the other way "
            "round: all shards have to be of one kind"
        )
    lacking = [repr(name) for name in survey.columns if name not in block.columns]
    more = [repr(name) for name in block.columns if name not in survey.columns]
    if lacking or more:
        said = [f"lacks {some(lacking, _SHOWN)}"] if lacking else []
        said += [f"has {some(more, _SHOWN)} more"] if more else []
        raise WorkloadError(
            f"the shard {block.shard} {' and '.join(said)} than {survey.first}: all shards have "
            "the same columns"
        )
    for name, column in block.columns.items():
        found = survey.columns[name]
        if found.kind == EMPTY:
            found.kind = column.kind
        elif column.kind not in {found.kind, EMPTY}:
            raise WorkloadError(
                f"the column {name!r} of the shard {block.shard} is {column.kind} (from record "
                f"{block.first:,} on), and of {survey.first} it is {found.kind}: all shards have "
                "columns of the same kinds"
            )
        if column.kind == NUMERIC:
            infinite = np.flatnonzero(np.isinf(column.values))
            if len(infinite):
                raise WorkloadError(
                    f"the column {name!r} of the shard {block.shard} is infinite in record "
                    f"{block.first + int(infinite[0]):,}: write numbers, or nothing where there "
                    "is none"
                )


def _kept(block: Block, target: str) -> NDArray[np.bool_]:
    """Which rows of a block have a target."""
    column = block.columns[target]
    if column.kind == TEXT:
        return column.values != ""
    return ~np.isnan(column.values)


def _add(survey: _Survey, wanted: Wanted, block: Block) -> None:
    kept = _kept(block, survey.target)
    for number, content in enumerate(block.pictures, block.first):
        what = f"record {number:,} of the shard {block.shard}"
        side, is_grey = shard_files.picture(content, None, what)
        survey.sides, survey.is_grey = max(survey.sides, side), survey.is_grey and is_grey
    for name, found in survey.columns.items():
        values = block.columns[name].values[kept]
        if block.columns[name].kind in {EMPTY, OTHER}:
            continue
        if found.kind == NUMERIC:
            found.numbers.add(values.astype(np.float64))
            if name == survey.target:
                found.count(values)
        elif found.kind == TEXT:
            found.count(values[values != ""])
    survey.rows += int(kept.sum())
    survey.dropped += int((~kept).sum())


class _Plan:
    """What becomes of the rows, once all is known of them.

    Args:
        wanted: what is to be made.
        survey: of the first pass.
    """

    def __init__(self, wanted: Wanted, survey: _Survey) -> None:
        self._wanted, self._survey = wanted, survey
        self._target = survey.columns[survey.target]
        is_classified = self._is_classified()
        self._values, classes = self._classes() if is_classified else (None, None)
        self.recipe: TablePreprocessing | None = None
        self.scale: dict[str, float] | None = None
        if not is_classified:
            numbers = self._target.numbers
            self.scale = {"mean": numbers.mean, "scale": numbers.deviation or 1.0}
        fields: dict[str, Any]
        if survey.sides:
            fields, row_bytes, shown = self._of_pictures()
        else:
            fields, row_bytes, shown = self._of_table()
        self._shares = shares(survey.rows, wanted.holdout, row_bytes, shown)
        read = [f"streamed from {len(survey.by_shard):,} shards"]
        for name, found in survey.columns.items():
            if found.kind == NUMERIC and name != survey.target:
                missing = survey.rows - found.numbers.count
                if missing:
                    read.append(
                        f"column {name!r}: {missing:,} missing values, for which the mean stands"
                    )
        self.fields: dict[str, Any] = {
            "source": {
                "kind": f"shards of {Path(survey.first).suffix.lower().lstrip('.')}",
                "name": wanted.folder.resolve().name,
            },
            "task": "classification" if is_classified else "regression",
            "target": CLASS if survey.sides else survey.target,
            "classes": classes,
            **fields,
            "read": read,
            "dropped": survey.dropped,
        }  # fmt: skip

    def _is_classified(self) -> bool:
        target, task, name = self._target, self._wanted.task, self._survey.target
        if target.kind not in {NUMERIC, TEXT}:
            raise WorkloadError(f"the target column {name!r} has neither numbers nor texts")
        if target.kind == TEXT:
            if task == "regression":
                raise WorkloadError(
                    f"the target column {name!r} holds text, which can't be regressed: use --task "
                    "classification, or a target of numbers"
                )
            return True
        if target.numbers.deviation == 0:
            raise WorkloadError(
                f"the target column {name!r} is constant: there is nothing to learn. Choose "
                "another target, or rows with different values"
            )
        if task != "auto":
            return task == "classification"
        few = not target.many and len(target.texts) <= FEW_WHOLE_NUMBERS
        return few and all(float(each).is_integer() for each in target.texts)

    def _classes(self) -> tuple[list[Any], list[str]]:
        target, name = self._target, self._survey.target
        if target.many or len(target.texts) > MAXIMUM_CLASSES:
            raise WorkloadError(
                f"the target column {name!r} has more than {MAXIMUM_CLASSES:,} classes: group "
                "them, or use --task regression for numbers"
            )
        if len(target.texts) < 2:
            raise WorkloadError(f"the target {name!r} has one class alone: two are needed")
        values = sorted(target.texts)
        shown = [
            each if isinstance(each, str) else str(int(each)) if each.is_integer() else repr(each)
            for each in values
        ]
        return values, shown

    def _of_pictures(self) -> tuple[dict[str, Any], int, int]:
        from falaj.workloads.training import picture_files  # noqa: PLC0415 - for pictures alone

        survey = self._survey
        side = picture_files.require_side(survey.sides, self._wanted.folder)
        shape = [1 if survey.is_grey else 3, side, side]
        size = math.prod(shape)
        return fields_of(shape, picture_files.LARGEST), size, 4 * size

    def _of_table(self) -> tuple[dict[str, Any], int, int]:
        survey = self._survey
        numeric: list[NumericColumn] = []
        categorical: list[CategoricalColumn] = []
        excluded: list[dict[str, str]] = []
        for name, found in survey.columns.items():
            if name == survey.target:
                continue
            reason = self._useless(found)
            if reason:
                excluded.append({"name": name, "reason": reason})
            elif found.kind == NUMERIC:
                mean, deviation = found.numbers.mean, found.numbers.deviation
                numeric.append(NumericColumn(name, mean, mean, deviation))
            else:
                frequent = found.texts.most_common(MAXIMUM_CATEGORIES)
                names = sorted(text for text, count in frequent if count > 1)
                categorical.append(CategoricalColumn(name, names))
        if not numeric and not categorical:
            reasons = "; ".join(f"{each['name']!r}: {each['reason']}" for each in excluded)
            is_text = survey.columns[survey.target].kind == TEXT
            raise WorkloadError(
                f"{survey.first} has no usable column beside the target ({reasons or 'none'})"
                + (f"; a language model learns from {survey.target!r} itself (--task language)"
                   if is_text else "")
            )  # fmt: skip
        self.recipe = TablePreprocessing(numeric, categorical)
        kinds = {each.name: "numeric" for each in numeric}
        kinds |= {each.name: "text" for each in categorical}
        features = [
            {"name": name, "kind": kinds[name], "shape": [1]}
            for name in survey.columns if name in kinds
        ]  # fmt: skip
        fields = {"family": "table", "features": features, "excluded": excluded}
        stored = 4 * len(numeric) + _TEXT_BYTES * len(categorical) + 8
        return fields, stored, 4 * self.recipe.width + 2 * stored

    def _useless(self, found: _Found) -> str:
        """Why a column isn't learned from; empty: it is."""
        if found.kind == EMPTY:
            return "it has no value in any row"
        if found.kind == OTHER:
            return "it has neither numbers nor texts"
        if found.kind == NUMERIC:
            is_constant = found.numbers.deviation == 0
            return "every row says the same" if is_constant else ""
        if found.many:
            return f"it has more than {_MOST_DIFFERENT:,} different texts"
        if len(found.texts) > self._survey.rows / 2:
            return "nearly every row has another text, as of an identifier"
        return "every row says the same" if len(found.texts) < 2 else ""

    def resident(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return rows as they are in memory: numbers of tables with 64 bits, pixels with 32."""
        if values.dtype == object:
            return values
        return values.astype(np.float32 if values.ndim > 1 else np.float64)

    def shards(
        self, sample: list[ShardRows], held: list[ShardRows], places: list[int]
    ) -> Iterator[ShardRows]:
        """Divide the rows, as `Divide`; places are among the rows with a target."""
        random, before = generator(self._wanted.seed, _ROLES), 0
        pending: list[ShardRows] = []
        waiting = 0
        for block in _blocks(self._wanted.folder, list(self._survey.by_shard)):
            if not block.rows:
                continue
            inputs, labels = self._rows(block)
            roles = self._roles(inputs, random.random(len(labels)))
            out, judged = roles < self._shares.held, roles >= 1 - self._shares.sampled
            places.extend((before + np.flatnonzero(out)).tolist())
            before += len(labels)
            for chosen, to in ((out, held), (judged & ~out, sample)):
                if chosen.any():
                    to.append(_chosen((inputs, labels), chosen))
            rest = _chosen((inputs, labels), ~out & ~judged)
            if len(rest[1]):
                pending.append(rest)
                waiting += len(rest[1])
            while waiting >= self._shares.shard_rows:
                shard, left = _cut(pending, self._shares.shard_rows)
                pending, waiting = [left], waiting - self._shares.shard_rows
                yield shard
        if waiting:
            yield _cut(pending, waiting)[0]

    def _roles(
        self, inputs: dict[str, NDArray[Any]], chance: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """What of a block's rows decides where they belong: of tables chance alone."""
        if not self._survey.sides:
            return chance
        seed = self._wanted.seed
        return np.asarray([drawn(seed, image.tobytes())[0] for image in inputs[IMAGE]])

    def _rows(self, block: Block) -> ShardRows:
        """The rows of a block that have a target, as shards have them."""
        survey = self._survey
        if block.columns.keys() != survey.columns.keys():
            raise WorkloadError(
                f"the shard {block.shard} changed while it was read: run again once it is complete"
            )
        kept = _kept(block, survey.target)
        labels = block.columns[survey.target].values[kept]
        if self._values is not None:
            try:
                order = {value: number for number, value in enumerate(self._values)}
                labels = np.asarray([order[each] for each in labels.tolist()], dtype=np.int64)
            except KeyError:
                raise WorkloadError(
                    f"the shard {block.shard} changed while it was read: run again once it is "
                    "complete"
                ) from None
        if block.pictures:
            return {IMAGE: self._pictures(block)}, labels
        assert self.recipe is not None  # noqa: S101 - it is a table
        inputs: dict[str, NDArray[Any]] = {}
        for each in self.fields["features"]:
            column = block.columns[each["name"]]
            values = column.values[kept]
            if each["kind"] == "text":
                is_empty = column.kind != TEXT
                values = np.full(len(values), "", dtype=object) if is_empty else values
            else:
                values = values.astype(np.float32)
            inputs[each["name"]] = values
        return inputs, labels

    def _pictures(self, block: Block) -> NDArray[np.uint8]:
        channels, side, _ = self.fields["features"][0]["shape"]
        images = np.empty((block.rows, channels, side, side), dtype=np.uint8)
        for place, content in enumerate(block.pictures):
            what = f"record {block.first + place:,} of the shard {block.shard}"
            images[place] = shard_files.picture(content, side, what)[:channels]
        return images


def _chosen(rows: ShardRows, chosen: NDArray[np.bool_]) -> ShardRows:
    inputs, labels = rows
    return {name: values[chosen] for name, values in inputs.items()}, labels[chosen]


def _cut(parts: list[ShardRows], count: int) -> tuple[ShardRows, ShardRows]:
    """The first rows of several, and the others."""
    inputs = {name: np.concatenate([each[name] for each, _ in parts]) for name in parts[0][0]}
    labels = np.concatenate([each for _, each in parts])
    return (
        ({name: values[:count] for name, values in inputs.items()}, labels[:count]),
        # Copies: the whole needn't be kept for a rest of it.
        ({name: values[count:].copy() for name, values in inputs.items()}, labels[count:].copy()),
    )
