"""The command line: bad input and faults first, then whole runs."""

from __future__ import annotations

import errno
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falaj.workloads.errors import StorageFullError
from falaj.workloads.optimization import pipeline as records
from falaj.workloads.optimization.__main__ import main
from falaj.workloads.optimization.comparison import CLEAR_GAIN, open_session
from falaj.workloads.optimization.export import check_model
from falaj.workloads.optimization.pipeline import Request, optimise
from falaj.workloads.registry import __main__ as registry
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import command as training
from falaj.workloads.training.checkpoint import load_rows
from tests.workloads.optimization.conftest import called


def refused(capsys: pytest.CaptureFixture[str], run: Path, dataset: Path, *more: str) -> str:
    """Run the command line in this process; return the error that it must give."""
    output = run.parent / "nowhere"
    arguments = ["--run", str(run), "--dataset", str(dataset), "--output", str(output), *more]
    assert main([*arguments, "--quantise", "never"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("error: ")
    assert not (output / "optimization.json").exists()
    return printed.err


@pytest.fixture
def copy(digits: Any, tmp_path: Path) -> Path:
    """A run that a test may damage."""
    shutil.copytree(digits.path, tmp_path / "run")
    return tmp_path / "run"


def test_a_missing_run(digits: Any, tmp_path: Path, capsys: Any) -> None:
    error = refused(capsys, tmp_path / "none", digits.dataset)
    assert str(tmp_path / "none") in error
    assert "finished run" in error


def test_a_model_that_does_not_pass_its_gate(digits: Any, tmp_path: Path, capsys: Any) -> None:
    output, command = tmp_path / "out", ["--run", str(digits.path), "--dataset"]
    command += [str(digits.dataset), "--output", str(output), "--quantise", "never"]
    assert main([*command, "--least-accuracy", "1"]) == 2
    assert "error: the model doesn't pass the gate: held-out accuracy" in capsys.readouterr().err
    assert not output.exists()
    assert main([*command, "--least-accuracy", "0.5"]) == 0
    # What was made before is judged again.
    assert main([*command, "--least-accuracy", "1"]) == 2
    assert "doesn't pass the gate" in capsys.readouterr().err


def test_an_unfinished_run(digits: Any, copy: Path, capsys: Any) -> None:
    record = json.loads((copy / "record.json").read_text())
    (copy / "record.json").write_text(json.dumps({**record, "status": "running"}))
    assert "holds no finished run" in refused(capsys, copy, digits.dataset)


def test_a_run_that_was_stopped_before_its_record(digits: Any, copy: Path, capsys: Any) -> None:
    (copy / "record.json").unlink()
    assert "finished run" in refused(capsys, copy, digits.dataset)


@pytest.mark.parametrize("position", [0, 20, 60, -1])
def test_a_corrupt_model(digits: Any, copy: Path, capsys: Any, position: int) -> None:
    data = bytearray((copy / "model").read_bytes())
    data[position] ^= 0x40
    (copy / "model").write_bytes(data)
    assert "model is damaged" in refused(capsys, copy, digits.dataset)


def test_a_missing_model(digits: Any, copy: Path, capsys: Any) -> None:
    (copy / "model").unlink()
    assert str(copy / "model") in refused(capsys, copy, digits.dataset)


@pytest.mark.parametrize("key", ["dataset", "preprocessing", "identity"])
def test_a_record_without_what_is_needed(digits: Any, copy: Path, capsys: Any, key: str) -> None:
    record = json.loads((copy / "record.json").read_text())
    del record[key]
    (copy / "record.json").write_text(json.dumps(record))
    assert "is damaged" in refused(capsys, copy, digits.dataset)


def test_another_dataset_than_the_runs(digits: Any, customers: Any, capsys: Any) -> None:
    error = refused(capsys, digits.path, customers.dataset)
    assert "was trained on the dataset" in error
    assert "Name the run's own dataset" in error


def test_a_missing_dataset(digits: Any, tmp_path: Path, capsys: Any) -> None:
    assert str(tmp_path / "none") in refused(capsys, digits.path, tmp_path / "none")


def test_a_dataset_description_that_is_no_object(digits: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "dataset.json").write_text("[1]")
    assert "dataset.json" in refused(capsys, digits.path, tmp_path)


@pytest.mark.parametrize("bound", ["-1", "101", "nan"])
def test_an_impossible_bound(digits: Any, capsys: Any, bound: str) -> None:
    error = refused(capsys, digits.path, digits.dataset, "--max-accuracy-drop", bound)
    assert "allowed is 0 to 100" in error


@pytest.mark.parametrize("threads", ["0", "-3", "5000"])
def test_an_impossible_number_of_threads(digits: Any, capsys: Any, threads: str) -> None:
    assert "--threads" in refused(capsys, digits.path, digits.dataset, "--threads", threads)


def test_a_key_ring_for_a_run_that_is_not_encrypted(
    digits: Any, tmp_path: Path, capsys: Any
) -> None:
    KeyRing.create(tmp_path / "keys")
    error = refused(capsys, digits.path, digits.dataset, "--keyring", str(tmp_path / "keys"))
    assert "encrypted" in error or "sealed" in error


def test_an_output_that_is_a_file(digits: Any, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("mine")
    arguments = ["--run", str(digits.path), "--dataset", str(digits.dataset)]
    assert main([*arguments, "--output", str(tmp_path / "file"), "--quantise", "never"]) == 2
    assert str(tmp_path / "file") in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"


def test_a_full_disk_leaves_nothing_that_looks_finished(
    digits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    output = tmp_path / "output"
    request = Request(digits.path, digits.dataset, output, quantise="never")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StorageFullError, match="no space left"):
            optimise(request, lambda message: None)
    assert list(output.iterdir()) == []
    assert optimise(request, lambda message: None)["accepted"] == "float"


def test_the_outcome_follows_from_its_own_figures(optimised: Path) -> None:
    record = json.loads((optimised / "optimization.json").read_text())
    loss = 100 * (record["float"]["accuracy"] - record["int8"]["accuracy"])
    ratio = record["int8"]["latency_us"] / record["float"]["latency_us"]
    # A network as small as this one gains nothing of another engine.
    assert record["engine"]["name"] == "onnxruntime"
    assert {"f32", "int8"} <= record["engine"]["candidates"].keys()
    assert record["served"] == record[record["accepted"]]
    assert record["accepted"] == ("int8" if loss <= 0.5 and ratio <= 1 - CLEAR_GAIN else "float")
    assert record["int8"]["size_bytes"] < record["float"]["size_bytes"]
    assert record["reason"].startswith(
        "accepted 8 bits" if record["accepted"] == "int8" else "kept float"
    )


def test_the_last_line_is_the_record_with_paths(optimised: Path) -> None:
    lines = (optimised.parent / "stdout.json").read_text().splitlines()
    printed = json.loads(lines[-1])
    assert len(lines) == 1
    assert Path(printed["model"]).read_bytes()
    record = json.loads(Path(printed["record"]).read_text())
    assert {**printed, **record} == printed
    assert printed["runtime"]["onnxruntime"]
    assert printed["threads"] == 1


def test_the_kept_models_are_what_the_record_says(optimised: Path, digits: Any) -> None:
    record = json.loads((optimised / "optimization.json").read_text())
    rows = load_rows(digits.dataset, None, "held_out")
    for name, kind in (("model.onnx", record["accepted"]), ("model.float.onnx", "float")):
        data = (optimised / name).read_bytes()
        check_model(data)
        assert len(data) == record[kind]["size_bytes"]
        (label,) = open_session(data).run(["label"], dict(rows.inputs))
        assert float(np.mean(label == rows.labels)) == record[kind]["accuracy"]
        assert (optimised / name).stat().st_mode & 0o777 == 0o600


def test_the_float_accuracy_is_what_training_measured(optimised: Path, digits: Any) -> None:
    record = json.loads((optimised / "optimization.json").read_text())
    trained = json.loads((digits.path / "record.json").read_text())
    assert record["float"]["accuracy"] == trained["metrics"]["held_out"]["accuracy"]


def test_the_same_again_returns_what_exists(optimised: Path, digits: Any) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in optimised.iterdir()}
    said: list[str] = []
    again = optimise(Request(digits.path, digits.dataset, optimised), said.append)
    assert {path.name: path.stat().st_mtime_ns for path in optimised.iterdir()} == before
    assert again["path"] == str(optimised)
    assert said[0].startswith("done before")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.onnx", "nonsense"),
        ("model.float.onnx", None),
        ("optimization.json", "{"),
        ("optimization.json", "[]"),
        ("optimization.json", None),
        ("fields.json", "{"),
        ("fields.json", None),
    ],
)
def test_damaged_leftovers_do_not_count_as_finished(
    optimised: Path, tmp_path: Path, name: str, content: str | None
) -> None:
    record = json.loads((optimised / "optimization.json").read_text())
    copy = shutil.copytree(optimised, tmp_path / "copy")
    assert records.finished(copy, record["key"], "any", None) == record
    (copy / name).unlink()
    if content is not None:
        (copy / name).write_text(content)
    assert records.finished(copy, record["key"], "any", None) is None


