"""Real machines: kubelets with containers of our own images, in namespaces of this computer.

Where the computer can't run them, these tests are left out, and the run says at its end what it
lacks (pytest's ``-rs``); where ``CI`` is set, that is a failure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator
from pathlib import Path

import pytest

from falaj.engine.controlplane import prerequisites
from tests.cluster.real.realm import Realm, realm_with

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    own = [each for each in items if each.path.is_relative_to(HERE)]
    if not own or os.environ.get("CI"):
        return
    lacking = prerequisites.lacking()
    left_out = own if lacking else []
    if shutil.which(prerequisites.BUILDER) is None:
        lacking.append(f"the command {prerequisites.BUILDER}, which builds images for them")
        left_out = left_out or [each for each in own if each.path.name == "test_platform.py"]
    for each in left_out:
        each.add_marker(pytest.mark.skip(reason="no real machines: " + "; ".join(lacking)))


@pytest.fixture(scope="session")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Generator[Realm]:
    """A control plane with two real machines, on which nothing of a platform runs."""
    with realm_with(tmp_path_factory.mktemp("realm") / "plane", machines=2) as made:
        yield made
