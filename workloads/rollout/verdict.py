"""Whether a canary is as good as the stable version, by what both measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from falaj.workloads.rollout.measures import Measured, likeness

QUANTILE: Final = 0.99
"""Of the answers' times."""


@dataclass(frozen=True)
class Demands:
    """What is demanded of a canary, against the stable version.

    Attributes:
        least_requests: that each of both has to have had; with fewer nobody can tell.
        most_error_rise: percentage points by which more of its requests may fail.
        most_latency_rise: per cent by which 99 of 100 answers may take longer, or the first tokens
            of texts, where both versions had more requests for texts than others.
        least_likeness: per cent of the answers that have to be spread alike; 0 asks for nothing.
    """

    least_requests: int
    most_error_rise: float
    most_latency_rise: float
    least_likeness: float


@dataclass(frozen=True)
class Verdict:
    """What was found."""

    passed: bool
    why: str
    """One line, for the alias's record."""


def is_enough(stable: Measured, canary: Measured, demands: Demands) -> bool:
    """Whether both had the requests that it takes."""
    return min(stable.requests, canary.requests) >= demands.least_requests


#: Errors of the difference: of good canaries, looked at for an hour, few are ended by chance.
_BEYOND_CHANCE: Final = 3.0


def surely_fails(stable: Measured, canary: Measured, demands: Demands) -> bool:
    """Whether more of a canary's requests fail than may, beyond what chance makes of few.

    By the standard error of the difference of two shares:
    https://www.itl.nist.gov/div898/handbook/prc/section3/prc33.htm
    """
    error = sum(
        each.failed_percent * (100 - each.failed_percent) / each.requests
        for each in (stable, canary)
        if each.requests
    )
    beyond = _rise(stable, canary) - _BEYOND_CHANCE * math.sqrt(error)
    return beyond > demands.most_error_rise


def _rise(stable: Measured, canary: Measured) -> float:
    """Percentage points by which more of a canary's requests fail."""
    return canary.failed_percent - stable.failed_percent


def judge(stable: Measured, canary: Measured, demands: Demands) -> Verdict:
    """Hold what a canary measured against the stable version's, which had requests meanwhile."""
    missed: list[str] = []
    found = [
        f"{canary.requests} requests, {canary.failed_percent:.3g} % failed "
        f"(stable {stable.failed_percent:.3g} % of {stable.requests})"
    ]
    if _rise(stable, canary) > demands.most_error_rise:
        missed.append("errors")
    texts = min(stable.texts, canary.texts) > min(stable.inferences, canary.inferences)
    times = [
        each.to_first_token(QUANTILE) if texts else each.quantile(QUANTILE)
        for each in (canary, stable)
    ]
    if times[0] is None or times[1] is None:
        # Without answers there are errors alone; with some of one version, nothing to compare.
        missed.append("latency")
        found.append("latency unknown")
    else:
        what = "p99 to the first token" if texts else "p99"
        found.append(f"{what} {1000 * times[0]:.3g} ms (stable {1000 * times[1]:.3g} ms)")
        if times[0] > times[1] * (1 + demands.most_latency_rise / 100):
            missed.append("latency")
    alike = likeness(stable, canary)
    found.append("answers not counted" if alike is None else f"answers {alike:.1f} % alike")
    if demands.least_likeness and (alike is None or alike < demands.least_likeness):
        missed.append("answers")
    text = "; ".join(found)
    return Verdict(not missed, f"missed {', '.join(missed)}: {text}" if missed else text)
