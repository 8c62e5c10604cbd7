"""One process's training: shares, schedule, resumption to the bit, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import batches, checkpoint, models
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.batches import Augmentation, Batches
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.loop import rate_share, row_losses
from falaj.workloads.training.snapshot import Dataset
from tests.workloads.training.conftest import StopAfter


def _weights(output: Path) -> bytes:
    state = load_trained(output, None).module.state_dict()
    return b"".join(tensor.numpy().tobytes() for tensor in state.values())


def _metrics(output: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    exact = ("epoch", "steps", "loss", "gradient_norm", "learning_rate", "validation_loss")
    return [{name: line[name] for name in exact} for line in lines]


def test_diverged_training_is_refused_with_advice(
    train: Any, mixed_dataset: Dataset, tmp_path: Path
) -> None:
    with pytest.raises(WorkloadError, match=r"no longer a number .*--learning-rate 10"):
        train(
            mixed_dataset, tmp_path / "run", learning_rate=10.0, gradient_clip=0.0, epochs=50,
            weight_decay=10.0, batch_size=1,
        )  # fmt: skip
    assert not (tmp_path / "run" / "record.json").exists()


@pytest.mark.parametrize("looks", [1, 6, 13])
def test_stopped_run_ends_with_the_same_bits(
    train: Any, mixed_dataset: Dataset, tmp_path: Path, looks: int
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(mixed_dataset, whole, epochs=6, batch_size=16) == 0
    assert train(mixed_dataset, parts, StopAfter(looks), epochs=6, batch_size=16) == 75
    assert not (parts / "record.json").exists()
    torch.manual_seed(99)  # what a new process would find differently
    assert train(mixed_dataset, parts, StopAfter(3), epochs=6, batch_size=16) == 75
    assert train(mixed_dataset, parts, epochs=6, batch_size=16) == 0
    assert _weights(parts) == _weights(whole)
    assert _metrics(parts) == _metrics(whole)


def test_damaged_checkpoint_costs_time_only(
    train: Any, mixed_dataset: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, damaged = tmp_path / "whole", tmp_path / "damaged"
    train(mixed_dataset, whole, epochs=3)
    assert train(mixed_dataset, damaged, StopAfter(8), epochs=3) == 75
    content = bytearray((damaged / "checkpoint").read_bytes())
    content[len(content) // 2] ^= 1
    (damaged / "checkpoint").write_bytes(content)
    assert train(mixed_dataset, damaged, epochs=3) == 0
    assert "is damaged: its digest does not match" in capsys.readouterr().out
    assert _weights(damaged) == _weights(whole)


def test_damaged_or_foreign_model_is_refused(
    train: Any, mixed_dataset: Dataset, tmp_path: Path
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    train(mixed_dataset, run, epochs=1)
    train(mixed_dataset, other, epochs=1, seed=1)
    kept = (run / "model").read_bytes()
    (run / "model").write_bytes(kept[:-1])
    with pytest.raises(WorkloadError, match="is damaged"):
        load_trained(run, None)
    (run / "model").write_bytes((other / "model").read_bytes())
    with pytest.raises(WorkloadError, match="belongs to another run"):
        load_trained(run, None)


def test_model_file_never_runs_code(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return (print, ("code from a model file was run",))

    path = tmp_path / "model"
    path.write_bytes(checkpoint.encode({"state": Trap()}))
    with pytest.raises(WorkloadError, match="can't be read"):
        checkpoint.load(path, None, b"")


def test_early_stopping_restores_the_best_epoch(
    train: Any, mixed_dataset: Dataset, tmp_path: Path
) -> None:
    train(mixed_dataset, tmp_path / "run", epochs=200, patience=3, learning_rate=0.02)
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    best = record["metrics"]["validation"]
    losses = [line["validation_loss"] for line in _metrics(tmp_path / "run")]
    assert record["epochs"] == len(losses) == best["epoch"] + 3 < 200
    assert best["loss"] == min(losses)
    assert "no lower validation loss" in record["ended"]


def test_record_holds_what_later_stages_need(
    train: Any, mixed_dataset: Dataset, tmp_path: Path
) -> None:
    train(mixed_dataset, tmp_path / "run", epochs=2)
    trained = load_trained(tmp_path / "run", None)
    record = trained.record
    held_out = record["metrics"]["held_out"]
    assert record["dataset"]["digest"] == mixed_dataset.digest
    assert set(held_out["per_class"]) == {"no", "yes"}
    assert record["utilisation"]["mean"]["memory_mib"] > 0
    assert record["utilisation"]["samples"] >= 1
    assert record["environment"]["deterministic_algorithms"] is True
    assert len(record["code"]["digest"]) == 64
    assert trained.preprocessing is not None
    rows = mixed_dataset.rows("held_out")
    features = trained.preprocessing.transform(
        {name: values[rows] for name, values in mixed_dataset.inputs.items()}
    )
    guess = trained.module(torch.from_numpy(features)).argmax(1).numpy()
    assert held_out["accuracy"] == pytest.approx((guess == mixed_dataset.labels[rows]).mean())


def test_regression_learns_in_real_units(train: Any, write_csv: Any, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    letters = random.choice(["a", "b"], 300)
    rows = [
        [x, letter, 1000 + 50 * x + 30 * (letter == "b") + random.normal(0, 2)]
        for x, letter in zip(random.normal(size=300), letters, strict=True)
    ]
    dataset = datasets.build(datasets.Source(str(write_csv(["x", "c", "y"], rows)), "y"))
    assert dataset.task == "regression"
    train(dataset, tmp_path / "run", epochs=60)
    trained = load_trained(tmp_path / "run", None)
    figures = trained.record["metrics"]["held_out"]
    assert figures["rmse"] < 0.25 * figures["baseline_rmse"]
    assert trained.target is not None
    assert trained.target["mean"] == pytest.approx(1015, abs=15)


def test_gradient_accumulation_changes_rounding_only(
    train: Any, mixed_dataset: Dataset, tmp_path: Path
) -> None:
    train(mixed_dataset, tmp_path / "one", epochs=3)
    train(mixed_dataset, tmp_path / "four", epochs=3, accumulation=4)
    for one, four in zip(_metrics(tmp_path / "one"), _metrics(tmp_path / "four"), strict=True):
        assert one == pytest.approx(four, rel=1e-4)


def test_rate_rises_then_falls_as_a_cosine() -> None:
    shares = [rate_share(step, 1000) for step in range(1000)]
    assert shares.index(max(shares)) in range(48, 52)
    assert max(shares) == pytest.approx(1, abs=0.02)
    assert shares[525] == pytest.approx(0.505, abs=0.01)
    assert shares[-1] == pytest.approx(0.01, abs=1e-3)
    assert rate_share(0, 1) > 0


@pytest.mark.parametrize("processes", [1, 2, 3, 5])
@pytest.mark.parametrize("accumulation", [1, 3])
def test_shares_of_all_processes_make_the_batch(processes: int, accumulation: int) -> None:
    """The sum over processes and parts is the weighted mean loss, whatever the cut."""
    random = np.random.default_rng(2)
    inputs = torch.from_numpy(random.normal(size=(23, 4)).astype(np.float32))
    labels = torch.from_numpy(random.integers(0, 3, 23))
    weights = random.uniform(0.5, 2, 23).astype(np.float32)
    teams = [
        Batches(
            inputs, labels, weights, batch_size=10, accumulation=accumulation,
            augmentation=Augmentation([]), seed=1, rank=rank, processes=processes,
        )
        for rank in range(processes)
    ]  # fmt: skip
    assert teams[0].steps == 3
    order = teams[0].order(epoch=4)
    assert sorted(order) == list(range(23))
    rows = order[20:]  # the last, small batch
    losses = row_losses(inputs[rows], labels[rows], "classification", 0.0)
    chosen = torch.from_numpy(weights[rows])
    expected = (losses * chosen).sum() / chosen.sum()
    total = sum(
        float((row_losses(s.inputs, s.labels, "classification", 0.0) * s.weights).sum())
        for team in teams
        for s in team.shares(order, 4, 2)
    )
    assert total == pytest.approx(float(expected), rel=1e-5)


def test_augmentation_shifts_images_by_at_most_a_pixel() -> None:
    image = torch.zeros(9, 2, 8, 8)
    image[:, 1, 4, 4] = 1
    draws = np.array([[row, column] for row in range(3) for column in range(3)])
    shifted = Augmentation(None).apply(image, draws)
    assert shifted.shape == image.shape
    places = {tuple(map(int, place)) for place in shifted[:, 1].nonzero()}
    assert {(5 - row, 5 - column) for row in range(3) for column in range(3)} == {
        place[1:] for place in places
    }
    assert not shifted[:, 0].any()


def test_forgotten_texts_become_unknown() -> None:
    features = torch.tensor([[0.5, 0.0, 1.0], [0.5, 0.0, 1.0]])
    changed = Augmentation([(1, 3)]).apply(features, np.array([[1], [0]]))
    assert changed.tolist() == [[0.5, 1.0, 0.0], [0.5, 0.0, 1.0]]
    assert features[0, 2] == 1.0


def test_class_weights_favour_rare_classes() -> None:
    labels = np.array([0] * 90 + [1] * 10)
    assert batches.is_imbalanced(labels, 2)
    assert not batches.is_imbalanced(np.array([0, 0, 1]), 2)
    for choice, ratio in (("balanced", 9.0), ("tempered", 3.0), ("none", 1.0)):
        weights = batches.class_weights(labels, 2, choice)
        assert weights[1] / weights[0] == pytest.approx(ratio)
        assert weights[labels].mean() == pytest.approx(1)


def test_images_too_small_for_the_network_are_refused() -> None:
    with pytest.raises(WorkloadError, match="images are 4x4: at least 6x6"):
        models.build(models.Architecture("images", (1, 4, 4), 10, 16))


def test_compact_network_has_the_stated_size() -> None:
    network = models.build(models.Architecture("images", (1, 8, 8), 10, 16, 16.0))
    assert models.parameter_count(network) == 15_338


def test_table_beyond_the_memory_is_refused(
    train: Any, mixed_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("psutil.virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(WorkloadError, match=r"96 training rows of \d+ features need about"):
        train(mixed_dataset, tmp_path / "run")