def test_a_damaged_model_is_made_again(digits: Any, tmp_path: Path) -> None:
    request = Request(digits.path, digits.dataset, tmp_path / "output", quantise="never")
    first = optimise(request, lambda message: None)
    Path(first["model"]).write_bytes(b"nonsense")
    assert optimise(request, lambda message: None)["files"] == first["files"]
    check_model(Path(first["model"]).read_bytes())


def test_other_options_are_another_outcome(digits: Any, tmp_path: Path) -> None:
    request = Request(digits.path, digits.dataset, tmp_path / "output", quantise="never")
    first = optimise(request, lambda message: None)
    other = Request(
        digits.path, digits.dataset, tmp_path / "output", quantise="never", bound_points=2.0
    )
    second = optimise(other, lambda message: None)
    assert second["key"] != first["key"]
    assert second["bound_points"] == 2.0
    assert first["int8"] is None
    assert "--quantise never" in first["reason"]


def test_a_table_with_text_missing_values_and_awkward_names(
    customers: Any, tmp_path: Path
) -> None:
    output = tmp_path / "output"
    # Five epochs make no good model.
    request = Request(customers.path, customers.dataset, output, accept="any")
    record = optimise(request, lambda message: None)
    inputs = {item["name"]: item["datatype"] for item in record["inputs"]}
    assert inputs["مدينة"] == "BYTES"
    assert inputs["age"] == "FP32"
    roles = {item["role"]: item for item in record["outputs"]}
    assert roles["label"]["name"] == "predicted_label"
    assert roles["label"]["datatype"] == "BYTES"
    row = {
        name: np.array([["دبي"]], dtype=object)
        if kind == "BYTES"
        else np.array([[np.nan]], dtype=np.float32)
        for name, kind in inputs.items()
    }
    data = (output / "model.onnx").read_bytes()
    probabilities, label = open_session(data).run(["probabilities", "predicted_label"], row)
    assert label[0] == ["no", "نعم"][int(probabilities[0].argmax())]


