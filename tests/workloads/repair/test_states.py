"""Decisions of the repair, over lives of clusters that nobody thought of beforehand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as tried
from hypothesis import strategies as st

from falaj.workloads.repair.states import (
    EMPTYING,
    Health,
    NodeView,
    Plan,
    Record,
    State,
    plan,
)
from tests.examples import examples
from tests.workloads.repair.parts import settings

SETTINGS = settings(
    sick_minutes=5, healthy_minutes=10, drain_minutes=30, most_out=2, evict_unmanaged=False
)
MINUTE = 60.0


def view(**changes: object) -> NodeView:
    return replace(NodeView("gpu-1"), **changes)  # type: ignore[arg-type]


def record(state: State, since: float = 0.0, deadline: float = 0.0) -> Record:
    return Record(state, since, ("GPUMissing=True",), deadline)


SICK = {"health": Health.SICK, "causes": ("GPUMissing=True",)}
OUT = {"tainted": True}


@pytest.mark.parametrize(
    ("before", "minutes", "after", "evicts"),
    [
        # In service.
        (view(), 60, None, False),
        (view(**SICK), 4.9, None, False),
        (view(**SICK), 5, State.QUARANTINED, False),
        (view(**SICK, hold=True), 60, None, False),
        (view(health=Health.UNKNOWN), 60, None, False),
        # A person's taint.
        (view(**SICK, tainted=True, away=True), 60, None, False),
        # Quarantined.
        (view(**SICK, **OUT, record=record(State.QUARANTINED)), 1, State.DRAINING, False),
        (view(**OUT, health=Health.UNKNOWN, record=record(State.QUARANTINED)), 1, None, False),
        (view(**OUT, record=record(State.QUARANTINED)), 1, State.RECOVERING, False),
        (view(**SICK, **OUT, hold=True, record=record(State.QUARANTINED)), 1, None, False),
        # Draining.
        (view(**SICK, **OUT, remaining=2, record=record(State.DRAINING, 0, 1800)), 29,
         State.DRAINING, True),
        (view(**SICK, **OUT, remaining=2, record=record(State.DRAINING, 0, 1800)), 30,
         State.BLOCKED, True),
        (view(**SICK, **OUT, remaining=0, record=record(State.DRAINING, 0, 1800)), 60,
         State.DRAINED, False),
        (view(**OUT, health=Health.UNKNOWN, remaining=2,
              record=record(State.DRAINING, 0, 1800)), 1, None, False),
        (view(**OUT, health=Health.UNKNOWN, remaining=2,
              record=record(State.DRAINING, 0, 1800)), 31, State.BLOCKED, False),
        (view(**OUT, remaining=2, record=record(State.DRAINING, 0, 1800)), 1,
         State.RECOVERING, False),
        (view(**SICK, **OUT, hold=True, remaining=2,
              record=record(State.DRAINING, 0, 1800)), 60, None, False),
        # Past the deadline: goes on asking, and says when it's done.
        (view(**SICK, **OUT, remaining=1, record=record(State.BLOCKED, 0, 1800)), 90,
         State.BLOCKED, True),
        (view(**SICK, **OUT, remaining=0, record=record(State.BLOCKED, 0, 1800)), 90,
         State.DRAINED, False),
        # Drained.
        (view(**SICK, **OUT, record=record(State.DRAINED)), 999, None, False),
        (view(**SICK, **OUT, remaining=1, record=record(State.DRAINED)), 9, State.DRAINING, True),
        (view(**OUT, record=record(State.DRAINED)), 1, State.RECOVERING, False),
        # Recovering.
        (view(**OUT, record=record(State.RECOVERING)), 9.9, None, False),
        (view(**SICK, **OUT, record=record(State.RECOVERING)), 1, State.QUARANTINED, False),
        (view(**OUT, health=Health.UNKNOWN, record=record(State.RECOVERING)), 1,
         State.QUARANTINED, False),
    ],
)  # fmt: skip
def test_what_is_done_with_one_node(
    before: NodeView, minutes: float, after: State | None, evicts: bool
) -> None:
    steps = plan([before], SETTINGS, minutes * MINUTE).steps
    if after is None:
        assert steps == ()
        return
    (step,) = steps
    assert step.record is not None
    assert (step.record.state, step.evict) == (after, evicts)
    assert step.changes is (before.record is None or before.record.state is not after)


def test_a_node_that_is_well_for_long_enough_returns() -> None:
    (step,) = plan([view(**OUT, record=record(State.RECOVERING))], SETTINGS, 600).steps
    assert (step.record, step.hold, step.changes) == (None, False, True)


def test_a_person_who_takes_the_taint_away_is_not_fought() -> None:
    (step,) = plan([view(**SICK, record=record(State.DRAINING))], SETTINGS, 600).steps
    assert (step.record, step.hold, step.evict) == (None, True, False)


def test_all_that_a_node_was_sick_of_has_to_heal() -> None:
    before = view(**{**SICK, "causes": ("XIDErrors=True",)}, **OUT,
                  record=record(State.QUARANTINED))  # fmt: skip
    (step,) = plan([before], SETTINGS, 60).steps
    assert step.record is not None
    assert step.record.causes == ("GPUMissing=True", "XIDErrors=True")


@pytest.mark.parametrize(
    ("sick", "away", "limit", "taken"),
    [
        (3, 0, 2, 0),  # the fault is more likely in what reports them
        (2, 0, 2, 2),
        (1, 2, 2, 0),  # others have taken out as many as may be
        (1, 1, 2, 1),
        (3, 0, "50%", 0),
        (2, 0, "50%", 2),
        (1, 0, "1%", 1),  # at least one
        (4, 0, 4, 4),
    ],
)
def test_the_brake(sick: int, away: int, limit: object, taken: int) -> None:
    views = [view(name=f"n{i}") for i in range(4)]
    for i in range(sick):
        views[i] = replace(views[i], health=Health.SICK, causes=("x=True",))
    for i in range(away):
        views[3 - i] = replace(views[3 - i], away=True)
    found = plan(views, settings(most_out=limit), 3600)
    assert len(found.steps) == taken
    assert found.brake.open is (taken == 0)


def test_the_brake_lets_what_is_out_go_on_and_return() -> None:
    views = [
        view(name="a", **SICK, **OUT, remaining=1, record=record(State.DRAINING, 0, 9e9)),
        view(name="b", **OUT, record=record(State.RECOVERING)),
        *(view(name=f"n{i}", **SICK) for i in range(5)),
    ]
    found = plan(views, SETTINGS, 3600)
    assert found.brake.open
    assert [(each.node, each.evict) for each in found.steps] == [("a", True), ("b", False)]


# Lives of clusters.


@dataclass
class Cluster:
    """Nodes whose health, pods and persons change as they like."""

    views: list[NodeView]
    now: float = 0.0
    evicted: list[str] = field(default_factory=list[str])

    def apply(self, made: Plan, stubborn: bool) -> None:
        """What the API server would have afterwards; pods leave unless a budget keeps them."""
        by_name = {each.node: each for each in made.steps}
        for place, each in enumerate(self.views):
            step = by_name.get(each.name)
            if step is None:
                continue
            if step.evict:
                self.evicted.append(each.name)
            self.views[place] = replace(
                each,
                record=step.record,
                tainted=step.record is not None,
                hold=each.hold or step.hold,
                remaining=0 if step.evict and not stubborn else each.remaining,
            )


SHAKE = st.sampled_from(["sick", "well", "unknown", "hold", "release", "pods", "away", "back",
                         "taint", "untaint", "nothing"])  # fmt: skip


def shaken(each: NodeView, how: str, now: float) -> NodeView:
    change: dict[str, Callable[[], NodeView]] = {
        "sick": lambda: replace(each, health=Health.SICK, causes=("x=True",), sick_since=now),
        "well": lambda: replace(each, health=Health.WELL, causes=()),
        "unknown": lambda: replace(each, health=Health.UNKNOWN, causes=()),
        "hold": lambda: replace(each, hold=True),
        "release": lambda: replace(each, hold=False),
        "pods": lambda: replace(each, remaining=3),
        "away": lambda: replace(each, away=True),
        "back": lambda: replace(each, away=False),
        "taint": lambda: each if each.record else replace(each, tainted=True, away=True),
        "untaint": lambda: replace(each, tainted=False, away=False),
        "nothing": lambda: each,
    }
    return change[how]()


NUMBERS = st.integers(1, 6)
EVENTS = st.lists(
    st.tuples(st.lists(SHAKE, min_size=6, max_size=6), st.floats(0, 40), st.booleans()),
    max_size=25,
)
LIMITS = st.sampled_from([1, 2, 3, "1%", "34%", "50%", "100%"])


@tried(max_examples=examples(400), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(NUMBERS, LIMITS, EVENTS)
def test_whatever_happens(
    number: int, limit: object, events: list[tuple[list[str], float, bool]]
) -> None:
    """Never more out than the brake lets, no eviction from a node that isn't sick or is held."""
    asked = settings(sick_minutes=5, healthy_minutes=10, drain_minutes=30, most_out=limit)
    cluster = Cluster([NodeView(f"n{i}", remaining=1) for i in range(number)])
    for shakes, minutes, stubborn in events:
        cluster.now += minutes * MINUTE
        cluster.views = [
            shaken(each, how, cluster.now)
            for each, how in zip(cluster.views, shakes, strict=False)
        ]
        before = {each.name: each for each in cluster.views}
        out = {each.name for each in cluster.views if each.record or each.away}
        made = plan(cluster.views, asked, cluster.now)
        new = {each.node for each in made.steps if before[each.node].record is None}
        assert not new or len(out | new) <= asked.limit(number)
        for step in made.steps:
            seen = before[step.node]
            assert not seen.hold
            if step.evict:
                assert seen.health is Health.SICK
                assert seen.tainted
                assert seen.record is not None
                assert seen.record.state in EMPTYING
            if step.record is None and not step.hold:
                assert seen.health is Health.WELL
        assert len({each.node for each in made.steps}) == len(made.steps)
        cluster.apply(made, stubborn)


