"""A table of cases in one test fails with every case that fails, and with no case at all."""

from __future__ import annotations

import pytest

from tests.each import for_each


def positive(number: int) -> None:
    assert number > 0, f"{number} is not positive"


def test_all_that_fail_are_named_each_with_its_own_reason() -> None:
    seen: list[int] = []

    def check(number: int) -> None:
        seen.append(number)
        if number == 3:
            raise KeyError("three")
        positive(number)

    with pytest.raises(ExceptionGroup, match="3 of 5 cases fail: 0; -1; 3") as found:
        for_each([1, 0, -1, 2, 3], check)
    assert seen == [1, 0, -1, 2, 3]
    reasons = [str(each) for each in found.value.exceptions]
    assert "0 is not positive" in reasons[0]
    assert "-1 is not positive" in reasons[1]
    assert isinstance(found.value.exceptions[2], KeyError)
    assert found.value.exceptions[0].__notes__ == ["in the case 0"]


def test_cases_have_the_name_that_is_asked_for() -> None:
    with pytest.raises(ExceptionGroup, match="1 of 2 cases fail: number 0"):
        for_each([0, 1], positive, lambda number: f"number {number}")


def test_what_holds_for_all_passes() -> None:
    for_each(iter([1, 2]), positive)


def test_no_case_is_no_proof() -> None:
    with pytest.raises(AssertionError, match="nothing to check"):
        for_each([], positive)
