"""crane and helm: found on the PATH, else built; clear where neither works."""

from __future__ import annotations

from pathlib import Path

import pytest

from falaj.engine.errors import EngineError
from falaj.engine.oci import MODULE, PACKAGES, ensure


def test_a_tool_on_the_path_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "crane"
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ensure("crane") == own


def test_without_go_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FALAJ_CACHE", str(tmp_path / "cache"))
    with pytest.raises(EngineError, match="crane is not on the PATH, and can't be built"):
        ensure("crane")
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.name == "crane"]


def test_every_tool_is_pinned_by_the_module() -> None:
    pinned = (MODULE / "go.mod").read_text()
    assert all(f"\t{package}\n" in pinned for package in PACKAGES.values())
