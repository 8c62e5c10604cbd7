"""What the master knows of drift: windows of counts judged against the package, streams, labels.

Rows are judged in windows. One that differs may be chance or an hour's weather: what differs in
two of the last three has drifted. Latency is told and drifts by itself; it doesn't make a model
drift.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from falaj.workloads.errors import IntegrityError
from falaj.workloads.inference.drift import shifts
from falaj.workloads.inference.drift.labels import OUTCOMES, Labels, Memory
from falaj.workloads.inference.drift.reference import Feature, Reference
from falaj.workloads.inference.drift.shifts import Shift
from falaj.workloads.inference.drift.streams import Adwin, PageHinkley
from falaj.workloads.inference.settings import DriftSettings

LEAST_ROWS: Final = 200
"""Of a window that is closed by time."""
WINDOWS: Final = 3
"""Of the newest windows, `LEAST_OVER` have to differ."""
LEAST_OVER: Final = 2
MOST_LABELS: Final = 100
"""Features that have a metric of their own: each is a series that Prometheus keeps."""
LEAST_OUTPUT_ROWS: Final = 100
_BLOCK: Final = 32
"""Rows whose mean is one value of a stream."""
_LEAST_LEVEL: Final = 0.25
"""Standard deviations by which the mean of answers has to be off what the package says."""
_LEAST_SLOWER: Final = math.log(1.5)
_RECENT: Final = 0.1
"""Weight of the newest value in a moving mean."""
_SETTLES: Final = 30
"""Values until such a mean is of new values alone."""

COLLECTING, OK, DRIFTED, NO_REFERENCE = "collecting", "ok", "drifted", "no reference"


@dataclass
class _Verdicts:
    """What the newest windows said of one feature."""

    shift: Shift = shifts.NONE
    missing: float | None = None
    unseen: float | None = None
    over: deque[bool] = field(default_factory=lambda: deque[bool](maxlen=WINDOWS))

    @property
    def state(self) -> str:
        if not self.over:
            return COLLECTING
        return DRIFTED if sum(self.over) >= LEAST_OVER else OK

    def kept(self) -> dict[str, Any]:
        return {
            "shift": [*self.shift], "missing": self.missing, "unseen": self.unseen,
            "over": [*self.over],
        }  # fmt: skip

    @classmethod
    def restored(cls, kept: Mapping[str, Any]) -> _Verdicts:
        found = cls(Shift(*kept["shift"]), kept["missing"], kept["unseen"])
        found.over.extend(kept["over"])
        return found


class _Level:
    """The mean of the answers, as a stream."""

    def __init__(self, reference: Reference) -> None:
        self._mean, self._unit = reference.level_mean, reference.level_deviation
        self._stream = Adwin()
        self._rows, self._sum = 0, 0.0
        self._has_changed = False

    def take(self, rows: int, total: float) -> None:
        """Take rows and the sum of their answers' levels."""
        self._rows += rows
        self._sum += total
        if self._rows < _BLOCK or self._unit <= 0:
            return
        mean = self._sum / self._rows
        self._rows, self._sum = 0, 0.0
        # The package's mean is in the middle, and four of its deviations fit to either side.
        self._has_changed |= self._stream.update(
            min(1.0, max(0.0, 0.5 + (mean - self._mean) / (8 * self._unit)))
        )

    @property
    def has_drifted(self) -> bool:
        """Whether it has changed and is off what the package says."""
        off = abs(self._stream.mean - 0.5) * 8 > _LEAST_LEVEL
        self._has_changed = self._has_changed and off
        return self._has_changed


class _Latency:
    """The time of answers, as a stream of its logarithm."""

    def __init__(self) -> None:
        self._stream = PageHinkley()
        self._recent: float | None = None
        self._usual: float | None = None  # before the alarm; None without one
        self._values = self._since = 0

    def take(self, requests: int, seconds: float) -> None:
        """Take requests and the sum of their seconds."""
        if requests <= 0 or not seconds > 0:
            return
        value = math.log(seconds / requests)
        self._values += 1
        recent = value if self._recent is None else self._recent
        self._recent = recent + _RECENT * (value - recent)
        usual = self._stream.mean
        self._since += 1
        if self._stream.update(value):
            if self._usual is None or not self._is_slower:
                self._usual = usual
            self._since = 0
        elif self._since > _SETTLES and not self._is_slower:
            self._usual = None

    @property
    def _is_slower(self) -> bool:
        """Whether it is so much slower than before the alarm that it is worth telling."""
        usual, recent = self._usual, self._recent
        return usual is not None and recent is not None and recent - usual > _LEAST_SLOWER

    def report(self) -> dict[str, Any]:
        """Return state and mean."""
        state = COLLECTING if self._values <= _SETTLES else OK
        return {
            "state": DRIFTED if self._is_slower else state,
            "mean_seconds": math.exp(self._recent) if self._recent is not None else None,
        }


