"""One look after the other: what the server reports, what is decided, what is done about it."""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Protocol

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import write_atomic
from falaj.workloads.rollout.pairs import Outcomes
from falaj.workloads.surrogates import bytes_of
from falaj.workloads.watching.beside import Demands, Judged, Standing, judge
from falaj.workloads.watching.exchange import NoAnswerError, UndeliveredError
from falaj.workloads.watching.memory import (
    MEMORY,
    WEEK,
    Carrier,
    Last,
    LedgerKind,
    Memory,
    Message,
    Pending,
    Told,
    WatchError,
)
from falaj.workloads.watching.report import Report, digest_of

Seen = Literal["fine", "drifted", "unknown"]
_MOST_TRIES: Final = 12
"""Of one message: with pauses that double from half a minute to an hour, some five hours."""
_HOUR: Final = 3_600
SIGNAL: Final = "signal.json"
TELL, SHADOW, ROLL_BACK, RETRAIN = STEPS = ("tell", "shadow", "rollBack", "retrain")
"""What may be done about drift, in this order."""
_CALLED: Final = {ROLL_BACK: "rollback", RETRAIN: "retraining"}
_KINDS: Final[Mapping[LedgerKind, str]] = {
    "labels": "answers whose label came back were wrong",
    "answers": "requests failed",
}


Tell = Callable[[str, str, Mapping[str, Any]], None]
"""Called with an event's name, a sentence and its figures."""


class NoDataError(Exception):
    """There is nothing that could be learned from; the message says why."""


@dataclass(frozen=True)
class Source:
    """What could be learned from.

    Attributes:
        shown: what people know it by.
        digest: of what it holds: what is the same needs no second retraining.
        given: what ``falaj:dataset`` has to say for it; None: it does already, or there is none.
    """

    shown: str
    digest: str
    given: str | None = None


@dataclass(frozen=True)
class Updated:
    """What became of a retraining.

    Attributes:
        outcome: ``done``; ``asked``: who trains was asked to, and nobody waits for it; ``busy``:
            somebody else works on it, nothing was begun; ``refused``: the new model isn't worth
            serving; ``stopped``; ``failed``.
        detail: why, in a line; empty where it is done.
    """

    outcome: Literal["done", "asked", "busy", "refused", "stopped", "failed"]
    detail: str = ""


class Wishes(Protocol):
    """What is asked of a watch."""

    @property
    def steps(self) -> Sequence[str]:
        """What may be done, of `STEPS`."""
        ...

    @property
    def carriers(self) -> Sequence[Carrier]:
        """How messages are sent; empty: they aren't."""
        ...

    @property
    def cool_down_hours(self) -> float:
        """How long after a rollback or a retraining none is begun."""
        ...

    @property
    def most_retrainings_per_week(self) -> int:
        """Most of them begun within seven days."""
        ...


class World(Protocol):
    """What a watch looks at and acts on."""

    def settings(self) -> Wishes | None:
        """What is asked of the watch now; None: nothing is.

        Raises:
            WatchError: that can't be known.
        """
        ...

    def report(self) -> Report:
        """What is reported of drift. Raises NoAnswerError."""
        ...

    def served(self) -> int | None:
        """The version that is served now."""
        ...

    def source(self, report: Report, now: float) -> Source:
        """What could be learned from. Raises NoDataError."""
        ...

    def learned(self) -> str:
        """Digest of what was learned from last. Raises NoDataError."""
        ...

    def dataset(self) -> str | None:
        """What the stack's file says of its dataset; None where there is none."""
        ...

    def retrain(self, source: Source, report: Report, signal: str) -> Updated:
        """Have a model learn.

        Args:
            source: from what.
            report: what that is done about.
            signal: digest of what was seen.
        """
        ...

    def put_back(self, pending: Pending) -> None:
        """Have all as it was before a retraining that didn't come to its end.

        Raises:
            WatchError: it can't be done.
        """
        ...

    def follow(self, *, drifted: bool) -> str:
        """What became of a retraining that was asked for; empty where nothing is to be told.

        Args:
            drifted: whether it is still needed; where not, one that nobody began isn't wanted.

        Raises:
            NoAnswerError: that can't be known.
        """
        ...

    def send(self, message: Mapping[str, Any], delivery: str, now: float, *, by: Carrier) -> None:
        """Send to the webhook, or by mail. Raises UndeliveredError."""
        ...


