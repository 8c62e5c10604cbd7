"""Machines on which nobody has used Falaj yet."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.newcomer.machine import Machine, newcomer


@pytest.fixture
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A fresh clone and an empty home folder, for each test in the same place."""
    folder = tmp_path_factory.getbasetemp() / "newcomer"
    folder.mkdir(exist_ok=True)
    for each in folder.iterdir():
        if each.name != "compiled":
            shutil.rmtree(each) if each.is_dir() else each.unlink()
    with newcomer(folder) as made:
        yield made


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A clone and a home folder that a module's tests share, with what they have installed.

    For what doesn't depend on it: in an environment of its own, `machine` runs the rest.
    """
    with newcomer(tmp_path_factory.mktemp("settled")) as made:
        # Of clouds that are made up, the state is written at each run's end.
        made.variables["PULUMI_SKIP_CHECKPOINTS"] = "true"
        made.run("make environment")
        yield made
