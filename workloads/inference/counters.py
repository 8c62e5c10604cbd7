"""What a worker counts: plain numbers in the hot path, sent to the master as one snapshot."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

BOUNDS = (
    50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1.6e-3, 3.2e-3, 6.4e-3, 12.8e-3, 25.6e-3,
    51.2e-3, 102.4e-3, 204.8e-3, 0.4096, 0.8192, 1.6384, 3.2768,
)  # fmt: skip
"""Upper bounds of the latency buckets in seconds: each twice the one before."""


class Counters:
    """The counts of one worker since its start.

    ``latency`` and ``compute`` are histograms of answered inferences: the time from the last
    byte of a request to the answer, and the model's run alone; the last bucket is unbounded.
    """

    __slots__ = (
        "compute", "compute_seconds", "connections", "denied", "failed_handshakes", "latency",
        "latency_seconds", "queue", "queue_seconds", "refused_connections", "responses", "rows",
        "spill_wanted", "spilled",
    )  # fmt: skip

    def __init__(self) -> None:
        self.latency = [0] * (len(BOUNDS) + 1)
        self.latency_seconds = 0.0
        self.compute = [0] * (len(BOUNDS) + 1)
        self.compute_seconds = 0.0
        self.queue = [0] * (len(BOUNDS) + 1)
        self.queue_seconds = 0.0
        self.rows = 0
        # Requests that would have waited too long here, and how those ended that were passed on.
        self.spill_wanted = 0
        self.spilled: dict[str, int] = {}
        # By route and status; answered inferences are counted by the histogram instead.
        self.responses: dict[str, int] = {}
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

    def queued(self, seconds: float, count: int = 1) -> None:
        """Count ``count`` inferences that waited ``seconds`` in all before they ran."""
        self.queue[bisect_left(BOUNDS, seconds / count)] += count
        self.queue_seconds += seconds

    def passed_on(self, outcome: str) -> None:
        """Count an inference that another tier was asked for."""
        self.spilled[outcome] = self.spilled.get(outcome, 0) + 1

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
            "spill_wanted": self.spill_wanted,
            "spilled": self.spilled,
            "responses": self.responses,
            "denied": self.denied,
            "connections": self.connections,
            "refused_connections": self.refused_connections,
            "failed_handshakes": self.failed_handshakes,
        }


def add(total: dict[str, Any], part: dict[str, Any]) -> None:
    """Add one snapshot to a total of snapshots, in place."""
    for key, value in part.items():
        if isinstance(value, list):
            before = total.get(key) or [0] * len(value)
            total[key] = [a + b for a, b in zip(before, value, strict=True)]
        elif isinstance(value, dict):
            inner = total.setdefault(key, {})
            for name, count in value.items():
                inner[name] = inner.get(name, 0) + count
        else:
            total[key] = total.get(key, 0) + value
