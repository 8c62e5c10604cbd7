"""Sweeps: what is searched, trials side by side, one that fails, one that is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import command, sweep
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.trials import Trials

COMMAND = [sys.executable, "-m", "falaj.workloads.training"]


@pytest.fixture
def snapshot(mixed_dataset: Dataset, tmp_path: Path) -> Path:
    return datasets.write(mixed_dataset, tmp_path / "datasets", None)


def test_ranges_and_choices_are_read() -> None:
    found = sweep.spaces(
        [
            "learning_rate=1e-4..0.1:log",
            "width=8..64",
            "batch-size=16|32",
            "class_weights=none|auto",
        ]
    )
    assert found == {
        "learning_rate": FloatDistribution(1e-4, 0.1, log=True),
        "width": IntDistribution(8, 64),
        "batch_size": CategoricalDistribution([16, 32]),
        "class_weights": CategoricalDistribution(["none", "auto"]),
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "allowed are learning_rate"),
        ("epochs=1..5", "allowed are learning_rate"),
        ("width=1.5..3", "whole numbers"),
        ("width=8||16", "can't be read"),
        ("width=8|8", "can't be read"),
        ("width=8", "names one value"),
        ("learning_rate=0.1..0.01", "the smaller one"),
        ("weight_decay=0..1:log", "above 0 with :log"),
        ("learning_rate=1..99", "allowed from 1e-09 to 10"),
        ("class_weights=none|heavy", "auto, tempered"),
        ("class_weights=0..1", "auto|tempered"),
        ("learning_rate=fast", "takes numbers"),
        ("option.=1..2", "option.NAME of a model of one's own"),
        ("option.width=8..4", "the smaller one"),
        ("option.größe=1..2", "option.NAME of a model of one's own"),
        ("option.rate=0..1e400", "option rate is inf: allowed are numbers"),
        ("option.width=1..1" + "0" * 30, "allowed are numbers (whole ones below"),
    ],
)
def test_what_cannot_be_searched_is_refused(text: str, reason: str) -> None:
    with pytest.raises(WorkloadError) as refused:
        sweep.spaces([text])
    assert reason in str(refused.value)


def test_options_of_a_model_of_ones_own_are_searched() -> None:
    found = sweep.spaces(["option.width=8..64", "option.rate=0.1..0.5", "option.act=relu|gelu"])
    assert found == {
        "option.width": IntDistribution(8, 64),
        "option.rate": FloatDistribution(0.1, 0.5),
        "option.act": CategoricalDistribution(["relu", "gelu"]),
    }
    words = sweep._options({"option.width": 9, "width": 8})  # pyright: ignore[reportPrivateUsage]
    assert words == ["--option", "width=9", "--width", "8"]


def test_a_parameter_is_searched_once() -> None:
    with pytest.raises(WorkloadError, match="twice"):
        sweep.spaces(["width=8|16", "--width=8..32"])


@given(st.text(max_size=40), st.sampled_from(["", "width=", "learning_rate="]))
def test_any_text_is_understood_or_refused(text: str, start: str) -> None:
    try:
        assert sweep.spaces([start + text])
    except WorkloadError as error:
        assert "--search" in str(error)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["trial", "--search", "width=8|16"], "which trial this is"),
        (["sweep", "--search", "width=8|16", "--parallel", "0"], "allowed is 1 or more"),
        (["sweep", "--search", "width=8|16", "--", "--output", "x"], "option of the sweep"),
        (["study"], "holds no study"),
    ],
)
def test_a_wrong_command_line_is_refused(
    words: list[str], reason: str, snapshot: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *rest = words
    places = ["--dataset", str(snapshot), "--output", str(snapshot.parent / "sweep")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("falaj.workloads.training.stopping.StopRequest.install", lambda _: None)
        patch.delenv(sweep.INDEX, raising=False)
        assert command.main([first, *places, *rest]) == 2
    assert reason in capsys.readouterr().err


@pytest.mark.parametrize(
    ("gpus", "words", "expected"),
    [
        ("0,1,2,3", (), ["0", "1", "2", "3"]),
        ("0,1,2,3", ("--processes", "2"), ["0,1", "2,3"]),
        ("GPU-a, GPU-b", ("--processes=1",), ["GPU-a", "GPU-b"]),
        # Too few for each to have its own: what was visible stays so.
        ("0,1", ("--processes", "2"), ["0,1", "0,1"]),
        ("0", (), ["0", "0"]),
        ("", (), ["", ""]),
        ("0,1", (), ["0,1"]),
    ],
)
def test_trials_at_a_time_have_gpus_of_their_own(
    gpus: str,
    words: tuple[str, ...],
    expected: list[str],
    snapshot: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", gpus)
    parallel = len(expected)
    places = ["--dataset", str(snapshot), "--output", str(snapshot.parent / "sweep")]
    options = command.build_parser().parse_args(
        ["sweep", *places, "--search", "width=8|16", "--parallel", str(parallel), "--", *words]
    )
    trials = Trials(options, StopRequest())
    found = [trials._environment(slot) for slot in range(parallel)]  # pyright: ignore[reportPrivateUsage]
    assert [each["CUDA_VISIBLE_DEVICES"] for each in found] == expected


def _summary(snapshot: Path, output: Path) -> dict[str, Any]:
    return sweep.summary(sweep.open_study(output, snapshot, 0, "none"))


@pytest.mark.slow
@pytest.mark.thorough
def test_two_processes_share_a_study_and_a_failed_trial_fails_alone(
    snapshot: Path, tmp_path: Path
) -> None:
    output = tmp_path / "sweep"
    common = [*COMMAND, "trial", "--dataset", str(snapshot), "--output", str(output)]
    options = ["--", "--device", "cpu", "--threads", "1", "--model", "network", "--epochs"]
    searched = ["--search", "learning_rate=1e-3..1e-2:log", "--search", "width=8|16"]
    processes = [
        subprocess.Popen(
            [*common, "--index", str(index), *searched, *options, epochs],
            stdout=subprocess.PIPE, text=True,
        )
        for index, epochs in ((0, "3"), (1, "3"), (2, "0"))  # no epochs: refused by the run
    ]  # fmt: skip
    said = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 2]
    found = _summary(snapshot, output)
    # Each tells how the study stands when it ends; who ended last knows of both.
    told = [json.loads(each.splitlines()[-1]) for each in said[:2]]
    assert {each["event"] for each in told} == {"study"}
    assert max(each["trials"]["complete"] for each in told) == 2
    assert found["best"] in [each["best"] for each in told]
    assert found["trials"]["complete"] == 2
    assert found["trials"]["fail"] == 1
    assert found["direction"] == "maximize"
    assert found["best"]["trial"] in (0, 1)
    best = output / f"trial-{found['best']['trial']}"
    record = json.loads((best / "record.json").read_text(encoding="utf-8"))
    arguments = found["best"]["arguments"]
    assert arguments[arguments.index("--width") + 1] == str(record["parameters"]["width"])
    assert record["parameters"]["width"] == found["best"]["parameters"]["width"]
    # The same trial once more, as after a lost node: done already.
    again = subprocess.run(
        [*common, "--index", "0", *searched, *options, "3"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert again.returncode == 0
    assert "done already: complete" in again.stdout
    assert _summary(snapshot, output)["trials"]["complete"] == 2


@pytest.mark.thorough
@pytest.mark.slow
def test_a_stopped_trial_goes_on_where_it_was(
    snapshot: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    output = tmp_path / "sweep"
    start = [
        "trial", "--dataset", str(snapshot), "--output", str(output), "--index", "0",
        "--search", "width=8|16", "--pruner", "none", "--", "--device", "cpu", "--threads", "1",
        "--epochs", "60", "--patience", "100", "--model", "network",
    ]  # fmt: skip
    process = subprocess.Popen([*COMMAND, *start], stdout=subprocess.DEVNULL)
    metrics = output / "trial-0" / "metrics.jsonl"
    until = time.monotonic() + 90
    while not metrics.exists() or len(metrics.read_text(encoding="utf-8").splitlines()) < 3:
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 75
    assert _summary(snapshot, output)["trials"]["running"] == 1
    monkeypatch.setattr(StopRequest, "install", lambda _: None)
    capsys.readouterr()
    assert command.main(start) == 0
    assert '"event": "resume"' in capsys.readouterr().out
    found = _summary(snapshot, output)
    assert (found["trials"]["complete"], found["trials"]["running"]) == (1, 0)


@pytest.mark.thorough
@pytest.mark.slow
def test_a_killed_sweep_goes_on_and_every_trial_is_told_once(
    snapshot: Path, tmp_path: Path
) -> None:
    output = tmp_path / "sweep"
    start = [
        *COMMAND, "sweep", "--dataset", str(snapshot), "--output", str(output),
        "--search", "width=8..64", "--search", "learning_rate=1e-3..1e-2:log", "--trials", "4",
        "--parallel", "2", "--pruner", "none", "--progress",
    ]  # fmt: skip
    options = ["--", "--device", "cpu", "--model", "network", "--epochs", "4"]
    killed = subprocess.Popen([*start, "text", *options], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    said = [next(killed.stdout) for _ in range(3)]
    assert said[0] == "4 trials, 2 at a time, judged by the accuracy on validation rows\n"
    assert said[1].split() == [
        "trial", "ended", "accuracy", "best", "epochs", "time", "width", "learning_rate"
    ]  # fmt: skip
    first = said[2].split()
    assert first[1] == "done"
    trials = psutil.Process(killed.pid).children(recursive=True)
    killed.kill()
    killed.communicate()
    _, alive = psutil.wait_procs(trials, timeout=30)
    assert not alive

    again = subprocess.run(
        [*start, "json", *options], capture_output=True, text=True, check=True, timeout=120
    )
    events = [json.loads(line) for line in again.stdout.splitlines()]
    told = {each["trial"]: each for each in events if each["event"] == "trial"}
    assert sorted(told) == [0, 1, 2, 3]
    assert len([each for each in events if each["event"] == "trial"]) == 4
    assert told[int(first[0])]["parameters"]["width"] == int(first[-2])
    done_now = {each["trial"] for each in events if each["event"] == "epoch"}
    assert int(first[0]) not in done_now
    assert done_now
    study = events[-1]
    assert study["event"] == "study"
    assert study["trials"]["complete"] == 4
    best = max(told.values(), key=lambda each: each["accuracy"])
    assert study["best"]["value"] == best["accuracy"]
    assert told[study["best"]["trial"]]["best"]
    threads = {
        json.loads((sweep.trial_folder(output, index) / "parameters.json").read_text())[
            "parameters"
        ]["threads"]
        for index in range(4)
    }
    assert threads == {max((os.cpu_count() or 1) // 2, 1)}

    more = subprocess.run(
        [*start, "text", *options], capture_output=True, text=True, check=True, timeout=60
    )
    assert "4 have ended before" in more.stdout
    assert more.stdout.splitlines()[-1].startswith(f"best: trial {study['best']['trial']}, ")


@pytest.mark.thorough
@pytest.mark.slow
def test_what_every_trial_would_fail_by_ends_the_sweep(snapshot: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *COMMAND, "sweep", "--dataset", str(snapshot), "--output", str(tmp_path / "sweep"),
            "--search", "width=8|16", "--", "--epochs", "0",
        ],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    rows = [line.split()[:2] for line in done.stdout.splitlines() if line[:1].isdecimal()]
    assert rows[1:] == [["0", "failed"], ["1", "failed"], ["2", "failed"]]
    assert "stopped after 3 trials, which failed" in done.stdout
    assert "--epochs is 0" in done.stderr


@pytest.mark.thorough
@pytest.mark.slow
def test_a_sweep_that_nobody_reads_stops(snapshot: Path, tmp_path: Path) -> None:
    process = subprocess.Popen(
        [
            *COMMAND, "sweep", "--dataset", str(snapshot), "--output", str(tmp_path / "sweep"),
            "--search", "width=8..16", "--progress", "json", "--", "--device", "cpu",
            "--model", "network", "--epochs", "500", "--patience", "500",
        ],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["trial"] == 0
    process.stdout.close()
    assert process.wait(60) == 75
    assert process.stderr is not None
    assert "Traceback" not in process.stderr.read()
