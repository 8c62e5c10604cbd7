import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from falaj.workloads.errors import StorageFullError, WorkloadError
from falaj.workloads.files import (
    make_private_folder,
    read_bytes,
    read_json,
    shred,
    write_atomic,
    write_json_atomic,
)
from falaj.workloads.training.snapshot import make_folder

LIMITED = """
import resource, sys
from pathlib import Path
from falaj.workloads.errors import StorageFullError
from falaj.workloads.files import write_atomic
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_atomic(Path(sys.argv[1]), bytes(5000))
except StorageFullError as error:
    print(error)
    sys.exit(3)
"""


def test_write_to_missing_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="can't write"):
        write_atomic(tmp_path / "missing" / "file", b"data")


@pytest.mark.parametrize("code", ["ENOSPC", "EDQUOT", "EFBIG"])
def test_full_disk_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    path = tmp_path / "file"
    write_atomic(path, b"old")

    def full(_descriptor: int) -> None:
        raise OSError(getattr(errno, code), "full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageFullError, match=r"no space left while writing .*free space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_file_size_limit_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "no space left" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_nan_is_not_json(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="as JSON"):
        write_json_atomic(tmp_path / "file", {"loss": float("nan")})
    assert list(tmp_path.iterdir()) == []


def test_read_json_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="the key ring is missing"):
        read_json(tmp_path / "keyring.json", "the key ring")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000])
def test_read_json_refuses_what_is_not_json(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(WorkloadError, match="isn't valid JSON"):
        read_json(tmp_path / "file", "the record")


def test_read_bytes_of_a_folder_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="can't read the record"):
        read_bytes(tmp_path, "the record")


def test_shred_refuses_a_folder(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="is a folder"):
        shred(tmp_path)


def test_shred_leaves_what_a_link_points_to(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_bytes(b"keep")
    (tmp_path / "link").symlink_to(target)
    shred(tmp_path / "link")
    assert target.read_bytes() == b"keep"
    assert not (tmp_path / "link").is_symlink()


def test_shred_overwrites_before_it_removes(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"secret" * 1000)
    path.chmod(0o400)
    (tmp_path / "other-name").hardlink_to(path)
    shred(path)
    assert not path.exists()
    left = (tmp_path / "other-name").read_bytes()
    assert len(left) == 6000
    assert b"secret" not in left


def test_shred_of_a_missing_file_is_fine(tmp_path: Path) -> None:
    shred(tmp_path / "missing")
    assert list(tmp_path.iterdir()) == []


def test_modes(tmp_path: Path) -> None:
    folder = make_private_folder(tmp_path / "a" / "b")
    write_atomic(folder / "private", b"")
    write_atomic(folder / "public", b"", mode=0o644)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert (folder / "private").stat().st_mode & 0o777 == 0o600
    assert (folder / "public").stat().st_mode & 0o777 == 0o644
    folder.chmod(0o755)
    assert make_private_folder(folder).stat().st_mode & 0o777 == 0o700


def test_folder_over_a_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(WorkloadError, match="can't write"):
        make_private_folder(tmp_path / "file")


def test_json_round_trip(tmp_path: Path) -> None:
    value = {"name": "فلج", "rows": [1, 2.5, None]}
    write_json_atomic(tmp_path / "file", value)
    assert read_json(tmp_path / "file", "the record") == value
    assert json.loads((tmp_path / "file").read_text()) == value


@pytest.mark.parametrize("make", [make_private_folder, make_folder])
def test_folders_above_are_private_whatever_the_umask(
    tmp_path: Path, make: Callable[[Path], Path]
) -> None:
    """Who may write above could put another folder in the place of the private one."""
    before = os.umask(0)
    try:
        make(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    for folder in ("a", "a/b", "a/b/c"):
        assert (tmp_path / folder).stat().st_mode & 0o777 == 0o700


def test_folders_that_are_there_above_keep_their_mode(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    (tmp_path / "shared").chmod(0o755)
    make_private_folder(tmp_path / "shared" / "own")
    assert (tmp_path / "shared").stat().st_mode & 0o777 == 0o755
