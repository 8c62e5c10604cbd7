"""Whether one version's outcomes are worse than another's: a test that is valid at every moment.

Who looks again and again at a test that is meant for one look finds a difference in the end where
there is none: at 1 %, every 100 of 10,000 pairs, in one of ten. The evidence here is an e-process:
the wealth of somebody who bets on "the first is worse" and who can't expect to gain where it isn't
so. By Ville's inequality it ever exceeds 1/a with a chance of at most a, however often one looks:
https://arxiv.org/abs/2210.01948. The bets are those for two streams of yes and no of
https://arxiv.org/abs/2106.02693, with estimates from the pairs before, and none where the first
isn't worse by them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

_PRIOR: Final = 0.18
"""Of a failure, before there was any pair: a beta distribution of twice this weight, which loses
least in the worst case (arXiv 2106.02693)."""


@dataclass(frozen=True)
class Evidence:
    """What pairs of outcomes, one of each version, say so far.

    Attributes:
        pairs: how many there were.
        mine: failures of the version that is doubted.
        other: failures of the version that it is compared with.
        wealth: natural logarithm of what the bets are worth now.
        most: the largest that it ever was: what was certain once stays so.
    """

    pairs: int = 0
    mine: int = 0
    other: int = 0
    wealth: float = 0.0
    most: float = 0.0

    def with_pair(self, mine: bool, other: bool) -> Evidence:
        """The evidence with one more pair; whether each outcome was a failure."""
        weight = self.pairs + 2 * _PRIOR
        doubted, compared = (self.mine + _PRIOR) / weight, (self.other + _PRIOR) / weight
        wealth = self.wealth
        if doubted > compared:
            both = (doubted + compared) / 2
            wealth += _gain(doubted, both, mine) + _gain(compared, both, other)
        return Evidence(
            self.pairs + 1, self.mine + mine, self.other + other, wealth, max(self.most, wealth)
        )

    def is_worse(self, alpha: float) -> bool:
        """Whether the doubted version is worse: wrong with a chance of ``alpha`` at most."""
        return self.most >= -math.log(alpha)


def _gain(chance: float, both: float, failed: bool) -> float:
    return math.log(chance / both if failed else (1 - chance) / (1 - both))


@dataclass(frozen=True)
class Outcomes:
    """How often something was tried and failed, where nobody knows in which order."""

    count: int = 0
    failed: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.failed <= self.count:
            raise ValueError(f"{self.failed} of {self.count} failed")

    def plus(self, other: Outcomes) -> Outcomes:
        """Those of both."""
        return Outcomes(self.count + other.count, self.failed + other.failed)

    def at_most(self, count: int) -> Outcomes:
        """As many of them as are wanted, with the same share of failures."""
        if self.count <= count:
            return self
        return Outcomes(count, round(self.failed * count / self.count))

    def without(self, other: Outcomes) -> Outcomes:
        """Those that are left."""
        return Outcomes(self.count - other.count, self.failed - other.failed)

    def drawn(self, count: int, source: random.Random) -> Iterator[bool]:
        """Draw some one after the other, none twice: whether each failed."""
        left, failed = self.count, self.failed
        for _ in range(min(count, self.count)):
            hit = source.random() * left < failed
            left, failed = left - 1, failed - hit
            yield hit


@dataclass(frozen=True)
class Comparison:
    """A version's outcomes as they come, beside those that another one had before.

    Outcomes are paired in an order that is drawn, as counts don't tell it; where both versions
    are alike any order is as likely, so the test holds.

    Attributes:
        evidence: of the pairs so far.
        left: outcomes of the other version that have no partner yet.
        seed: of the drawing, so that it can be done again.
    """

    evidence: Evidence
    left: Outcomes
    seed: int = 0

    def with_outcomes(self, mine: Outcomes) -> Comparison:
        """The comparison with further outcomes of the version that is doubted.

        What finds no partner any more is passed over.
        """
        source = random.Random(f"{self.seed}:{self.evidence.pairs}")  # noqa: S311 - no secret
        count = min(mine.count, self.left.count)
        evidence, used = self.evidence, 0
        for one, other in zip(
            mine.drawn(count, source), self.left.drawn(count, source), strict=True
        ):
            evidence = evidence.with_pair(one, other)
            used += other
        return replace(self, evidence=evidence, left=self.left.without(Outcomes(count, used)))
