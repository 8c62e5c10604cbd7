"""What a watch remembers over restarts and crashes, and how long it does.

One private file, replaced as a whole before and after each step, so that a ceiling of tries holds
whatever happens in between.
"""

from __future__ import annotations

import dataclasses
import json
import math
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, cast, get_args, get_origin, get_type_hints

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import write_atomic
from falaj.workloads.rollout.pairs import Comparison, Evidence, Outcomes
from falaj.workloads.surrogates import bytes_of

WEEK: Final = 7 * 86_400
MOST_OUTCOMES: Final = 10_000
"""Of a version, that are kept for a comparison: it finds a rise from 1 to 2 % with a third."""
MEMORY: Final = "memory.json"
"""The file, in the watch's folder."""
_MOST_TRIED: Final = 50
_MOST_MESSAGES: Final = 100
_MOST_VERSIONS: Final = 10

LedgerKind = Literal["labels", "answers"]
"""``labels``: wrong answers among those whose label came back; ``answers``: requests that the
server failed to answer."""


Carrier = Literal["webhook", "mail"]
"""How a message is sent."""


class WatchError(WorkloadError):
    """What a watch can't go on with: what it remembers, or what is asked of it."""


@dataclass(frozen=True)
class Told:
    """Drift that was told."""

    episode: str
    names: list[str]


@dataclass(frozen=True)
class Pending:
    """A step that was begun."""

    step: Literal["rollBack", "retrain"]
    time: float
    version: int | None
    """That served when it was begun."""
    why: str
    data: str = ""
    """Digest of what was learned from."""
    dataset: str | None = None
    """What the stack's file said before it was changed."""
    given: str | None = None
    """What it was changed to."""


@dataclass(frozen=True)
class Last:
    """The last rollback or retraining."""

    time: float
    step: str
    outcome: str


@dataclass
class Message:
    """One that wasn't taken yet."""

    delivery: str
    body: dict[str, Any]
    tries: int = 0
    due: float = 0.0
    by: Carrier = "webhook"


@dataclass(frozen=True)
class Compared:
    """Two versions whose outcomes are compared."""

    version: int
    other: int
    evidence: tuple[int, int, int, float, float]
    left: tuple[int, int]

    def now(self) -> Comparison:
        """The comparison as it stands."""
        return Comparison(Evidence(*self.evidence), Outcomes(*self.left), self.version)

    @classmethod
    def of(cls, version: int, other: int, found: Comparison) -> Compared:
        """What is kept of a comparison."""
        of = found.evidence
        return cls(
            version=version, other=other,
            evidence=(of.pairs, of.mine, of.other, of.wealth, of.most),
            left=(found.left.count, found.left.failed),
        )  # fmt: skip


@dataclass
class Ledger:
    """Outcomes of one kind, by version."""

    seen: tuple[int, int, int] | None = None
    """Version, and how many there were and failed at the last look, as the server counts."""
    kept: dict[int, tuple[int, int]] = field(default_factory=dict[int, tuple[int, int]])
    compared: Compared | None = None

    def take(self, version: int, counted: Outcomes, previous: int | None) -> None:
        """Take what the server counts for the version that it serves.

        Args:
            version: that is served.
            counted: since the server began to count, which it may do anew.
            previous: the version that a rollback would go to.
        """
        new = self._grown(version, counted)
        self.seen = (version, counted.count, counted.failed)
        before = Outcomes(*self.kept.pop(version, (0, 0)))
        total = before.plus(new).at_most(MOST_OUTCOMES)
        self.kept[version] = (total.count, total.failed)
        for oldest in list(self.kept)[:-_MOST_VERSIONS]:
            del self.kept[oldest]
        if previous is None or previous not in self.kept:
            self.compared = None
            return
        compared = self.compared
        if compared is None or (compared.version, compared.other) != (version, previous):
            start = Comparison(Evidence(), Outcomes(*self.kept[previous]), version)
            self.compared = Compared.of(version, previous, start.with_outcomes(total))
        else:
            self.compared = Compared.of(version, previous, compared.now().with_outcomes(new))

    def _grown(self, version: int, counted: Outcomes) -> Outcomes:
        if self.seen is None or self.seen[0] != version:
            return counted
        _, count, failed = self.seen
        if counted.count < count:
            return counted
        grown = counted.count - count
        # A share that was rounded may come back as one failure fewer.
        return Outcomes(grown, min(grown, max(0, counted.failed - failed)))