class Drift:
    """One version's drift.

    Args:
        model: its name.
        version: its number.
        reference: of its package.
        settings: how long windows are, and how often chance may sound an alarm.
        memory: what was answered to which id.
        event: writes a line of the audit log.
    """

    def __init__(
        self,
        model: str,
        version: int,
        reference: Reference,
        settings: DriftSettings,
        *,
        memory: Memory,
        event: Callable[..., None],
    ) -> None:
        self.version = version
        self.labels = Labels(reference, memory, version)
        self.model = model
        self._reference = reference
        self._settings = settings
        self._event = event
        self._chance = settings.alpha / max(1, len(reference.features) + 1)
        self._verdicts = {feature.name: _Verdicts() for feature in reference.features}
        self._outputs = _Verdicts()
        self._level = _Level(reference)
        self._latency = _Latency()
        self._judged = 0
        self._counted = 0
        self._since: float | None = None
        self._told = COLLECTING
        self._begin(time.time())

    def _begin(self, now: float) -> None:
        self._counts = np.zeros(self._reference.size, dtype=np.int64)
        self._filled = 0
        self._began = now

    # -- over a restart --------------------------------------------------------------------

    def kept(self) -> dict[str, Any]:
        """Return counts and verdicts, for `restore`; streams and labels aren't among them."""
        return {
            "counts": self._counts.tolist(),
            "filled": self._filled,
            "began": self._began,
            "judged": self._judged,
            "counted": self._counted,
            "since": self._since,
            "told": self._told,
            "verdicts": {name: each.kept() for name, each in self._verdicts.items()},
            "outputs": self._outputs.kept(),
        }

    def restore(self, kept: Mapping[str, Any]) -> None:
        """Go on from what `kept` returned of the same version and settings.

        Raises:
            IntegrityError: it isn't that; nothing of it is taken over.
        """
        try:
            counts = np.asarray(kept["counts"], dtype=np.int64)
            verdicts = {name: _Verdicts.restored(of) for name, of in kept["verdicts"].items()}
            outputs = _Verdicts.restored(kept["outputs"])
            whole = [int(kept[name]) for name in ("filled", "judged", "counted")]
            began, since, told = float(kept["began"]), kept["since"], str(kept["told"])
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise IntegrityError("what is kept of drift isn't what was written") from error
        if counts.shape != self._counts.shape or verdicts.keys() != self._verdicts.keys():
            raise IntegrityError("what is kept of drift is of other columns")
        self._counts, self._verdicts, self._outputs = counts, verdicts, outputs
        self._filled, self._judged, self._counted = whole
        self._began = began
        if self.state == told:
            # Else what made it so was a stream or labels, which begin anew.
            self._told, self._since = told, since

    # -- taking ----------------------------------------------------------------------------

    def take(self, document: Mapping[str, Any], now: float | None = None) -> None:
        """Take a worker's counts, of `Counting`.

        Args:
            document: the counts.
            now: seconds since the epoch. Default: the clock's.
        """
        counts = np.asarray(document["counts"], dtype=np.int64)
        self._latency.take(*document["busy"])
        rows = int(document["rows"])
        if len(counts) != len(self._counts) or not rows:
            return
        self._counts += counts
        self._filled += rows
        self._counted += rows
        level: tuple[int, float] | None = document.get("level")
        if level is not None:
            self._level.take(*level)
        self.tick(time.time() if now is None else now)

    def tick(self, now: float) -> None:
        """Judge the window if it is full, or old and full enough."""
        settings = self._settings
        self._began = min(self._began, now)  # where the clock is set back
        is_old = now - self._began >= settings.window_seconds and self._filled >= LEAST_ROWS
        if self._reference.is_known and (self._filled >= settings.window_rows or is_old):
            self._judge()
            self._begin(now)
        elif not self._reference.is_known and self._filled >= settings.window_rows:
            self._begin(now)
        self._tell(now)

    def _judge(self) -> None:
        for feature in self._reference.features:
            verdicts = self._verdicts[feature.name]
            missing, cells = self._of(feature)
            rows = missing + int(cells.sum())
            shift = self._shift(feature, cells)
            verdicts.shift = shift
            verdicts.missing = missing / rows if rows else None
            verdicts.unseen = (
                int(cells[-1]) / rows if feature.lists_all and rows else None
            )  # fmt: skip
            verdicts.over.append(
                shift.is_over
                or shifts.is_other_share(
                    (feature.missing, feature.rows), (missing, rows), self._chance
                )
            )
        self._judge_outputs()
        self._judged += 1

    def _judge_outputs(self) -> None:
        mix, level = self._reference.mix, self._reference.level
        if level is None or self._of(level)[1].sum() < LEAST_OUTPUT_ROWS:
            return
        shift = self._shift(level, self._of(level)[1])
        if mix is not None:
            of_mix = self._shift(mix, self._of(mix)[1])
            shift = Shift(
                of_mix.psi, of_mix.psi_limit, shift.ks, shift.ks_limit,
                of_mix.is_over or shift.is_over,
            )  # fmt: skip
        self._outputs.shift = shift
        self._outputs.over.append(shift.is_over)

    def _of(self, feature: Feature) -> tuple[int, shifts.Counts]:
        counts = self._counts[feature.start : feature.end]
        return int(counts[0]), counts[1:]

    def _shift(self, feature: Feature, cells: shifts.Counts) -> Shift:
        compare = shifts.of_categories if feature.kind == "category" else shifts.of_numbers
        return compare(feature.counts, cells, self._chance)

    # -- telling ---------------------------------------------------------------------------

    @property
    def _outputs_state(self) -> str:
        return DRIFTED if self._level.has_drifted else self._outputs.state

    @property
    def state(self) -> str:
        """``collecting``, ``ok``, ``drifted`` or ``no reference``."""
        verdicts = [each.state for each in self._verdicts.values()]
        if DRIFTED in (*verdicts, self._outputs_state, self.labels.state):
            return DRIFTED
        if not self._reference.is_known:
            return NO_REFERENCE
        return OK if self._judged else COLLECTING

    def _tell(self, now: float) -> None:
        state, before = self.state, self._told
        if state == before:
            return
        self._told, self._since = state, now
        if state == DRIFTED:
            names = [name for name, each in self._verdicts.items() if each.state == DRIFTED]
            self._event(
                "drift.found", model=self.model, version=self.version, features=names[:20],
                more_features=max(0, len(names) - 20),
                outputs=self._outputs_state == DRIFTED, labels=self.labels.state == DRIFTED,
            )  # fmt: skip
        elif before == DRIFTED:
            self._event("drift.ended", model=self.model, version=self.version)

    def report(self) -> dict[str, Any]:
        """Return everything, as the endpoint answers it."""
        self.tick(time.time())
        settings = self._settings
        return {
            "model": self.model,
            "version": str(self.version),
            "state": self.state,
            "since": self._since,
            "window": {
                "rows": settings.window_rows,
                "seconds": settings.window_seconds,
                "filled": self._filled,
                "judged": self._judged,
            },
            "features": [self._row(each) for each in self._reference.features],
            "outputs": self._outputs_row(),
            "latency": self._latency.report(),
            "labels": self.labels.report(),
        }

    def _row(self, feature: Feature) -> dict[str, Any]:
        verdicts = self._verdicts[feature.name]
        missing, cells = self._of(feature)
        rows = missing + int(cells.sum())
        now = missing / rows if rows else 0.0
        return _row(
            feature.name, feature.kind, verdicts.state, verdicts,
            missing=now if verdicts.missing is None else verdicts.missing,
            missing_reference=feature.missing / feature.rows if feature.rows else 0.0,
        )  # fmt: skip

    def _outputs_row(self) -> dict[str, Any]:
        kind = "category" if self._reference.mix is not None else "number"
        return _row("outputs", kind, self._outputs_state, self._outputs,
                    missing=0.0, missing_reference=0.0)  # fmt: skip

    def series(self) -> Iterable[tuple[str, Sequence[str], float]]:
        """Yield what is counted and found, as `metrics` has it: the family's name, the values of
        its labels behind model and version, and the value."""
        yield "falaj_drift_state", (), float(self.state == DRIFTED)
        rows = [*self._verdicts.items()][:MOST_LABELS]
        # A column of this name goes first: a series stands once.
        own = () if "outputs" in self._verdicts else (("outputs", self._outputs),)
        for name, verdicts in (*rows, *own):
            if verdicts.shift.psi is not None:
                yield "falaj_drift_psi", (name,), verdicts.shift.psi
        yield "falaj_drift_rows", (), self._counted
        yield "falaj_drift_windows", (), self._judged
        for outcome in OUTCOMES:
            yield "falaj_drift_labels", (outcome,), self.labels.counts[outcome]


