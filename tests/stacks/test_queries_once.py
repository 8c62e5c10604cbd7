"""What a stack asks of its cloud is asked once, however many components want to know it."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.stacks.in_mocks import declare, shipped


@pytest.mark.parametrize("stack", ["aws-foundation", "azure-foundation"])
def test_nothing_is_asked_twice(stack: str) -> None:
    asked = Counter(
        (token, str(arguments))
        for token, arguments in declare(shipped(stack), stack, preview=True).queries
    )
    assert asked
    assert set(asked.values()) == {1}