def test_a_regression_answers_in_the_targets_unit(spending: Any, tmp_path: Path) -> None:
    output = tmp_path / "output"
    # Five epochs make no good model.
    request = Request(spending.path, spending.dataset, output, accept="any")
    record = optimise(request, lambda message: None)
    trained = json.loads((spending.path / "record.json").read_text())
    held_out = trained["metrics"]["held_out"]["rmse"]
    assert record["metric_name"] == "rmse"
    assert record["float"]["rmse"] == pytest.approx(held_out, rel=1e-3)
    rows = load_rows(spending.dataset, None, "held_out")
    data = (output / "model.float.onnx").read_bytes()
    (values,) = open_session(data).run(["prediction"], dict(rows.inputs))
    assert abs(float(values.mean()) - float(rows.labels.mean())) < 60_000


def test_the_fields_are_the_registrys(optimised: Path, digits: Any) -> None:
    fields = json.loads((optimised / "fields.json").read_text())
    dataset = json.loads((digits.dataset / "dataset.json").read_text())
    trained = json.loads((digits.path / "record.json").read_text())
    assert fields["lineage"] == {"run": trained["identity"], "dataset": dataset["digest"]}
    statistics = dict(fields["statistics"])
    assert statistics.pop("outputs")["kind"] == "classes"
    assert statistics == dataset["statistics"]
    assert fields["parameters"] == trained["parameters"]
    assert fields["data_class"] == "internal"
    assert fields["quantisation"]["accepted"] in {"int8", "float"}


@pytest.mark.thorough
@pytest.mark.slow
def test_a_sealed_run_leaves_no_plain_model(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    KeyRing.create(keys)
    made = called(
        training.main, "dataset", "--source", "digits", "--output", str(tmp_path / "data"),
        "--keyring", str(keys), "--json",
    )  # fmt: skip
    dataset = json.loads(made.stdout.splitlines()[-1])["path"]
    run = called(
        training.main, "run", "--dataset", dataset, "--output", str(tmp_path / "run"),
        "--keyring", str(keys), "--epochs", "1", "--threads", "1", "--json",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    keyring = KeyRing.open(keys)
    output = tmp_path / "output"
    request = Request(tmp_path / "run", Path(dataset), output, keyring)
    result = optimise(request, lambda message: None)
    assert sorted(path.name for path in output.iterdir()) == [
        "card.html.sealed", "fields.json", "model.float.onnx.sealed", "model.onnx.sealed",
        "optimization.json",
    ]  # fmt: skip
    identity = json.loads((output / "fields.json").read_text())["lineage"]["run"]
    context = records.context_of(identity, "model.onnx")
    data = records.read_artifact(output / "model.onnx", keyring, context)
    assert len(data) == result["files"]["model.onnx"]["size"]
    check_model(data)
    published = called(
        registry.main, "publish", "--registry", str(tmp_path / "registry"), "--model", "m",
        "--keyring", str(keys), "--from", str(output), "--fields", result["fields"], "--json",
    )  # fmt: skip
    assert published.returncode == 0, published.stderr
    again = optimise(request, lambda message: None)
    assert again["key"] == result["key"]
