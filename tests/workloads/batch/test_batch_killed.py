"""Runs that are killed go on to the same bytes; memory stays bounded."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from falaj.workloads.batch.parts import Parts
from falaj.workloads.errors import WorkloadError
from tests.workloads.batch.conftest import Batch, options
from tests.workloads.inference.serving import Site

#: Small parts, so that a small file has many.
PROGRAM = """
import sys
from falaj.workloads.batch import command, prediction
prediction.PART_ROWS = 4096
sys.exit(command.main(sys.argv[1:]))
"""
ROWS = 60_000


def write(path: Path, rows: int = ROWS) -> Path:
    with path.open("w") as file:
        file.write("id,age,city\n")
        for number in range(rows):
            age = "old" if number % 10_000 == 9_999 else number / 7
            file.write(f"{number},{age},city {number % 97}\n")
    return path


def start(site: Site, *words: object) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", PROGRAM, "run", *map(str, words), *options(site)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "plain"), [("csv", ["--plain"]), ("parquet", [])])
def test_a_killed_run_goes_on_to_the_same_bytes(
    kind: str, plain: list[str], tmp_path: Path, batch: Batch, published: Site
) -> None:
    table = write(tmp_path / "in.csv")
    words = (table, "--keep", "id", "--skip-bad-rows")
    whole = start(published, *words, "--output", tmp_path / f"whole.{kind}", "--plain")
    assert whole.wait(300) == 0, whole.stderr.read() if whole.stderr else ""
    output = tmp_path / f"out.{kind}"
    parts = output.with_name(output.name + ".partial")
    chance = random.Random(f"{kind}")
    went_on = 0
    for _ in range(3):
        running = start(published, *words, "--output", output, *plain)
        seen = len(list(parts.glob("*.part*"))) if parts.exists() else 0
        wanted = seen + chance.randint(1, 5)
        while running.poll() is None and len(list(parts.glob("0*.part*"))) < wanted:
            time.sleep(0.002)
        time.sleep(chance.random() / 100)
        running.send_signal(signal.SIGKILL)
        running.communicate()
        went_on += running.returncode == -signal.SIGKILL
    assert went_on >= 2
    last = start(published, *words, "--output", output, *plain)
    assert last.wait(300) == 0, last.stderr.read() if last.stderr else ""
    if not plain:
        ring = published.root / "keyring"
        opened = tmp_path / f"opened.{kind}"
        sealed = output.with_name(output.name + ".sealed")
        done = batch(sealed, "--output", opened, "--keyring", ring, name="open")
        assert done.status == 0, done.err
        bad = output.with_name(output.name + ".bad-rows.jsonl.sealed")
        read = tmp_path / "bad.jsonl"
        assert batch(bad, "--output", read, "--keyring", ring, name="open").status == 0
        output = opened
    else:
        read = output.with_name(output.name + ".bad-rows.jsonl")
    assert output.read_bytes() == (tmp_path / f"whole.{kind}").read_bytes()
    assert read.read_bytes() == (tmp_path / f"whole.{kind}.bad-rows.jsonl").read_bytes()
    assert len(read.read_text().splitlines()) == 6
    if kind == "parquet":
        assert pq.read_metadata(output).num_rows == ROWS - 6


@pytest.mark.slow
def test_a_run_that_is_asked_to_stop_keeps_what_it_did(tmp_path: Path, published: Site) -> None:
    table = write(tmp_path / "in.csv")
    words = (table, "--skip-bad-rows", "--output", tmp_path / "out.csv", "--progress", "json")
    running = start(published, *words)
    parts = tmp_path / "out.csv.partial"
    while running.poll() is None and not list(parts.glob("0*.part*")):
        time.sleep(0.002)
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=300)
    assert running.returncode in {75, 0}
    if running.returncode == 75:
        assert b"stopped; what was done is kept" in errors


def test_two_runs_do_not_write_one_output(tmp_path: Path, batch: Batch) -> None:
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    with Parts(tmp_path / "out.csv", {}, None, print).opened(anew=True):
        ran = batch(tmp_path / "in.csv", "--output", tmp_path / "out.csv")
    assert ran.status == 2
    assert "another run writes the same output" in ran.err


@pytest.mark.parametrize("is_made_again", [True, False])
def test_a_lock_on_a_folder_that_was_removed_is_none(
    is_made_again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run that held it comes to its end just before it is locked."""
    output, lock, said = tmp_path / "out.csv", fcntl.flock, list[str]()
    folder = output.with_name("out.csv.partial")

    def late(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        folder.rmdir()
        if is_made_again:
            folder.mkdir()
        fcntl.flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with Parts(output, {}, None, said.append).opened(anew=False):
        other = Parts(output, {}, None, said.append)
        with pytest.raises(WorkloadError, match="another run writes"), other.opened(anew=False):
            pass
    assert said == []


@pytest.mark.parametrize("same", [False, True])
def test_an_output_that_came_while_the_lock_was_waited_for_stays(
    same: bool, tmp_path: Path, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run begins and ends between this one's first look and its lock."""
    (tmp_path / "in.csv").write_text("age,city\n1,x\n")
    (tmp_path / "other.csv").write_text("age,city\n2,y\n")
    words = ("--output", tmp_path / "out.csv", "--plain")
    opened = Parts.opened

    def late(parts: Parts, **options: bool) -> AbstractContextManager[None]:
        monkeypatch.setattr(Parts, "opened", opened)
        assert batch(tmp_path / "other.csv", *words).status == 0
        return opened(parts, **options)

    monkeypatch.setattr(Parts, "opened", late)
    ran = batch(tmp_path / ("other.csv" if same else "in.csv"), *words)
    if same:
        assert ran.answer["already"] is True
    else:
        assert ran.status == 2
        assert "is there already" in ran.err
    assert "2.0,y" in (tmp_path / "out.csv").read_text()
    assert sorted(each.name for each in tmp_path.iterdir()) == [
        "in.csv", "other.csv", "out.csv", "out.csv.json",
    ]  # fmt: skip


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path: Path, published: Site) -> None:
    peaks: list[int] = []
    for rows in (20_000, 200_000):
        table = write(tmp_path / f"{rows}.csv", rows)
        words = (table, "--skip-bad-rows", "--output", tmp_path / f"{rows}.out.csv", "--keep", "*")
        running = start(published, *words)
        _, _, used = os.wait4(running.pid, 0)
        for stream in (running.stdout, running.stderr):
            if stream is not None:
                stream.close()
        peaks.append(used.ru_maxrss)
    assert peaks[1] - peaks[0] < 20 * 1024, peaks
