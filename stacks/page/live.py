"""What a server does now: requests, latency and errors, from its metrics, and drawn."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from falaj.stacks.page.form import NOTHING
from falaj.workloads.rollout.measures import Measured, Tally, read

SPAN: Final = 300.0
"""Seconds that are drawn."""
WINDOW: Final = 60.0
"""Seconds over which the figures are taken."""
EVERY: Final = 2.0
"""Seconds between two looks."""
_SOONEST: Final = 0.75 * EVERY
"""Several tabs share one look."""
_SLOW: Final = 0.99
_SHARES: Final = (("half", 0.5), ("95 %", 0.95), ("99 %", _SLOW))
WIDTH: Final = 300
HEIGHT: Final = 60

_Counters = Mapping[tuple[str, str, str], float]


@dataclass(frozen=True)
class Point:
    """What happened between two looks: a second's requests, errors and generated tokens, and how
    long 99 % took, of answers and until the first token of texts."""

    when: float
    requests: float
    errors: float
    tokens: float
    slow: float | None
    slow_to_begin: float | None


@dataclass(frozen=True)
class Figures:
    """What happened within the window.

    Attributes:
        seconds: how long the window is by now.
        requests: a second.
        errors: a second.
        answered: in the window.
        failed: in the window.
        quantiles: share and seconds of latency, but of texts; None where nothing was answered.
        begun: likewise until the first token of texts.
        tokens: that were generated, a second.
    """

    seconds: float
    requests: float
    errors: float
    answered: int
    failed: int
    quantiles: tuple[tuple[str, float | None], ...]
    begun: tuple[tuple[str, float | None], ...]
    tokens: float


@dataclass(frozen=True)
class Chart:
    """A line over the last minutes, as points of an SVG drawing, and what it says in words."""

    title: str
    now: str
    most: str
    line: str

    @property
    def summary(self) -> str:
        """The drawing in words."""
        minutes = SPAN / 60
        return (
            f"{self.title} over the last {minutes:.0f} minutes: now {self.now}, most {self.most}"
        )


class Meter:
    """Looks at a server's metrics while somebody looks at the page; what is drawn is kept.

    Args:
        clock: seconds that only go on. Default: the machine's.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looks: deque[tuple[float, _Counters]] = deque()
        self._points: deque[Point] = deque()
        self._lock = asyncio.Lock()

    async def look(self, metrics: Callable[[], Awaitable[str]], model: str | None = None) -> None:
        """Ask for the metrics of a model, by default the one there is, unless somebody just did.

        Raises:
            ValueError: they aren't in the exposition format.
        """
        async with self._lock:
            now = self._clock()
            if self._looks and now - self._looks[-1][0] < _SOONEST:
                return
            text = await metrics()
            try:
                self.take(read(text, model))
            except (ArithmeticError, LookupError, ValueError) as error:
                self._looks.clear()
                raise ValueError(f"a sample or a label is missing or none: {error}") from error

    def take(self, counters: _Counters) -> None:
        """Take what a server has counted until now."""
        now = self._clock()
        if self._looks:
            then, before = self._looks[-1]
            between = _between(before, counters)
            seconds = max(now - then, 1e-3)
            self._points.append(
                Point(
                    now, between.requests / seconds, between.failed / seconds,
                    between.tokens / seconds, between.quantile(_SLOW),
                    between.to_first_token(_SLOW),
                )
            )  # fmt: skip
        self._looks.append((now, counters))
        while len(self._looks) > 2 and self._looks[1][0] <= now - WINDOW:
            self._looks.popleft()
        while self._points and self._points[0].when < now - SPAN:
            self._points.popleft()

    @property
    def figures(self) -> Figures | None:
        """What happened within the window; None before the second look."""
        if len(self._looks) < 2:
            return None
        (then, before), (now, last) = self._looks[0], self._looks[-1]
        found, seconds = _between(before, last), max(now - then, 1e-3)
        return Figures(
            seconds, found.requests / seconds, found.failed / seconds, found.answered,
            found.failed,
            tuple((name, found.quantile(share)) for name, share in _SHARES),
            tuple((name, found.to_first_token(share)) for name, share in _SHARES),
            found.tokens / seconds,
        )  # fmt: skip

    @property
    def has_texts(self) -> bool:
        """Whether a request for texts came to a first token since somebody began to look."""
        return any(each.slow_to_begin is not None for each in self._points)

    @property
    def has_others(self) -> bool:
        """Whether anything else was answered, or nothing was at all."""
        return not self.has_texts or any(each.slow is not None for each in self._points)

    def charts(self) -> list[Chart]:
        """The drawings of requests, latency and errors, and of texts where there are any."""
        points = list(self._points)
        rates, errors = [each.requests for each in points], [each.errors for each in points]
        found = [self._chart("Requests per second", rates, rate)]
        if self.has_others:
            slow = [each.slow for each in points]
            found.append(self._chart("Latency of 99 %", slow, duration))
        if self.has_texts:
            begun, tokens = [each.slow_to_begin for each in points], [e.tokens for e in points]
            found.append(self._chart("First token of 99 %", begun, duration))
            found.append(self._chart("Tokens per second", tokens, rate))
        return [*found, self._chart("Errors per second", errors, rate)]

    def _chart(
        self, title: str, values: Sequence[float | None], shown: Callable[[float], str]
    ) -> Chart:
        known = [each for each in values if each is not None]
        most = max(known, default=0.0)
        now = self._clock()
        parts: list[str] = []
        pen = "M"
        for point, value in zip(self._points, values, strict=True):
            if value is None:
                pen = "M"
                continue
            across = WIDTH * max(0.0, 1 - (now - point.when) / SPAN)
            down = HEIGHT - 2 - (HEIGHT - 4) * (value / most if most else 0.0)
            # One point by itself is a dot.
            parts.append(f"{pen}{across:.1f} {down:.1f}{'h0' if pen == 'M' else ''}")
            pen = "L"
        last = values[-1] if values else None
        return Chart(
            title, NOTHING if last is None else shown(last), shown(most) if known else NOTHING,
            " ".join(parts),
        )  # fmt: skip


def _between(before: _Counters, after: _Counters) -> Measured:
    """What all versions together were asked and answered between two looks."""
    tally = Tally()
    # A version that wasn't there at the first look has counted from nothing since.
    tally.look("", {**dict.fromkeys(after, 0.0), **before})
    tally.look("", after)
    whole = Measured()
    for version in tally.versions:
        if not version.isdecimal():
            continue
        found = tally.measured(int(version))
        whole.answered += found.answered
        whole.failed += found.failed
        whole.tokens += found.tokens
        for all_, own in (
            (whole.latency, found.latency), (whole.first_token, found.first_token),
        ):  # fmt: skip
            for bound, count in own.items():
                all_[bound] = all_.get(bound, 0.0) + count
    return whole


def rate(value: float) -> str:
    """Events a second."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def duration(seconds: float | None) -> str:
    """Seconds in a unit that fits; a dash where there are none."""
    if seconds is None:
        return NOTHING
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