@tried(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(NUMBERS, LIMITS, EVENTS, st.booleans())
def test_it_comes_to_an_end(
    number: int, limit: object, events: list[tuple[list[str], float, bool]], stubborn: bool
) -> None:
    """Where nothing changes any more, states don't either: well nodes are back in service, sick
    ones are drained, or blocked and told of."""
    asked = settings(sick_minutes=5, healthy_minutes=10, drain_minutes=30, most_out=limit)
    cluster = Cluster([NodeView(f"n{i}", remaining=1) for i in range(number)])
    for shakes, minutes, once in events:
        cluster.now += minutes * MINUTE
        cluster.views = [
            shaken(each, how, cluster.now)
            for each, how in zip(cluster.views, shakes, strict=False)
        ]
        cluster.apply(plan(cluster.views, asked, cluster.now), once)
    for _ in range(8):  # each state is left within a deadline, and none comes twice
        cluster.now += 60 * MINUTE
        cluster.apply(plan(cluster.views, asked, cluster.now), stubborn)
    cluster.now += 60 * MINUTE
    made = plan(cluster.views, asked, cluster.now)
    assert not any(each.changes for each in made.steps)
    for each in cluster.views:
        if each.hold:
            continue
        if each.health is Health.WELL:
            assert each.record is None
        if each.record is not None and each.health is Health.SICK:
            assert each.record.state in {State.DRAINED, State.BLOCKED}
            assert (each.record.state is State.DRAINED) is (each.remaining == 0)
