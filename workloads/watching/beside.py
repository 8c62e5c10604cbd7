"""When a version that got copies of requests beside the one that serves is fit to serve itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol


@dataclass(frozen=True)
class Standing:
    """A shadow, and what came of its copies.

    Attributes:
        version: that it is.
        since: Unix time in seconds; None: the server hasn't begun it yet.
        compared: copies that both versions answered.
        failed: copies that it failed on, refused, or answered with something else.
        rows: that were compared.
        agreement: share of them that agree, from 0 to 1; None without any.
        why: the last failure; empty without one.
    """

    version: int
    since: float | None = None
    compared: int = 0
    failed: int = 0
    rows: int = 0
    agreement: float | None = None
    why: str = ""


class Demands(Protocol):
    """What is demanded of a shadow."""

    @property
    def requests(self) -> int:
        """Copies that it has to have been given."""
        ...

    @property
    def minutes(self) -> float:
        """For how long it has to have been looked at."""
        ...

    @property
    def least_agreement(self) -> float:
        """Share of rows that have to agree."""
        ...

    @property
    def most_failed(self) -> float:
        """Share of copies that it may fail on."""
        ...


@dataclass(frozen=True)
class Judged:
    """What is to become of a shadow.

    Attributes:
        verdict: ``wait``, ``promote`` or ``withdraw``.
        why: in a line.
    """

    verdict: Literal["wait", "promote", "withdraw"]
    why: str


def judge(standing: Standing, demands: Demands, now: float) -> Judged:
    """Judge a shadow.

    What fails is told from as many copies as would show it: the one that serves has answered each
    of them. What agrees is told when all have been given.
    """
    given = standing.compared + standing.failed
    what = f"version {standing.version}, as a shadow"
    if given >= demands.requests and standing.failed > demands.most_failed * given:
        last = f"; the last: {standing.why}" if standing.why else ""
        return Judged(
            "withdraw",
            f"{what}, failed on {standing.failed:,} of {given:,} requests that were answered"
            f"{last}",
        )
    if given < demands.requests:
        return Judged("wait", f"{what}, has been given less than {demands.requests:,} requests")
    if standing.since is None or now - standing.since < 60 * demands.minutes:
        return Judged(
            "wait", f"{what}, has been looked at for less than {demands.minutes:g} minutes"
        )
    if standing.agreement is None or standing.agreement < demands.least_agreement:
        share = standing.agreement or 0.0
        return Judged(
            "withdraw",
            f"{what}, agrees in {share:.1%} of {standing.rows:,} rows, and "
            f"{demands.least_agreement:.1%} is the least",
        )
    return Judged(
        "promote",
        f"{what}, agrees in {standing.agreement:.1%} of {standing.rows:,} rows, and failed on "
        f"{standing.failed:,} of {given:,} requests",
    )
