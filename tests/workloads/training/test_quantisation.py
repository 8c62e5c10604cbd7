"""Quantisation-aware training: refused where nothing rounds, else 8 bits are nearer to float."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.comparison import open_session
from falaj.workloads.optimization.export import INPUT, export_module, quantise
from falaj.workloads.optimization.pipeline import Request, optimise
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training import launcher, models, quantisation
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.layout import check_layout
from falaj.workloads.training.models import Architecture
from falaj.workloads.training.options import Requested
from falaj.workloads.training.snapshot import Dataset
from tests.workloads.training.conftest import StopAfter, Train, WriteCsv

AWARE: dict[str, Any] = {"quantisation_aware": True, "threads": 1}
ARCHITECTURES = [
    Architecture("table", (7,), 3, 24),
    Architecture("images", (1, 8, 8), 10, 8, largest=16.0),
    Architecture("images", (1, 8, 8), 10, 8, largest=16.0, network="mobilenet"),
]
EACH = pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.network or a.family)


# What is refused.


def test_texts_models_of_ones_own_and_divided_ones_are_refused(
    tmp_path: Path, mixed_dataset: Dataset
) -> None:
    (tmp_path / "words.txt").write_text("the water runs down to the fields. " * 200)
    text = datasets.build(datasets.Source(str(tmp_path / "words.txt")))
    asked = Requested(device="cpu", **AWARE)
    with pytest.raises(WorkloadError, match=r"--quantisation-aware is of networks of images and"):
        launcher.resolve(asked, text)
    own = Requested(device="cpu", model="mine.network:Network", code=tmp_path, **AWARE)
    with pytest.raises(WorkloadError, match=r"--quantisation-aware is of Falaj's own networks"):
        launcher.resolve(own, mixed_dataset)
    shards = launcher.resolve(
        Requested(device="cpu", shard=2, processes=2, **AWARE), mixed_dataset
    )
    with pytest.raises(WorkloadError, match=r"--quantisation-aware is for networks that each"):
        check_layout(shards, "table")


# What rounds.


@given(
    low=st.floats(-50, 0), high=st.floats(0.01, 50),
    values=st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20),
)  # fmt: skip
def test_values_are_off_by_half_a_step_within_the_range_and_0_not_at_all(
    low: float, high: float, values: list[float]
) -> None:
    given_, ends = torch.tensor([*values, 0.0]), torch.tensor([low, high])
    step = (high - low) / 255
    found = quantisation.rounded(given_, ends)
    assert found[-1] == 0
    inside = given_.clamp(low, high)
    assert float((found - inside).abs().max()) <= 1.01 * step


@given(
    rows=st.integers(1, 5), columns=st.integers(1, 6), seed=st.integers(0, 99),
    factor=st.floats(0.1, 10),
)  # fmt: skip
def test_an_outputs_weights_are_rounded_by_themselves(
    rows: int, columns: int, seed: int, factor: float
) -> None:
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    found = quantisation.rounded_weights(weight)
    steps = weight.abs().amax(1, keepdim=True) / 127
    assert bool(((found - weight).abs() <= 0.51 * steps + 1e-9).all())
    other = weight.clone()
    other[0] *= factor
    assert torch.equal(quantisation.rounded_weights(other)[1:], found[1:])


def test_gradients_go_through_roundings_as_if_there_were_none() -> None:
    values = torch.tensor([0.3, -0.2, 5.0], requires_grad=True)
    quantisation.rounded(values, torch.tensor([-1.0, 1.0])).sum().backward()
    assert values.grad is not None
    assert values.grad.tolist() == [1, 1, 0]  # beyond the range nothing can be learned


@EACH
def test_the_graph_of_8_bits_answers_as_the_network_did_that_learned(
    architecture: Architecture,
) -> None:
    torch.manual_seed(3)
    module = models.build(architecture)
    names = list(module.state_dict())
    quantisation.prepare(module)
    rows = torch.rand(64, *architecture.shape) * architecture.largest
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, torch.nn.BatchNorm2d):
                layer.momentum = 1.0
        module.train()(rows)
        module.eval()
        plain = module(rows)
        quantisation.switch(module, True)
        for layer in module.modules():  # follow ranges, but leave normalisations alone
            layer.training = not isinstance(layer, torch.nn.BatchNorm2d)
        module(rows)
        learned = module.eval()(rows)
    ranges = quantisation.take_ranges(module)
    assert list(module.state_dict()) == names
    with torch.no_grad():
        assert torch.equal(module(rows), plain)
    core = export_module(module, architecture.shape)
    small = quantise(core, rows.numpy(), False, ranges)
    (given_,) = open_session(small.SerializeToString()).run(None, {INPUT: rows.numpy()})
    lost = float((learned - plain).abs().mean())
    assert lost > 0
    if not architecture.network:  # there, what is added past a block isn't rounded in training
        assert np.abs(given_ - learned.numpy()).mean() <= 0.5 * lost


# What is trained.


def test_a_run_that_was_stopped_ends_in_the_same_network(
    mixed_dataset: Dataset, tmp_path: Path, train: Train
) -> None:
    short: dict[str, Any] = {"width": 16, "epochs": 6, "prune": 0.5, **AWARE}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(mixed_dataset, whole, **short) == 0
    for looks in (8, 7):
        assert train(mixed_dataset, parts, StopAfter(looks), **short) == 75
    assert train(mixed_dataset, parts, **short) == 0
    assert (whole / "model").read_bytes() == (parts / "model").read_bytes()
    trained = load_trained(whole, None)
    assert trained.ranges is not None
    assert set(trained.ranges["deep.2"]) == {"taken", "given"}
    # Afterwards the last layers are multiplied, to fit probabilities to the rows.
    assert set(trained.ranges["deep.4"]) == {"taken"}


def test_what_learns_nothing_more_begins_to_round_at_once(
    mixed_dataset: Dataset, tmp_path: Path, train: Train
) -> None:
    few: dict[str, Any] = {"width": 8, "epochs": 40, "patience": 1, "learning_rate": 0.05}
    assert train(mixed_dataset, tmp_path / "run", **few, **AWARE) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    numbers = [json.loads(line)["epoch"] for line in lines]
    assert record["epochs"] == len(numbers) < 28
    assert quantisation.begins(40) + 1 in numbers
    assert record["metrics"]["validation"]["epoch"] > quantisation.begins(40)


def test_8_bits_lose_less_where_features_have_long_tails(
    write_csv: WriteCsv, tmp_path: Path, train: Train
) -> None:
    random = np.random.default_rng(0)
    income, spent = random.lognormal(9, 1.2, 1500), 100 * random.pareto(2.5, 1500)
    rent = 3 * np.log(income) + 2 * np.log1p(spent) + random.normal(0, 0.5, 1500)
    rows = [[float(each) for each in row] for row in zip(income, spent, rent, strict=True)]
    source = datasets.Source(str(write_csv(["income", "spent", "rent"], rows)), "rent", seed=0)
    dataset = datasets.build(source)
    path = datasets.write(dataset, tmp_path / "datasets", None)
    lost: dict[bool, float] = {}
    for aware in (False, True):
        run = tmp_path / f"run{aware}"
        common: dict[str, Any] = {"model": "network", "epochs": 40, "threads": 1}
        assert train(dataset, run, quantisation_aware=aware, **common) == 0
        found = optimise(Request(run, path, run / "served", accept="any"), lambda _: None)
        lost[aware] = found["int8"]["rmse"] / found["float"]["rmse"] - 1
    assert lost[True] < 0.5 * lost[False]
