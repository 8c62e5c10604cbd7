"""Which model of a table is kept, by cross-validation, and probabilities that fit the rows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn
from torch.nn import functional

from falaj.workloads.errors import STOPPED, WorkloadError
from falaj.workloads.optimization.comparison import open_session
from falaj.workloads.optimization.export import check_model, export_module
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training import folds, launcher, linear, race
from falaj.workloads.training.batches import PreparedData, prepare
from falaj.workloads.training.checkpoint import load_trained, weights_digest
from falaj.workloads.training.choice import Choice, calibration, choose, pick
from falaj.workloads.training.models import (
    Architecture,
    Tempered,
    build,
    untempered,
)
from falaj.workloads.training.options import Parameters, Requested
from falaj.workloads.training.own_code import OwnModel
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.start import open_start
from falaj.workloads.training.tensors import tensor_of
from tests.workloads.training.conftest import StopAfter, Train, WriteCsv


def parameters_of(dataset: Dataset, **given: Any) -> Parameters:
    values: dict[str, Any] = {"device": "cpu", "epochs": 2, "threads": 1, **given}
    return launcher.resolve(Requested(**values), dataset)


def chosen(dataset: Dataset, **given: Any) -> tuple[Choice, PreparedData]:
    """What is kept beside a network that has learned nothing."""
    parameters = parameters_of(dataset, **given)
    prepared = prepare(dataset, parameters)
    torch.manual_seed(0)
    return choose(dataset, prepared, build(prepared.architecture), parameters), prepared


@pytest.fixture
def sums(write_csv: WriteCsv) -> Dataset:
    """Two classes that a sum of two columns tells, but for noise; the third column is idle."""
    random = np.random.default_rng(4)
    values = random.normal(size=(240, 3)).round(4)
    yes = values[:, 0] - 2 * values[:, 1] + random.normal(size=240) > 0
    rows = [
        [*row, "yes" if told else "no"] for row, told in zip(values.tolist(), yes, strict=True)
    ]
    return datasets.build(datasets.Source(str(write_csv(["a", "b", "c", "y"], rows)), "y", seed=1))


# Folds.


def test_the_held_out_rows_are_never_looked_at(sums: Dataset) -> None:
    """Whatever stands in them, the same is kept for the same reason, with the same numbers."""
    out = sums.rows("held_out")
    labels, inputs = sums.labels.copy(), {k: v.copy() for k, v in sums.inputs.items()}
    labels[out] = 1 - labels[out]
    for values in inputs.values():
        values[out] = np.nan
    found, _ = chosen(sums)
    other, _ = chosen(replace(sums, labels=labels, inputs=inputs))
    assert other.figures == found.figures
    assert weights_digest(other.module) == weights_digest(found.module)


def test_no_fold_is_learned_from_where_it_is_judged(sums: Dataset) -> None:
    train = int(sums.description["rows"]["train"])
    marked = replace(sums, inputs={"number": np.arange(len(sums.labels), dtype=np.float64)})
    seen: list[int] = []
    for judged, part in folds.split(marked, 5, seed=0):
        numbers = part.inputs["number"].astype(int)
        learned = set(numbers[part.rows("train")].tolist())
        held_out = numbers[part.rows("held_out")].tolist()
        assert held_out == judged.tolist()
        assert learned.isdisjoint(held_out)
        assert learned | set(held_out) == set(range(train))
        assert part.labels[part.rows("held_out")].tolist() == sums.labels[judged].tolist()
        seen += held_out
    assert sorted(seen) == list(range(train))


def test_another_seed_has_other_folds(sums: Dataset) -> None:
    one, same, other = (
        [judged.tolist() for judged, _ in folds.split(sums, 5, seed=seed)] for seed in (0, 0, 1)
    )
    assert one == same != other


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=200), st.sampled_from([3, 5]),
    st.integers(0, 9),
)  # fmt: skip
def test_strata_are_spread_evenly(strata: list[int], count: int, seed: int) -> None:
    given_strata = np.array(strata, dtype=np.int64)
    of = folds.assign(given_strata, count, np.random.default_rng(seed))
    for stratum in np.unique(given_strata):
        rows = of[given_strata == stratum]
        if len(rows) == 1:
            assert rows.tolist() == [-1]
            continue
        sizes = np.bincount(rows, minlength=count)
        assert sizes.max() - sizes.min() <= 1
        assert sizes.max() < len(rows)  # some are left to learn from
    sizes = np.bincount(of[of >= 0], minlength=count)
    assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize(("rows", "count"), [
    (20, 5), (1_000, 5), (1_001, 3), (4_000, 3), (4_001, 0), (1_000_000, 0),
])  # fmt: skip
def test_many_rows_have_fewer_folds(rows: int, count: int) -> None:
    assert folds.count(rows) == count


# The choice.


def losses(**given: list[float]) -> dict[str, torch.Tensor]:
    return {name: torch.tensor(values, dtype=torch.float64) for name, values in given.items()}


def noise(rows: int, level: float, seed: int = 0) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(level, 0.3, rows)


def test_within_one_standard_error_the_cheaper_is_kept() -> None:
    base = noise(100, 1.0)
    given_losses = losses(
        linear=(base + 0.02 + noise(100, 0, 1) - noise(100, 0, 1).mean()).tolist(),
        network=base.tolist(),
        trees=(base + 1).tolist(),
    )  # fmt: skip
    found = pick(given_losses, torch.arange(100) % 5)
    assert (found["kept"], found["best"]) == ("linear", "network")
    assert 0 < found["difference"] <= found["standard_error"]
    assert "the linear model: cheaper" in found["reason"]
    assert "within one standard error" in found["reason"]


def test_a_clear_difference_isnt_given_away() -> None:
    base = noise(100, 1.0)
    worse = (base + noise(100, 0.1, 1)).tolist()
    found = pick(losses(linear=worse, trees=base.tolist()), torch.arange(100) % 5)
    assert (found["kept"], found["best"]) == ("trees", "trees")
    assert "trees: the lowest loss" in found["reason"]
    assert found["difference"] < -found["standard_error"] < 0


def test_the_difference_counts_by_row() -> None:
    """Rows differ much more than models do: of the same rows a small difference is clear."""
    base = noise(200, 1.0) * 10
    found = pick(
        losses(linear=(base + 0.05).tolist(), network=base.tolist()), torch.arange(200) % 5
    )
    assert found["kept"] == "network"


def test_what_gives_no_numbers_is_left_out() -> None:
    found = pick(losses(linear=[float("nan")] * 4, trees=[1.0] * 4), torch.arange(4))
    assert (found["kept"], list(found["losses"])) == ("trees", ["trees"])
    assert found["reason"] == "nothing else could be compared"


def test_one_split_has_no_spread() -> None:
    found = pick(losses(linear=[1.0, 2.0], trees=[0.5, 1.5]), torch.zeros(2))
    assert (found["folds"], found["losses"]["trees"]["spread"]) == (1, None)


def test_a_single_row_decides_nothing() -> None:
    assert pick(losses(linear=[2.0], trees=[1.0]), torch.zeros(1))["kept"] == "linear"


# The race.


def test_nobody_leaves_by_few_rows() -> None:
    few = losses(linear=[0.0, 0.1] * 24, trees=[5.0, 5.2] * 24)
    assert race.dropped(few, 1_000) == {}
    enough = {name: each.repeat(2) for name, each in few.items()}
    assert list(race.dropped(enough, 1_000)) == ["trees"]


def test_after_the_last_row_nobody_leaves() -> None:
    assert race.dropped(losses(linear=[0.0, 0.1] * 50, trees=[5.0, 5.2] * 50), 100) == {}


def test_without_differences_or_numbers_nobody_leaves() -> None:
    same = noise(100, 1.0).tolist()
    assert race.dropped(losses(linear=same, network=same), 500) == {}
    assert race.dropped(losses(linear=same, network=[float("nan")] * 100), 500) == {}


def test_a_cheaper_one_that_is_worse_leaves_as_well() -> None:
    base = noise(200, 1.0)
    found = race.dropped(
        losses(linear=(base + noise(200, 0.3, 1)).tolist(), network=base.tolist()), 400
    )
    assert list(found) == ["linear"]
    assert found["linear"] < race.LEAST_CHANCE


@given(
    st.floats(-0.4, 0.4), st.integers(50, 300), st.integers(1, 300), st.floats(0.01, 100),
    st.integers(0, 9),
)  # fmt: skip
def test_a_race_doesnt_count_units_and_never_loses_all(
    apart: float, done: int, more: int, times: float, seed: int
) -> None:
    base, other = noise(done, 1.0, seed), noise(done, 1.0 + apart, seed + 1)
    one = race.dropped(losses(linear=base.tolist(), trees=other.tolist()), done + more)
    scaled = losses(linear=(times * base).tolist(), trees=(times * other).tolist())
    assert race.dropped(scaled, done + more) == pytest.approx(one)
    assert len(one) <= 1
    assert all(0 <= chance < race.LEAST_CHANCE for chance in one.values())


def test_the_chance_is_as_often_right() -> None:
    """Of differences whose mean is known beforehand to be anything, as the formula takes it."""
    random = np.random.default_rng(0)
    done, total, kept, gone = 100, 200, 0, 0
    for _ in range(4_000):
        differences = random.normal(random.uniform(-1, 1), 1, total)
        first = {"linear": torch.zeros(done), "trees": tensor_of(differences[:done])}
        if "trees" in race.dropped(first, total):
            gone += 1
            error = differences.std(ddof=1) / np.sqrt(total)
            kept += differences.mean() < -error
    assert gone > 1_000
    assert kept / gone < race.LEAST_CHANCE


def test_one_that_left_isnt_kept_and_is_compared_on_the_rows_of_both() -> None:
    base = noise(100, 1.0)
    found = pick(
        losses(
            linear=(base + 0.5).tolist(), network=base.tolist(), trees=(base[:40] + 0.1).tolist()
        ),
        torch.arange(100) // 20,
    )
    assert found["kept"] == "network"
    of_folds = [float((base[start : start + 20] + 0.1).mean()) for start in (0, 20)]
    assert found["losses"]["trees"]["folds"] == pytest.approx(of_folds)
    low = pick(losses(linear=[1.0, 1.2, 1.1], trees=[0.5]), torch.arange(3))
    assert low["kept"] == "linear"


def test_a_sum_is_kept_as_one_and_the_record_says_why(sums: Dataset) -> None:
    found, prepared = chosen(sums, epochs=5)
    judged = found.figures["judged"]
    assert found.figures["kept"] == judged["kept"] == "linear"
    assert (judged["folds"], judged["rows"]) == (5, sums.description["rows"]["train"])
    assert judged["figure"] == "log loss"
    assert set(judged["losses"]) == {"linear", "network", "trees"}
    for name, each in judged["losses"].items():
        assert (len(each["folds"]) == 5) == ("chance" not in each)
        assert each.get("chance", 0) < race.LEAST_CHANCE
        assert each["mean"] == pytest.approx(np.mean(each["folds"]), abs=0.01)
        if len(each["folds"]) > 1:
            assert each["spread"] == pytest.approx(np.std(each["folds"], ddof=1)), name
    assert len(judged["losses"]["linear"]["folds"]) == 5  # to be calibrated on
    assert "chance" in judged["losses"]["network"]
    assert isinstance(found.module, linear.TableLinear)
    assert found.prepared.architecture.network == linear.NAME
    again = build(Architecture.from_json(found.prepared.architecture.to_json()))
    again.load_state_dict(found.module.state_dict())
    features = prepared.validation[0]
    assert torch.equal(again(features), found.module(features))


def test_a_number_is_judged_in_one_scale(write_csv: WriteCsv) -> None:
    random = np.random.default_rng(2)
    values = random.normal(size=(120, 2)).round(4)
    target = 1_000 + 50 * values[:, 0] + random.normal(size=120)
    rows = [[*row, round(y, 3)] for row, y in zip(values.tolist(), target.tolist(), strict=True)]
    path = write_csv(["a", "b", "y"], rows)
    found, _ = chosen(datasets.build(datasets.Source(str(path), "y", "regression")))
    judged = found.figures["judged"]
    assert judged["kept"] == "linear"
    assert judged["losses"]["linear"]["mean"] < 0.01  # of the target's variance
    # Once it is alone, nothing is to be known of the other folds.
    assert judged["folds"] < 5
    assert all("chance" in judged["losses"][name] for name in ("network", "trees"))
    assert "calibration" not in found.figures


def test_a_named_network_is_compared_with_nothing(sums: Dataset) -> None:
    found, _ = chosen(sums, model="network")
    assert found.figures["kept"] == "network"
    assert "judged" not in found.figures
    assert found.figures["calibration"]["rows"] > 0


def test_many_rows_are_judged_by_the_validation_rows(
    sums: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folds, "FOLDS", ((10, 5),))
    found, prepared = chosen(sums)
    judged = found.figures["judged"]
    assert (judged["folds"], judged["rows"]) == (1, len(prepared.validation[1]))
    assert set(judged["losses"]) == {"linear", "network", "trees"}


def test_a_class_with_one_row_is_in_no_fold(write_csv: WriteCsv) -> None:
    random = np.random.default_rng(3)
    rows = [[round(float(x), 3), "yes" if x > 0 else "no"] for x in random.normal(size=60)]
    path = write_csv(["a", "y"], [*rows, [9.0, "once"]])
    found, _ = chosen(datasets.build(datasets.Source(str(path), "y")))
    assert np.isfinite(found.figures["judged"]["losses"]["linear"]["mean"])


def test_a_run_stops_while_models_are_compared_and_goes_on(
    sums: Dataset, tmp_path: Path, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    given_parameters: dict[str, Any] = {"epochs": 2, "threads": 1}
    assert train(sums, tmp_path / "whole", **given_parameters) == 0
    run = tmp_path / "run"
    # Each epoch has 6 batches: it is asked before each, and then in the folds.
    assert train(sums, run, StopAfter(20), **given_parameters) == STOPPED
    assert "while models were compared" in capsys.readouterr().out
    assert not (run / "record.json").exists()
    assert train(sums, run, **given_parameters) == 0
    whole, gone_on = (load_trained(tmp_path / name, None) for name in ("whole", "run"))
    assert weights_digest(gone_on.module) == weights_digest(whole.module)
    assert gone_on.record["model"] == whole.record["model"]


def test_nothing_begins_with_a_linear_model(sums: Dataset, tmp_path: Path, train: Train) -> None:
    assert train(sums, tmp_path / "run", epochs=1, threads=1) == 0
    with pytest.raises(WorkloadError, match=r"kept a linear model.*--model network"):
        open_start(tmp_path / "run", None, sums)


# The linear model.


def test_a_class_without_rows_is_the_least_likely() -> None:
    features = torch.randn(50, 3, generator=torch.Generator().manual_seed(1))
    labels = torch.where(features[:, 0] > 0, 2, 0)
    weights: NDArray[np.float32] = np.ones(50, dtype=np.float32)
    module = linear.fit_linear((features, labels), weights, classes=4)
    assert module(features).argmax(1).eq(labels).float().mean() > 0.95
    assert module.bias[[1, 3]].max() <= module.bias.min()
    alone = linear.fit_linear((features, torch.full((50,), 2)), weights, classes=4)
    assert alone(features).isfinite().all()


@pytest.mark.parametrize("classes", [2, 3, None])
def test_the_graph_of_a_linear_model_computes_the_same(classes: int | None) -> None:
    random = torch.Generator().manual_seed(2)
    features = torch.randn(80, 4, generator=random)
    labels = torch.arange(80) % classes if classes else features[:, 1] * 2
    module = linear.fit_linear((features, labels), np.ones(80, dtype=np.float32), classes=classes)
    module.rescale(0.5, torch.full((classes or 1,), 0.25))
    core = export_module(module, (4,))
    check_model(core.SerializeToString())
    (answers,) = open_session(core.SerializeToString()).run(None, {"input": features.numpy()})
    np.testing.assert_allclose(np.asarray(answers), module(features).detach().numpy(), atol=1e-5)


# Calibration.


@given(st.integers(0, 1_000), st.floats(0.1, 10))
def test_without_a_shift_labels_stay_and_losses_fall(seed: int, times: float) -> None:
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(60, 4, generator=random) * times
    labels = torch.multinomial(torch.softmax(logits / times, 1), 1, generator=random).squeeze(1)
    factor, shift = calibration(logits, labels, shifted=False)
    assert factor > 0
    assert not shift.any()
    assert torch.equal((factor * logits).argmax(1), logits.argmax(1))
    before, after = (functional.cross_entropy(each, labels) for each in (logits, factor * logits))
    assert after <= before + 1e-6


def test_rows_that_are_all_right_dont_make_it_certain() -> None:
    labels = torch.arange(40) % 4
    factor, _ = calibration(4.0 * functional.one_hot(labels).float(), labels, shifted=False)
    assert 1 < factor < 4


@pytest.mark.parametrize("model", ["network", "mobilenet"])
def test_images_are_calibrated_in_the_last_layer(model: str) -> None:
    dataset = datasets.build(datasets.Source("digits"))
    parameters = parameters_of(dataset, model=model, width=8)
    prepared = prepare(dataset, parameters)
    torch.manual_seed(0)
    module = build(prepared.architecture).eval()
    with torch.no_grad():
        before = module(prepared.validation[0])
    found = choose(dataset, prepared, module, parameters)
    factor = found.figures["factor"]
    assert found.figures["kept"] == model
    with torch.no_grad():
        after = found.module(prepared.validation[0])
    torch.testing.assert_close(after, factor * before, atol=1e-4, rtol=1e-4)
    assert torch.equal(after.argmax(1), before.argmax(1))
    calibrated = found.figures["calibration"]
    assert calibrated["rows"] == len(before)
    assert calibrated["after"] <= calibrated["before"]


def test_a_text_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("a language model says its nats as they are. " * 60, encoding="utf-8")
    dataset = datasets.build(datasets.Source(str(path), context=16))
    parameters = parameters_of(dataset, width=16, layers=1, heads=2, key_value_heads=2)
    prepared = prepare(dataset, parameters)
    module = build(prepared.architecture)
    digest = weights_digest(module)
    found = choose(dataset, prepared, module, parameters)
    assert found.figures == {"kept": "network"}
    assert weights_digest(found.module) == digest


def test_what_is_around_a_teams_model_is_taken_off_again() -> None:
    inner = nn.Linear(3, 2)
    around = Tempered(inner, 2.5)
    inputs = torch.randn(4, 3)
    torch.testing.assert_close(around(inputs), 2.5 * inner(inputs))
    own = OwnModel("mine:Model", {}, "0" * 64)
    architecture = Architecture("table", (3,), 2, 0, own=own, factor=2.5)
    assert Architecture.from_json(architecture.to_json()) == architecture
    bare, state = untempered(architecture, around.state_dict())
    assert bare.factor == 1
    assert "factor" not in bare.to_json()
    inner.load_state_dict(state)
    assert untempered(bare, state) == (bare, state)
