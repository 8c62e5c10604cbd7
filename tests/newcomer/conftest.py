"""Machines on which nobody has used Falaj yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.newcomer.machine import Machine, newcomer


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A fresh clone and an empty home folder."""
    with newcomer(tmp_path) as made:
        yield made
