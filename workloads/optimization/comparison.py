"""The float model and quantised ones against each other: scores, latency, and the decision.

A shared machine changes its speed from second to second. Rounds of each model in turn see the
same conditions, and medians leave out the rounds in which something else had the processor.
"""

from __future__ import annotations

import gc
import math
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray

from falaj.workloads.bounds import OPTIMIZATION
from falaj.workloads.engines import Session
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.export import (
    IMAGE,
    INPUT,
    OUTPUT,
    PARITY_TOLERANCE,
    Serving,
    core_feed,
)
from falaj.workloads.processor import VNNI
from falaj.workloads.training.language import TOKENS, following
from falaj.workloads.training.loop import row_losses, windows_at_once
from falaj.workloads.training.record import LANGUAGE
from falaj.workloads.training.tensors import tensor_of
from falaj.workloads.vocabulary import MOST_CHARACTERS

# Sessions of ONNX Runtime as the server opens them, and what this machine can compute with.

Feed = dict[str, NDArray[Any]]

_AT_ONCE = 256
"""Rows that a model is asked at once."""
_PARITY_WINDOWS = 64
"""Of a text, that graph and module are compared on."""


def open_session(model: bytes, threads: int = 1) -> onnxruntime.InferenceSession:
    """Open ``model`` from memory on the CPU, with ``threads`` threads inside an operator.

    Raises:
        WorkloadError: ONNX Runtime can't load it.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # Errors come back as exceptions; warnings about graph rewriting are of no use to a person.
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises a dozen unrelated classes
        raise WorkloadError(f"ONNX Runtime cannot load the model: {error}") from error


def session_of(model: bytes | Session) -> Session:
    """Return what runs a model: a session as it is, one of ONNX Runtime of a graph."""
    return open_session(model) if isinstance(model, bytes) else model


def run_in_batches(
    session: Session, feed: Feed, names: list[str], batch: int = _AT_ONCE
) -> list[NDArray[Any]]:
    """Return the outputs ``names`` for all rows of ``feed``, computed ``batch`` rows at a time."""
    rows = len(next(iter(feed.values())))
    parts = [
        session.run(names, {key: values[start : start + batch] for key, values in feed.items()})
        for start in range(0, rows, batch)
    ]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def needs_reduced_range(flags: list[str], machine: str | None = None) -> bool:
    """Tell whether 8-bit weights would overflow: x86-64 without VNNI adds pairs in 16 bits.

    There, weights are kept to 7 bits
    (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html).

    Args:
        flags: the processor's, from `relevant_cpu_flags`.
        machine: the architecture's name; None asks the system.
    """
    x86 = (machine or platform.machine()).lower() in {"x86_64", "amd64"}
    return x86 and not VNNI & set(flags)


def versions() -> dict[str, str]:
    """Return the versions of the libraries that made and measured the model."""
    return {
        "onnxruntime": onnxruntime.__version__,
        "onnx": onnx.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


Metric = Literal["accuracy", "rmse", "nats_per_character"]
Choice = Literal["float", "int8", "int4"]
BITS: Final[dict[Choice, str]] = {"int8": "8 bits", "int4": "4 bits"}
"""What weights of quantised models have, from the more precise one on."""

CLEAR_GAIN = 0.02
"""Share of the time that fewer bits must save.

