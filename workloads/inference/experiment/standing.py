"""The candidate as the master has it: its process, what it was given, and what came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

import orjson
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from falaj.workloads.documents import is_dictionary, is_sequence
from falaj.workloads.inference.drift import reference
from falaj.workloads.inference.drift.labels import Labels, Memory
from falaj.workloads.inference.experiment.arms import ARMS, CANDIDATE
from falaj.workloads.inference.experiment.labels import ArmLabels
from falaj.workloads.inference.experiment.runs import NUMBER_BYTES
from falaj.workloads.inference.experiment.service import REASONS
from falaj.workloads.inference.metrics import BOUNDS, add, cumulated
from falaj.workloads.inference.process import channel
from falaj.workloads.inference.process.companion import (
    STALL_SECONDS,
    Companion,
    Means,
    Process,
)
from falaj.workloads.inference.rpc.calls import pack
from falaj.workloads.inference.settings import Settings

MOST_WAITING_BYTES: Final = 64 * 1024 * 1024
"""Of requests that the candidate's process has in hand, before further ones aren't passed on."""
_NO_LATENCY: Final = [0] * (len(BOUNDS) + 1)


class Asker(Protocol):
    """A worker that passes requests on."""

    def answer(self, number: bytes, payload: bytes) -> None:
        """Answer its question of this number."""


class Experiment(Companion):
    """The version that answers a share of the requests."""

    word = "experiment"

    def __init__(self, means: Means) -> None:
        super().__init__(means)
        self.signature: Mapping[str, Any] = {}
        """What requests and answers are, of the version that serves."""
        self.counted: Callable[[Process, bytes], None] = lambda process, payload: None
        """Takes what the process counts as a worker does."""
        self._number = 0
        self._given: dict[bytes, tuple[Asker, bytes, int]] = {}
        self._waiting_bytes = 0
        self.labels: ArmLabels | None = None
        """What labels say of both versions; None: nobody watches them."""
        self._labelled: dict[str, dict[str, Any]] = {}
        """What they said at last, of an experiment that ends."""
        self._knowing: set[Asker] = set()
        """Workers that were told of the candidate, and haven't said that they are done with it."""
        self._ends: float | None = None
        """Since when its end is waited for; None: it isn't."""
        self._ends_before: float | None = None
        """Likewise at the look before."""

    def is_wanted(self, settings: Settings) -> bool:
        """Tell whether a service's settings ask for an experiment."""
        return settings.experiment is not None

    def follow(self, settings: Settings, served: int, version: int | None) -> None:
        """As `Companion.follow`; an end that is taken back while it is waited for is none."""
        self._ends_before, self._ends = self._ends, None
        super().follow(settings, served, version)

    def heard(self, process: Process, kind: int, payload: bytes) -> None:
        """Take an answer, or what the process counts."""
        if kind == channel.EXPERIMENT_DONE:
            self.done(process, payload)
        elif kind == channel.COUNTERS:
            self.counted(process, payload)
        elif kind == channel.IDS_ANSWERED and self.labels is not None:
            self.labels.candidate.remember(channel.named(payload)[1], time.time())

    def watch(self, live: Labels | None, memory: Memory) -> None:
        """Have labels joined by arm, once the candidate is ready.

        Args:
            live: of the version that serves; None: drift isn't watched.
            memory: what was answered.
        """
        pair, process = self._pair, self._process
        if live is None or pair is None or live.version != pair[1]:
            if self.labels is not None:
                self._labelled = self.labels.figures()
            self.labels = None
        elif process is not None and self.is_ready and (
            self.labels is None or self.labels.live is not live
        ):  # fmt: skip
            candidate = Labels(reference.read(process.manifest), memory, pair[2])
            self.labels = ArmLabels(live, candidate)

    def _refusal(self, process: Process) -> str | None:
        return misfit(self.signature, process.signature)

    # -- requests ----------------------------------------------------------------------------

    def stands(self, worker: Asker, model: str, version: int) -> dict[str, Any]:
        """Return what a worker is to be told, which serves this version of a model.

        Of an experiment that ends, workers hear at once that there is none. Its process goes on
        until they have said that all requests of it are answered and counted, or are gone: else
        requests under way would be lost to it, and their counts to everybody.
        """
        pair = self._pair
        if pair is None or self._ends is not None or pair[:2] != (model, version):
            return {"version": None, "ready": False}
        self._knowing.add(worker)
        return {"version": pair[2], "ready": self.is_ready}

    def gone(self, worker: Asker) -> None:
        """Wait no longer for a worker."""
        self._knowing.discard(worker)

    def _may_end(self) -> bool:
        now = self._means.clock()
        self._ends = now if self._ends_before is None else self._ends_before
        # One that hangs says nothing, as long as it is waited for.
        longest = STALL_SECONDS + (self._settings.limits.drain_seconds if self._settings else 0)
        return not self._knowing or now - self._ends > longest

    def take(self, worker: Asker, payload: bytes) -> None:
        """Have the process answer what a worker passes on."""
        asked, message = payload[:NUMBER_BYTES], payload[NUMBER_BYTES:]
        process = self._process
        if process is None or not self.is_ready:
            worker.answer(asked, pack({"outcome": "away"}))
            return
        if self._waiting_bytes + len(message) > MOST_WAITING_BYTES:
            worker.answer(asked, pack({"outcome": "busy"}))
            return
        self._begin_waiting()
        self._number += 1
        number = self._number.to_bytes(NUMBER_BYTES, "little")
        self._given[number] = (worker, asked, len(message))
        self._waiting_bytes += len(message)
        process.tell(channel.EXPERIMENT_RUN, number + message)

    def done(self, process: Process, payload: bytes) -> None:
        """Pass an answer back."""
        given = self._given.pop(payload[:NUMBER_BYTES], None)
        if process is not self._process or given is None:
            return
        worker, asked, size = given
        self._waiting_bytes -= size
        self._ended_one()
        worker.answer(asked, payload[NUMBER_BYTES:])

    @property
    def _is_waited_for(self) -> bool:
        return bool(self._given)

    def _lost(self, why: str | None) -> None:
        given, self._given, self._waiting_bytes = self._given, {}, 0
        told = {"outcome": "away"} | ({"why": why} if why is not None else {})
        for worker, asked, _ in given.values():
            worker.answer(asked, pack(told))

    # -- telling -------------------------------------------------------------------------------

    def _forget(self) -> None:
        super()._forget()
        self.labels, self._labelled = None, {}
        self._knowing, self._ends = set(), None

    def told(self, worker: Asker, model: str, served: int, payload: bytes) -> None:
        """Take what a worker counted that serves this version of a model."""
        found = orjson.loads(payload)
        if self._pair != (model, served, found["version"]):
            return
        if found["over"]:
            self.gone(worker)
        counted = found["counted"]
        self._why |= counted.pop("why", {})
        add(self._counts, counted)

    def _of(self, name: str) -> Mapping[str, int]:
        return self._counts.get(name, {})

    def _figures(self) -> dict[str, Any]:
        labelled = self.labels.figures() if self.labels is not None else self._labelled
        return {
            "arms": {arm: self._arm(arm) | labelled.get(arm, {}) for arm in ARMS},
            "fallbacks": {each: self._of("fallbacks").get(each, 0) for each in REASONS},
            "chosen": {arm: self._of("chosen").get(arm, 0) for arm in ARMS},
            "outside": self._of("outside").get("requests", 0),
        }

    def _arm(self, arm: str) -> dict[str, Any]:
        requests = self._of("requests").get(arm, 0)
        seconds = self._counts.get(f"latency_{arm}_seconds", 0.0)
        return {
            "requests": requests,
            "errors": self._of("errors").get(arm, 0),
            "refused": self._of("refused").get(arm, 0),
            "mean_seconds": seconds / requests if requests else None,
        }

    def facts(self) -> dict[str, Any] | None:
        """Return what is true of it, as `state.json` has it; None where there is none."""
        if self._pair is None or self._settings is None or self._settings.experiment is None:
            return None
        experiment = self._settings.experiment
        return {
            **self._standing(),
            "share": experiment.share,
            "key": experiment.key,
            **self._figures(),
            "why": dict(self._why),
        }

    def metrics(self) -> Iterable[Metric]:
        """Yield the families of Prometheus; none without an experiment."""
        if self._pair is None:
            return
        model, served, version = self._pair
        versions = {arm: str(version if arm == CANDIDATE else served) for arm in ARMS}
        labels = ("model", "version", "arm")
        ready = GaugeMetricFamily(
            "falaj_experiment_ready", "1 where the candidate answers.",
            labels=("model", "version"),
        )  # fmt: skip
        ready.add_metric((model, str(version)), float(self.is_ready))
        yield ready
        for key, words in (
            ("requests", "Requests whose key belongs to an arm, whoever answered."),
            ("errors", "Those of them that were answered with 500 or above."),
            ("refused", "Those of them that were answered with 400 to 499."),
            ("chosen", "Requests whose sender chose the arm; they are none of the arm's."),
        ):
            family = CounterMetricFamily(f"falaj_experiment_{key}", words, labels=labels)
            for arm in ARMS:
                family.add_metric((model, versions[arm], arm), self._of(key).get(arm, 0))
            yield family
        fallbacks = CounterMetricFamily(
            "falaj_experiment_fallbacks",
            "Requests of the candidate that the version that serves answered, by the reason.",
            labels=("model", "version", "reason"),
        )
        for reason in REASONS:
            count = self._of("fallbacks").get(reason, 0)
            fallbacks.add_metric((model, str(version), reason), count)
        yield fallbacks
        outside = CounterMetricFamily(
            "falaj_experiment_outside", "Requests that have no key, or name a version.",
            labels=("model",),
        )  # fmt: skip
        outside.add_metric((model,), self._of("outside").get("requests", 0))
        yield outside
        latency = HistogramMetricFamily(
            "falaj_experiment_request_duration_seconds",
            "Time from the last byte of an arm's request to its answer, whoever gave it.",
            labels=labels,
        )
        for arm in ARMS:
            inside = self._counts.get(f"latency_{arm}") or _NO_LATENCY
            seconds = self._counts.get(f"latency_{arm}_seconds", 0.0)
            latency.add_metric((model, versions[arm], arm), cumulated(inside), seconds)
        yield latency
        labelled = CounterMetricFamily(
            "falaj_experiment_labelled_rows", "Rows whose answers have labels.", labels=labels
        )
        wrong = CounterMetricFamily(
            "falaj_experiment_wrong_rows", "Those of them whose class was another one.",
            labels=labels,
        )  # fmt: skip
        found = self.labels.figures() if self.labels is not None else {}
        for arm, said in found.items():
            of = (model, versions[arm], arm)
            labelled.add_metric(of, said["labelled"])
            if "wrong" in said:
                wrong.add_metric(of, said["wrong"])
        yield labelled
        yield wrong


