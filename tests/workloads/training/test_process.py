"""Training as its own process: signals, kill -9, full disks, dead parents, several processes.

To start Python and torch takes seconds, so only what needs a process of its own gets one.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import psutil
import pytest

from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import command
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.snapshot import Dataset, open_dataset
from falaj.workloads.training.stopping import StopRequest
from tests.waiting import alive

COMMAND = [sys.executable, "-m", "falaj.workloads.training"]
EPOCHS = 60
PIPE = 4096
"""Bytes: a page, the least that Linux allows."""
AHEAD = 40
"""Epochs, at most, that a process is ahead of the reader of its progress: lines of 200 bytes and
more fill the pipe, and the buffer that it is read into."""

Main = Callable[[list[str]], tuple[int, list[dict[str, Any]], str]]


@pytest.fixture
def snapshot(mixed_dataset: Dataset, tmp_path: Path) -> Path:
    return datasets.write(mixed_dataset, tmp_path / "datasets", None)


@pytest.fixture
def main(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Main:
    """Run the command line in this process, whose signal handlers stay as they are."""
    monkeypatch.setattr(StopRequest, "install", lambda _: None)

    def run(arguments: list[str]) -> tuple[int, list[dict[str, Any]], str]:
        capsys.readouterr()
        code = command.main(arguments)
        output, errors = capsys.readouterr()
        return code, [json.loads(line) for line in output.splitlines()], errors

    return run


def _run(snapshot: Path, output: Path, *more: str) -> list[str]:
    return [
        "run", "--dataset", str(snapshot), "--output", str(output), "--device", "cpu",
        "--epochs", str(EPOCHS), "--patience", "100000", "--model", "network",
        "--progress", "json", *more,
    ]  # fmt: skip


def _finish(arguments: list[str]) -> tuple[int, list[dict[str, Any]], str]:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@contextlib.contextmanager
def _started(full_command: list[str], epochs: int) -> Iterator[subprocess.Popen[str]]:
    """Start a process and give it when it has gone through ``epochs`` epochs.

    It trains on for `AHEAD` epochs, and waits then until its progress is read.
    """
    process = subprocess.Popen(full_command, stdout=subprocess.PIPE, text=True, pipesize=PIPE)
    try:
        _until(process, "epoch", epochs)
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _until(process: subprocess.Popen[str], event: str, epoch: int) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        said = json.loads(line)
        if said["event"] == event and said["epoch"] >= epoch:
            return
    raise AssertionError(f"the process ended before {event} {epoch}")


def _weights(output: Path) -> bytes:
    state = load_trained(output, None).module.state_dict()
    return b"".join(tensor.numpy().tobytes() for tensor in state.values())


def _gone(pids: list[int], seconds: float = 30) -> bool:
    """Return whether all of ``pids`` have ended, waiting for them."""
    deadline = time.monotonic() + seconds
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize(("arguments", "reason"), [
    (["dataset", "--source", "absent.csv", "--target", "y", "--dry-run"], "no file absent.csv"),
    (["dataset", "--source", "digits"], "--output"),
    (["run", "--dataset", "absent", "--output", "out"], "dataset description"),
    (["run", "--dataset", "absent", "--output", "out", "--epochs", "0"], "--epochs is 0"),
    (["run", "--dataset", "absent", "--output", "out", "--keyring", "absent"], "key ring"),
])  # fmt: skip
def test_mistakes_end_with_2_and_one_line(
    main: Main, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], reason: str
) -> None:
    monkeypatch.chdir(tmp_path)
    code, events, errors = main(arguments)
    assert (code, events) == (2, [])
    assert errors.startswith("error: ")
    assert reason in errors
    assert list(tmp_path.iterdir()) == []


def test_unknown_option_ends_with_2() -> None:
    done = subprocess.run(
        [*COMMAND, "run", "--epoch-count", "3"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "usage: " in done.stderr
    assert "Traceback" not in done.stderr


def test_dry_run_describes_and_writes_nothing(main: Main, mixed: Path, tmp_path: Path) -> None:
    arguments = ["dataset", "--source", str(mixed), "--target", "churn", "--json"]
    code, events, _ = main([*arguments, "--output", str(tmp_path / "d"), "--dry-run"])
    assert code == 0
    assert events[0]["path"] is None
    assert events[0]["classes"] == ["no", "yes"]
    assert not (tmp_path / "d").exists()


def test_help_and_dry_run_do_not_wait_for_torch(mixed: Path) -> None:
    script = (
        "import sys; from falaj.workloads.training.command import main; "
        f"main(['dataset', '--source', {str(mixed)!r}, '--target', 'churn', '--dry-run']); "
        "sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_another_runs_folder_is_kept(main: Main, snapshot: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    assert main(_run(snapshot, output, "--epochs", "1"))[0] == 0
    record = (output / "record.json").read_bytes()
    code, events, _ = main(_run(snapshot, output, "--epochs", "1"))
    assert (code, [event["event"] for event in events]) == (0, ["finished"])
    assert (output / "record.json").read_bytes() == record
    code, _, errors = main(_run(snapshot, output, "--epochs", "2"))
    assert code == 2
    assert "other data or parameters" in errors
    assert (output / "record.json").read_bytes() == record
    assert main(_run(snapshot, output, "--epochs", "2", "--resume", "never"))[0] == 0
    assert json.loads((output / "record.json").read_text())["epochs"] == 2


def test_two_runs_in_one_folder_are_refused(
    main: Main, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "run"
    output.mkdir()
    with filelock.FileLock(output / ".lock"), monkeypatch.context() as patch:
        patch.setattr("falaj.workloads.training.launcher._WAIT_SECONDS", 0.1)
        code, _, errors = main(_run(snapshot, output))
    assert code == 2
    assert "another run is training in" in errors
    # One that is about to end, as its starter was killed, is waited for.
    lock = filelock.FileLock(output / ".lock", thread_local=False)
    lock.acquire()
    ending = threading.Timer(1, lock.release)
    ending.start()
    assert main(_run(snapshot, output, "--epochs", "1"))[0] == 0
    ending.join()


def test_full_disk_is_said_and_the_run_can_be_repeated(
    main: Main, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output, synced, fsync = tmp_path / "run", [0], os.fsync

    def full(descriptor: int) -> None:
        synced[0] += 1
        if synced[0] > 12:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        code, events, errors = main(_run(snapshot, output))
    assert code == 2
    assert "no space left while writing" in errors
    assert events[-1]["event"] == "epoch"
    assert not [path for path in output.iterdir() if path.name.startswith(".tmp")]
    code, events, _ = main(_run(snapshot, output))
    assert (code, events[0]["event"], events[-1]["event"]) == (0, "resume", "finished")


def test_sealed_run_leaves_no_plain_weights(
    main: Main, mixed_dataset: Dataset, tmp_path: Path
) -> None:
    keyring = KeyRing.create(tmp_path / "keyring")
    snapshot = datasets.write(mixed_dataset, tmp_path / "datasets", keyring)
    output = tmp_path / "run"
    arguments = _run(snapshot, output, "--epochs", "2", "--keyring", str(tmp_path / "keyring"))
    assert main(arguments)[0] == 0
    assert {"model.sealed", "checkpoint.sealed"} <= {path.name for path in output.iterdir()}
    assert not {"model", "checkpoint"} & {path.name for path in output.iterdir()}
    assert load_trained(output, keyring).classes == ["no", "yes"]


def test_reader_that_goes_away_stops_the_run(snapshot: Path, tmp_path: Path) -> None:
    full = [*COMMAND, *_run(snapshot, tmp_path / "run", "--epochs", "20000")]
    with _started(full, 2) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(60) == 75
    assert (tmp_path / "run" / "checkpoint").exists()


@pytest.mark.thorough
@pytest.mark.slow
def test_ended_run_goes_on_to_the_same_bits(
    main: Main, train: Any, snapshot: Path, tmp_path: Path
) -> None:
    """Ended in each way, one after the other."""
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    epochs = 3 * AHEAD + 20
    dataset = open_dataset(snapshot, None)
    train(dataset, whole, epochs=epochs, patience=100000, model="network")
    arguments = _run(snapshot, parts, "--epochs", str(epochs))
    resumed = 0
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        with _started([*COMMAND, *arguments], resumed + 5) as process:
            process.send_signal(number)
            process.communicate(timeout=60)
            assert process.returncode == (-number if number == signal.SIGKILL else 75)
        assert not (parts / "record.json").exists()
        done = _epochs(parts)
        assert done == list(range(1, len(done) + 1))
        assert resumed + 4 <= len(done) < epochs
        resumed = len(done)
    code, events, _ = main(arguments)
    assert code == 0
    assert events[0]["event"] == "resume"
    assert events[0]["epoch"] >= resumed - 1
    assert events[-1]["event"] == "finished"
    assert _weights(parts) == _weights(whole)
    assert _epochs(parts) == list(range(1, epochs + 1))


@pytest.mark.slow
@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.thorough)])
def test_run_ends_with_its_parent(snapshot: Path, tmp_path: Path, processes: str) -> None:
    output = tmp_path / "run"
    arguments = _run(snapshot, output, "--epochs", "20000", "--processes", processes)
    script = f"import subprocess; subprocess.run({[*COMMAND, *arguments]!r})"
    with _started([sys.executable, "-c", script], 3) as parent:
        children = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
        assert len(children) >= int(processes)
        assert parent.stdout is not None
        # Somebody still reads, or they'd wait for that before they look whether to stop.
        threading.Thread(target=parent.stdout.read, daemon=True).start()
        parent.kill()
        parent.wait()
        assert _gone(children)
    assert (output / "checkpoint").exists()
    assert not (output / "record.json").exists()


@pytest.mark.thorough
@pytest.mark.slow
def test_processes_are_stopped_lost_and_still_train_as_one(
    train: Any, snapshot: Path, tmp_path: Path
) -> None:
    alone, whole, parts = (tmp_path / name for name in ("alone", "whole", "parts"))
    more = ("--processes", "2", "--batch-size", "48")
    alike = {"epochs": EPOCHS, "patience": 100000, "batch_size": 48, "model": "network"}
    train(open_dataset(snapshot, None), alone, **alike)
    code, events, errors = _finish(_run(snapshot, whole, *more))
    assert (code, events[-1]["event"]) == (0, "finished"), errors
    assert [event["event"] for event in events].count("start") == 1
    for one, two in zip(_losses(alone)[:5], _losses(whole)[:5], strict=True):
        assert two == pytest.approx(one, rel=1e-5)

    full = [*COMMAND, *_run(snapshot, parts, *more)]
    with _started(full, 3) as process:
        members = psutil.Process(process.pid).children(recursive=True)
        next(member for member in members if member.environ().get("RANK") == "1").kill()
        _until(process, "resume", 2)
        _until(process, "epoch", 6)
        children = [child.pid for child in psutil.Process(process.pid).children(recursive=True)]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 75
        assert _gone(children)
    assert not (parts / "record.json").exists()
    code, events, _ = _finish(_run(snapshot, parts, *more))
    assert (code, events[0]["event"]) == (0, "resume")
    assert _weights(parts) == _weights(whole)


def _losses(output: Path) -> list[float]:
    return [line["loss"] for line in _metrics(output)]


def _epochs(output: Path) -> list[int]:
    return [line["epoch"] for line in _metrics(output)]


def _metrics(output: Path) -> list[dict[str, Any]]:
    return list(map(json.loads, (output / "metrics.jsonl").read_text().splitlines()))
