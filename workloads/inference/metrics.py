"""What a worker counts, and the sum of all workers that Prometheus reads from the master.

Workers send snapshots of plain counters (`Counters`). The counts of ended workers stay in
the totals of their version, so that a counter never falls when a version is switched.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from falaj.workloads.documents import is_dictionary, is_sequence
from falaj.workloads.inference.drift.answers import BUCKETS
from falaj.workloads.inference.protocol.routes import INFER

BOUNDS = (
    50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1.6e-3, 3.2e-3, 6.4e-3, 12.8e-3, 25.6e-3,
    51.2e-3, 102.4e-3, 204.8e-3, 0.4096, 0.8192, 1.6384, 3.2768,
)  # fmt: skip
"""Upper bounds of the latency buckets in seconds: each twice the one before."""
TEXT_BOUNDS = (*BOUNDS, 6.5536, 13.1072, 26.2144, 52.4288, 104.8576, 209.7152)
"""Likewise of texts, which take as long as they are."""
BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper bounds of the buckets of a batch's rows."""


class Counters:
    """The counts of one worker since its start.

    ``latency`` and ``compute`` are histograms of answered inferences: the time from the last
    byte of a request to the answer, and the model's run alone; the last bucket is unbounded.
    ``answers`` are those of this version by their bucket
    (`falaj.workloads.inference.drift.answers`).
    ``last_inference`` is when the last one was answered, in microseconds since the epoch.
    ``batches`` and ``batch_seconds`` are runs and their time by number of rows, where requests run
    together, and ``joined`` those that were in another one's run. ``tokens`` are those of prompts
    and of texts that were generated, ``generation`` is a histogram of the latter's time, and
    ``first_token`` one of the time to the first token of each request's texts.
    """

    __slots__ = (
        "answers",
        "batch_seconds",
        "batches",
        "compute",
        "compute_seconds",
        "connections",
        "denied",
        "displaced",
        "failed",
        "failed_handshakes",
        "failed_seconds",
        "first_token",
        "first_token_seconds",
        "generation",
        "generation_seconds",
        "joined",
        "last_inference",
        "latency",
        "latency_seconds",
        "overflow_wanted",
        "overflowed",
        "queue",
        "queue_seconds",
        "refused_connections",
        "responses",
        "reused",
        "rows",
        "tokens",
    )  # fmt: skip

    def __init__(self) -> None:
        self.latency = [0] * (len(BOUNDS) + 1)
        self.latency_seconds = 0.0
        self.compute = [0] * (len(BOUNDS) + 1)
        self.compute_seconds = 0.0
        self.queue = [0] * (len(BOUNDS) + 1)
        self.queue_seconds = 0.0
        self.rows = 0
        self.first_token = [0] * (len(TEXT_BOUNDS) + 1)
        self.first_token_seconds = 0.0
        self.generation = [0] * (len(TEXT_BOUNDS) + 1)
        self.generation_seconds = 0.0
        self.tokens: dict[str, int] = {}
        # Of prompts, whose keys and values were there.
        self.reused = 0
        self.batches: dict[str, int] = {}
        self.batch_seconds: dict[str, float] = {}
        self.joined = 0
        # Requests that made room for more urgent ones.
        self.displaced = 0
        self.answers = [0] * BUCKETS
        # Requests that would have waited too long here, and how those ended that were passed on.
        self.overflow_wanted = 0
        self.overflowed: dict[str, int] = {}
        # By route and status; answered inferences are counted by the histogram instead.
        self.responses: dict[str, int] = {}
        # Inferences that weren't answered, but for those of callers without the right to ask.
        self.failed = 0
        self.failed_seconds = 0.0
        self.last_inference = 0
        self.denied: dict[str, int] = {}
        self.connections = 0
        self.refused_connections = 0
        self.failed_handshakes = 0

    def inferred(self, seconds: float, compute_seconds: float, rows: int) -> None:
        """Count one answered inference."""
        self.latency[bisect_left(BOUNDS, seconds)] += 1
        self.latency_seconds += seconds
        self.compute[bisect_left(BOUNDS, compute_seconds)] += 1
        self.compute_seconds += compute_seconds
        self.rows += rows
        self.last_inference = time.time_ns() // 1000

    def queued(self, seconds: float, count: int = 1) -> None:
        """Count ``count`` inferences that waited ``seconds`` in all before they ran."""
        self.queue[bisect_left(BOUNDS, seconds / count)] += count
        self.queue_seconds += seconds

    def batched(self, rows: int, seconds: float) -> None:
        """Count one run, of one request or several."""
        key = str(rows)
        self.batches[key] = self.batches.get(key, 0) + 1
        self.batch_seconds[key] = self.batch_seconds.get(key, 0.0) + seconds

    def passed_on(self, outcome: str) -> None:
        """Count an inference that another tier was asked for."""
        self.overflowed[outcome] = self.overflowed.get(outcome, 0) + 1

    def began(self, seconds: float) -> None:
        """Count the first token of a request's texts: from its last byte until it was chosen."""
        self.first_token[bisect_left(TEXT_BOUNDS, seconds)] += 1
        self.first_token_seconds += seconds

    def generated(self, seconds: float, tokens: Mapping[str, int]) -> None:
        """Count one request for a text, whole or not: from its last byte to the text's end."""
        self.generation[bisect_left(TEXT_BOUNDS, seconds)] += 1
        self.generation_seconds += seconds
        for kind, count in tokens.items():
            self.tokens[kind] = self.tokens.get(kind, 0) + count

    def not_inferred(self, seconds: float) -> None:
        """Count an inference that was refused or failed, from its last byte to the answer."""
        self.failed += 1
        self.failed_seconds += seconds

    def responded(self, route: str, status: int) -> None:
        """Count any other answer."""
        key = f"{route} {status}"
        self.responses[key] = self.responses.get(key, 0) + 1

    def snapshot(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "latency": self.latency,
            "latency_seconds": self.latency_seconds,
            "compute": self.compute,
            "compute_seconds": self.compute_seconds,
            "queue": self.queue,
            "queue_seconds": self.queue_seconds,
            "rows": self.rows,
            "first_token": self.first_token,
            "first_token_seconds": self.first_token_seconds,
            "generation": self.generation,
            "generation_seconds": self.generation_seconds,
            "tokens": self.tokens,
            "reused": self.reused,
            "batches": self.batches,
            "batch_seconds": self.batch_seconds,
            "joined": self.joined,
            "displaced": self.displaced,
            "answers": self.answers,
            "overflow_wanted": self.overflow_wanted,
            "overflowed": self.overflowed,
            "responses": self.responses,
            "failed": self.failed,
            "failed_seconds": self.failed_seconds,
            LAST: self.last_inference,
            "denied": self.denied,
            "connections": self.connections,
            "refused_connections": self.refused_connections,
            "failed_handshakes": self.failed_handshakes,
        }


