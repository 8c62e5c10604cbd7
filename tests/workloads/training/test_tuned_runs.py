"""Settings are measured on a run's own model and rows, taken, noted, and kept by what goes on."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.errors import REFUSED
from falaj.workloads.training import command, launcher, tuned, tuning
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.launcher import resolve
from falaj.workloads.training.measurer import Measurer, machine
from falaj.workloads.training.options import Requested
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.tuning import Candidate, Measured, RefusedError, StoppedError


@pytest.fixture(autouse=True)
def _signals_are_the_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command.StopRequest, "install", StopRequest.asked)


@pytest.fixture
def snapshot(mixed_dataset: Dataset, tmp_path: Path) -> Path:
    return datasets.write(mixed_dataset, tmp_path / "datasets", None)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Candidate]:
    """What was measured, of a machine on which two parts of a batch are faster than one."""
    seen: list[Candidate] = []

    class Quick:
        """Answers at once."""

        def __init__(self, *_: Any) -> None:
            pass

        def start(self) -> None:
            """It is there."""

        def measure(self, candidate: Candidate, seconds: float, until: float) -> Measured:
            del seconds, until
            seen.append(candidate)
            return Measured(100.0 * (2 if candidate.accumulation == 2 else 1))

        def close(self) -> None:
            """Nothing is open."""

    monkeypatch.setattr(tuned, "Measurer", Quick)
    return seen


def run(snapshot: Path, output: Path, *more: str) -> int:
    return command.main([
        "run", "--dataset", str(snapshot), "--output", str(output), "--device", "cpu",
        "--epochs", "3", "--model", "network", "--json", *more,
    ])  # fmt: skip


def record_of(output: Path) -> dict[str, Any]:
    return json.loads((output / "record.json").read_text())


def test_what_is_measured_is_taken_noted_and_measured_once(
    snapshot: Path,
    tmp_path: Path,
    measured: list[Candidate],
    capsys: pytest.CaptureFixture[str],
) -> None:
    kept = ("--tune", "--measured", str(tmp_path / "kept"))
    assert run(snapshot, tmp_path / "one", *kept) == 0
    record = record_of(tmp_path / "one")
    assert record["tuning"]["taken"] == {"accumulation": 2}
    assert record["parameters"]["accumulation"] == 2
    assert len(record["tuning"]["tried"]) > 1
    assert '"event": "tune"' in capsys.readouterr().out
    times = len(measured)
    assert times
    # Another run of the same model, rows and machine: a rate changes no step's time.
    assert run(snapshot, tmp_path / "two", *kept, "--learning-rate", "0.01") == 0
    assert len(measured) == times
    assert record_of(tmp_path / "two")["tuning"]["taken"] == {"accumulation": 2}
    assert "as measured before" in capsys.readouterr().out
    # The same settings, given: the same bits.
    assert run(snapshot, tmp_path / "given", "--accumulation", "2") == 0
    assert "tuning" not in record_of(tmp_path / "given")
    assert record_of(tmp_path / "given")["metrics"] == record["metrics"]
    # Another width is another model.
    assert run(snapshot, tmp_path / "wide", *kept, "--width", "32") == 0
    assert len(measured) > times


def test_what_is_given_is_left_as_it_is(
    snapshot: Path, tmp_path: Path, measured: list[Candidate]
) -> None:
    assert run(snapshot, tmp_path / "run", "--tune", "--accumulation", "1") == 0
    assert {each.accumulation for each in measured} == {1}
    assert record_of(tmp_path / "run")["tuning"]["taken"] == {}


def test_a_run_that_goes_on_keeps_what_was_taken(
    snapshot: Path, tmp_path: Path, measured: list[Candidate], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(snapshot, tmp_path / "whole", "--tune") == 0
    times = len(measured)
    with monkeypatch.context() as patched:
        patched.setattr(command.StopRequest, "asked", stops_after(6))
        assert run(snapshot, tmp_path / "cut", "--tune") == 75
    for name in ("checkpoint", tuning.FILE):
        assert (tmp_path / "cut" / name).exists()
    before = len(measured)
    assert before > times
    assert run(snapshot, tmp_path / "cut") == 0  # said again or not
    assert len(measured) == before
    whole, cut = record_of(tmp_path / "whole"), record_of(tmp_path / "cut")
    assert cut["parameters"] == whole["parameters"]
    assert cut["tuning"]["taken"] == {"accumulation": 2}
    assert cut["metrics"] == whole["metrics"]
    assert (tmp_path / "cut" / "model").read_bytes() == (tmp_path / "whole" / "model").read_bytes()


def stops_after(looks: int) -> Any:
    left = [looks]

    def asked(self: Any) -> bool:
        left[0] -= 1
        if left[0] < 0:
            self.ask("it is enough")
        return self.reason is not None

    return asked


def test_a_run_without_measuring_forgets_what_an_earlier_one_took(
    snapshot: Path, tmp_path: Path, measured: list[Candidate]
) -> None:
    assert run(snapshot, tmp_path / "run", "--tune") == 0
    assert measured
    assert run(snapshot, tmp_path / "run", "--resume", "never") == 0
    assert "tuning" not in record_of(tmp_path / "run")
    assert not (tmp_path / "run" / tuning.FILE).exists()


def test_a_run_whose_settings_can_not_be_measured_trains_as_it_is(
    snapshot: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def refuse(self: Measurer, *_: Any) -> Measured:
        raise RefusedError("too little memory")

    monkeypatch.setattr(Measurer, "measure", refuse)
    kept = tmp_path / "kept"
    assert run(snapshot, tmp_path / "run", "--tune", "--measured", str(kept)) == 0
    assert record_of(tmp_path / "run")["tuning"]["refused"] == "too little memory"
    assert "stay as they are" in capsys.readouterr().out
    assert not list(kept.iterdir())  # the next one tries again


@pytest.mark.parametrize(
    "case",
    [
        (("--shard", "2", "--processes", "2"), {}, "the model is divided (shard 2)"),
        (("--tune-seconds", "1"), {}, "--tune-seconds is 1.0: allowed is 5 to 3,600"),
        (("--read-ahead", "8"), {}, "is of datasets that are read while they are learned from"),
        ((), {"RANK": "0", "WORLD_SIZE": "1"}, "a launcher has started this one"),
        (
            (),
            {"PET_NNODES": "2", "PET_RDZV_ENDPOINT": "10.0.0.1:29400"},
            "measures on one machine, and here several train together",
        ),
    ],
)
def test_where_nothing_can_be_measured_that_is_said(
    case: tuple[tuple[str, ...], dict[str, str], str],
    snapshot: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words, environment, reason = case
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(snapshot, tmp_path / "run", "--tune", *words) == REFUSED
    assert reason in capsys.readouterr().err


def test_a_sweep_measures_nothing(
    snapshot: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "sweep",
        "--dataset",
        str(snapshot),
        "--output",
        str(tmp_path),
        "--search",
        "width=8|16",
    ]
    assert command.main([*words, "--", "--tune"]) == REFUSED
    assert "--tune after -- would measure beside other trials" in capsys.readouterr().err


def test_tables_and_settings_are_told(
    snapshot: Path, measured: list[Candidate], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tune", "--dataset", str(snapshot), "--device", "cpu", "--model", "network"]
    assert command.main(words) == 0
    assert measured
    told = capsys.readouterr().out
    assert told.startswith("candidate ")
    assert "falaj:training.accumulation: 2   (--accumulation 2)" in told
    assert command.main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["taken"] == {"accumulation": 2}
    assert found["gain"] == pytest.approx(2)


def test_measurements_are_kept_by_data_model_and_machine(mixed_dataset: Dataset) -> None:
    here = machine("cpu")
    assert here["cores"] >= 1
    one = resolve(Requested(device="cpu"), mixed_dataset)

    def key(parameters: Any, fixed: frozenset[str] = frozenset(), **more: Any) -> str:
        return tuning.key_of("d", parameters, fixed, {**here, **more})

    same = [replace(one, seed=4), replace(one, epochs=7, learning_rate=0.5)]
    assert {key(each) for each in same} == {key(one)}
    others = [key(replace(one, width=9)), key(one, frozenset({"threads"})), key(one, cores=99)]
    assert len({key(one), *others}) == 4


def test_a_real_model_is_measured_and_what_fails_is_refused(
    snapshot: Path, mixed_dataset: Dataset, tmp_path: Path
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "network.py").write_text(MODEL)
    words = [
        "run", "--dataset", str(snapshot), "--output", str(tmp_path / "run"), "--device", "cpu",
        "--model", "mine.network:Network", "--code", str(tmp_path),
    ]  # fmt: skip
    options = command.build_parser().parse_args(words)
    requested = command.requested_of(options)
    parameters = resolve(requested, mixed_dataset, launcher.read_code(requested, None))
    now = tuning.candidate_of(replace(parameters, threads=1))
    is_asked = False
    measurer = Measurer(words, parameters, lambda: is_asked)
    try:
        until = time.monotonic() + 120
        found = measurer.measure(now, 0.2, until)
        assert found.rate > 0
        assert 0 <= found.rows_share < 1
        assert found.memory is not None
        assert found.memory > 1 << 24
        for threads, reason in ((2, "two threads are too many"), (3, "SIGKILL, as where memory")):
            with pytest.raises(RefusedError, match=reason):
                measurer.measure(replace(now, threads=threads), 0.2, until)
        assert measurer.measure(now, 0.2, until).rate > 0  # it goes on
        with pytest.raises(RefusedError, match="the time for measuring was over"):
            measurer.measure(replace(now, threads=4), 0.2, time.monotonic() + 0.5)
        is_asked = True
        with pytest.raises(StoppedError):
            measurer.measure(now, 0.2, until)
    finally:
        measurer.close()


MODEL = """
import os, signal, time
import torch
from torch import nn

class Network(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        threads = torch.get_num_threads()
        if threads == 2:
            raise RuntimeError("two threads are too many")
        if threads == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if threads == 4:
            time.sleep(60)
        print("what a model prints is none of our answers")
        self.last = nn.Linear(*inputs, outputs)

    def forward(self, features):
        return self.last(features)
"""
