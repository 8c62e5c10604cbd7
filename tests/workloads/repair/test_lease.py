"""Who leads: never two at once, whatever is lost on the way, and somebody again afterwards."""

from __future__ import annotations

import copy
from collections.abc import Coroutine, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as tried
from hypothesis import strategies as st

from falaj.workloads.api_server import CONFLICT, MISSING, ApiError
from falaj.workloads.repair.lease import Lease
from tests.examples import examples

SECONDS = 30


class Store:
    """The one lease, with versions as the API server keeps them."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.version = 0

    def write(self, body: Mapping[str, Any], *, create: bool) -> None:
        there = self.lease
        if create is (there is not None):
            raise ApiError(CONFLICT if create else MISSING, "it is there, or isn't")
        if there is not None:
            expected = there["metadata"]["resourceVersion"]
            if body["metadata"]["resourceVersion"] != expected:
                raise ApiError(CONFLICT, "somebody was faster")
        self.version += 1
        self.lease = copy.deepcopy(dict(body))
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        # Two renewals in one microsecond of a test are two all the same.
        self.lease["spec"]["renewTime"] += f"#{self.version}"


class Line:
    """One replica's line to it: what it asks is lost, or its answer is."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.loses = "nothing"

    async def request(
        self, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        assert path.startswith("/apis/coordination.k8s.io/v1/namespaces/node-repair/leases")
        if self.loses == "asking":
            raise ApiError(0, "lost")
        if method == "GET":
            if self.store.lease is None:
                raise ApiError(MISSING, "there is none")
            return copy.deepcopy(self.store.lease)
        assert body is not None
        self.store.write(body, create=method == "POST")
        if self.loses == "answers":
            raise ApiError(0, "lost")
        return {}


class Replica:
    def __init__(self, store: Store, name: str, now: list[float]) -> None:
        self.line = Line(store)
        self.lease = Lease(
            self.line,  # type: ignore[arg-type]
            ("node-repair", "node-repair"), name, SECONDS, clock=lambda: now[0],
        )  # fmt: skip

    def act(self, what: str) -> None:
        try:
            finish(self.lease.release() if what == "release" else self.lease.renew())
        except ApiError as error:
            assert error.status == 0


def finish(acting: Coroutine[Any, Any, object]) -> None:
    """Run to its end what waits for nothing: to make a loop for it takes longer than it takes."""
    with pytest.raises(StopIteration):
        acting.send(None)


ACTS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(["renew", "renew", "renew", "release"]),
        st.sampled_from(["nothing", "nothing", "asking", "answers"]),
        st.floats(0, 25),
    ),
    max_size=40,
)


@tried(max_examples=examples(100), deadline=None)
@given(ACTS)
def test_never_two_lead_and_one_does_again(acts: list[tuple[int, str, str, float]]) -> None:
    store, now = Store(), [1000.0]
    replicas = [Replica(store, f"r{number}", now) for number in range(3)]
    for which, what, loses, seconds in acts:
        replicas[which].line.loses = loses
        replicas[which].act(what)
        assert sum(each.lease.leads for each in replicas) <= 1
        now[0] += seconds
        assert sum(each.lease.leads for each in replicas) <= 1
    for each in replicas:
        each.line.loses = "nothing"
    for _ in range(12):
        for each in replicas:
            each.act("renew")
            assert sum(one.lease.leads for one in replicas) <= 1
        now[0] += SECONDS / 4
    assert sum(each.lease.leads for each in replicas) == 1


def test_a_leader_that_cannot_renew_stops_before_another_may_begin() -> None:
    store, now = Store(), [0.0]
    first, second = Replica(store, "first", now), Replica(store, "second", now)
    first.act("renew")
    second.act("renew")
    first.line.loses = "asking"
    now[0] = SECONDS * 2 / 3
    assert not first.lease.leads
    second.act("renew")
    assert not second.lease.leads
    now[0] = SECONDS
    second.act("renew")
    assert second.lease.leads


def test_a_lease_that_is_given_back_is_taken_at_once() -> None:
    store, now = Store(), [0.0]
    first, second = Replica(store, "first", now), Replica(store, "second", now)
    first.act("renew")
    first.act("release")
    assert not first.lease.leads
    second.act("renew")
    assert second.lease.leads
    assert store.lease is not None
    assert store.lease["spec"]["leaseTransitions"] == 2