class Versions(Protocol):
    """Versions of a model that follow each other, for who may go back by one."""

    def alpha(self) -> float:
        """How seldom a version may be called worse where it isn't."""
        ...

    def failures(self, version: int) -> Outcomes:
        """Requests of a version, and those that the server failed. Raises NoAnswerError."""
        ...

    def previous(self) -> int | None:
        """The version that a rollback would go to."""
        ...

    def barred(self) -> str:
        """Why none of them can be put back from here, whatever it is like; or nothing."""
        ...

    def roll_back(self, version: int) -> str:
        """Serve the one before a version again; returns why it couldn't be, or nothing."""
        ...


class Shadows(Protocol):
    """A version that gets copies of requests, for who may have it serve."""

    def demands(self) -> Demands:
        """What is demanded of it."""
        ...

    def standing(self) -> Standing | None:
        """What it came to; None: there is none. Raises NoAnswerError."""
        ...

    def promote(self, version: int) -> str:
        """Have it serve, and be no shadow any more; returns why it couldn't be, or nothing."""
        ...

    def withdraw(self, version: int) -> str:
        """Have it be no shadow any more; returns why it couldn't be, or nothing."""
        ...


class Audit(Protocol):
    """A log that can't be changed unseen."""

    def event(self, name: str, **fields: Any) -> None:
        """Append a record."""
        ...


