"""A world that a watch looks at, without a server, a registry or an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from falaj.stacks.settings.watching import DemandsSettings, WatchSettings
from falaj.workloads.rollout.pairs import Outcomes
from falaj.workloads.watching.beside import Standing
from falaj.workloads.watching.exchange import NoAnswerError, UndeliveredError
from falaj.workloads.watching.ladder import NoDataError, Source, Updated, Watch
from falaj.workloads.watching.memory import Carrier, Pending, WatchError
from falaj.workloads.watching.report import Report, read_report
from falaj.workloads.watching.webhook import WebhookError
from tests.stacks.watching.reports import report


class Crash(BaseException):
    """The process ends here, whatever it was doing."""


@dataclass
class FakeWorld:
    """What tests say is true; and what was done to it."""

    asked: dict[str, Any] = field(default_factory=dict[str, Any])
    says: dict[str, Any] | str = field(default_factory=report)
    counted: Outcomes | str = field(default_factory=Outcomes)
    before: int | None = None
    serving: int | None = 1
    data: Source | str = field(default_factory=lambda: Source("/data/shop.csv", "new"))
    learned_from: str | None = "old"
    said: str | None = "shop.csv"
    becomes: Updated = field(default_factory=lambda: Updated("done"))
    refuses: str = ""
    bars: str = ""
    became: str = ""
    first: bool = False
    beside: Standing | str | None = None
    hook: WebhookError | None = None
    deaf: set[str] = field(default_factory=set[str])
    crashes_in: str = ""
    done: list[str] = field(default_factory=list[str])
    sent: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])

    def settings(self) -> WatchSettings | None:
        return None if self.asked.get("none") else WatchSettings.model_validate(self.asked)

    def report(self) -> Report:
        if isinstance(self.says, str):
            raise NoAnswerError(self.says)
        return read_report(json.dumps(self.says).encode(), "shop")

    def alpha(self) -> float:
        return WatchSettings.model_validate(self.asked).alpha

    def failures(self, version: int) -> Outcomes:
        del version
        if isinstance(self.counted, str):
            raise NoAnswerError(self.counted)
        return self.counted

    def demands(self) -> DemandsSettings:
        return WatchSettings.model_validate(self.asked).shadow

    def standing(self) -> Standing | None:
        if isinstance(self.beside, str):
            raise NoAnswerError(self.beside)
        return self.beside

    def promote(self, version: int) -> str:
        self._do(f"promote {version}")
        if not self.refuses:
            self.serving, self.beside = version, None
        return self.refuses

    def withdraw(self, version: int) -> str:
        self._do(f"withdraw {version}")
        if not self.refuses:
            self.beside = None
        return self.refuses

    def previous(self) -> int | None:
        return self.before

    def served(self) -> int | None:
        return self.serving

    def barred(self) -> str:
        return self.bars

    def roll_back(self, version: int) -> str:
        del version
        self._do("rollBack")
        if not self.refuses:
            self.serving, self.before = self.before, None
        return self.refuses

    def source(self, report: Report, now: float) -> Source:
        del report, now
        if isinstance(self.data, str):
            raise NoDataError(self.data)
        return self.data

    def learned(self) -> str:
        if self.learned_from is None:
            raise NoDataError("the stack's state can't be read")
        return self.learned_from

    def dataset(self) -> str | None:
        return self.said

    def set_dataset(self, given: str) -> None:
        if given == "bad.csv":
            raise WatchError("falaj:dataset: given 'bad.csv'")
        self._do(f"dataset {given}")
        self.said = given

    def put_back(self, pending: Pending) -> None:
        if pending.given is None or pending.dataset is None:
            return
        if self.dataset() == pending.given:
            self.set_dataset(pending.dataset)

    def follow(self, *, drifted: bool) -> str:
        del drifted
        return self.became

    def retrain(self, source: Source, report: Report, signal: str) -> Updated:
        del report, signal
        if source.given is not None:
            self.set_dataset(source.given)
        self._do("up")
        if self.becomes.outcome == "done" and isinstance(self.data, Source):
            self.learned_from = self.data.digest
            new = (self.serving or 0) + 1
            if self.first:
                self.beside = Standing(new)
            else:
                self.serving = new
        return self.becomes

    def send(self, message: Mapping[str, Any], delivery: str, now: float, *, by: Carrier) -> None:
        del now
        if by in self.deaf:
            raise UndeliveredError("nobody answers", for_good=False)
        if self.hook is not None:
            raise self.hook
        self.sent.append({**message, "delivery": delivery, "by": by})

    def _do(self, what: str) -> None:
        self.done.append(what)
        if self.crashes_in == what:
            raise Crash


@dataclass
class Kept:
    """An audit log in memory."""

    events: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def event(self, name: str, **fields: Any) -> None:
        self.events.append({"event": name, **fields})


@dataclass
class Scene:
    """A watch in a world, with a clock that tests turn."""

    folder: Path
    world: FakeWorld = field(default_factory=FakeWorld)
    audit: Kept = field(default_factory=Kept)
    said: list[str] = field(default_factory=list[str])
    now: float = 2_000_000_000.0
    further: str = ""
    origin: str = ""
    watch: Watch = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """A new process of the watch."""
        self.watch = Watch(
            "shop", self.folder, self.world, self.audit,
            lambda event, text, figures: self.said.append(f"{event}: {text}"),
            "tester", lambda: self.now, self.world, self.world, self.further, self.origin,
        )  # fmt: skip
        self.watch.begin(1)

    def look(self, hours: float = 0.0) -> str:
        """Let time pass, and look."""
        self.now += hours * 3_600
        return self.watch.look()

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Records of the audit log of these names."""
        return [each for each in self.audit.events if each["event"] in names]