LAST = "last_inference"
"""In a snapshot: the one figure of which the latest counts, not the sum."""


def cumulated(counts: Iterable[int]) -> list[tuple[str, float]]:
    """Return a histogram's buckets, each with those below it.

    Args:
        counts: between `BOUNDS`, or between as many of `TEXT_BOUNDS`, and above the last one.
    """
    counts = list(counts)
    labels = (*(f"{bound:.7g}" for bound in TEXT_BOUNDS[: len(counts) - 1]), "+Inf")
    return list(zip(labels, accumulate(counts), strict=True))


def add(total: dict[str, Any], part: dict[str, Any]) -> None:
    """Add one snapshot to a total of snapshots, in place."""
    for key, value in part.items():
        if key == LAST:
            total[key] = max(total.get(key, 0), value)
        elif is_sequence(value):
            before: list[int] = total.get(key) or [0] * len(value)
            total[key] = [a + b for a, b in zip(before, value, strict=True)]
        elif is_dictionary(value):
            inner = total.setdefault(key, {})
            for name, count in value.items():
                inner[name] = inner.get(name, 0) + count
        else:
            total[key] = total.get(key, 0) + value


PROMPT = "prompt"
GENERATED = "generated"
"""Kinds of tokens."""
PREFIX = "falaj_inference"
"""What the names of all metrics begin with."""
_GAUGES = {
    "open_connections": "Connections that are open.",
    "cache_bytes": "What may come to be kept of the texts that are being generated.",
    "prefix_bytes": "What is kept of texts that have ended, for the next turns.",
}
"""Of a running worker alone, by their name in a snapshot."""
NO_VERSION = 0
"""Stands for the version of a further model that can't be asked."""
_LABELS = ("model", "version")
_Of = tuple[str, str]
"""Values of these."""


