"""What several workers' tests only read, made by the first of them that asks for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]) -> Path:
    """The folder ``name`` of this run of the tests.

    Args:
        factory: says where the run has its folders; each worker's own lies in the run's.
        name: no other caller's.
        make: fills the folder; called once, unless it failed.
    """
    own = factory.getbasetemp()
    folder = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "made-once" / name
    folder.parent.mkdir(exist_ok=True)
    complete = folder.with_suffix(".complete")
    with FileLock(folder.with_suffix(".lock")):
        if not complete.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            make(folder)
            complete.touch()
    return folder