@dataclass
class Memory:
    """Everything that outlives a process."""

    served: int | None = None
    told: Told | None = None
    waiting: dict[str, str] = field(default_factory=dict[str, str])
    """Why nothing was done at the last look, as it was said, by what might have been done."""
    followed: str = ""
    """What became of a retraining that others do, as it was said."""
    silent: str = ""
    """Why the server's report couldn't be had, as it was said."""
    tried: dict[str, str] = field(default_factory=dict[str, str])
    """What became of retrainings, by the digest of their data."""
    retrainings: list[float] = field(default_factory=list[float])
    acted: float | None = None
    """When the last rollback or retraining was begun."""
    withdrawn: list[int] = field(default_factory=list[int])
    """Versions that were rolled back from."""
    pending: Pending | None = None
    last: Last | None = None
    looked: float | None = None
    process: int | None = None
    ledgers: dict[LedgerKind, Ledger] = field(default_factory=dict[LedgerKind, Ledger])
    outbox: list[Message] = field(default_factory=list[Message])

    def begin(self, pending: Pending) -> None:
        """Note that a step is begun, before anything of it is."""
        self.pending = pending
        self.acted = pending.time
        self.last = Last(time=pending.time, step=pending.step, outcome="begun")
        if pending.step == "retrain":
            self.retrainings = [
                *(each for each in self.retrainings if each > pending.time - WEEK), pending.time
            ]  # fmt: skip

    def end(self, outcome: str, now: float, *, tried: bool = True) -> None:
        """Note what became of the step that was begun; ``tried``: its data aren't tried again."""
        pending = self.pending
        if pending is None:
            return
        if pending.data and tried:
            self.tried[pending.data] = outcome
            for oldest in list(self.tried)[:-_MOST_TRIED]:
                del self.tried[oldest]
        if pending.step == "rollBack" and pending.version is not None:
            self.withdrawn = [*self.withdrawn, pending.version][-_MOST_VERSIONS:]
        self.last = Last(time=now, step=pending.step, outcome=outcome)
        self.pending = None

    def put_off(self, acted: float | None, last: Last | None) -> None:
        """Take back a step that wasn't begun after all; both are as they were before."""
        if self.pending is not None and self.pending.step == "retrain":
            self.retrainings = self.retrainings[:-1]
        self.acted, self.pending, self.last = acted, None, last

    def put_back_to(self, now: float) -> None:
        """Take what lies in the future as done now, as the clock was put back.

        So a cool-down neither ends by that nor lasts for ever, and no ceiling is passed.
        """
        if self.acted is not None:
            self.acted = min(self.acted, now)
        self.retrainings = [min(each, now) for each in self.retrainings]

    def ledger(self, kind: LedgerKind) -> Ledger:
        """The outcomes of a kind."""
        return self.ledgers.setdefault(kind, Ledger())

    def post(self, delivery: str, body: Mapping[str, Any], by: Carrier) -> int:
        """Keep a message until it is taken; returns how many older ones had to go for it."""
        self.outbox.append(Message(delivery=delivery, body=dict(body), by=by))
        dropped = len(self.outbox) - _MOST_MESSAGES
        del self.outbox[: max(0, dropped)]
        return max(0, dropped)

    def try_later(self, message: Message, now: float) -> float:
        """Put a message off after a try that failed; returns the seconds until the next."""
        message.tries += 1
        # Spread, so that watches of many machines don't come back at one moment.
        pause = min(3_600.0, 15.0 * 2**message.tries) * random.uniform(0.8, 1.2)  # noqa: S311
        message.due = now + pause
        return pause

    @classmethod
    def of(cls, data: bytes) -> Memory:
        """What a file holds. Raises ValueError, RecursionError: no watch wrote it."""
        found: Memory = _read(cls, json.loads(data), "it")
        return found

    @property
    def document(self) -> bytes:
        """What the file holds: JSON."""
        text = json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n"
        return bytes_of(text)

    @classmethod
    def read(cls, path: Path) -> Memory:
        """What is remembered; nothing where there is no file yet.

        Raises:
            WatchError: it can't be read, or isn't what a watch wrote.
        """
        try:
            return cls.of(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, RecursionError) as error:
            raise WatchError(
                f"what the watch remembers can't be read: {path}: {str(error).splitlines()[0]}\n"
                "  without it no cool-down and no ceiling of retrainings would hold; to begin "
                "anew, move the file away"
            ) from None

    def write(self, path: Path) -> None:
        """Replace the file as a whole.

        Raises:
            WatchError: it can't be written.
        """
        try:
            write_atomic(path, self.document)
        except WorkloadError as error:
            raise WatchError(f"{error}; nothing is done without it") from None


def _read(kind: Any, value: object, at: str) -> Any:
    """A value of JSON as one of an annotated type; what isn't known is refused.

    Raises:
        ValueError: it is no such value.
    """
    of, parts = get_origin(kind), get_args(kind)
    if of is UnionType:
        return None if value is None else _read(parts[0], value, at)
    if of is dict or dataclasses.is_dataclass(kind):
        return _read_object(kind, value, at)
    if of in (list, tuple) and isinstance(value, list):
        entries = cast("list[object]", value)
        kinds = parts if of is tuple else parts * len(entries)
        return cast("Any", of)(
            _read(each, found, at) for each, found in zip(kinds, entries, strict=True)
        )
    if kind is float:
        known = type(value) in (int, float) and math.isfinite(cast("float", value))
    else:
        known = kind is Any or (value in parts if of is Literal else type(value) is kind)
    if known:
        return value
    raise ValueError(f"{at}: given {str(value)[:40]!r}")


def _read_object(kind: Any, value: object, at: str) -> Any:
    if not isinstance(value, dict):
        raise ValueError(f"{at}: no object")
    found = cast("dict[str, object]", value)
    if get_origin(kind) is dict:
        of_key, of_value = get_args(kind)
        return {
            (int(key) if of_key is int else _read(of_key, key, at)): _read(of_value, each, at)
            for key, each in found.items()
        }
    kinds = get_type_hints(kind)
    if unknown := found.keys() - kinds.keys():
        raise ValueError(f"{at}: {', '.join(sorted(unknown))} isn't known")
    try:
        return kind(**{key: _read(kinds[key], each, key) for key, each in found.items()})
    except TypeError as error:
        raise ValueError(f"{at}: {error}") from None
