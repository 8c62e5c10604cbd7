"""A worker's counts of what it is asked and what it answers: the rows' cells, for the master.

Answered rows are kept as they came and counted together, every `ROWS` of them or by the worker's
clock, because NumPy takes as long for one row as for hundreds. What is kept is bounded in rows and
in bytes. Counting takes a hundredth of the time at most: after each count the next rows go by
uncounted for as long as that asks, so that a busy server watches a part of its rows.

Counted is what the model was given, before anything replaces what is missing. Warm-ups and health
checks aren't requests and never come here.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads import pictures
from falaj.workloads.inference.drift.reference import Feature, Reference
from falaj.workloads.inference.models.model import RowModel
from falaj.workloads.inference.protocol.oip import Array, Inference

ROWS: Final = 256
KEPT_BYTES: Final = 1024 * 1024
SHARE: Final = 0.01
"""Of the worker's processor time that counting may take."""
_SHARE_OF_CLOCK: Final = 0.001
"""Likewise of the clock's: a worker that has little to do counts all the same."""
_LOOKS: Final = 32
"""Requests between two looks at the processor's clock, which is a call of the system."""
_MOST_ROWS: Final = 4_096
"""Of a request: of more, every so manieth is counted, which takes milliseconds."""


class Counting:
    """The rows of one worker since the last count.

    Args:
        reference: the cells.
        send: takes the counts, as the master reads them: ``rows``, ``counts`` by the layout,
            ``level`` (rows, and sum of probabilities of chosen classes or of predicted numbers)
            and ``busy`` (requests and their seconds).
        output_names: of the model, in the order of its results.
    """

    def __init__(
        self,
        reference: Reference,
        send: Callable[[dict[str, Any]], None],
        output_names: Sequence[str],
    ) -> None:
        self._reference = reference
        self._send = send
        self._outputs = list(output_names)
        self._answer = reference.answers and reference.answers.output
        features = reference.features
        self._columns = _Columns([f for f in features if f.part is None and f.kind != "category"])
        self._categories = [f for f in features if f.kind == "category"]
        self._pictures: dict[str, _Columns] = {
            name: _Columns([f for f in features if f.part is not None and f.source == name])
            for name in {f.source for f in features if f.part is not None}
        }
        self._places = {
            f.name: {text: place for place, text in enumerate(f.categories)}
            for f in self._categories
        }
        self._level = _Columns([reference.level]) if reference.level is not None else None
        self._feeds: list[Mapping[str, Array]] = []
        self._answers: list[Array] = []
        self._rows = 0
        self._bytes = 0
        # When the next count may be, by the clock and by the processor time of this thread.
        self._next = 0.0
        self._next_of_processor = 0.0
        self._passed_by = 0
        self._row: RowModel | None = None
        self._ring = memoryview(b"")
        self._ring_rows = 0
        self._ring_size = 0
        self._ring_used = 0
        # What the ring may hold beside the other requests' rows: both stop together, else on a
        # busy server rows that come one way would be counted more often than others.
        self._ring_end = 0
        self._told = (0, 0.0)

    # -- taking ----------------------------------------------------------------------------

    def row(self, row: RowModel) -> None:
        """Take the row that a `RowModel` has just answered."""
        used = self._ring_used
        if used >= self._ring_end or self._row is not row:
            if not self._makes_room(row):
                return
            used = self._ring_used
        size = self._ring_size
        self._ring[used * size : (used + 1) * size] = row.memory
        self._ring_used = used + 1

    def _makes_room(self, row: RowModel) -> bool:
        """Count a full ring and begin a new one; False while counting rests."""
        if self._row is not row:
            size = len(row.memory)
            self._row, self._ring_size = row, size
            self._ring_rows = max(1, min(ROWS, KEPT_BYTES // size))
            self._ring = memoryview(bytearray(self._ring_rows * size))
            self._ring_used = 0
            self._set_end()
            if self._ring_end:
                return True
        if self._is_resting():
            return False
        self.fold()
        return True

    def _set_end(self) -> None:
        is_full = self._rows >= ROWS or self._bytes >= KEPT_BYTES
        self._ring_end = 0 if is_full else max(0, self._ring_rows - self._rows)

    def _is_full(self) -> bool:
        if self._rows + self._ring_used >= ROWS or self._bytes >= KEPT_BYTES:
            return True
        return self._row is not None and self._ring_used >= self._ring_end

    def add(self, inference: Inference, results: Sequence[Any] | None) -> None:
        """Take an answered request.

        Args:
            inference: the request.
            results: its outputs; None where another version answered.
        """
        if self._is_full():
            if self._is_resting():
                return
            self.fold()
        feed, every = inference.feed, 1
        if inference.rows > _MOST_ROWS:
            every = -(-inference.rows // _MOST_ROWS)
            feed = {name: values[::every] for name, values in feed.items()}
        self._feeds.append(feed)
        self._rows += min(inference.rows, _MOST_ROWS)
        self._bytes += inference.size or sum(each.nbytes for each in inference.feed.values())
        self._set_end()
        if results is None or self._answer is None:
            return
        names = inference.outputs or self._outputs
        if self._answer in names:
            self._answers.append(np.asarray(results[names.index(self._answer)])[::every])

    def _is_resting(self) -> bool:
        if time.perf_counter() >= self._next:
            return False
        self._passed_by += 1
        return bool(self._passed_by % _LOOKS) or time.thread_time() < self._next_of_processor

    # -- counting --------------------------------------------------------------------------

    def flush(self, requests: int, seconds: float) -> None:
        """Count what is there, by the worker's clock.

        Args:
            requests: answered since the start.
            seconds: that their answers took.
        """
        more, longer = requests - self._told[0], seconds - self._told[1]
        if not more or self._is_resting():
            return
        self._told = requests, seconds
        self.fold((more, longer))

    def fold(self, busy: tuple[int, float] = (0, 0.0)) -> None:
        """Count what is there and send it."""
        began = time.thread_time()
        feeds, answers = self._feeds, self._answers
        self._feeds, self._answers, self._rows, self._bytes = [], [], 0, 0
        self._set_end()
        if self._ring_used and self._row is not None:
            given = self._row.rows_of(bytes(self._ring[: self._ring_used * self._ring_size]))
            self._ring_used = 0
            feeds.append(given)
            if self._answer is not None and self._answer in given:
                answers.append(given[self._answer])
        reference = self._reference
        counts = np.zeros(reference.size, dtype=np.int64)
        rows = sum(_rows_of(feed) for feed in feeds)
        if feeds and reference.features:
            self._count_inputs(feeds, counts)
        document: dict[str, Any] = {"rows": rows, "busy": busy}
        if answers and reference.answers is not None:
            document["level"] = self._count_answers(answers, counts)
        document["counts"] = counts.tolist()
        if rows or busy[0]:
            self._send(document)
        ended = time.thread_time()
        self._next = time.perf_counter() + (ended - began) / _SHARE_OF_CLOCK
        self._next_of_processor = ended + (ended - began) / SHARE

    def _count_inputs(self, feeds: Sequence[Mapping[str, Array]], counts: NDArray[Any]) -> None:
        columns = self._columns
        if columns.features:
            columns.count(
                np.column_stack([_numbers_of(feeds, f) for f in columns.features]), counts
            )
        for name, numbers in self._pictures.items():
            shown = np.concatenate([feed[name] for feed in feeds])
            found = pictures.described(shown)
            numbers.count(found[:, [f.part or 0 for f in numbers.features]], counts)
        for feature in self._categories:
            places, unlisted = self._places[feature.name], len(feature.categories)
            texts: list[Any] = _joined(feeds, feature.source).tolist()
            for value, count in Counter(texts).items():
                place = places.get(value, unlisted) if value else -1
                counts[feature.start + 1 + place] += count

    def _count_answers(self, answers: Sequence[Array], counts: NDArray[Any]) -> tuple[int, float]:
        reference = self._reference
        given = np.concatenate([each.reshape(len(each), -1) for each in answers])
        if reference.answers is not None and reference.answers.probabilities is not None:
            chosen, level = given.argmax(axis=1), given.max(axis=1).astype(np.float64)
            mix = reference.mix
            if mix is not None:
                chosen = np.minimum(chosen, len(mix.categories))
                counts[mix.start + 1 : mix.end] += np.bincount(chosen, minlength=len(mix.counts))
        else:
            level = given[:, 0].astype(np.float64)
        level = level[np.isfinite(level)]
        if self._level is not None:
            self._level.count(level[:, None], counts)
        return len(level), float(level.sum())


class _Columns:
    """Features of numbers, counted together."""

    def __init__(self, features: Sequence[Feature]) -> None:
        self.features = list(features)
        most = max((len(f.edges) for f in features), default=0)
        # An edge that isn't there is above every value: infinity is never served.
        self._edges = np.full((len(self.features), most), np.inf, dtype=np.float32)
        for index, feature in enumerate(self.features):
            with np.errstate(over="ignore"):
                self._edges[index, : len(feature.edges)] = feature.edges

    def count(self, values: NDArray[Any], counts: NDArray[Any]) -> None:
        """Add the rows of values (rows, features), NaN where missing, to the list of counts."""
        rows = len(values)
        missing = np.isnan(values).sum(axis=0)
        with np.errstate(invalid="ignore", over="ignore"):
            # In 32 bits, as training rows were counted: a value on an edge stays there.
            narrow = values.astype(np.float32, copy=False)
            # By feature and edge: how many values are at or above it.
            above = (narrow[:, :, None] >= self._edges).sum(axis=0)
        for index, feature in enumerate(self.features):
            edges = len(feature.edges)
            reached = np.concatenate([[rows - missing[index]], above[index, :edges], [0]])
            counts[feature.start] += missing[index]
            counts[feature.start + 1 : feature.end] += reached[:-1] - reached[1:]


def _joined(feeds: Sequence[Mapping[str, Array]], name: str) -> NDArray[Any]:
    """One column of all feeds, flat."""
    return np.concatenate([feed[name].ravel() for feed in feeds])


def _numbers_of(feeds: Sequence[Mapping[str, Array]], feature: Feature) -> NDArray[Any]:
    """One column of numbers, or the lengths of one of texts: NaN where missing."""
    values = _joined(feeds, feature.source)
    if feature.kind == "text":
        return np.array([len(each) or np.nan for each in values.tolist()], dtype=np.float64)
    return values


def _rows_of(feed: Mapping[str, Array]) -> int:
    for array in feed.values():
        return len(array) if array.ndim else 1
    return 0
