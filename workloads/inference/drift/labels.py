"""What turned out to be true: labels that come later, joined with what was answered.

A label names the id of its request. The master remembers ids as keyed digests with what was
answered to them, up to `MAX_IDS` and `MAX_BYTES`; the oldest go first, and are counted. What is
remembered never leaves the master: reports hold sums alone.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import struct
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import numpy as np

from falaj.workloads.documents import is_dictionary, is_sequence
from falaj.workloads.inference.drift.reference import Answers, Reference
from falaj.workloads.inference.drift.streams import Adwin
from falaj.workloads.inference.errors import bad_request, json_of
from falaj.workloads.inference.protocol.oip import MAX_ID_CHARACTERS, Array
from falaj.workloads.surrogates import bytes_of

MAX_LABELS: Final = 10_000
"""Ids in one request of feedback."""
MAX_LABELLED_ROWS: Final = 100_000
"""Likewise labels."""
MAX_IDS: Final = 200_000
MAX_BYTES: Final = 64 * 1024 * 1024
MAX_ROWS_OF_ID: Final = 1_024
"""Requests of more rows aren't remembered."""
MAX_KEPT_CLASSES: Final = 32
"""Of more classes, only the chosen one's probability is remembered, and no log loss is told."""
LEAST_LABELS: Final = 200
"""Before a verdict."""
RECENT: Final = 5_000
"""Labelled rows that figures are of."""
LEAST_Z: Final = 4.0
LEAST_GAP: Final = 0.02
"""A stated probability is off where hits are so many standard errors and such a share away."""
_ENDING_Z: Final = 3.0
"""Where it is off no more: a verdict at its limit would change with each label."""
_BINS: Final = 10
_ENTRY_BYTES: Final = 200
"""Of a key, its place and its object, beside what is remembered."""
_DIGEST_BYTES: Final = 16
_CALLER_BYTES: Final = 8
_HEAD = struct.Struct(f"<{_DIGEST_BYTES}s{_CALLER_BYTES}sI")
_LEAST_PROBABILITY: Final = 1e-7

UNLABELLED: Final = None
INVALID: Final = "?"

OUTCOMES: Final = ("matched", "unknown", "repeated", "invalid", "other_version")


def digest(identifier: str) -> bytes:
    """Return what stands for an id: ids may be long, or say something of people."""
    return hashlib.blake2b(bytes_of(identifier), digest_size=_DIGEST_BYTES).digest()


def width_of(answers: Answers) -> int:
    """Return how many numbers are remembered of a row."""
    if answers.probabilities is None:
        return 1
    return len(answers.classes) if len(answers.classes) <= MAX_KEPT_CLASSES else 2


