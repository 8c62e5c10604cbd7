"""The newest snapshot: by the time at which it was made, among those whose names begin so."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.pipelines.snapshots import Snapshot, newest
from falaj.workloads.training.snapshot import DESCRIPTION


def write(data: Path, path: str, digest: str, created: object) -> None:
    folder = data / path
    folder.mkdir(parents=True)
    said = {"digest": digest, "created": created}
    (folder / DESCRIPTION).write_text(json.dumps(said), "utf-8")


def digest(number: int) -> str:
    return f"{number:064x}"


def snapshot(path: str, number: int) -> Snapshot:
    # When it was made isn't compared.
    return Snapshot(path, digest(number), datetime.max)


def refuse(text: str) -> None:
    raise AssertionError(f"said: {text}")


def test_the_newest_of_those_that_begin_so_is_taken(tmp_path: Path) -> None:
    # By what they say, in any time zone; neither by name nor by when they were copied here.
    write(tmp_path, "credit-b", digest(1), "2024-10-02T00:30:00+04:00")
    write(tmp_path, "credit-a", digest(2), "2024-10-01T21:00:00+00:00")
    write(tmp_path, "credit-c", digest(3), "2024-10-01T20:59:59")
    write(tmp_path, "fraud-a", digest(4), "2024-11-01T00:00:00+00:00")
    assert newest(tmp_path, "credit-*", refuse) == snapshot("credit-a", 2)
    assert newest(tmp_path, "*", refuse) == snapshot("fraud-a", 4)
    assert newest(tmp_path, "credit-b", refuse) == snapshot("credit-b", 1)


def test_snapshots_may_be_in_a_folder_of_their_own(tmp_path: Path) -> None:
    write(tmp_path, "credit/3fa0", digest(1), "2024-10-01T00:00:00+00:00")
    write(tmp_path, "credit/91bc", digest(2), "2024-10-02T00:00:00+00:00")
    assert newest(tmp_path, "credit/*", refuse) == snapshot("credit/91bc", 2)
    assert newest(tmp_path, "credit/3*", refuse) == snapshot("credit/3fa0", 1)


def test_what_is_not_done_or_no_snapshot_is_passed_over(tmp_path: Path) -> None:
    assert newest(tmp_path / "none", "credit-*", refuse) is None
    assert newest(tmp_path, "credit-*", refuse) is None
    assert newest(tmp_path, "credit-1", refuse) is None
    (tmp_path / "credit-coming").mkdir()
    (tmp_path / "credit-file").write_text("x", "utf-8")
    # No run may have it: the cluster takes such names for a way out.
    write(tmp_path, "credit-with space", digest(1), "2024-10-01T00:00:00+00:00")
    assert newest(tmp_path, "credit-*", refuse) is None


@pytest.mark.parametrize(
    ("named", "created"),
    [
        ("5" * 63, "2024-10-01T00:00:00+00:00"),
        ("F" * 64, "2024-10-01T00:00:00+00:00"),
        (7, "2024-10-01T00:00:00+00:00"),
        ("5" * 64, "yesterday"),
        ("5" * 64, None),
        ("5" * 64, 20261001.5),
    ],
)
def test_a_description_that_cannot_be_is_left_out_or_refused_alone(
    tmp_path: Path, named: object, created: object
) -> None:
    folder = tmp_path / "credit-9"
    folder.mkdir()
    (folder / DESCRIPTION).write_text(json.dumps({"digest": named, "created": created}), "utf-8")
    said: list[str] = []
    assert newest(tmp_path, "credit-*", said.append) is None
    write(tmp_path, "credit-1", digest(1), "2024-10-01T00:00:00+00:00")
    assert newest(tmp_path, "credit-*", said.append) == snapshot("credit-1", 1)
    assert ["credit-9" in each and "make the dataset again" in each for each in said] == [True] * 2
    with pytest.raises(WorkloadError, match="make the dataset again"):
        newest(tmp_path, "credit-9", refuse)


@given(st.binary(max_size=60))
def test_whatever_a_description_is_it_is_left_out_or_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    data = tmp_path_factory.mktemp("data")
    (data / "credit-1").mkdir()
    (data / "credit-1" / DESCRIPTION).write_bytes(content)
    said: list[str] = []
    assert newest(data, "credit-*", said.append) is None
    assert len(said) == 1
    with pytest.raises(WorkloadError, match=DESCRIPTION):
        newest(data, "credit-1", refuse)


def test_a_snapshot_of_a_time_to_come_is_left_out_until_then(tmp_path: Path) -> None:
    write(tmp_path, "credit-1", digest(1), "2024-10-01T00:00:00+00:00")
    write(tmp_path, "credit-2", digest(2), "2024-10-02T00:00:00+00:00")
    write(tmp_path, "credit-3", digest(3), "9999-12-31T23:59:59-14:00")
    said: list[str] = []

    def at(time: str) -> Snapshot | None:
        return newest(tmp_path, "credit-*", said.append, datetime.fromisoformat(time))

    assert at("2024-10-01T12:00:00+00:00") == snapshot("credit-1", 1)
    assert ["credit-2" in said[0], "credit-3" in said[1], len(said)] == [True, True, 2]
    # Either clock may be wrong.
    for word in ("made at 2024-10-02T00:00:00+00:00", "here it is 2024-10-01T12:00:00+00:00",
                 "set that of this machine, or that of the one that made it"):  # fmt: skip
        assert word in said[0]
    # A clock that is a little ahead is none that is wrong.
    assert at("2024-10-01T23:56:00+00:00") == snapshot("credit-2", 2)
    assert len(said) == 3


def test_a_folder_that_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", "utf-8")
    with pytest.raises(WorkloadError, match="can't read the folder of datasets"):
        newest(tmp_path, "file/*", refuse)