Medians of one and the same model, measured in turns twenty times, were up to 1.7 % apart.
"""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Measured:
    """One candidate's figures.

    Attributes:
        score: accuracy (0 to 1), root mean square error or nats of a character (0 or more) on the
            held-out part.
        size_bytes: of the serialised model.
        latency_us: median time of one row on this machine, in microseconds.
    """

    score: float
    size_bytes: int
    latency_us: float

    def to_json(self, metric: Metric) -> dict[str, float | int]:
        """Return it as it stands in a record."""
        return {
            metric: self.score,
            "size_bytes": self.size_bytes,
            "latency_us": round(self.latency_us, 3),
        }


@dataclass(frozen=True)
class Decision:
    """What is served and why, in words for a person."""

    accepted: Choice
    reason: str


def check_bound(points: float) -> float:
    """Return ``points`` if it is a possible bound, 0 to 100.

    Raises:
        WorkloadError: it is not.
    """
    bound = OPTIMIZATION["max_accuracy_drop"]
    if not bound.allows(points):
        raise WorkloadError(
            f"--max-accuracy-drop is {points:g}: allowed is {bound.description} "
            "(percentage points of accuracy; for others, per cent of the error or of the nats)"
        )
    return points


@dataclass(frozen=True)
class Gate:
    """What the model that would be served has to be worth, on held-out rows.

    Attributes:
        least_accuracy: 0 to 1, of a classification.
        most_rmse: in the unit of what is predicted, of a regression.
        most_nats: of a character, of a language model.
    """

    least_accuracy: float | None = None
    most_rmse: float | None = None
    most_nats: float | None = None

    def check_options(self) -> None:
        """Raises WorkloadError: a bound is out of its range."""
        for name, value in self._bounds().values():
            if value is not None and not OPTIMIZATION[name].allows(value):
                raise WorkloadError(
                    f"{_option(name)} is {value:g}: allowed is {OPTIMIZATION[name].description}"
                )

    def _bounds(self) -> dict[Metric, tuple[str, float | None]]:
        return {
            "accuracy": ("least_accuracy", self.least_accuracy),
            "rmse": ("most_rmse", self.most_rmse),
            "nats_per_character": ("most_nats", self.most_nats),
        }

    def check(self, metric: Metric, score: float) -> None:
        """Let a score through, or refuse it.

        Raises:
            WorkloadError: it is worse than the bound, or the bound is of another metric.
        """
        bounds = self._bounds()
        right, bound = bounds.pop(metric)
        for wrong, other in bounds.values():
            if other is not None:
                raise WorkloadError(
                    f"{_option(wrong)} was given, but the model's metric is {metric}: "
                    f"{_option(right)}"
                )
        if bound is None:
            return
        # Written so that NaN, from a broken model, is refused.
        passes = score >= bound - _ROUNDING if metric == "accuracy" else score <= bound + _ROUNDING
        if not passes:
            demand = "at least" if metric == "accuracy" else "at most"
            raise WorkloadError(
                f"the model doesn't pass the gate: held-out {metric} {shown(metric, score)}, "
                f"{demand} {shown(metric, bound)} is demanded; train it better, or lower the gate"
            )


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def loss_points(metric: Metric, before: float, after: float) -> float:
    """Return how much worse ``after`` is than ``before``; negative where it is better.

    Accuracy: percentage points lost. RMSE and nats: growth in per cent; from an error of 0 to any
    other it is infinite.
    """
    if metric == "accuracy":
        return 100 * (before - after)
    if before == 0:
        return 0.0 if after == 0 else math.inf
    return 100 * (after - before) / before


def is_within(metric: Metric, before: float, after: float, bound_points: float) -> bool:
    """Tell whether ``after`` is at most ``bound_points`` worse; NaN, of a broken model, isn't."""
    return loss_points(metric, before, after) <= bound_points + _ROUNDING


def decide(
    metric: Metric,
    original: Measured,
    smaller: Mapping[Choice, Measured],
    bound_points: float,
    *,
    refused: Mapping[Choice, str] | None = None,
    asked: str = "auto",
) -> Decision:
    """Accept fewer bits only if they lose at most ``bound_points`` **and** are clearly faster.

    Clearly: by `CLEAR_GAIN` or more, so that the outcome doesn't hang on noise.

    Args:
        metric: what the scores are.
        original: the float model's figures.
        smaller: those of quantised models, measured in turns with the float model's.
        bound_points: see `loss_points`.
        refused: why others weren't measured.
        asked: one of `BITS`, which need not be faster then; any other word asks for none.

    Raises:
        WorkloadError: one was asked for, and loses more or wasn't measured.
    """
    unit = "points" if metric == "accuracy" else "per cent"
    verb = "falls" if metric == "accuracy" else "grows"
    complaints: list[str] = []
    best: Choice = "float"
    least, accepted = original.latency_us, ""
    for name, bits in BITS.items():
        if refused is not None and name in refused:
            complaints.append(refused[name])
        found = smaller.get(name)
        if found is None:
            continue
        scores = f"{shown(metric, original.score)} to {shown(metric, found.score)}"
        against: list[str] = []
        if not is_within(metric, original.score, found.score, bound_points):
            against.append(
                f"with {bits} the {metric} {verb} from {scores}, more than the {bound_points:g} "
                f"{unit} allowed"
            )
        faster = found.latency_us <= least * (1 - CLEAR_GAIN)
        if not faster and name != asked:
            slower = found.latency_us >= least
            how = "not faster" if slower else f"not faster by {100 * CLEAR_GAIN:g} % or more"
            speed = f"{least:.1f} to {found.latency_us:.1f} µs a row"
            than = "" if best == "float" else f" than {BITS[best]}"
            against.append(f"{bits} are {how}{than} on this machine ({speed})")
        complaints += against
        if not against:
            speed = f"{original.latency_us:.1f} to {found.latency_us:.1f} µs a row"
            gain = "faster on this machine" if faster else "as they were asked for"
            best, least = name, found.latency_us
            accepted = (
                f"accepted {bits}: {metric} from {scores}, within {bound_points:g} {unit}, "
                f"and {gain} ({speed})"
            )
    if best != "float":
        return Decision(best, "; ".join([accepted, *complaints]))
    if asked in BITS:
        raise WorkloadError(
            f"--quantise {asked}: {'; '.join(complaints)}. Allow more (--max-accuracy-drop), or "
            "take --quantise auto, which keeps float then"
        )
    return Decision("float", "kept float: " + "; ".join(complaints))