def misfit(served: Mapping[str, Any], candidate: Mapping[str, Any]) -> str | None:
    """Return in what a candidate's requests or answers are others than those of what serves.

    Args:
        served: inputs and outputs as `Schema.metadata` has them, and the names of classes.
        candidate: likewise.

    Returns:
        What differs, and what to do; None: nothing does.
    """
    for side in ("inputs", "outputs"):
        ours, theirs = _tensors(served.get(side)), _tensors(candidate.get(side))
        if ours != theirs:
            word = side[:-1]
            name = next(each for each in (*ours, *theirs) if ours.get(each) != theirs.get(each))
            return (
                f"it has another signature than the version that serves: the {word} '{name}' is "
                f"{_shown(theirs.get(name))} in place of {_shown(ours.get(name))}; clients of an "
                "experiment must notice no difference: start a version with the same inputs and "
                "outputs, or give this one to a service of its own"
            )
    if served.get("classes") != candidate.get("classes"):
        return (
            "it has other classes than the version that serves, or the same in another order; "
            "start a version with the same ones, or give this one to a service of its own"
        )
    return None


def _tensors(found: object) -> dict[str, tuple[str, list[Any]]]:
    entries = found if is_sequence(found) else []
    return {
        str(each.get("name")): (str(each.get("datatype")), list(each.get("shape", ())))
        for each in entries
        if is_dictionary(each)
    }


def _shown(tensor: tuple[str, list[Any]] | None) -> str:
    return "missing" if tensor is None else f"{tensor[0]} {tensor[1]}"
