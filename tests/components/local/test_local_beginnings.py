"""What a training begins with: which of a folder's files make it another one."""

from __future__ import annotations

from pathlib import Path

import pytest

from falaj.components.local.machine import InvalidInputsError
from falaj.components.local.provider.beginnings import weights_sha256

FILES = ("config.json", "tokenizer.json", "model.safetensors")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).write_text(name)
    return tmp_path


@pytest.mark.parametrize("name", [*FILES, "tokenizer_config.json"])
def test_a_changed_file_of_the_form_is_another_beginning(folder: Path, name: str) -> None:
    (folder / "tokenizer_config.json").write_text("{}")
    before = weights_sha256(folder, "start")
    (folder / "README.md").write_text("of no account")
    assert weights_sha256(folder, "start") == before
    (folder / name).write_text("changed")
    assert weights_sha256(folder, "start") != before


def test_a_template_that_comes_is_a_change(folder: Path) -> None:
    before = weights_sha256(folder, "start")
    (folder / "tokenizer_config.json").write_text("{}")
    assert weights_sha256(folder, "start") != before


def test_a_folder_that_lacks_one_is_refused(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(InvalidInputsError, match="start"):
        weights_sha256(folder, "start")
