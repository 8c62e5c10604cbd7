"""The test on pairs of outcomes: seldom wrong however often one looks, and soon right."""

from __future__ import annotations

import math
import random
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.rollout.pairs import Comparison, Evidence, Outcomes

ALPHA = 0.05


def _run(mine: float, other: float, pairs: int, source: random.Random) -> int | None:
    """After how many pairs one is said to be worse, looking after each; None: never."""
    evidence = Evidence()
    for number in range(1, pairs + 1):
        evidence = evidence.with_pair(source.random() < mine, source.random() < other)
        if evidence.is_worse(ALPHA):
            return number
    return None


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_versions_that_are_alike_are_seldom_told_apart(share: float) -> None:
    source = random.Random(1)
    runs = 200
    wrong = sum(_run(share, share, 500, source) is not None for _ in range(runs))
    # By chance at most 5 % of them, and three standard errors of that.
    assert wrong / runs <= ALPHA + 3 * math.sqrt(ALPHA * (1 - ALPHA) / runs)


def test_a_better_version_is_never_called_worse() -> None:
    source = random.Random(2)
    assert sum(_run(0.1, 0.2, 500, source) is not None for _ in range(100)) <= 2


def test_a_worse_version_is_found_soon() -> None:
    source = random.Random(3)
    found = [_run(0.3, 0.1, 1_000, source) for _ in range(50)]
    assert None not in found
    assert median(each or 0 for each in found) < 150


outcomes = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60)


@given(outcomes)
def test_bets_are_fair(pairs: list[tuple[bool, bool]]) -> None:
    """Whatever came before, nobody can expect to gain by the next pair where both are alike."""
    evidence = Evidence()
    for one, other in pairs:
        evidence = evidence.with_pair(one, other)
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        chance = {True: share, False: 1 - share}
        expected = sum(
            chance[one] * chance[other]
            * math.exp(evidence.with_pair(one, other).wealth - evidence.wealth)
            for one in (True, False)
            for other in (True, False)
            if chance[one] * chance[other] > 0
        )  # fmt: skip
        assert expected <= 1 + 1e-9


@given(outcomes, st.integers(0, 60))
def test_what_was_certain_stays_so(pairs: list[tuple[bool, bool]], later: int) -> None:
    evidence = Evidence()
    for one, other in pairs:
        evidence = evidence.with_pair(one, other)
    before = evidence.is_worse(ALPHA)
    for _ in range(later):
        evidence = evidence.with_pair(False, True)
    assert not before or evidence.is_worse(ALPHA)
    assert math.isfinite(evidence.wealth)


counts = st.integers(0, 200).flatmap(
    lambda count: st.builds(Outcomes, st.just(count), st.integers(0, count))
)


@given(counts, counts, counts)
def test_no_outcome_is_paired_twice(before: Outcomes, first: Outcomes, second: Outcomes) -> None:
    compared = Comparison(Evidence(), before).with_outcomes(first).with_outcomes(second)
    pairs = min(before.count, first.count + second.count)
    assert compared.evidence.pairs == pairs
    assert compared.left.count == before.count - pairs
    assert compared.left.failed == before.failed - compared.evidence.other
    assert compared.evidence.mine <= first.failed + second.failed
    again = Comparison(Evidence(), before).with_outcomes(first).with_outcomes(second)
    assert again == compared


@given(counts, st.integers(0, 300))
def test_fewer_have_the_same_share(some: Outcomes, most: int) -> None:
    fewer = some.at_most(most)
    assert fewer.count == min(some.count, most)
    if fewer.count:
        assert abs(fewer.failed / fewer.count - some.failed / some.count) <= 1 / fewer.count


def test_counts_that_cant_be_are_refused() -> None:
    with pytest.raises(ValueError, match="3 of 2"):
        Outcomes(2, 3)