def metrics(watched: Sequence[Drift]) -> Iterable[Metric]:
    """Return the families of Prometheus, with the series of all models that are watched."""
    labels = ("model", "version")
    families: dict[str, GaugeMetricFamily | CounterMetricFamily] = {
        each.name: each
        for each in (
            GaugeMetricFamily(
                "falaj_drift_state", "1 where rows, answers or labels have drifted.",
                labels=labels,
            ),
            GaugeMetricFamily(
                "falaj_drift_psi", "Population stability index of the last window judged.",
                labels=(*labels, "feature"),
            ),
            CounterMetricFamily("falaj_drift_rows", "Rows that were counted.", labels=labels),
            CounterMetricFamily("falaj_drift_windows", "Windows that were judged.", labels=labels),
            CounterMetricFamily(
                "falaj_drift_labels", "Labels by what they came to.",
                labels=(*labels, "outcome"),
            ),
        )
    }  # fmt: skip
    for drift in watched:
        for name, more, value in drift.series():
            families[name].add_metric((drift.model, str(drift.version), *more), value)
    return families.values()


def _row(
    name: str, kind: str, state: str, verdicts: _Verdicts, *, missing: float,
    missing_reference: float,
) -> dict[str, Any]:  # fmt: skip
    shift = verdicts.shift
    return {
        "name": name,
        "kind": kind,
        "state": state,
        "psi": shift.psi,
        "psi_limit": shift.psi_limit,
        "ks": shift.ks,
        "ks_limit": shift.ks_limit,
        "missing": missing,
        "missing_reference": missing_reference,
        "unseen": verdicts.unseen,
        "over": sum(verdicts.over),
    }
