"""What a watch remembers over restarts and crashes, and how long it does.

One private file, replaced as a whole before and after each step, so that a ceiling of tries holds
whatever happens in between.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from falaj.engine.files import replace_file
from falaj.stacks.errors import StackError
from falaj.workloads.rollout.pairs import Comparison, Evidence, Outcomes

WEEK: Final = 7 * 86_400
MOST_OUTCOMES: Final = 10_000
"""Of a version, that are kept for a comparison: it finds a rise from 1 to 2 % with a third."""
_MOST_TRIED: Final = 50
_MOST_MESSAGES: Final = 100
_MOST_VERSIONS: Final = 10

LedgerKind = Literal["labels", "answers"]
"""``labels``: wrong answers among those whose label came back; ``answers``: requests that the
server failed to answer."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Told(_Part):
    """Drift that was told."""

    episode: str
    names: list[str]


class Pending(_Part):
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


class Last(_Part):
    """The last rollback or retraining."""

    time: float
    step: str
    outcome: str


class Message(_Part):
    """One that the webhook hasn't taken yet."""

    delivery: str
    body: dict[str, Any]
    tries: int = 0
    due: float = 0.0


class Compared(_Part):
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


class Ledger(_Part):
    """Outcomes of one kind, by version."""

    seen: tuple[int, int, int] | None = None
    """Version, and how many there were and failed at the last look, as the server counts."""
    kept: dict[int, tuple[int, int]] = Field(default_factory=dict[int, tuple[int, int]])
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


class Memory(_Part):
    """Everything that outlives a process."""

    served: int | None = None
    told: Told | None = None
    waiting: dict[str, str] = Field(default_factory=dict[str, str])
    """Why nothing was done at the last look, as it was said, by what might have been done."""
    silent: str = ""
    """Why the server's report couldn't be had, as it was said."""
    tried: dict[str, str] = Field(default_factory=dict[str, str])
    """What became of retrainings, by the digest of their data."""
    retrainings: list[float] = Field(default_factory=list[float])
    acted: float | None = None
    """When the last rollback or retraining was begun."""
    withdrawn: list[int] = Field(default_factory=list[int])
    """Versions that were rolled back from."""
    pending: Pending | None = None
    last: Last | None = None
    looked: float | None = None
    process: int | None = None
    ledgers: dict[LedgerKind, Ledger] = Field(default_factory=dict[LedgerKind, Ledger])
    outbox: list[Message] = Field(default_factory=list[Message])

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

    def post(self, delivery: str, body: Mapping[str, Any]) -> int:
        """Keep a message until it is taken; returns how many older ones had to go for it."""
        self.outbox.append(Message(delivery=delivery, body=dict(body)))
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
    def read(cls, path: Path) -> Memory:
        """What is remembered; nothing where there is no file yet.

        Raises:
            StackError: it can't be read, or isn't what a watch wrote.
        """
        try:
            return cls.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            return cls()
        except (OSError, ValidationError, ValueError) as error:
            raise StackError(
                f"what the watch remembers can't be read: {path}: {str(error).splitlines()[0]}\n"
                "  without it no cool-down and no ceiling of retrainings would hold; to begin "
                "anew, move the file away"
            ) from None

    def write(self, path: Path) -> None:
        """Replace the file as a whole.

        Raises:
            StackError: it can't be written.
        """
        try:
            replace_file(path, self.model_dump_json(indent=1) + "\n", 0o600)
        except OSError as error:
            raise StackError(
                f"{path} can't be written: {error.strerror or error}; nothing is done without it"
            ) from None