def shown(metric: Metric, score: float) -> str:
    """Return a score as a person says it."""
    return f"{100 * score:.2f} %" if metric == "accuracy" else f"{score:.6g}"


ROUNDS = 101
_ROUND_SECONDS = 0.001
"""Below a scheduler's time slice, so that most rounds run undisturbed on a busy machine."""

_WARM_UP_CALLS = 20
_MOST_CALLS = 1_000


@dataclass(frozen=True)
class Latency:
    """One model's time for a call, in microseconds.

    Attributes:
        median_us: over the rounds' means.
        fastest_us: the best round's mean.
        rounds: how many rounds there were.
        calls: how many calls a round has.
    """

    median_us: float
    fastest_us: float
    rounds: int
    calls: int


def compare(
    candidates: Mapping[str, Callable[[], object]],
    rounds: int = ROUNDS,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> dict[str, Latency]:
    """Time each candidate in ``rounds`` rounds, in turns, the order reversed every other round.

    Args:
        candidates: what to call, by name.
        rounds: how often each has its turn, at least 1.
        clock: nanoseconds, never going back.

    Raises:
        WorkloadError: ``rounds`` is below 1.
    """
    if rounds < 1:
        raise WorkloadError(f"{rounds} rounds were asked for: at least 1 is needed")
    calls = {name: _warm_up(call, clock) for name, call in candidates.items()}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    collecting = gc.isenabled()
    gc.disable()
    try:
        for _ in range(rounds):
            for name in order:
                times[name].append(_mean_us(candidates[name], calls[name], clock))
            order.reverse()
    finally:
        if collecting:
            gc.enable()
    return {
        name: Latency(statistics.median(values), min(values), rounds, calls[name])
        for name, values in times.items()
    }


def _warm_up(call: Callable[[], object], clock: Callable[[], int]) -> int:
    """Return how many calls fill a round, once the first, slower ones are over."""
    _mean_us(call, _WARM_UP_CALLS, clock)
    duration = _mean_us(call, _WARM_UP_CALLS, clock)
    return max(1, min(_MOST_CALLS, round(_ROUND_SECONDS * 1e6 / max(duration, 1e-3))))


def _mean_us(call: Callable[[], object], count: int, clock: Callable[[], int]) -> float:
    start = clock()
    for _ in range(count):
        call()
    return (clock() - start) / count / 1000


def metric_of(serving: Serving) -> Metric:
    """Return ``accuracy`` for classes, ``rmse`` for numbers, ``nats_per_character`` for texts."""
    if serving.is_text:
        return "nats_per_character"
    return "rmse" if serving.classes is None else "accuracy"


def core_rows(serving: Serving, inputs: Feed) -> NDArray[Any]:
    """Return raw rows as the core takes them, by the training's own preprocessing."""
    if serving.preprocessing is not None:
        return serving.preprocessing.transform(inputs)
    if serving.is_text:
        recent = inputs[TOKENS][:, -serving.shape[0] :]
        return np.where((recent >= 0) & (recent < len(serving.classes or ())), recent, 0)
    return inputs[IMAGE]


def window_nats(
    core: bytes | Session,
    tokens: NDArray[Any],
    labels: NDArray[Any],
    size: int = MOST_CHARACTERS,
) -> NDArray[np.float64]:
    """Return the mean cross-entropy of each window's tokens, in nats, (N,).

    Args:
        core: of a language model, which answers each token, or a session of it.
        tokens: windows (N, S).
        labels: the token that follows each, (N,).
        size: tokens of the vocabulary, as of `loop.follow`.
    """
    session, targets = session_of(core), following(tokens, labels)
    nats: list[NDArray[Any]] = []
    some = windows_at_once(tokens.shape[1], size)
    for start in range(0, len(tokens), some):
        part = slice(start, start + some)
        (logits,) = session.run([OUTPUT], core_feed(tokens[part]))
        answers, wanted = (tensor_of(each) for each in (logits, targets[part]))
        nats.append(row_losses(answers, wanted, LANGUAGE, 0.0).numpy())
    return np.concatenate(nats).astype(np.float64)


def score(model: bytes | Session, serving: Serving, inputs: Feed, labels: NDArray[Any]) -> float:
    """Return the accuracy (0 to 1) or the root mean square error in the target's own unit.

    Args:
        model: a served graph, of classes or numbers, or a session of one.
        serving: how it was assembled.
        inputs: served inputs by name, raw rows.
        labels: class numbers or values, (rows,).

    Raises:
        WorkloadError: there are no rows.
    """
    if len(labels) == 0:
        raise WorkloadError("the dataset has no held-out rows to compare the models on")
    session = session_of(model)
    if serving.classes is None:
        name = serving.output_name("prediction")
        (values,) = run_in_batches(session, inputs, [name])
        difference = values.reshape(-1).astype(np.float64) - labels.astype(np.float64)
        return float(np.sqrt(np.mean(difference**2)))
    (answers,) = run_in_batches(session, inputs, [serving.output_name("label")])
    wanted = np.array(serving.classes, dtype=object)[labels] if serving.text_labels else labels
    agreed: NDArray[np.bool_] = np.asarray(answers == wanted)
    return float(np.mean(agreed))


def check_core(core: bytes, module: torch.nn.Module, rows: torch.Tensor) -> None:
    """Compare a graph that was just exported with its module, on rows as the module takes them.

    Raises:
        WorkloadError: they differ by more than `PARITY_TOLERANCE`, or the graph can't take them.
    """
    with torch.no_grad():
        wanted = module(rows).numpy()
    try:
        (given,) = open_session(core).run(None, {INPUT: rows.numpy()})
    except Exception as error:  # ONNX Runtime raises a dozen unrelated classes
        raise WorkloadError(
            f"the module can't be exported to ONNX: the graph takes no batch of {len(rows)} rows; "
            "have it use its inputs, and compute nothing that depends on how many there are"
        ) from error
    given = np.asarray(given)
    same = given.shape == wanted.shape and np.allclose(
        given, wanted, rtol=0, atol=PARITY_TOLERANCE * max(1.0, float(np.abs(wanted).max()))
    )
    if not same:
        raise WorkloadError(
            "the module can't be exported to ONNX: the graph's answers differ from its own. Have "
            "it compute by torch's operators alone, and nothing by how many rows there are"
        )


def check_parity(model: bytes, module: torch.nn.Module, serving: Serving, inputs: Feed) -> float:
    """Compare the served float graph with the module behind the training's preprocessing.

    This covers all that was exported: preprocessing, weights and the answers' units.

    Args:
        model: the served float graph.
        module: the trained module.
        serving: how ``model`` was assembled.
        inputs: served inputs by name, raw rows.

    Returns:
        The largest absolute difference of probabilities or predictions, as a share of the
        largest absolute value (at least 1). Of a text it is the largest over rows of several
        lengths.

    Raises:
        WorkloadError: it is above `PARITY_TOLERANCE`, or not a number.
    """
    difference = parity_of(open_session(model), module, serving, inputs)
    if not difference <= PARITY_TOLERANCE:  # written so that NaN is refused too
        raise WorkloadError(
            f"the exported graph's answers differ from the trained module's by {difference:.2g} "
            f"of the largest; allowed is {PARITY_TOLERANCE:.0e}. If the run's loss diverged, "
            "train again with a lower --learning-rate"
        )
    return difference


def parity_of(session: Session, module: torch.nn.Module, serving: Serving, inputs: Feed) -> float:
    """Return the difference of `check_parity` for a session, whatever it is."""
    asked = _lengths(inputs[TOKENS], serving) if serving.is_text else [inputs]
    # As a difference, NaN is larger than any number.
    found = [_difference(session, module, serving, each) for each in asked]
    return max(found, key=lambda each: math.inf if math.isnan(each) else each)


def _lengths(tokens: NDArray[Any], serving: Serving) -> list[Feed]:
    """Some windows as they are, short, one alone, longer than is looked back on, and damaged."""
    windows = tokens[:_PARITY_WINDOWS]
    strange = windows.copy()
    strange[:, ::3] = -1
    strange[:, 1::3] = len(serving.classes or ())
    long = np.concatenate([windows, windows[::-1]], axis=1)
    every = (windows, windows[:, :1], windows[:1, :5], windows[:, 1:], long, strange)
    return [{TOKENS: each} for each in every]


def _difference(
    session: Session, module: torch.nn.Module, serving: Serving, inputs: Feed
) -> float:
    with torch.no_grad():
        rows = tensor_of(np.ascontiguousarray(core_rows(serving, inputs)))
        raw = torch.cat([module(part) for part in torch.split(rows, _AT_ONCE)])
        if serving.is_text:
            raw = raw[:, -1]
        if serving.classes is None:
            mean, scale = serving.target or (0.0, 1.0)
            name, wanted = serving.output_name("prediction"), raw * scale + mean
        else:
            name, wanted = serving.output_name("probabilities"), torch.softmax(raw, dim=-1)
    (given,) = run_in_batches(session, inputs, [name])
    reference = wanted.numpy()
    largest = max(1.0, float(np.abs(reference).max()))
    return float(np.abs(given - reference).max()) / largest
