"""The models in OpenVINO beside ONNX Runtime: what is tried, and which of them serves.

What runs a package has to be within the accuracy that may be lost, and so has what runs it where
OpenVINO isn't: the same graph in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from falaj.workloads import engines
from falaj.workloads.engines import (
    AUTO,
    NOT_INSTALLED,
    ONNXRUNTIME,
    OPENVINO,
    PRECISIONS,
    Engine,
    NoCandidateError,
    graph_named,
    graph_of,
    open_openvino,
)
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.comparison import (
    BITS,
    CLEAR_GAIN,
    Choice,
    Decision,
    Feed,
    Measured,
    Metric,
    is_within,
    shown,
)
from falaj.workloads.optimization.export import PARITY_TOLERANCE

if TYPE_CHECKING:
    from falaj.workloads.openvino_session import OpenVinoSession

F32, BF16, _, _ = PRECISIONS


def label(precision: str) -> str:
    """Return what a model in OpenVINO is called among those that are measured."""
    return f"{OPENVINO} {precision}"


@dataclass(frozen=True)
class Trials:
    """What is tried in OpenVINO.

    Attributes:
        sessions: by precision.
        left_out: why others aren't, by precision; or of `OPENVINO` why none is.
    """

    sessions: dict[str, OpenVinoSession] = field(default_factory=dict[str, "OpenVinoSession"])
    left_out: dict[str, str] = field(default_factory=dict[str, str])


def trials(asked: str, models: Mapping[Choice, bytes], rows: Feed, *, threads: int) -> Trials:
    """Compile the models in OpenVINO.

    Args:
        asked: `AUTO`, `ONNXRUNTIME` or `OPENVINO`.
        models: the served graphs, ``float`` and those that were quantised.
        rows: inputs that each has to answer.
        threads: that one run may take.
    """
    if asked == ONNXRUNTIME:
        return Trials(left_out={OPENVINO: f"not asked for (--engine {ONNXRUNTIME})"})
    if not engines.has_openvino():
        return Trials(left_out={OPENVINO: NOT_INSTALLED})
    made, here = Trials(), engines.openvino_precisions()
    for precision in PRECISIONS:
        name = graph_named(precision)
        model = models.get(name)
        if model is None:
            made.left_out[precision] = f"there is no model with {BITS[name]}"
        elif precision == BF16 and BF16 not in here:
            made.left_out[precision] = "this processor has no instructions for bfloat16"
        else:
            try:
                session = open_openvino(graph_of(model), precision, threads=threads)
                made.sessions[precision] = _answering(session, rows)
            except NoCandidateError as error:
                made.left_out[precision] = str(error)
    return made


def _answering(session: OpenVinoSession, rows: Feed) -> OpenVinoSession:
    try:
        session.run(None, rows)
    except Exception as error:  # all that goes wrong in it is a RuntimeError
        raise NoCandidateError(f"OpenVINO fails on held-out rows: {error}"[:300]) from error
    return session


def check_asked(asked: str) -> None:
    """Raises WorkloadError: OpenVINO is asked for and isn't installed."""
    if asked == OPENVINO and not engines.has_openvino():
        raise WorkloadError(f"--engine {OPENVINO}: {NOT_INSTALLED}, or take --engine {AUTO}")


@dataclass(frozen=True)
class Tried:
    """A model's figures in OpenVINO.

    Attributes:
        measured: like those of models in ONNX Runtime.
        parity: the largest difference from the trained module's answers, as a share of the
            largest.
    """

    measured: Measured
    parity: float


@dataclass(frozen=True)
class EngineChoice:
    """What runs the model and why.

    Attributes:
        engine: what does.
        reason: for a person.
        tried: figures in OpenVINO, by precision.
        left_out: why a precision wasn't tried or wasn't chosen from.
        asked: `AUTO`, or the engine that was asked for.
    """

    engine: Engine
    reason: str
    tried: Mapping[str, Tried]
    left_out: Mapping[str, str]
    asked: str = AUTO

    @property
    def measured(self) -> Measured | None:
        """The figures of what was chosen; None: it is what ONNX Runtime runs."""
        found = self.tried.get(self.engine.precision)
        return found.measured if found is not None else None

    def to_json(self, metric: Metric) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {
            "name": self.engine.name,
            "asked": self.asked,
            "precision": self.engine.precision or None,
            "reason": self.reason,
            "version": engines.openvino_version() if self.tried else None,
            "candidates": {
                precision: {**each.measured.to_json(metric), "parity": each.parity}
                for precision, each in self.tried.items()
            },
            "left_out": dict(self.left_out),
        }


