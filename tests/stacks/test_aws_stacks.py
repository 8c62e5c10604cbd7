"""The stacks of AWS with a real engine in the sandbox, from preview to destroy."""

from __future__ import annotations

import pytest

from tests.stacks.clouds import live_from_preview_to_destroy
from tests.stacks.conftest import Project
from tests.stacks.in_mocks import SIX

pytestmark = [pytest.mark.slow, pytest.mark.engine]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("stack", [each for each in SIX if each.startswith("aws-")])
def test_from_preview_to_destroy(project: Project, stack: str) -> None:
    live_from_preview_to_destroy(project, stack)
