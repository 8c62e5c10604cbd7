"""Many cases in one test: a failure names all that fail, and says what is wrong with each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

Case = TypeVar("Case")


def for_each(
    cases: Iterable[Case], check: Callable[[Case], None], name: Callable[[Case], str] = str
) -> None:
    """Check every case, also after one has failed; `name` says which it is.

    For tables of hundreds of rows: what pytest spends on an item is more than such a check takes.

    Raises:
        AssertionError: there is no case, so that nothing would be tested.
        ExceptionGroup: cases failed; its message names them, and each failure is in it.
    """
    cases = list(cases)
    assert cases, "there is nothing to check"
    failures: list[Exception] = []
    names: list[str] = []
    for case in cases:
        try:
            check(case)
        except Exception as error:
            error.add_note(f"in the case {name(case)}")
            failures.append(error)
            names.append(name(case))
    if failures:
        raise ExceptionGroup(
            f"{len(failures)} of {len(cases)} cases fail: " + "; ".join(names), failures
        )
