"""Files of a site: whole or not at all, private, shredded."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from falaj.components.local import machine
from falaj.components.local.machine import LocalError


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_a_full_disk_leaves_the_old_file_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "service.json"
    path.write_text("old")

    def full(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(LocalError, match=r"no space left while writing .*; free space and run"):
        machine.write_file(path, b"new")
    assert [entry.name for entry in tmp_path.iterdir()] == ["service.json"]
    assert path.read_text() == "old"


def test_a_folder_in_the_way_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(LocalError, match=r"writing .* failed"):
        machine.write_file(tmp_path / "a", b"x")


def test_a_file_in_the_way_of_a_folder_is_a_plain_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(LocalError, match="move it away"):
        machine.make_folder(tmp_path / "a")


def test_files_and_folders_are_private(tmp_path: Path) -> None:
    machine.make_folder(tmp_path / "a")
    machine.write_file(tmp_path / "a" / "b", b"x")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o600


def test_shredding_overwrites_before_it_removes(tmp_path: Path) -> None:
    key, other = tmp_path / "x.key", tmp_path / "link"
    key.write_bytes(b"secret" * 100)
    os.link(key, other)  # shows what happened to the content
    machine.shred(key)
    assert not key.exists()
    assert b"secret" not in other.read_bytes()
    assert len(other.read_bytes()) == 600
    machine.shred(key)  # gone is fine


def test_what_is_sealed_loses_its_wrapped_key_before_it_goes(tmp_path: Path) -> None:
    """As jobs that are answered: a removed file of a key ring that stays would open again."""
    folder = tmp_path / "service" / "tiny" / "state.jobs"
    folder.mkdir(parents=True)
    kept: dict[str, Path] = {}
    for name, size in (("a.request.sealed", 600), ("large.sealed", 3 << 20), ("keys.json", 300),
                       ("log", 300)):  # fmt: skip
        (folder / name).write_bytes(b"s" * size)
        (folder / name).chmod(0o400)
        kept[name] = tmp_path / name
        os.link(folder / name, kept[name])  # shows what happened to the content
    machine.remove_tree(tmp_path / "service")
    # Three in a row come by chance in each sixteenth MiB; as many as these never do.
    left = b"s" * 12
    assert not (tmp_path / "service").exists()
    assert left not in kept["a.request.sealed"].read_bytes()
    assert left not in kept["keys.json"].read_bytes()
    large = kept["large.sealed"].read_bytes()
    assert len(large) == 3 << 20
    # The rest can't be read without the key, which takes less than this.
    assert left not in large[: 1 << 20]
    assert kept["log"].read_bytes() == b"s" * 300


def test_a_link_is_removed_without_touching_its_target(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("keep")
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "x.key").symlink_to(target)
    machine.remove_tree(tmp_path / "site")
    assert target.read_text() == "keep"
    assert not (tmp_path / "site").exists()


def test_a_tree_that_is_a_link_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "site").symlink_to(tmp_path / "real")
    machine.remove_tree(tmp_path / "site")
    assert (tmp_path / "real").is_dir()


def test_a_damaged_json_file_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text("[]")
    assert machine.read_json(tmp_path / "a.json") is None
    assert machine.read_json(tmp_path / "b.json") is None
    assert machine.read_json(tmp_path / "c.json") is None


def test_folders_above_are_closed_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        machine.make_folder(tmp_path / "falaj" / "stacks" / "local")
    finally:
        os.umask(before)
    for folder in ("falaj", "falaj/stacks", "falaj/stacks/local"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700
