"""How many examples property tests try that say so themselves."""

from __future__ import annotations

from hypothesis import settings


def examples(most: int) -> int:
    """All of `most` in `make test-all`, a share of them in `make test`; see tests/conftest.py."""
    return max(2, most * settings.default.max_examples // 100)
