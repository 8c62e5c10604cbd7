"""Rights that take effect late: how long is waited, and for what."""

from __future__ import annotations

import asyncio

import pulumi
import pytest

from falaj.components.specification import propagation
from falaj.components.specification.propagation import (
    PATIENCE,
    PAUSE,
    VARIABLE,
    is_tried_again,
    seconds,
    settle,
)


@pytest.fixture(autouse=True)
def _program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "_granted", set())
    monkeypatch.delenv(VARIABLE, raising=False)


class Waits:
    """Seconds that were waited, in place of waiting."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.told: list[str] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def grant(waits: Waits, pause: float = 60) -> None:
    made = pulumi.ResourceHookArgs("urn:grant", "id", "grant", "type")
    asyncio.run(settle(made, pause, waits))


def again(waits: Waits, *errors: str, earlier: bool = False) -> bool:
    failed = pulumi.ErrorHookArgs("urn:one", "", "one", "type", errors=list(errors))
    tried = is_tried_again(
        failed, ["PrincipalNotFound"], waits.told.append, waits, earlier=earlier
    )
    return asyncio.run(tried)


def test_what_was_granted_is_given_some_time() -> None:
    waits = Waits()
    grant(waits)
    assert waits.seconds == [60]


def test_a_right_that_is_not_known_yet_is_waited_for_ten_minutes() -> None:
    waits = Waits()
    grant(waits, 0)
    answer = "403 PrincipalNotFound: no principal 1"
    tries = 1
    while again(waits, *[answer] * tries):
        tries += 1
    assert sum(waits.seconds) == PATIENCE
    assert set(waits.seconds[1:]) == {PAUSE}
    assert "one: PrincipalNotFound" in waits.told[0]


@pytest.mark.parametrize(("given", "tries"), [("0", 20), ("15", 40), ("600", 1), ("7200", 1)])
def test_it_is_waited_no_longer_where_pauses_are_others(
    monkeypatch: pytest.MonkeyPatch, given: str, tries: int
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    waits = Waits()
    grant(waits, 0)
    answer = "403 PrincipalNotFound: no principal 1"
    assert again(waits, *[answer] * tries)
    assert not again(waits, *[answer] * (tries + 1))


def test_a_right_of_the_run_before_is_waited_for_where_that_is_said() -> None:
    waits = Waits()
    assert again(waits, "PrincipalNotFound", earlier=True)
    assert not again(waits, "InvalidUrlConfiguration", earlier=True)


def test_what_is_refused_for_another_reason_is_said_at_once() -> None:
    waits = Waits()
    assert not again(waits, "PrincipalNotFound"), "nothing was granted in this run"
    grant(waits, 0)
    assert not again(waits, "InvalidUrlConfiguration", "PrincipalNotFound")
    assert waits.seconds == [0]


def test_nobody_waits_where_all_takes_effect_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "0")
    waits = Waits()
    grant(waits)
    assert again(waits, "PrincipalNotFound")
    assert waits.seconds == [0, 0]


@pytest.mark.parametrize(("given", "found"), [(None, 30.0), ("", 30.0), ("0", 0.0), ("2.5", 2.5)])
def test_how_long_grants_are_given(
    monkeypatch: pytest.MonkeyPatch, given: str | None, found: float
) -> None:
    if given is not None:
        monkeypatch.setenv(VARIABLE, given)
    assert seconds(30) == found


@pytest.mark.parametrize("given", ["soon", "-1", "inf", "nan"])
def test_what_is_no_number_of_seconds_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv(VARIABLE, given)
    with pytest.raises(ValueError, match=rf"{VARIABLE}: given '{given}'; allowed: seconds"):
        seconds(30)
