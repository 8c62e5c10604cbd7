"""The stacks of Azure with a real engine in the sandbox, from preview to destroy."""

from __future__ import annotations

import pytest

from tests.stacks.clouds import live_from_preview_to_destroy, live_from_up_to_destroy
from tests.stacks.conftest import Project

pytestmark = [pytest.mark.slow, pytest.mark.engine]


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_cluster_from_preview_to_destroy(project: Project) -> None:
    live_from_preview_to_destroy(project, "azure-cluster")


@pytest.mark.timeout(600)
def test_from_up_to_destroy(project: Project) -> None:
    """azure-smb comes up and goes beside it: test_beside_each_other.py."""
    live_from_up_to_destroy(project, "azure-foundation")
