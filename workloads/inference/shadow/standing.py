"""The shadow as the master has it: its process, what it may be given, and what came of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

import orjson
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from falaj.workloads.inference.metrics import BOUNDS, add, cumulated
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.process.companion import Companion, Means, Process
from falaj.workloads.inference.settings import Settings

MOST_WAITING: Final = 64
"""Copies that the shadow's process may have before further ones are dropped."""
MOST_WAITING_BYTES: Final = 16 * 1024 * 1024
_MOST_OUTPUTS: Final = 50
"""That have series of their own."""
OUTCOMES: Final = ("compared", "failed", "refused", "unlike", "dropped")
"""Of copies: compared; the model failed; the request isn't one that this version takes; the
answers can't be compared; there was no room."""


class Shadow(Companion):
    """The version that gets copies of requests."""

    word = "shadow"

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self._given: deque[int] = deque()

    def is_wanted(self, settings: Settings) -> bool:
        """Tell whether a service's settings ask for copies."""
        return settings.shadow is not None

    def heard(self, process: Process, kind: int, payload: bytes) -> None:
        """Take what a copy came to; what its process counts otherwise isn't the service's."""
        if kind == channel.SHADOW_DONE:
            self.done(process, payload)

    @property
    def _is_waited_for(self) -> bool:
        return bool(self._given)

    def _lost(self, why: str | None) -> None:
        if why is not None and self._given:
            self._given.popleft()
            self._count("failed", why)
        self._count("dropped", None, len(self._given))
        self._given.clear()

    # -- copies ------------------------------------------------------------------------------

    @property
    def share(self) -> float:
        """Of requests that workers are to copy now, from 0 to 1."""
        settings = self._settings
        if settings is None or settings.shadow is None or not self.is_ready:
            return 0.0
        return settings.shadow.percent / 100

    def take(self, model: str, version: int, copy: bytes) -> None:
        """Give it a copy that a worker of this model and version made."""
        if self._pair is None or (model, version) != self._pair[:2]:
            return
        process = self._process
        if process is None or process.state != "ready" or not self._fits(len(copy)):
            self._count("dropped")
            return
        self._begin_waiting()
        self._given.append(len(copy))
        process.tell(channel.SHADOW_RUN, copy)

    def _fits(self, size: int) -> bool:
        given = self._given
        return len(given) < MOST_WAITING and sum(given) + size <= MOST_WAITING_BYTES

    def missed(self, model: str, version: int, count: int) -> None:
        """Count copies that a worker had no room for."""
        if self._pair is not None and (model, version) == self._pair[:2]:
            self._count("dropped", None, count)

    def done(self, process: Process, payload: bytes) -> None:
        """Take what a copy came to."""
        if process is not self._process or not self._given:
            return
        self._given.popleft()
        self._ended_one()
        found = orjson.loads(payload)
        why = found.pop("why", None)
        (outcome,) = found["requests"]
        if why is not None:
            self._why[outcome] = str(why)
        add(self._counts, found)

    def _count(self, outcome: str, why: str | None = None, count: int = 1) -> None:
        if count and self._pair is not None:
            add(self._counts, {"requests": {outcome: count}})
            if why is not None:
                self._why[outcome] = why

    # -- telling -------------------------------------------------------------------------------

    def _figures(self) -> dict[str, Any]:
        counts = self._counts
        requests = counts.get("requests", {})
        rows = counts.get("rows", 0)
        ran = sum(counts.get("run", ()))
        outputs = {
            name: {
                "agreement": counts["output_agreed"][name] / count,
                **(
                    {"mean_difference": counts["output_difference"][name] / count}
                    if name in counts.get("output_difference", {})
                    else {}
                ),
            }
            for name, count in counts.get("output_rows", {}).items()
            if count
        }
        return {
            "requests": {each: requests.get(each, 0) for each in OUTCOMES},
            "rows": rows,
            "agreement": counts.get("agreed", 0) / rows if rows else None,
            "outputs": outputs,
            "mean_run_seconds": counts["run_seconds"] / ran if ran else None,
        }

    def facts(self) -> dict[str, Any] | None:
        """Return what is true of it, as `state.json` has it; None where there is none."""
        if self._pair is None or self._settings is None or self._settings.shadow is None:
            return None
        return {
            **self._standing(),
            "percent": self._settings.shadow.percent,
            **self._figures(),
            "why": dict(self._why),
        }

    def metrics(self) -> Iterable[Metric]:
        """Yield the families of Prometheus; none without a shadow."""
        if self._pair is None:
            return
        model, _, version = self._pair
        of, labels, counts = (model, str(version)), ("model", "version"), self._counts
        ready = GaugeMetricFamily(
            "falaj_shadow_ready", "1 where the shadow takes copies of requests.", labels=labels
        )
        ready.add_metric(of, float(self.is_ready))
        yield ready
        requests = CounterMetricFamily(
            "falaj_shadow_requests", "Copies of requests by what they came to.",
            labels=(*labels, "outcome"),
        )  # fmt: skip
        for outcome in OUTCOMES:
            requests.add_metric((*of, outcome), counts.get("requests", {}).get(outcome, 0))
        yield requests
        for name, key, words in (
            ("falaj_shadow_rows", "rows", "Rows that both versions answered."),
            ("falaj_shadow_rows_agreed", "agreed", "Rows of which all outputs agree."),
        ):
            family = CounterMetricFamily(name, words, labels=labels)
            family.add_metric(of, counts.get(key, 0))
            yield family
        outputs = CounterMetricFamily(
            "falaj_shadow_output_rows_agreed", "Rows of which an output agrees.",
            labels=(*labels, "output"),
        )  # fmt: skip
        for name, count in [*counts.get("output_agreed", {}).items()][:_MOST_OUTPUTS]:
            outputs.add_metric((*of, name), count)
        yield outputs
        run = HistogramMetricFamily(
            "falaj_shadow_run_duration_seconds", "Time of the shadow's run alone.", labels=labels
        )
        inside = counts.get("run") or [0] * (len(BOUNDS) + 1)
        run.add_metric(of, cumulated(inside), counts.get("run_seconds", 0.0))
        yield run
