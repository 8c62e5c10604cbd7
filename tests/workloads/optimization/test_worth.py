"""A model that isn't worth serving isn't served unasked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.worth import (
    LEAST_ROWS,
    NotComparableError,
    Served,
    check,
    clearly,
    judge,
    margin,
    open_served,
)
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from falaj.workloads.training.dataset import Source, build, write
from falaj.workloads.training.snapshot import Dataset, Rows, load_rows
from tests.workloads.optimization.conftest import Optimise, Run, trained
from tests.workloads.shops import write_noise

CLASSES = ["a", "b", "c"]


def described(**more: Any) -> dict[str, Any]:
    return {
        "classes": CLASSES, "task": "classification", "target": "class", "digest": "new",
        "statistics": {"target": {"counts": {"a": 34, "b": 33, "c": 33}}},
    } | more  # fmt: skip


def rows(count: int, seed: int = 1) -> Rows:
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, count)
    return Rows({"x": random.normal(size=(count, 1)).astype(np.float32)}, labels)


def knowing(labels: np.ndarray[Any, Any], share: float) -> np.ndarray[Any, Any]:
    """Probabilities of a model that knows this share of the rows and says the rest evenly."""
    answers = np.full((len(labels), 3), 1 / 3, dtype=np.float32)
    known = int(share * len(labels))
    answers[:known] = 0.05
    answers[np.arange(known), labels[:known]] = 0.9
    return answers


def test_what_knows_nothing_is_no_better_than_guessing() -> None:
    given = rows(90)
    worth = judge(knowing(given.labels, 0), given, described(), None)
    (refusal,) = worth.refusals
    assert "no better than guessing (always saying 'a') on 90 held-out rows" in refusal
    assert "accuracy" in refusal
    assert "log loss 1.0986" in refusal


def test_what_knows_half_of_the_rows_is_better() -> None:
    given = rows(90)
    assert judge(knowing(given.labels, 0.5), given, described(), None).refusals == []


def test_a_rare_class_is_known_by_its_probabilities_though_no_row_is_called_it() -> None:
    """Accuracy alone would refuse every model of 3 % positives that says 'no' of all."""
    labels = np.array([1] * 30 + [0] * 970)
    answers = np.where(np.arange(1000)[:, None] < 60, [0.6, 0.4], [0.99, 0.01])
    counts = {"statistics": {"target": {"counts": {"no": 3880, "yes": 120}}}}
    about = described(classes=["no", "yes"], **counts)
    worth = judge(answers, Rows({}, labels), about, None)
    assert worth.model["accuracy"] == worth.baseline["accuracy"]
    assert worth.refusals == []


def test_a_regression_is_compared_with_the_mean() -> None:
    random = np.random.default_rng(2)
    labels = random.normal(10, 3, 200).astype(np.float32)
    about = described(classes=None, task="regression", statistics={"target": {"mean": 10.0}})
    good = judge((labels + random.normal(0, 1, 200))[:, None], Rows({}, labels), about, None)
    assert good.refusals == []
    bad = judge(np.full((200, 1), 10.1), Rows({}, labels), about, None)
    assert "always saying the mean, 10," in bad.refusals[0]
    assert "rmse" in bad.refusals[0]


def test_a_broken_model_is_never_better() -> None:
    given = rows(90)
    assert judge(np.full((90, 3), np.nan), given, described(), None).refusals
    assert clearly(np.full(9, np.nan), np.ones(9)) == -1


def test_chance_seldom_passes() -> None:
    random = np.random.default_rng(3)
    passed = 0
    for seed in range(200):
        given = rows(60, seed)
        answers = random.dirichlet(np.full(3, 30.0), 60)
        passed += not judge(answers, given, described(), None).refusals
    assert passed < 30


def test_few_rows_have_to_differ_by_more() -> None:
    # Quantiles of Student's distribution, 5 % to one side, of n - 1 degrees of freedom.
    for count, quantile in ((2, 6.314), (3, 2.920), (4, 2.353), (20, 1.729), (1000, 1.646)):
        assert margin(count) == pytest.approx(quantile, abs=1e-3)
    assert margin(5000) == pytest.approx(1.645, abs=1e-3)
    assert clearly(np.array([0.0, 0, 0, 0]), np.array([1.0, 0, 1, 0])) == 0
    random = np.random.default_rng(4)
    noise = random.normal(size=(4000, 4))
    passed = sum(clearly(each, np.zeros(4)) > 0 for each in noise) / len(noise)
    assert passed == pytest.approx(0.05, abs=0.012)


def test_the_refusal_names_what_was_left_out_and_how_to_insist() -> None:
    left_out = [{"name": "text", "reason": "it looks like an identifier"}]
    with pytest.raises(WorkloadError) as refused:
        check(["it is no better"], "better", left_out)
    text = str(refused.value)
    assert "'text': it looks like an identifier" in text
    assert "--accept any, in a stack falaj:optimization.accept: any" in text
    check(["it is no better"], "any", left_out)
    check([], "better", left_out)


# -- against the version that serves -----------------------------------------------------------


class Package:
    """A package of a version that serves: what `Served` reads of one, without a registry."""

    version = 3

    def __init__(self, **more: Any) -> None:
        self.manifest = {
            "dataset": {"target": "class", "digest": "old"},
            "task": "classification",
            "classes": CLASSES,
            "inputs": [{"name": "x", "datatype": "FP32"}],
            "outputs": [{"name": "p", "role": "probabilities"}],
        } | more


def compared(package: Package, dataset: Dataset | None, given: Rows) -> str:
    served = Served(package, dataset)  # pyright: ignore[reportArgumentType]
    worth = judge(knowing(given.labels, 0.5), given, described(), served)
    assert worth.served is None
    return worth.notes[0]


def learned_from(given: Rows, count: int) -> Dataset:
    inputs = {"x": given.inputs["x"][:count, 0].astype(np.float64)}
    return Dataset({"rows": {"train": count}}, inputs, given.labels[:count])


def test_what_cannot_be_compared_says_why() -> None:
    given = rows(90)
    assert "predicts 'price'" in compared(Package(dataset={"target": "price"}), None, given)
    assert "other classes" in compared(Package(classes=["a", "b"]), None, given)
    other = Package(inputs=[{"name": "y", "datatype": "FP32"}])
    assert "column 'y'" in compared(other, None, given)
    assert "are gone" in compared(Package(), None, given)
    # As of a package that somebody published by hand.
    mute = Package(outputs=[{"name": "p"}])
    assert "which of its outputs" in compared(mute, None, given)
    del mute.manifest["task"], mute.manifest["classes"]
    assert "other classes" in compared(mute, None, given)


def test_rows_that_the_served_version_learned_from_do_not_count() -> None:
    given = rows(90)
    note = compared(Package(), learned_from(given, 80), given)
    assert f"10 held-out rows are new to it; at least {LEAST_ROWS}" in note
    served = Served(Package(), learned_from(given, 80))  # pyright: ignore[reportArgumentType]
    with pytest.raises(NotComparableError):
        served.losses(given, described())


@pytest.mark.thorough
def test_a_table_of_noise_is_not_published_unless_one_insists(
    tmp_path: Path, optimise: Optimise
) -> None:
    table = write_noise(tmp_path / "noise.csv")
    run = trained(tmp_path, "--source", str(table), "--target", "class", epochs=5)
    command = (run.path, run.dataset, tmp_path / "out", "--quantise", "never")
    refused = optimise(*command)
    assert refused.returncode == 2
    assert "error: the model isn't worth serving" in refused.stderr
    assert "'note': it looks like an identifier" in refused.stderr
    assert not (tmp_path / "out").exists()
    insisted = optimise(*command, "--accept", "any", "--json")
    assert insisted.returncode == 0, insisted.stderr
    assert "no better than guessing" in insisted.stderr
    worth = json.loads(insisted.stdout)["worth"]
    assert worth["refusals"]
    fields = json.loads((tmp_path / "out" / "fields.json").read_text())
    assert fields["metrics"]["worth"] == worth
    # What was made before is judged again.
    assert optimise(*command).returncode == 2


@pytest.mark.slow
def test_a_worse_model_than_the_one_that_serves_is_refused(
    digits: Run, optimised: Path, tmp_path: Path
) -> None:
    ring = KeyRing.create(tmp_path / "ring")
    fields = json.loads((optimised / "fields.json").read_text())
    files = {"model.onnx": (optimised / "model.onnx").read_bytes()}
    published = Store(tmp_path / "registry").publish("digits", files, fields, ring)
    given = load_rows(digits.dataset, None, "held_out")
    about = json.loads((digits.dataset / "dataset.json").read_text())
    served = open_served(published.path, None, ring)
    right = np.full((359, 10), 0.01)
    right[np.arange(359), given.labels] = 0.91
    half = np.where(np.arange(359)[:, None] < 100, right, 0.1)
    (refusal,) = judge(half, given, about, served).refusals
    assert "it is worse than version 1, which serves, on 359 held-out rows" in refusal
    better = judge(right, given, about, served)
    assert better.refusals == []
    assert better.served is not None
    assert better.served["model"]["accuracy"] > better.served["served"]["accuracy"]
    other = tmp_path / "other.csv"
    other.write_text("x,y\n" + "".join(f"{each % 7},{each % 2}\n" for each in range(40)))
    snapshot = write(build(Source(str(other), "y")), tmp_path / "datasets", ring)
    with pytest.raises(WorkloadError, match="version 1 was trained on"):
        open_served(published.path, snapshot, ring)
    with pytest.raises(WorkloadError, match="--keyring"):
        open_served(published.path, None, None)
