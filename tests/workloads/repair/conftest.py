"""What tests of the repair leave behind: an event loop, which `asyncio.run` takes away."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _event_loop() -> Iterator[None]:
    """Programs of Pulumi that tests run later in this process look for one."""
    yield
    asyncio.set_event_loop(asyncio.new_event_loop())