def graph_in(choice: EngineChoice, decision: Decision) -> Decision:
    """Return which graph is packaged once the engine is chosen."""
    if choice.engine.name == ONNXRUNTIME:
        return decision
    return Decision(graph_named(choice.engine.precision), choice.reason)


def choose(
    asked: str,
    metric: Metric,
    usual: Mapping[Choice, Measured],
    decision: Decision,
    *,
    tried: Mapping[str, Tried],
    left_out: Mapping[str, str],
    bound_points: float,
) -> EngineChoice:
    """Choose the fastest that loses little enough; OpenVINO has to be clearly faster.

    Args:
        asked: `AUTO` or `ONNXRUNTIME`; `OPENVINO` takes it although it isn't faster.
        metric: what the scores are.
        usual: figures in ONNX Runtime, ``float`` and maybe others.
        decision: which of these is served.
        tried: figures in OpenVINO, by precision, measured in turns with these.
        left_out: what wasn't tried or can't be chosen, and why.
        bound_points: see `loss_points`.

    Raises:
        WorkloadError: OpenVINO is asked for, and no model in it can be served.
    """
    refused = dict(left_out)
    best: str | None = None
    own = usual[decision.accepted]
    least = own.latency_us
    for precision in PRECISIONS:
        if precision not in tried:
            continue
        why_not = refused.get(precision) or _against(precision, metric, usual, tried, bound_points)
        if why_not:
            refused[precision] = why_not
            continue
        latency = tried[precision].measured.latency_us
        is_first = asked == OPENVINO and best is None
        if is_first or latency <= least * (1 - CLEAR_GAIN):
            best, least = precision, latency
    if best is not None:
        score = shown(metric, tried[best].measured.score)
        reason = (
            f"OpenVINO ({best}) takes {least:.1f} µs a row where ONNX Runtime "
            f"({decision.accepted}) takes {own.latency_us:.1f}; {metric} {score}, of the float "
            f"model {shown(metric, usual['float'].score)}"
        )
        return EngineChoice(Engine(OPENVINO, best), reason, tried, refused, asked)
    if asked == OPENVINO:
        reasons = "; ".join(f"{name}: {why}" for name, why in refused.items())
        raise WorkloadError(
            f"--engine {OPENVINO}: no model can be served by it ({reasons}); take --engine {AUTO}"
        )
    quick = [name for name in tried if name not in refused]
    if quick:
        fastest = min(quick, key=lambda name: tried[name].measured.latency_us)
        why = (
            f"OpenVINO isn't faster by {100 * CLEAR_GAIN:g} % or more: its fastest ({fastest}) "
            f"takes {tried[fastest].measured.latency_us:.1f} µs a row, ONNX Runtime "
            f"({decision.accepted}) {own.latency_us:.1f}"
        )
    else:
        why = "; ".join(dict.fromkeys(refused.values()))
    return EngineChoice(Engine(), f"ONNX Runtime runs it: {why}", tried, refused, asked)


def _against(
    precision: str,
    metric: Metric,
    usual: Mapping[Choice, Measured],
    tried: Mapping[str, Tried],
    bound_points: float,
) -> str:
    """What speaks against a model in OpenVINO; empty where nothing does."""
    exact = tried.get(F32)
    # Written so that NaN refuses.
    if exact is None or not exact.parity <= PARITY_TOLERANCE:
        difference = "isn't known" if exact is None else f"is {exact.parity:.2g} of the largest"
        return (
            f"in f32 the difference from the trained module's answers {difference}; allowed is "
            f"{PARITY_TOLERANCE:.0e}"
        )
    original = usual["float"]
    lost = f"the {metric} would be {{}}, of the float model {shown(metric, original.score)}"
    score = tried[precision].measured.score
    if not is_within(metric, original.score, score, bound_points):
        return lost.format(shown(metric, score))
    elsewhere = usual[graph_named(precision)].score
    if not is_within(metric, original.score, elsewhere, bound_points):
        return "without OpenVINO " + lost.format(shown(metric, elsewhere))
    return ""
