"""Real machines: kubelets with containers of our own images, in namespaces of this computer.

Where the computer can't run them, these tests are left out, which the run says at its end; where
``CI`` is set, that is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.controlplane import prerequisites
from tests.cluster.real.realm import Realm, realm_with

HERE = Path(__file__).parent
LACKING = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[LACKING] = []


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    own = [each for each in items if each.path.is_relative_to(HERE)]
    if not own:
        return
    lacking = prerequisites.lacking()
    left_out = own if lacking else []
    if shutil.which(prerequisites.BUILDER) is None:
        lacking.append(f"the command {prerequisites.BUILDER}, which builds images for them")
        left_out = left_out or [each for each in own if each.path.name == "test_platform.py"]
    config.stash[LACKING] = lacking if left_out else []
    if not os.environ.get("CI"):
        for each in left_out:
            each.add_marker(pytest.mark.skip(reason="no real machines: " + "; ".join(lacking)))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if lacking := config.stash[LACKING]:
        terminalreporter.section("real machines were left out")
        for each in lacking:
            terminalreporter.line(f"this computer lacks {each}")


@pytest.fixture(scope="session")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Generator[Realm]:
    """A control plane with two real machines, on which nothing of a platform runs."""
    with realm_with(tmp_path_factory.mktemp("realm") / "plane", machines=2) as made:
        yield made
