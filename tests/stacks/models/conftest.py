"""A registry of models with a few small versions, and two registries of images on loopback."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.stacks.images.conftest import refusing
from tests.stacks.images.registries import Registry, running
from tests.stacks.models.published import Publisher

__all__ = ["refusing"]


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this machine keeps which records it has seen."""
    folder = tmp_path / "data"
    monkeypatch.setenv("FALAJ_HOME", str(folder))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Generator[Registry]:
    with running(tmp_path / "home") as registry:
        yield registry


@pytest.fixture
def away(tmp_path: Path) -> Generator[Registry]:
    with running(tmp_path / "away") as registry:
        yield registry


@pytest.fixture
def publisher(tmp_path: Path) -> Publisher:
    return Publisher(tmp_path / "site")
