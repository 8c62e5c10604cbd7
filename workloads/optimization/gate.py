"""The decision between the float and the 8-bit model: a pure function of what was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from falaj.workloads.errors import WorkloadError

Metric = Literal["accuracy", "rmse"]
Choice = Literal["float", "int8"]

CLEAR_GAIN = 0.02
"""Share of the time that 8 bits must save.

Medians of one and the same model, measured in turns twenty times, were up to 1.7 % apart.
"""

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Measured:
    """One candidate's figures.

    Attributes:
        score: accuracy (0 to 1) or root mean square error (0 or more) on the held-out part.
        size_bytes: of the serialised model.
        latency_us: median time of one row on this machine, in microseconds.
    """

    score: float
    size_bytes: int
    latency_us: float


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
    if not 0 <= points <= 100:
        raise WorkloadError(
            f"--max-accuracy-drop is {points:g}: allowed is 0 to 100 (percentage points of "
            "accuracy; for a regression, per cent of the error)"
        )
    return points


def loss_points(metric: Metric, before: float, after: float) -> float:
    """Return how much worse ``after`` is than ``before``; negative where it is better.

    Accuracy: percentage points lost. RMSE: growth in per cent; from an error of 0 to any other
    it is infinite.
    """
    if metric == "accuracy":
        return 100 * (before - after)
    if before == 0:
        return 0.0 if after == 0 else math.inf
    return 100 * (after - before) / before


def decide(
    metric: Metric, original: Measured, quantised: Measured, bound_points: float
) -> Decision:
    """Accept the 8-bit model only if it loses at most ``bound_points`` **and** is clearly faster.

    Clearly: by `CLEAR_GAIN` or more, so that the outcome doesn't hang on noise.

    Args:
        metric: what the scores are.
        original: the float model's figures.
        quantised: the 8-bit model's, measured in turns with the float model's.
        bound_points: see `loss_points`.
    """
    loss = loss_points(metric, original.score, quantised.score)
    scores = f"{_shown(metric, original.score)} to {_shown(metric, quantised.score)}"
    speed = f"{original.latency_us:.1f} to {quantised.latency_us:.1f} µs a row"
    unit = "points" if metric == "accuracy" else "per cent"
    verb = "falls" if metric == "accuracy" else "grows"
    # Written so that NaN, from a broken model, refuses.
    accurate = loss <= bound_points + _ROUNDING
    faster = quantised.latency_us <= original.latency_us * (1 - CLEAR_GAIN)
    complaints: list[str] = []
    if not accurate:
        complaints.append(
            f"with 8 bits the {metric} {verb} from {scores}, more than the {bound_points:g} "
            f"{unit} allowed"
        )
    if not faster:
        slower = quantised.latency_us >= original.latency_us
        how = "not faster" if slower else f"not faster by {100 * CLEAR_GAIN:g} % or more"
        complaints.append(f"8 bits are {how} on this machine ({speed})")
    if complaints:
        return Decision("float", "kept float: " + "; ".join(complaints))
    return Decision(
        "int8",
        f"accepted 8 bits: {metric} from {scores}, within {bound_points:g} {unit}, "
        f"and faster on this machine ({speed})",
    )


def _shown(metric: Metric, score: float) -> str:
    return f"{100 * score:.2f} %" if metric == "accuracy" else f"{score:.6g}"