class Totals(Collector):
    """Counts by model and version; renders them in the exposition format."""

    def __init__(self, model: str) -> None:
        self.model = model
        """The one that is served; settings may name another one while the server runs."""
        self.version: int | None = None
        self.worker_restarts = 0
        self.failed_versions = 0
        self.dropped_lines = 0
        self.more: Callable[[], Iterable[Metric]] | None = None
        """Families of others, for the same text."""
        self._ended: dict[_Of, dict[str, Any]] = {}
        self._running: dict[int, dict[str, tuple[_Of, dict[str, Any]]]] = {}
        self.further: dict[str, int | None] = {}
        """Further models, and which version of them is served; None: none can be."""
        self.memory: dict[str, int] = {}
        """Bytes that each model takes of all workers, as it is estimated."""
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def update(
        self, pid: int, version: int, snapshot: dict[str, Any], model: str | None = None
    ) -> None:
        """Take a worker's newest snapshot; ``model`` is by default the one that is served."""
        name = model or self.model
        self._running.setdefault(pid, {})[name] = ((name, str(version)), snapshot)

    def ended(self, pid: int) -> None:
        """Keep the last counts of a worker that is gone."""
        for of, snapshot in self._running.pop(pid, {}).values():
            for gauge in _GAUGES:
                snapshot.pop(gauge, None)
            add(self._ended.setdefault(of, {}), snapshot)

    def render(self) -> bytes:
        """Return the text of `/metrics`."""
        return generate_latest(self._registry)

    def by_version(self, model: str = "") -> dict[str, dict[str, Any]]:
        """Return the sums of a model's workers by version, ended ones too.

        Args:
            model: its name. Default: of the first.
        """
        name = model or self.model
        return {
            of[1]: total
            for of, total in self._sums().items()
            if of[0] == name and of[1] != str(NO_VERSION)
        }

    def _sums(self) -> dict[_Of, dict[str, Any]]:
        totals: dict[_Of, dict[str, Any]] = {}
        running = (each for models in self._running.values() for each in models.values())
        for of, snapshot in (*self._ended.items(), *running):
            add(totals.setdefault(of, {}), snapshot)
        return totals

    def collect(self) -> Iterable[Metric]:
        """Yield every family (called by prometheus-client)."""
        totals = self._sums()
        yield self._histogram(totals, "latency", "request_duration_seconds",
                              "Time from the last byte of a request to its answer.")  # fmt: skip
        yield self._histogram(totals, "compute", "compute_duration_seconds",
                              "Time of the model's run alone.")  # fmt: skip
        yield self._histogram(totals, "queue", "queue_duration_seconds",
                              "Time before a run, of those that had to wait for one.")  # fmt: skip
        yield self._histogram(
            totals,
            "first_token",
            "time_to_first_token_seconds",
            "Time from a request's last byte to its texts' first token.",
        )
        yield self._histogram(totals, "generation", "generation_duration_seconds",
                              "Time from a request's last byte to its text's end.")  # fmt: skip
        yield self._by(totals, "tokens", "kind", "Tokens of prompts, and generated ones.")
        yield self._counter(
            totals, "reused", "reused_tokens", "Tokens of prompts that an earlier turn had run."
        )
        yield self._batches(totals)
        yield self._counter(totals, "overflow_wanted", "overflow_wanted",
                            "Requests that would have waited too long here.")  # fmt: skip
        yield self._by(totals, "overflowed", "outcome", "Requests passed on to the next tier.")
        yield self._counter(totals, "displaced", "displaced",
                            "Requests that made room for more urgent ones.")  # fmt: skip
        yield self._counter(totals, "rows", "rows", "Rows that were predicted.")
        answers = CounterMetricFamily(
            f"{PREFIX}_answers", "Values that were answered, by the bucket they fall into.",
            labels=(*_LABELS, "bucket"),
        )  # fmt: skip
        for of, total in totals.items():
            for bucket, count in enumerate(total["answers"]):
                if count:
                    answers.add_metric((*of, str(bucket)), count)
        yield answers
        yield self._counter(totals, "connections", "connections", "Connections taken.")
        yield self._counter(totals, "refused_connections", "refused_connections",
                            "Connections over the limit of open files.")  # fmt: skip
        yield self._counter(totals, "failed_handshakes", "failed_handshakes",
                            "TLS handshakes that failed.")  # fmt: skip
        yield self._responses(totals)
        yield self._by(totals, "denied", "status", "Requests without enough rights.")
        for name, words in _GAUGES.items():
            gauge = GaugeMetricFamily(f"{PREFIX}_{name}", words, labels=_LABELS)
            for of, total in totals.items():
                gauge.add_metric(of, total.get(name, 0))
            yield gauge
        yield self._single("worker_restarts", "Workers that ended unasked.", self.worker_restarts)
        yield self._single("failed_versions", "Versions that could not be loaded.",
                           self.failed_versions)  # fmt: skip
        lost = self.dropped_lines + sum(t.get("dropped_lines", 0) for t in totals.values())
        yield self._single("dropped_log_lines", "Log lines that could not be written.", lost)
        served = GaugeMetricFamily(f"{PREFIX}_served_version", "The version that is served.",
                                   labels=("model",))  # fmt: skip
        for model, version in {**self.further, self.model: self.version}.items():
            served.add_metric((model,), version or NO_VERSION)
        yield served
        memory = GaugeMetricFamily(
            f"{PREFIX}_model_memory_bytes",
            "About how much a model takes of all workers, estimated from its package.",
            labels=("model",),
        )  # fmt: skip
        for model, bytes_ in self.memory.items():
            memory.add_metric((model,), bytes_)
        yield memory
        if self.more is not None:
            yield from self.more()

    def _histogram(
        self, totals: dict[_Of, dict[str, Any]], key: str, name: str, words: str
    ) -> Metric:
        family = HistogramMetricFamily(f"{PREFIX}_{name}", words, labels=_LABELS)
        for of, total in totals.items():
            family.add_metric(of, cumulated(total[key]), total[f"{key}_seconds"])
        return family

    def _batches(self, totals: dict[_Of, dict[str, Any]]) -> Metric:
        family = HistogramMetricFamily(
            f"{PREFIX}_batch_rows", "Rows of a run, where requests run together.", labels=_LABELS
        )
        for of, total in totals.items():
            counts = {int(rows): count for rows, count in total["batches"].items()}
            if not counts:
                continue
            buckets = [
                (f"{bound}.0", sum(count for rows, count in counts.items() if rows <= bound))
                for bound in BATCH_BOUNDS
            ]
            buckets.append(("+Inf", sum(counts.values())))
            rows = sum(rows * count for rows, count in counts.items())
            family.add_metric(of, buckets, rows)
        return family

    def _counter(
        self, totals: dict[_Of, dict[str, Any]], key: str, name: str, words: str
    ) -> Metric:
        family = CounterMetricFamily(f"{PREFIX}_{name}", words, labels=_LABELS)
        for of, total in totals.items():
            family.add_metric(of, total.get(key, 0))
        return family

    def _by(self, totals: dict[_Of, dict[str, Any]], key: str, label: str, words: str) -> Metric:
        """A counter with a label of its own."""
        family = CounterMetricFamily(f"{PREFIX}_{key}", words, labels=(*_LABELS, label))
        for of, total in totals.items():
            for value, count in total.get(key, {}).items():
                family.add_metric((*of, value), count)
        return family

    def _responses(self, totals: dict[_Of, dict[str, Any]]) -> Metric:
        family = CounterMetricFamily(
            f"{PREFIX}_responses",
            "Answers by route and status.",
            labels=(*_LABELS, "route", "status"),
        )
        for of, total in totals.items():
            family.add_metric((*of, INFER, "200"), sum(total["latency"]))
            for key, count in total.get("responses", {}).items():
                route, _, status = key.partition(" ")
                family.add_metric((*of, route, status), count)
        return family

    def _single(self, name: str, words: str, value: float) -> Metric:
        return CounterMetricFamily(f"{PREFIX}_{name}", words, value=value)