class Sender:
    """A worker's answers to requests with ids, on their way to the master.

    Args:
        answers: which outputs they are.
        output_names: of the model, in the order of its results.
        send: takes packed answers.
        soon: calls a function a moment later.
    """

    def __init__(
        self,
        answers: Answers,
        output_names: Sequence[str],
        send: Callable[[bytes], None],
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._answers = answers
        self._name = answers.output
        self._names = list(output_names)
        self._send = send
        self._soon = soon
        self._packed: list[bytes] = []

    def add(
        self, identifier: str, caller: str, names: Sequence[str] | None, results: Sequence[Any]
    ) -> None:
        """Take an answered request; without the model's answer among its outputs, it isn't one."""
        asked = names or self._names
        if self._name not in asked:
            return
        rows = np.asarray(results[asked.index(self._name)])
        rows = rows.reshape(len(rows), -1)
        if not 0 < len(rows) <= MAX_ROWS_OF_ID:
            return
        if self._answers.probabilities is not None and len(self._answers.classes) > (
            MAX_KEPT_CLASSES
        ):
            rows = np.column_stack([rows.argmax(axis=1), rows.max(axis=1)])
        if rows.shape[1] != width_of(self._answers):
            return
        if not self._packed:
            self._soon(self.flush)
        self._packed.append(
            _HEAD.pack(digest(identifier), digest(caller)[:_CALLER_BYTES], len(rows))
            + rows.astype("<f4").tobytes()
        )

    def flush(self) -> None:
        """Send what is waiting."""
        packed, self._packed = self._packed, []
        if packed:
            self._send(b"".join(packed))


def parse(body: bytes | bytearray, answers: Answers | None) -> list[tuple[str, list[Any]]]:
    """Read a request of feedback.

    Returns:
        By digest of an id (hexadecimal) the labels of its rows: the class's number, or a number;
        `UNLABELLED` where the row has none, `INVALID` where the model has no such class.

    Raises:
        RequestError: 400, it is no such request.
    """
    document = json_of(body)
    entries = document.get("labels") if is_dictionary(document) else None
    if not is_sequence(entries) or not entries:
        raise bad_request('the request must be an object with a list of labels: {"labels":'
                          '[{"id":"…","label":…}]}')  # fmt: skip
    if len(entries) > MAX_LABELS:
        raise bad_request(f"{len(entries)} labels in one request; at most {MAX_LABELS} are "
                          "allowed, so send several requests")  # fmt: skip
    classes = answers.places if answers else {}
    found: list[tuple[str, list[Any]]] = []
    rows = 0
    for number, each in enumerate(entries):
        where = f"label {number}"
        entry: dict[str, Any] = each
        if not isinstance(each, dict):
            raise bad_request(f"{where} must be an object with id and label")
        identifier = entry.get("id")
        if type(identifier) is not str or not 0 < len(identifier) <= MAX_ID_CHARACTERS:
            raise bad_request(f"{where}: id must be a text of 1 to {MAX_ID_CHARACTERS} characters")
        if entry.get("label") is None:
            raise bad_request(f"{where}: label is missing")
        given = entry["label"]
        values = given if is_sequence(given) else [given]
        rows += len(values)
        if rows > MAX_LABELLED_ROWS:
            raise bad_request(f"labels of more than {MAX_LABELLED_ROWS} rows in one request")
        found.append(
            (digest(identifier).hex(), [_label(where, value, classes) for value in values])
        )
    return found


def _label(where: str, value: Any, classes: dict[str, int]) -> Any:
    if value is None:
        return UNLABELLED
    if type(value) not in (str, int, float, bool):
        raise bad_request(f"{where}: label must be a class or a number, or a list of them by row")
    if type(value) is float and not math.isfinite(value):
        raise bad_request(f"{where}: label must be a finite number")
    if not classes:
        return float(value) if type(value) in (int, float) else INVALID
    if type(value) is bool:
        # As Parquet, Python and spreadsheets write it.
        text = str(value)
        known = (classes.get(each) for each in (text.lower(), text, text.upper()))
        return next((place for place in known if place is not None), INVALID)
    if type(value) is float and value.is_integer():
        value = int(value)
    return classes.get(str(value), INVALID)


class Memory:
    """What was answered to which id, over all versions."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(16)
        # By keyed digest: version, moment of the answer, and who asked with the packed rows
        # behind (none once labelled); nobody where several callers used the id. The oldest entry
        # of a plain dict is found slowly where many have gone before it.
        self._known: OrderedDict[bytes, tuple[int, float, bytes]] = OrderedDict()
        self._bytes = 0
        self.forgotten = 0
        """Ids that went before a label came."""

    def _keyed(self, identifier: bytes) -> bytes:
        return hashlib.blake2b(identifier, digest_size=_DIGEST_BYTES, key=self._key).digest()

    def take(self, version: int, packed: bytes, width: int, now: float) -> int:
        """Remember a worker's packed answers; returns how many ids they were."""
        position = count = 0
        while position + _HEAD.size <= len(packed):
            identifier, caller, rows = _HEAD.unpack_from(packed, position)
            position += _HEAD.size
            end = position + rows * width * 4
            if end > len(packed):
                break
            self._put(self._keyed(identifier), (version, now, caller + packed[position:end]))
            position = end
            count += 1
        return count

    def _put(self, key: bytes, entry: tuple[int, float, bytes]) -> None:
        # An id that is used again means the newer answer; of another caller, none: nobody may
        # choose what another one's label is joined with.
        before = self._known.pop(key, None)
        if before is not None:
            self._bytes -= _bytes_of(before)
            if before[2][:_CALLER_BYTES] != entry[2][:_CALLER_BYTES]:
                entry = (*entry[:2], b"")
        self._known[key] = entry
        self._bytes += _bytes_of(entry)
        while len(self._known) > MAX_IDS or self._bytes > MAX_BYTES:
            _, gone = self._known.popitem(last=False)
            self._bytes -= _bytes_of(gone)
            self.forgotten += len(gone[2]) > _CALLER_BYTES

    def find(self, identifier: bytes) -> tuple[int, float, bytes] | None:
        """Return what was answered, None of an id that isn't known or is of several callers."""
        known = self._known.get(self._keyed(identifier))
        if known is None or not known[2]:
            return None
        return (*known[:2], known[2][_CALLER_BYTES:])

    def labelled(self, identifier: bytes) -> None:
        """Keep of an id only that its label has come."""
        key = self._keyed(identifier)
        version, moment, packed = self._known[key]
        self._bytes -= len(packed) - _CALLER_BYTES
        self._known[key] = (version, moment, packed[:_CALLER_BYTES])


def _bytes_of(entry: tuple[int, float, bytes]) -> int:
    return _ENTRY_BYTES + max(0, len(entry[2]) - _CALLER_BYTES)


class Labels:
    """What labels say of one version.

    Args:
        reference: of the version's package.
        memory: what was answered.
        version: its number.
    """

    def __init__(self, reference: Reference, memory: Memory, version: int) -> None:
        self._reference = reference
        self._memory = memory
        self._version = version
        self._answers = reference.answers
        self._width = width_of(reference.answers) if reference.answers is not None else 1
        self.answered = 0
        self.received = 0
        self.counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        # Of the newest labelled rows: stated probability, hit, loss; or prediction and truth.
        self._rows: deque[tuple[float, float, float]] = deque(maxlen=RECENT)
        self._delays: deque[float] = deque(maxlen=1_000)
        self._stream = Adwin()
        self._alarm: float | None = None  # loss below which it ends
        self.seen = 0
        self.wrong = 0
        self.squares = 0.0
        """Sum of squared errors of numbers."""
        self._calibrated: tuple[int, dict[str, float] | None, bool] = (-1, None, False)

    @property
    def version(self) -> int:
        """Whose labels they are."""
        return self._version

    @property
    def answers(self) -> Answers | None:
        """What the version's answers are; None: nothing says it."""
        return self._answers

    def knows(self, identifier: bytes) -> bool:
        """Tell whether an id is of an answer of this version's."""
        known = self._memory.find(identifier)
        return known is not None and known[0] == self._version

    def remember(self, packed: bytes, now: float) -> None:
        """Take a worker's answers to requests with ids."""
        self.answered += self._memory.take(self._version, packed, self._width, now)

    def join(
        self, entries: Sequence[tuple[str, Sequence[Any]]], by: Answers | None = None
    ) -> dict[str, int]:
        """Join labels with what was answered.

        Args:
            entries: of `parse`.
            by: what they were parsed by, where that was another version's. Default: this one's.

        Returns:
            How many came to what.
        """
        now = time.time()
        counts: dict[str, int] = dict.fromkeys(OUTCOMES, 0)
        is_other = by is not None and by != self._answers
        for identifier, given in entries:
            values = [self._renamed(each, by) for each in given] if is_other and by else given
            outcome = self._join_one(bytes.fromhex(identifier), values, now)
            counts[outcome] += 1
        for outcome, count in counts.items():
            self.counts[outcome] += count
        self.received += len(entries)
        return {"received": len(entries), **counts}

    def _renamed(self, value: Any, by: Answers) -> Any:
        """Return this version's label for another version's."""
        if value is UNLABELLED or value == INVALID:
            return value
        places = self._answers.places if self._answers is not None else {}
        if not by.classes:
            return value if not places else INVALID
        place: int = value
        return places.get(by.classes[place], INVALID)

    def _join_one(self, identifier: bytes, values: Sequence[Any], now: float) -> str:
        known = self._memory.find(identifier)
        if known is None:
            return "unknown"
        version, moment, packed = known
        if not packed:
            return "repeated"
        if version != self._version:
            return "other_version"
        rows = np.frombuffer(packed, "<f4").reshape(-1, self._width)
        if len(values) != len(rows) or INVALID in values:
            return "invalid"
        self._memory.labelled(identifier)
        self._delays.append(max(0.0, now - moment))
        for row, value in zip(rows, values, strict=True):
            if value is not UNLABELLED:
                self._score(row, value)
        return "matched"

    def _score(self, row: Array, value: float) -> None:
        self.seen += 1
        if self._answers is None or self._answers.probabilities is None:
            predicted = float(row[0])
            error = abs(predicted - value)
            self.squares += error * error
            # In units of the error that was measured; ten times as much is as bad as it gets.
            unit = self._reference.rmse or 1.0
            self._rows.append((predicted, float(value), 0.0))
            self._watch(1.0 if math.isnan(error) else min(error / unit, 10.0) / 10)
            return
        if len(row) == len(self._answers.classes):
            chosen = int(row.argmax())
            stated, of_truth = float(row[chosen]), float(row[int(value)])
        else:
            chosen, stated = int(row[0]), float(row[1])
            of_truth = stated if chosen == value else math.nan
        hit = float(chosen == value)
        self.wrong += chosen != value
        loss = (
            -math.log(max(of_truth, _LEAST_PROBABILITY)) if not math.isnan(of_truth) else math.nan
        )
        self._rows.append((stated, hit, loss))
        # Brier's score of what was stated: from 0 to 1, as the stream asks for.
        self._watch(min(1.0, (stated - hit) ** 2))

    def _watch(self, loss: float) -> None:
        before = self._stream.mean
        if self._stream.update(loss) and self._stream.rose:
            level = (before + self._stream.mean) / 2
            self._alarm = level if self._alarm is None else min(level, self._alarm)
        elif self._alarm is not None and self._stream.mean < self._alarm:
            self._alarm = None

    # -- figures ---------------------------------------------------------------------------

    @property
    def calibration(self) -> tuple[dict[str, float] | None, bool]:
        """As `_calibration`, computed once for the same labels."""
        if self._calibrated[0] != self.seen:
            self._calibrated = (self.seen, *self._calibration())
        return self._calibrated[1:]

    def _calibration(self) -> tuple[dict[str, float] | None, bool]:
        """Return the bin whose hits are furthest from what was stated, and if it is too far.

        Ten bins of as many rows each; a sum of hits has the variance of the sum of p (1 - p)
        where the stated p hold (Spiegelhalter, Statistics in Medicine 5, 1986). Of probabilities
        near 1 such a sum isn't normal, so that Bennett's bound has to say as well that it is rare
        (Journal of the American Statistical Association 57, 1962).
        """
        if self._is_regression or len(self._rows) < LEAST_LABELS:
            return None, False
        rows = np.array(self._rows)
        order = np.argsort(rows[:, 0], kind="stable")
        worst: tuple[float, float] = (0.0, 0.0)
        least_gap = LEAST_GAP + self._reference.calibration_gap
        least_z = _ENDING_Z if self._calibrated[2] else LEAST_Z
        is_off = False
        for part in np.array_split(order, _BINS):
            stated, hits = rows[part, 0], rows[part, 1]
            error = math.sqrt(max(float((stated * (1 - stated)).sum()), 1e-6))
            z = float((hits - stated).sum()) / error
            gap = float((hits - stated).mean())
            is_far = abs(z) > least_z and _rarity(error**2, abs(z) * error) > least_z**2 / 2
            is_off = is_off or (is_far and abs(gap) > least_gap)
            worst = max(worst, (z, gap), key=lambda each: abs(each[0]))
        return {"z": worst[0], "gap": worst[1]}, is_off

    @property
    def _is_regression(self) -> bool:
        return self._answers is None or self._answers.probabilities is None

    @property
    def state(self) -> str:
        """``collecting``, ``ok`` or ``drifted``."""
        if self.seen < LEAST_LABELS:
            return "collecting"
        return "drifted" if self._alarm is not None or self.calibration[1] else "ok"

    def report(self) -> dict[str, Any]:
        """Return the figures; None where there are none."""
        rows = np.array(self._rows) if self._rows else np.zeros((0, 3))
        some = len(rows) > 0
        losses = rows[:, 2]
        log_loss = float(losses.mean()) if some and not np.isnan(losses).any() else None
        with np.errstate(over="ignore"):
            error = float(np.sqrt(((rows[:, 0] - rows[:, 1]) ** 2).mean())) if some else None
        regression = self._is_regression
        return {
            "state": self.state,
            "received": self.received,
            "matched": self.counts["matched"],
            "coverage": self.counts["matched"] / self.answered if self.answered else None,
            # Of all labelled rows, not the newest alone: whoever compares versions needs counts.
            "scored": self.seen,
            "wrong": self.wrong if not regression else None,
            "accuracy": float(rows[:, 1].mean()) if some and not regression else None,
            "log_loss": log_loss if not regression else None,
            "reference_log_loss": self._reference.log_loss,
            "rmse": error if regression else None,
            "reference_rmse": self._reference.rmse,
            "calibration": self.calibration[0],
            "median_delay_seconds": float(median(self._delays)) if self._delays else None,
            **{name: self.counts[name] for name in OUTCOMES if name != "matched"},
            "forgotten": self._memory.forgotten,
        }


def _rarity(variance: float, distance: float) -> float:
    """Return Bennett's bound of how seldom a sum is so far off its mean, as -log of the chance."""
    ratio = distance / variance
    return variance * ((1 + ratio) * math.log1p(ratio) - ratio)
