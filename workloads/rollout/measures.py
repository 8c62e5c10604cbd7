"""What the servers of two versions counted since somebody began to look.

Servers count since they started, and each for itself. What is added up here is by how much each
counter grew from one look to the next, as Prometheus' ``increase`` does: replicas come and go
meanwhile, and one that started anew counts from 0 again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from falaj.workloads.inference.metrics import GENERATED, PREFIX
from falaj.workloads.inference.protocol.routes import INFERENCES

_LATENCY: Final = f"{PREFIX}_request_duration_seconds_bucket"
_FIRST_TOKEN: Final = f"{PREFIX}_time_to_first_token_seconds_bucket"
_TOKENS: Final = f"{PREFIX}_tokens_total"
_RESPONSES: Final = f"{PREFIX}_responses_total"
_ANSWERS: Final = f"{PREFIX}_answers_total"
_RESTARTS: Final = f"{PREFIX}_worker_restarts_total"
_SERVED: Final = f"{PREFIX}_served_version"
_ALL: Final = float("inf")
"""The bound of a histogram's last bucket."""
_ANSWERED: Final = "200"
#: Who may not call is the callers' affair, whichever version they asked.
_DENIED: Final = ("401", "403")

_Series = tuple[str, str, str]
"""Version, metric, and the label that tells its parts apart."""


@dataclass
class Measured:
    """What one version was asked and answered."""

    answered: int = 0
    failed: int = 0
    """Requests with any other status, but those of callers without the right to ask; and one for
    each worker that ended unasked, which counts none of those that it had."""
    latency: dict[float, float] = field(default_factory=dict[float, float])
    """Answered requests by the most seconds that they took (cumulative), but those for texts."""
    answers: dict[str, float] = field(default_factory=dict[str, float])
    """Values that were answered, by bucket."""
    first_token: dict[float, float] = field(default_factory=dict[float, float])
    """Likewise requests for texts, by the seconds until the first token was there."""
    tokens: float = 0.0
    """That were generated, of texts that have ended."""

    @property
    def requests(self) -> int:
        """Answered and failed ones."""
        return self.answered + self.failed

    @property
    def inferences(self) -> float:
        """Answered ones, without those for texts."""
        return self.latency.get(_ALL, 0.0)

    @property
    def texts(self) -> float:
        """Requests for texts that came to a first token."""
        return self.first_token.get(_ALL, 0.0)

    @property
    def failed_percent(self) -> float:
        """Per cent of the requests that failed; 0 without requests."""
        return 100 * self.failed / self.requests if self.requests else 0.0

    def quantile(self, share: float) -> float | None:
        """Seconds within which a share of the answers came; None without answers."""
        return quantile(self.latency, share)

    def to_first_token(self, share: float) -> float | None:
        """Seconds within which a share of the texts had begun; None without texts."""
        return quantile(self.first_token, share)


def quantile(buckets: Mapping[float, float], share: float) -> float | None:
    """Seconds within which a share of what was counted came; None where nothing was.

    Within a bucket times are taken to be spread evenly, as ``histogram_quantile`` does; what
    is above the last bound counts as the last bound:
    https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile

    Args:
        buckets: cumulative counts by the most seconds.
        share: from 0 to 1.
    """
    total = buckets.get(_ALL, 0.0)
    if total <= 0:
        return None
    wanted, low, before = share * total, 0.0, 0.0
    for bound in sorted(buckets):
        inside = buckets[bound]
        if inside >= wanted:
            if bound == _ALL:
                return low
            width = inside - before
            return low + (bound - low) * ((wanted - before) / width if width else 1.0)
        low, before = bound, inside
    return low


def likeness(one: Measured, other: Measured) -> float | None:
    """Per cent of the answers of two versions that are spread alike; None where none were counted.

    That is 100 less the distance in total variation of both distributions: the least share of
    answers that would have to be others.
    """
    totals = [sum(each.answers.values()) for each in (one, other)]
    if not all(totals):
        return None
    apart = sum(
        abs(one.answers.get(each, 0) / totals[0] - other.answers.get(each, 0) / totals[1])
        for each in one.answers.keys() | other.answers.keys()
    )
    return 100 * (1 - apart / 2)


def read(text: str, model: str | None = None) -> dict[_Series, float]:
    """The counters that are compared, of the text of one server's ``/metrics``.

    Args:
        text: of it.
        model: whose counters; versions of each are numbered for themselves. Default: the server
            has one.

    Raises:
        ValueError: it isn't in the exposition format.
    """
    found: dict[_Series, float] = {}
    served, restarts = "", 0.0
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = sample.labels
            if model is not None and labels.get("model", model) != model:
                continue
            if sample.name in (_LATENCY, _FIRST_TOKEN):
                part = labels["le"]
            elif sample.name == _TOKENS:
                part = labels["kind"]
            elif sample.name == _ANSWERS:
                part = labels["bucket"]
            elif sample.name == _RESPONSES and labels["route"] in INFERENCES:
                part = labels["status"]
            else:
                served = f"{sample.value:.0f}" if sample.name == _SERVED else served
                restarts = sample.value if sample.name == _RESTARTS else restarts
                continue
            series = labels["version"], sample.name, part
            # Of a language model several routes have the same status.
            others = found.get(series, 0.0) if sample.name == _RESPONSES else 0.0
            found[series] = others + sample.value
    if any(version == served for version, _, _ in found):
        found[served, _RESTARTS, ""] = restarts
    return found


def answered_by_status(counters: Mapping[_Series, float], version: int) -> dict[str, int]:
    """How many of a version's requests were answered with which status, of one look."""
    return {part: round(value) for part, value in _parts(counters, version, _RESPONSES)}


def _parts(
    counters: Mapping[_Series, float], version: int, metric: str
) -> Iterable[tuple[str, float]]:
    for (whose, name, part), value in counters.items():
        if (whose, name) == (str(version), metric):
            yield part, value


class Tally:
    """Adds up what servers count, by who they are."""

    def __init__(self) -> None:
        self._last: dict[str, Mapping[_Series, float]] = {}
        self._grown: dict[_Series, float] = {}

    def look(self, server: str, counters: Mapping[_Series, float]) -> None:
        """Take what a server shows now; what it counted before the first look doesn't count."""
        before = self._last.get(server)
        if before is not None:
            for series, value in counters.items():
                was = before.get(series, 0.0)
                grown = value - was if value >= was else value
                self._grown[series] = self._grown.get(series, 0.0) + grown
        self._last[server] = counters

    def begin(self) -> None:
        """Count from the last looks on: who compares two versions compares the same hours."""
        self._grown.clear()

    @property
    def versions(self) -> frozenset[str]:
        """Versions of which any server was seen."""
        return frozenset(version for each in self._last.values() for version, _, _ in each)

    def measured(self, version: int) -> Measured:
        """What a version was asked and answered since the first look, or the last `begin`."""
        found = Measured()
        for part, value in self._of(version, _RESPONSES):
            if part == _ANSWERED:
                found.answered += round(value)
            elif part not in _DENIED:
                found.failed += round(value)
        found.failed += round(sum(value for _, value in self._of(version, _RESTARTS)))
        found.latency = {float(part): value for part, value in self._of(version, _LATENCY)}
        found.first_token = {float(part): value for part, value in self._of(version, _FIRST_TOKEN)}
        found.tokens = sum(
            value for part, value in self._of(version, _TOKENS) if part == GENERATED
        )
        found.answers = dict(self._of(version, _ANSWERS))
        return found

    def _of(self, version: int, metric: str) -> Iterable[tuple[str, float]]:
        return _parts(self._grown, version, metric)