@dataclass
class Watch:
    """The watch over one model that is served.

    Attributes:
        stack: what it is of: a stack's name, or an inference service's.
        folder: where what is remembered and signalled lies; it exists.
        world: what is looked at and acted on.
        versions: what is counted of versions, and gone back by; None: nothing is.
        audit: where each step is written down.
        tell: says what is seen and done.
        by: who acts, for the audit log.
        clock: Unix time in seconds. Default: the machine's.
        shadows: the version that gets copies of requests; None: there can't be one.
        further: name of the further model of a server that is looked at; empty: it is the first.
        origin: who makes the model, in words that are told with its drift; empty: the stack does.
    """

    stack: str
    folder: Path
    world: World
    audit: Audit
    tell: Tell
    by: str
    clock: Callable[[], float] = time.time
    versions: Versions | None = None
    shadows: Shadows | None = None
    further: str = ""
    origin: str = ""
    memory: Memory = field(init=False)
    _path: Path = field(init=False)
    _carriers: Sequence[Carrier] = field(init=False, default=())

    def __post_init__(self) -> None:
        """Read what is remembered. Raises WatchError: it can't be."""
        self._path = self.folder / MEMORY
        self.memory = Memory.read(self._path)

    def begin(self, process: int) -> None:
        """Take over from a watch that ended, and say what it left undone."""
        self.memory.process = process
        settings = self.world.settings()
        self._carriers = settings.carriers if settings is not None else ()
        if self.memory.pending is not None:
            self._settle(self.memory.pending)
        self._keep()

    def look(self) -> Seen:
        """Look once, and do what is to be done.

        Raises:
            WatchError: the stack's file or the watch's own can't be used.
        """
        settings = self.world.settings()
        if settings is None:
            self._wait("idle", "the stack's file asks for no watch (falaj:watch)")
            self._keep()
            return "unknown"
        self.memory.waiting.pop("idle", None)
        self._carriers = settings.carriers
        self.memory.put_back_to(self.clock())
        if self.memory.pending is not None:
            # Of this process: the stack's file or the disk didn't let it come to its end.
            self._settle(self.memory.pending)
        seen = self._look(settings)
        self.memory.looked = self.clock()
        self._deliver()
        self._keep()
        return seen

    def _look(self, settings: Wishes) -> Seen:
        memory = self.memory
        try:
            report = self.world.report()
        except NoAnswerError as error:
            if memory.silent != str(error):
                memory.silent = str(error)
                self._note("silent", str(error), posted=False)
            return "unknown"
        if memory.silent:
            memory.silent = ""
            self._note("answers", "the server's report on drift is there again", posted=False)
        if memory.served != report.version:
            if memory.served is not None:
                text = f"version {report.version} serves, where version {memory.served} did"
                self._note("version", text, version=report.version, posted=False)
            memory.served, memory.waiting = report.version, {}
        self._count(report)
        self._follow(report)
        self._tell_drift(report)
        worse = self._worse(report)
        self._act(report, worse, settings)
        if report.state == "drifted" or worse is not None:
            return "drifted"
        return "unknown" if report.state == "no reference" else "fine"

    def _act(self, report: Report, worse: str | None, settings: Wishes) -> None:
        """Do the first of the steps that is due."""
        shadow = None
        if self.shadows is not None and SHADOW in settings.steps:
            shadow = self._judge_shadow(report, self.shadows)
        if isinstance(shadow, Judged):
            # What is reported is of before; the next look sees what it changed.
            return
        if worse is not None and self.versions is not None and ROLL_BACK in settings.steps:
            if barred := self.versions.barred():
                self._leave(report, worse, barred)
            else:
                self._roll_back(report, self.versions, worse, settings)
        elif report.state == "drifted" and RETRAIN in settings.steps:
            if shadow is None:
                self._retrain(report, settings)
            else:
                text = f"not retrained: version {shadow.version} is looked at as a shadow first"
                self._wait("retrain", text)
        elif worse is not None:
            self._wait("rollBack", f"{worse}; rollBack isn't among the steps")

    # What is told.

    def _tell_drift(self, report: Report) -> None:
        reported = self.memory.told
        if report.state != "drifted":
            if reported is not None:
                self.memory.told = None
                self.memory.waiting.pop("retrain", None)
                text = f"{report.model} version {report.version} is as it was trained again"
                if report.state != "ok":
                    text = f"version {report.version} of {report.model} is judged anew"
                self._note("ended", text, episode=reported.episode)
            if report.state == "no reference":
                self._wait(
                    "reference",
                    f"the package of {report.model} version {report.version} says nothing that "
                    "drift could be judged by: train it anew with this release",
                )
            return
        names = list(report.drifted)
        if reported is not None and reported.episode == report.episode:
            if set(names) <= set(reported.names):
                return
            names = sorted({*reported.names, *names})
        self.memory.told = Told(episode=report.episode, names=names)
        text = f"{report.model} version {report.version} drifted: {report.why}"
        text += f"; {self.origin}" if self.origin else ""
        self._note("drift", text, **_figures(report))
        self._signal(report, "")

    def _signal(self, report: Report, data: str) -> str:
        """Write what was seen into a file that other programs can read; returns its digest."""
        document = {**_figures(report), "stack": self.stack, "data": data}
        digest = digest_of(document)
        self._write(SIGNAL, {"signal": digest, "time": _stamp(self.clock()), **document})
        return digest

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        try:
            text = json.dumps(document, indent=1, ensure_ascii=False) + "\n"
            write_atomic(self.folder / name, bytes_of(text))
        except WorkloadError as error:
            raise WatchError(str(error)) from None

    def _follow(self, report: Report) -> None:
        """Tell what became of a retraining that others do."""
        try:
            became = self.world.follow(drifted=report.state == "drifted")
        except NoAnswerError as error:
            self._wait("follow", str(error))
            return
        if became and became != self.memory.followed:
            self.memory.followed = became
            self._note("followed", became, version=report.version)

    # What is done.

    def _count(self, report: Report) -> None:
        if self.versions is None:
            return
        previous = self.versions.previous()
        if report.outcomes is not None:
            self.memory.ledger("labels").take(report.version, report.outcomes, previous)
        try:
            failures = self.versions.failures(report.version)
        except NoAnswerError as error:
            self._wait("metrics", str(error))
            return
        self.memory.ledger("answers").take(report.version, failures, previous)

    def _worse(self, report: Report) -> str | None:
        """Why the version that serves is worse than the one before it; None: nobody knows that.

        Where inputs drifted, both versions would see them, and outcomes of other weeks say
        nothing of the versions.
        """
        withdrawn = self.memory.withdrawn
        if self.versions is None or report.inputs_drifted or report.version in withdrawn:
            return None
        for kind, what in _KINDS.items():
            compared = self.memory.ledger(kind).compared
            if compared is None or compared.version != report.version:
                continue
            evidence = compared.now().evidence
            if evidence.is_worse(self.versions.alpha()):
                return (
                    f"version {report.version} is worse than version {compared.other}: of "
                    f"{evidence.pairs:,} pairs {evidence.mine:,} {what}, and "
                    f"{evidence.other:,} of the other's"
                )
        return None

    def _leave(self, report: Report, why: str, barred: str) -> None:
        """Tell whoever can of a worse version that can't be put back from here, once."""
        # What is compared grows with each look; the version stays.
        if self.memory.waiting.get("barred") != str(report.version):
            self.memory.waiting["barred"] = str(report.version)
            text = f"{why}; not rolled back: {barred}"
            self._note("worse", text, version=report.version)

    def _roll_back(self, report: Report, versions: Versions, why: str, settings: Wishes) -> None:
        now, memory = self.clock(), self.memory
        if (cooling := self._cooling(settings, now)) is not None:
            self._wait("rollBack", f"{why}; {cooling}")
            return
        memory.begin(Pending(step="rollBack", time=now, version=report.version, why=why))
        self._keep()
        self._note("rollBack", f"rolling back: {why}", posted=False, version=report.version)
        refused = versions.roll_back(report.version)
        served = self.world.served()
        outcome = f"not rolled back: {refused}" if refused else f"version {served} serves again"
        memory.end(outcome, self.clock())
        self._note("rolledBack", f"{outcome}; {why}", version=report.version, serves=served)
        self._keep()

    def _judge_shadow(self, report: Report, shadows: Shadows) -> Standing | Judged | None:
        """Have a shadow serve that is fit to, and end one that isn't.

        Returns:
            One that goes on as it is; or what was done about one; None without any.
        """
        try:
            standing = shadows.standing()
        except NoAnswerError as error:
            self._wait("shadow", str(error))
            return None
        if standing is None or standing.version == report.version:
            self.memory.waiting.pop("shadow", None)
            return None
        judged = judge(standing, shadows.demands(), self.clock())
        if judged.verdict == "wait":
            self._wait("shadow", judged.why)
            return standing
        version, is_fit = standing.version, judged.verdict == "promote"
        text = f"{judged.verdict}: {judged.why}"
        self._note("judged", text, posted=False, version=version, served=report.version)
        refused = (shadows.promote if is_fit else shadows.withdraw)(version)
        if refused:
            self._wait("shadow", f"not done ({judged.verdict}): {refused}")
            return standing
        self.memory.waiting.pop("shadow", None)
        event, became = (
            ("promoted", "serves") if is_fit else ("withdrawn", "is no shadow any more")
        )
        text = f"version {version} {became}: {judged.why}"
        self._note(event, text, version=version, served=report.version)
        return judged

    def _retrain(self, report: Report, settings: Wishes) -> None:
        now, memory = self.clock(), self.memory
        held = self._cooling(settings, now) or self._spent(settings, now)
        if held is not None:
            self._wait("retrain", held)
            return
        try:
            source = self.world.source(report, now)
            learned = self.world.learned()
        except NoDataError as error:
            self._wait("retrain", f"not retrained: {error}")
            return
        if source.digest == learned:
            self._wait(
                "retrain", f"not retrained: {source.shown} is what the stack learned from last"
            )
            return
        if (before := memory.tried.get(source.digest)) is not None:
            self._wait("retrain", f"not retrained: {source.shown} was tried already, and {before}")
            return
        self._learn(report, source, now)

    def _learn(self, report: Report, source: Source, now: float) -> None:
        memory, acted, last = self.memory, self.memory.acted, self.memory.last
        signal = self._signal(report, source.digest)
        memory.begin(
            Pending(
                step="retrain", time=now, version=report.version, why=report.why,
                data=source.digest, dataset=self.world.dataset(), given=source.given,
            )
        )  # fmt: skip
        self._keep()
        self._note(
            "retrain", f"retraining with {source.shown}: {report.why}", posted=False,
            version=report.version, signal=signal, data=source.digest,
        )  # fmt: skip
        done = self._up(source, report, signal)
        served = self.world.served()
        if done.outcome not in ("done", "asked") and memory.pending is not None:
            self.world.put_back(memory.pending)
        if done.outcome in ("busy", "stopped"):
            if done.outcome == "busy":
                memory.put_off(acted, last)
            else:
                self._stopped()
            self._wait("retrain", f"not retrained: {done.detail}")
            self._keep()
            return
        outcome = _became(done, served, report.version, self._beside())
        event = "asked" if done.outcome == "asked" else "retrained"
        # What failed for another reason than the data may be tried with them once more.
        memory.end(outcome, self.clock(), tried=done.outcome != "failed")
        memory.waiting = {}
        self._note(
            event, f"{event}: {outcome}", version=report.version, serves=served,
            signal=signal, data=source.digest,
        )  # fmt: skip
        self._keep()

    def _beside(self) -> int | None:
        """The shadow's version."""
        with contextlib.suppress(NoAnswerError):
            standing = self.shadows.standing() if self.shadows is not None else None
            return standing.version if standing is not None else None
        return None

    def _up(self, source: Source, report: Report, signal: str) -> Updated:
        try:
            return self.world.retrain(source, report, signal)
        except WatchError as error:
            return Updated("failed", " ".join(str(error).split()))

    def _stopped(self) -> None:
        """It was asked to end: the same data may be tried again once it has cooled down."""
        pending = self.memory.pending
        if pending is not None:
            self.memory.last = Last(time=self.clock(), step=pending.step, outcome="stopped")
            self.memory.pending = None

    def _settle(self, pending: Pending) -> None:
        """Find out what became of a step in whose midst a watch ended."""
        served = self.world.served()
        if pending.version is not None and served not in (None, pending.version):
            outcome = f"version {served} serves"
            self.memory.end(outcome, self.clock())
            text = f"the {_CALLED[pending.step]} that a watch was ended in did its work: {outcome}"
        else:
            self.world.put_back(pending)
            self._stopped()
            text = (
                f"a watch was ended in the midst of a {_CALLED[pending.step]}, which counts as "
                "one; the stack is as it was, and its next `up` goes on from what is there"
            )
        self._note("settled", text, since=_stamp(pending.time), reason=pending.why)

    # What keeps from doing anything.

    def _cooling(self, settings: Wishes, now: float) -> str | None:
        acted = self.memory.acted
        if acted is None:
            return None
        until = acted + settings.cool_down_hours * _HOUR
        if now >= until:
            return None
        return f"nothing is begun before {_stamp(until)}: the last step cools down"

    def _spent(self, settings: Wishes, now: float) -> str | None:
        lately = [each for each in self.memory.retrainings if now - WEEK < each <= now]
        if len(lately) < settings.most_retrainings_per_week:
            return None
        return (
            f"not retrained: {len(lately)} retrainings were begun within seven days, which is the "
            f"most (mostRetrainingsPerWeek of the watch); the next may begin "
            f"{_stamp(min(lately) + WEEK)}"
        )

    def _wait(self, topic: str, text: str) -> None:
        """Say why nothing is done, once for as long as it stays so."""
        if self.memory.waiting.get(topic) != text:
            self.memory.waiting[topic] = text
            self._note("waits", text, posted=False)

    # Where it is written down.

    def _note(self, event: str, text: str, *, posted: bool = True, **figures: Any) -> None:
        """Say it, write it into the audit log, and have it sent where it is news."""
        if self.further:
            figures = {"model": self.further, **figures}
            text = text if text.startswith(f"{self.further} ") else f"{self.further}: {text}"
        self.tell(event, text, figures)
        self.audit.event(event, by=self.by, stack=self.stack, text=text, **figures)
        for carrier in self._carriers if posted else ():
            delivery = str(uuid.uuid4())
            body = {
                "event": event, "stack": self.stack, "text": text, "time": _stamp(self.clock()),
                "delivery": delivery, **figures,
            }  # fmt: skip
            if self.memory.post(delivery, body, carrier):
                self._record("dropped", text="the oldest message")

    def _deliver(self) -> None:
        """Send what is due; what isn't taken stays, for hours."""
        now = self.clock()
        silent: set[str] = set()
        for message in list(self.memory.outbox):
            if message.due > now or message.by in silent:
                continue
            try:
                self.world.send(message.body, message.delivery, now, by=message.by)
            except UndeliveredError as error:
                self._undelivered(message, error, now)
                if not error.for_good:
                    # Who doesn't answer one won't answer the next.
                    silent.add(message.by)
            else:
                self.memory.outbox.remove(message)
                self._record("sent", delivery=message.delivery)

    def _undelivered(self, message: Message, error: UndeliveredError, now: float) -> None:
        if error.for_good or message.tries + 1 >= _MOST_TRIES:
            self.memory.outbox.remove(message)
            text = f"{error}; the message {message.body.get('event')} is given up"
            self._note("unsent", text, posted=False, delivery=message.delivery)
            return
        pause = self.memory.try_later(message, now)
        for each in self.memory.outbox:
            if each.by == message.by:
                each.due = max(each.due, message.due)
        text = f"{error}; it is tried again in {pause:.0f} s"
        self.tell("unsent", text, {})
        if message.tries == 1:
            self._record("unsent", text=text)

    def _record(self, event: str, **facts: Any) -> None:
        of = {"model": self.further} if self.further else {}
        self.audit.event(event, by=self.by, stack=self.stack, **of, **facts)

    def _keep(self) -> None:
        self.memory.write(self._path)


def _became(done: Updated, served: int | None, before: int, beside: int | None) -> str:
    if done.outcome == "refused":
        return f"version {served} goes on to serve, as the new one isn't worth it: {done.detail}"
    if done.outcome == "asked":
        return f"{done.detail}; version {served} goes on to serve meanwhile"
    if done.outcome == "failed":
        return f"version {served} goes on to serve, as the stack didn't come up: {done.detail}"
    if served == before and beside not in (None, before):
        return f"version {beside} is the shadow of version {served}, which goes on to serve"
    if served == before:
        return f"the stack came up without a new version; version {served} serves"
    return f"version {served} serves, in the place of version {before}"


def _figures(report: Report) -> dict[str, Any]:
    rows = [*report.features, *report.outputs]
    return {
        "model": report.model,
        "version": report.version,
        "episode": report.episode,
        "since": report.since,
        "rows": report.filled,
        "drifted": list(report.drifted),
        "figures": {each.name: dict(each.figures) for each in rows if each.state == "drifted"},
    }


def _stamp(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
