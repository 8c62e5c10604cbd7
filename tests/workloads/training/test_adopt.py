"""A run that was done before is taken over, if it is the same and whole; else it is trained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import checkpoint
from falaj.workloads.training import command as training
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training import record as records
from tests.workloads.optimization.conftest import Done, called

OPTIONS = ("--device", "cpu", "--threads", "1", "--model", "network", "--epochs", "2")


class Place:
    """A key ring, a snapshot, and a sweep with one trial in a folder of runs."""

    def __init__(self, folder: Path) -> None:
        table = folder / "table.csv"
        rows = [f"{at % 7},{at % 5},{'ab'[at % 7 > 3]}" for at in range(80)]
        table.write_text("\n".join(["x,y,z", *rows]))
        dataset = datasets.build(datasets.Source(str(table), "z", seed=3))
        self.ring = KeyRing.create(folder / "keyring")
        self.snapshot = datasets.write(dataset, folder / "datasets", self.ring)
        self.runs = folder / "runs"
        self.trial = self.runs / "sweep-a" / "trial-3"
        assert self.train(self.trial).returncode == 0

    def train(self, output: Path, *more: str) -> Done:
        ring = str(self.ring.path)
        return called(
            training.main, "run", "--dataset", str(self.snapshot), "--output", str(output),
            "--keyring", ring, *OPTIONS, *more,
        )  # fmt: skip

    def record(self) -> dict[str, Any]:
        return json.loads((self.trial / records.RECORD).read_text())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("adopt"))


@pytest.fixture
def place(made: Place, tmp_path: Path) -> Place:
    """A copy of its runs, to be damaged."""
    copy = object.__new__(Place)
    copy.ring, copy.snapshot = made.ring, made.snapshot
    copy.runs = tmp_path / "runs"
    shutil.copytree(made.runs, copy.runs)
    copy.trial = copy.runs / made.trial.relative_to(made.runs)
    return copy


def test_the_same_run_is_taken_over_and_its_model_can_be_used(place: Place) -> None:
    output = place.runs / "run"
    done = place.train(output, "--adopt", str(place.runs))
    assert done.returncode == 0
    assert f"taken over from {place.trial}" in done.stdout
    assert "held-out accuracy" in done.stdout
    assert records.finished(output) == place.record()
    assert not (output / "checkpoint.sealed").exists()
    found = checkpoint.load_trained(output, place.ring)
    assert found.record["identity"] == place.record()["identity"]
    # Once more is as after any run that is done.
    assert "taken over" not in place.train(output, "--adopt", str(place.runs)).stdout


def test_another_run_is_trained(place: Place) -> None:
    done = place.train(place.runs / "run", "--adopt", str(place.runs), "--seed", "4")
    assert done.returncode == 0
    assert "taken over" not in done.stdout
    assert (place.runs / "run" / records.RECORD).exists()


def test_what_is_asked_to_be_trained_afresh_is(place: Place) -> None:
    done = place.train(place.runs / "run", "--adopt", str(place.runs), "--resume", "never")
    assert "taken over" not in done.stdout
    assert (place.runs / "run" / records.RECORD).exists()


def taken_over(place: Place) -> Path | None:
    output = place.runs / "run"
    output.mkdir()
    identity = json.loads((place.trial / records.PARAMETERS).read_text())["identity"]
    return records.take_over(output, identity, place.runs, place.ring)


@pytest.mark.parametrize("name", ["model.sealed", "metrics.jsonl", "parameters.json"])
def test_a_run_without_a_file_is_none(place: Place, name: str) -> None:
    shutil.copy2(place.trial / records.PARAMETERS, place.runs / "kept.json")
    identity = place.record()["identity"]
    (place.trial / name).unlink()
    (place.runs / "run").mkdir()
    assert records.take_over(place.runs / "run", identity, place.runs, place.ring) is None
    assert [*(place.runs / "run").iterdir()] == []


@pytest.mark.parametrize("content", ["", "[]", "null", "{}", '{"identity": 1}', "\x00"], ids=repr)
def test_a_damaged_record_is_none(place: Place, content: str) -> None:
    (place.trial / records.RECORD).write_text(content)
    assert taken_over(place) is None


def test_a_record_that_lacks_its_model_is_none(place: Place) -> None:
    record = place.record()
    del record["model"]
    (place.trial / records.RECORD).write_text(json.dumps(record))
    assert taken_over(place) is None


def test_a_model_that_was_changed_is_none(place: Place) -> None:
    sealed = place.trial / "model.sealed"
    data = bytearray(sealed.read_bytes())
    data[-1] ^= 1
    sealed.write_bytes(data)
    assert taken_over(place) is None


def test_other_code_is_another_run(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "code_version", lambda: {"version": "0", "digest": "0" * 64})
    assert taken_over(place) is None


def test_other_keys_open_nothing(place: Place, tmp_path: Path) -> None:
    place.ring = KeyRing.create(tmp_path / "others")
    assert taken_over(place) is None


def test_a_whole_one_is_found_behind_a_damaged_one(place: Place) -> None:
    damaged = place.runs / "sweep-0" / "trial-0"
    shutil.copytree(place.trial, damaged)
    (damaged / "model.sealed").unlink()
    assert taken_over(place) == place.trial
