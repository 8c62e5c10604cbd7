"""How many examples property tests try that say so themselves."""

from __future__ import annotations

from hypothesis import settings


def examples(most: int) -> int:
    """Of `most` a quarter in `make test`, three fifths in `make test-all`; see tests/conftest.py.

    A number alone would be tried in both, with the same examples.
    """
    return max(2, most * settings.default.max_examples // 100)
