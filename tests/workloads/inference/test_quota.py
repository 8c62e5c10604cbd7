"""Tokens that each caller may have in a minute."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference.errors import RequestError, retry_of
from falaj.workloads.inference.language.quota import TokenQuota
from tests.workloads.inference.languages import NAME, ask, publish
from tests.workloads.inference.serving import Server, Site, started

PER_MINUTE = 600


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from("ab"), st.floats(0, 90), st.integers(1, PER_MINUTE + 50), st.floats(0, 1)
    ),
    max_size=40,
)


@given(REQUESTS)
def test_nobody_has_more_than_a_full_bucket_and_what_came_since(
    requests: list[tuple[str, float, int, float]],
) -> None:
    clock = Clock()
    quota, used = TokenQuota(PER_MINUTE, clock), {"a": 0, "b": 0}
    for caller, wait, tokens, share in requests:
        clock.now += wait
        try:
            quota.take(caller, tokens)
        except RequestError as error:
            assert (error.status == 400) == (tokens > PER_MINUTE)
            if (seconds := retry_of(error)) is not None:
                # Who comes again when it was said is let in.
                assert 0 < seconds <= 60
                clock.now += seconds
                quota.take(caller, tokens)
                quota.settle(caller, tokens, 0)
            continue
        spent = int(tokens * share)
        quota.settle(caller, tokens, spent)
        used[caller] += spent
        most = PER_MINUTE * (1 + (clock.now - 1_000.0) / 60)
        assert used[caller] <= most + 1e-6


def test_callers_who_are_back_at_a_full_bucket_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("falaj.workloads.inference.language.quota._MOST_CALLERS", 10)
    clock = Clock()
    quota = TokenQuota(PER_MINUTE, clock)
    for number in range(200):
        clock.now += 10
        quota.take(f"caller {number}", 50)
    assert len(vars(quota)["_left"]) <= 11


def test_without_a_quota_nothing_is_kept() -> None:
    quota = TokenQuota(None)
    quota.take("a", 10**9)
    quota.settle("a", 10**9, 5)
    assert vars(quota)["_left"] == {}


@pytest.fixture(scope="module")
def speaking(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("quota") / "site")
    site.write(limits={"max_tokens": 5_000, "tokens_per_minute": PER_MINUTE})
    with started(site, publish(site)) as server:
        yield server


def error_of(answer: tuple[int, Any], status: int) -> Any:
    assert answer[0] == status, answer
    return answer[1]["error"]


def test_a_caller_who_had_enough_waits_and_others_do_not(speaking: Server) -> None:
    first = speaking.site.token("predict", subject="first")
    for _ in range(3):  # what isn't used comes back
        status, answer = ask(speaking, first, "ab", max_tokens=500, stop=["a", "b"])
        assert (status, answer["usage"]["completion_tokens"] < 100) == (200, True)
    status, _ = ask(speaking, first, "ab", max_tokens=500)
    assert status == 200
    error = error_of(ask(speaking, first, "ab", max_tokens=500), 429)
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "of the 600 a minute that are allowed to you are left; try again in" in error["message"]
    status, _ = ask(speaking, speaking.site.token("predict", subject="second"), "ab", max_tokens=9)
    assert status == 200


def test_what_is_more_than_all_of_a_minute_is_refused_for_good(speaking: Server) -> None:
    token = speaking.site.token("predict", subject="greedy")
    error = error_of(ask(speaking, token, ["ab", "a"], n=2, max_tokens=150), 400)
    assert error["param"] == "max_tokens"
    assert "may come to 603 tokens" in error["message"]
    assert ask(speaking, token, "ab", max_tokens=5)[0] == 200, f"{NAME} is there"
