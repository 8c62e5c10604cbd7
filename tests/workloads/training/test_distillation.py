"""Distillation: refused where a teacher can't teach, else the same in any number of processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.pipeline import Request, optimise
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import command, launcher
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.distillation import Distillation, check_options, open_teacher
from falaj.workloads.training.language import IGNORED
from falaj.workloads.training.options import Requested
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.stopping import StopRequest
from tests.workloads.training.conftest import StopAfter, Train

SHORT: dict[str, Any] = {"epochs": 3, "threads": 1, "batch_size": 32}


@pytest.fixture
def teacher(mixed_dataset: Dataset, tmp_path: Path, train: Train) -> Path:
    path = tmp_path / "teacher"
    assert train(mixed_dataset, path, model="network", **SHORT) == 0
    return path


# What is refused.


@pytest.mark.parametrize(
    ("given", "task", "words"),
    [
        ({"distil_weight": 0.5}, "classification", "--distil-weight is of a teacher's answers"),
        ({"distil_temperature": 2.0}, "regression", "--distil-temperature is of a teacher's"),
        (
            {"teacher": Path("t"), "distil_temperature": 2.0},
            "regression",
            "--distil-temperature 2 softens probabilities, and this dataset's target is a number",
        ),
        (
            {"teacher": Path("t"), "model": "mine.network:Network", "code": Path("c")},
            "classification",
            "mine.network:Network is a model of your own, whose loss is its own matter",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    given: dict[str, Any], task: str, words: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        check_options(Requested(**given), task)
    assert words in str(caught.value)


def test_a_folder_without_a_finished_run_is_refused(
    tmp_path: Path, mixed_dataset: Dataset
) -> None:
    with pytest.raises(WorkloadError, match=r"--teacher .*nothing.*: .*record"):
        open_teacher(tmp_path / "nothing", None, mixed_dataset)


def test_a_teacher_of_other_data_is_refused(
    teacher: Path, mixed: Path, mixed_dataset: Dataset
) -> None:
    for source, words in (
        (datasets.Source("digits"), "is of other data (table) than this dataset (images)"),
        (datasets.Source(str(mixed), "age"), "is of other task (classification) than this"),
        (datasets.Source(str(mixed), "city"), "is of other classes (no, yes) than this dataset"),
        (datasets.Source(str(mixed), "churn", seed=4), "may have learned from rows that are held"),
    ):
        with pytest.raises(WorkloadError) as caught:
            open_teacher(teacher, None, datasets.build(source))
        assert words in str(caught.value)
    assert open_teacher(teacher, None, mixed_dataset).trained.classes == ["no", "yes"]


def test_a_divided_network_is_refused_before_anything_starts(
    teacher: Path, mixed_dataset: Dataset, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(StopRequest, "install", lambda _: None)
    path, output = datasets.write(mixed_dataset, tmp_path / "datasets", None), tmp_path / "run"
    arguments = ["run", "--dataset", str(path), "--output", str(output), "--teacher", str(teacher)]
    assert command.main([*arguments, "--processes", "2", "--shard", "2"]) == 2
    assert "--teacher is for networks that each process has whole" in capfd.readouterr().err
    assert not output.exists()


# What is learned.


@given(
    temperature=st.floats(1, 20), weight=st.floats(0, 1), rows=st.integers(1, 5),
    seed=st.integers(0, 100),
)  # fmt: skip
def test_the_loss_is_the_truths_where_both_answer_the_same(
    temperature: float, weight: float, rows: int, seed: int
) -> None:
    random = torch.Generator().manual_seed(seed)
    outputs, losses = torch.randn(rows, 4, generator=random), torch.rand(rows, generator=random)
    same = Distillation(
        torch.nn.Identity(), torch.device("cpu"), "classification", temperature=temperature,
        weight=weight,
    )  # fmt: skip
    mixed = same.losses(losses, outputs, outputs)
    torch.testing.assert_close(mixed, (1 - weight) * losses, atol=1e-4, rtol=1e-4)
    other = same.losses(losses, torch.randn(rows, 4, generator=random), outputs)
    assert (other >= mixed - 1e-4).all()


def test_of_a_text_it_is_the_mean_over_characters() -> None:
    random = torch.Generator().manual_seed(1)
    inputs, outputs = torch.randn(2, 3, 5, generator=random), torch.randn(2, 3, 5)
    of_text = Distillation(
        torch.nn.Identity(), torch.device("cpu"), "language", temperature=2, weight=1
    )
    losses = of_text.losses(torch.zeros(2), inputs, outputs)
    flat = of_text.losses(torch.zeros(6), inputs.flatten(0, 1), outputs.flatten(0, 1))
    torch.testing.assert_close(losses, flat.view(2, 3).mean(1))
    # Where only some tokens are learned, the teacher is asked for these alone.
    labels = torch.tensor([[1, IGNORED, 2], [IGNORED] * 3])
    some = of_text.losses(torch.zeros(2), inputs, outputs, labels)
    torch.testing.assert_close(some[0], flat.view(2, 3)[0, [0, 2]].mean())
    assert float(some[1]) == 0


def _student(
    dataset: Dataset, teacher: Path, output: Path, stop: StopRequest | None, train: Train
) -> int:
    return train(dataset, output, stop, teacher_run=teacher, width=8, distil_weight=0.9, **SHORT)


def test_a_run_that_was_stopped_ends_in_the_same_network(
    teacher: Path, mixed_dataset: Dataset, tmp_path: Path, train: Train
) -> None:
    whole, parts, alone = (tmp_path / name for name in ("whole", "parts", "alone"))
    assert _student(mixed_dataset, teacher, whole, None, train) == 0
    assert _student(mixed_dataset, teacher, parts, StopAfter(4), train) == 75
    assert _student(mixed_dataset, teacher, parts, None, train) == 0
    assert train(mixed_dataset, alone, width=8, model="network", **SHORT) == 0
    assert (whole / "model").read_bytes() == (parts / "model").read_bytes()
    assert (whole / "model").read_bytes() != (alone / "model").read_bytes()


def test_record_and_package_name_the_teacher(
    teacher: Path, mixed_dataset: Dataset, tmp_path: Path, train: Train
) -> None:
    path = datasets.write(mixed_dataset, tmp_path / "datasets", None)
    assert _student(mixed_dataset, teacher, tmp_path / "run", None, train) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    taught = json.loads((teacher / "record.json").read_text())
    assert record["teacher"]["run"] == taught["identity"]
    assert record["teacher"]["accuracy"] == taught["metrics"]["held_out"]["accuracy"]
    assert record["model"]["choice"]["kept"] == "network"  # trees learn from rows alone
    assert record["parameters"]["teacher"] == record["teacher"]["digest"]
    assert "teacher" not in taught["parameters"]
    optimise(Request(tmp_path / "run", path, tmp_path / "served", accept="any"), lambda _: None)
    lineage = json.loads((tmp_path / "served" / "fields.json").read_text())["lineage"]
    assert lineage["teacher"] == record["teacher"]["digest"]
    assert lineage["teacher_run"] == taught["identity"]


@pytest.mark.thorough
def test_two_processes_learn_from_a_sealed_teacher(
    mixed_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StopRequest, "install", lambda _: None)
    KeyRing.create(tmp_path / "keys")
    ring = KeyRing.open(tmp_path / "keys")
    path = datasets.write(mixed_dataset, tmp_path / "datasets", ring)
    common = [
        "run", "--dataset", str(path), "--keyring", str(tmp_path / "keys"), "--epochs", "2",
        "--model", "network",
    ]  # fmt: skip
    teacher = tmp_path / "teacher"
    assert command.main([*common, "--output", str(teacher)]) == 0
    found: dict[str, float] = {}
    for processes in ("1", "2"):
        output = tmp_path / f"run{processes}"
        arguments = ["--output", str(output), "--teacher", str(teacher), "--width", "8"]
        assert command.main([*common, *arguments, "--processes", processes]) == 0
        record = json.loads((output / "record.json").read_text())
        found[processes] = record["metrics"]["validation"]["loss"]
    assert found["2"] == pytest.approx(found["1"], rel=1e-4)


def test_parameters_without_a_teacher_have_the_names_that_they_had(
    mixed_dataset: Dataset, teacher: Path
) -> None:
    plain = launcher.resolve(Requested(device="cpu", threads=1), mixed_dataset)
    assert not {"teacher", "distil_temperature", "distil_weight"} & plain.to_json().keys()
    opened = open_teacher(teacher, None, mixed_dataset)
    taught = launcher.resolve(
        Requested(device="cpu", threads=1, teacher=teacher), mixed_dataset, None, opened
    )
    assert taught.to_json()["teacher"] == opened.digest
    assert taught.identity(mixed_dataset.digest) != plain.identity(mixed_dataset.digest)


def test_a_language_model_learns_from_a_wider_one(tmp_path: Path, train: Train) -> None:
    (tmp_path / "words.txt").write_text("the water runs down to the fields of dates. " * 150)
    text = datasets.build(datasets.Source(str(tmp_path / "words.txt")))
    short: dict[str, Any] = {"epochs": 2, "threads": 1}
    assert train(text, tmp_path / "teacher", width=32, **short) == 0
    student = tmp_path / "student"
    assert train(text, student, teacher_run=tmp_path / "teacher", width=8, **short) == 0
    record = json.loads((student / "record.json").read_text())
    assert record["teacher"]["metric_name"] == "nats_per_character"
    assert record["metrics"]["held_out"]["nats_per_character"] > 0


def test_a_regression_learns_from_trees(mixed: Path, tmp_path: Path, train: Train) -> None:
    numbers = datasets.build(datasets.Source(str(mixed), "income"))
    assert train(numbers, tmp_path / "teacher", **SHORT) == 0
    student = tmp_path / "student"
    assert train(numbers, student, teacher_run=tmp_path / "teacher", width=8, **SHORT) == 0
    record = json.loads((student / "record.json").read_text())
    assert record["teacher"]["kept"] in {"trees", "network"}
    assert record["model"]["choice"]["kept"] == "network"
