from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from falaj.engine.files import replace_file


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_a_folder_that_is_missing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "missing" / "file", "text")


def test_what_fails_leaves_the_old_content_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "kept").touch()
    with pytest.raises(OSError, match="folder"):
        replace_file(tmp_path / "folder", "text")
    assert [each.name for each in tmp_path.iterdir()] == ["folder"]
    assert (tmp_path / "folder" / "kept").exists()


def test_readers_keep_the_old_content_or_see_the_new(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, "old")
    with path.open() as file:
        replace_file(path, b"new")
        assert file.read() == "old"
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


@pytest.mark.usefixtures("umask")
def test_permissions_are_exact_or_kept_or_left_to_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "file"
    replace_file(path, "text")
    assert mode(path) == 0o640
    replace_file(path, "text", 0o755)
    assert mode(path) == 0o755
    replace_file(path, "longer text")
    assert mode(path) == 0o755


def test_a_link_is_replaced_and_what_it_leads_to_is_left(tmp_path: Path) -> None:
    (tmp_path / "kept").write_text("kept")
    (tmp_path / "link").symlink_to("kept")
    replace_file(tmp_path / "link", "new")
    assert (tmp_path / "kept").read_text() == "kept"
    assert not (tmp_path / "link").is_symlink()
