"""Structured pruning: refused where nothing can be cut, else networks that are really smaller."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.bounds import IMAGE_NETWORKS
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.export import export_module
from falaj.workloads.optimization.pipeline import Request, optimise
from falaj.workloads.training import command, launcher, models, pruning
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.layout import check_layout
from falaj.workloads.training.models import Architecture
from falaj.workloads.training.options import Requested, check
from falaj.workloads.training.pruning import kept_of, settles, share_at
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.stopping import StopRequest
from tests.workloads.training.conftest import StopAfter, Train

ARCHITECTURES = [
    Architecture("table", (7,), 2, 24),
    Architecture("images", (1, 8, 8), 10, 16),
    *(Architecture("images", (3, 8, 8), 4, 8, network=name) for name in IMAGE_NETWORKS),
]
EACH = pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.network or a.family)


# What is refused.


@pytest.mark.parametrize("share", [-0.1, 0.91, 1, float("nan")])
def test_shares_out_of_range_are_refused(share: float) -> None:
    with pytest.raises(WorkloadError, match=r"--prune is .*: allowed is 0 to 0\.9"):
        check(Requested(prune=share))


def test_texts_and_models_of_ones_own_are_refused(tmp_path: Path, mixed_dataset: Dataset) -> None:
    (tmp_path / "words.txt").write_text("the water runs down to the fields. " * 200)
    text = datasets.build(datasets.Source(str(tmp_path / "words.txt")))
    with pytest.raises(WorkloadError, match=r"--prune 0\.5 is of networks of images and tables"):
        launcher.resolve(Requested(prune=0.5, device="cpu"), text)
    own = Requested(prune=0.5, device="cpu", model="mine.network:Network", code=tmp_path)
    with pytest.raises(WorkloadError, match=r"--prune 0\.5 is of Falaj's own networks, and what"):
        launcher.resolve(own, mixed_dataset)


def test_a_divided_network_is_refused(mixed_dataset: Dataset) -> None:
    parameters = launcher.resolve(
        Requested(prune=0.5, device="cpu", shard=2, processes=2), mixed_dataset
    )
    with pytest.raises(WorkloadError, match=r"--prune 0\.5 is for networks that each process has"):
        check_layout(parameters, "table")


# What is cut out.


@given(units=st.integers(1, 5_000), share=st.floats(0, 0.9))
def test_never_more_than_the_share_is_taken_out(units: int, share: float) -> None:
    kept = kept_of(units, share)
    assert 1 <= kept <= units
    assert units - kept <= share * units
    if units % 8 == 0 and units > 8:
        assert kept % 8 == 0


@given(epochs=st.integers(1, 300), share=st.floats(0, 0.9))
def test_the_share_grows_until_it_settles(epochs: int, share: float) -> None:
    shares = [share_at(epoch, epochs, share) for epoch in range(epochs + 1)]
    assert shares == sorted(shares)
    assert shares[settles(epochs) :] == [share] * (epochs + 1 - settles(epochs))
    assert settles(epochs) < epochs


@EACH
def test_a_network_answers_the_same_with_the_units_cut_out_as_held_at_0(
    architecture: Architecture,
) -> None:
    torch.manual_seed(1)
    module = models.build(architecture).eval()
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.add_(torch.rand_like(tensor) / 10)
    before = models.parameter_count(module)
    keeper = pruning.Pruning(0.5, 10)
    keeper.begin_epoch(9, module, models.build(architecture))
    kept = pruning.kept_units(module, 0.5)
    rows = torch.rand(5, *architecture.shape)
    with torch.no_grad():
        held = module(rows)
        pruning.cut(module, kept)
        torch.testing.assert_close(module(rows), held, atol=1e-5, rtol=1e-4)
    assert models.parameter_count(module) < 0.75 * before
    # Another one is made as small, and takes the weights.
    widths = pruning.widths_of(module)
    told = Architecture.from_json(
        json.loads(json.dumps({**architecture.to_json(), "widths": widths}))
    )
    again = models.build(told).eval()
    again.load_state_dict(module.state_dict())
    with torch.no_grad():
        assert torch.equal(again(rows), module(rows))


def test_units_that_matter_least_go_first() -> None:
    module = models.build(Architecture("table", (3,), 2, 4))
    with torch.no_grad():
        first, second = module.get_submodule("deep.0"), module.get_submodule("deep.2")
        first.get_parameter("weight").fill_(1)
        second.get_parameter("weight").fill_(1)
        first.get_parameter("weight")[2] = 0.1
        second.get_parameter("weight")[:, 2] = 20  # matters twice as much as others
        first.get_parameter("weight")[0] = 0.9
    assert pruning.kept_units(module, 0.5)[0].tolist() == [1, 2]


# What is trained.


def test_a_run_that_was_stopped_ends_in_the_same_small_network(
    mixed_dataset: Dataset, tmp_path: Path, train: Train
) -> None:
    pruned: dict[str, Any] = {"prune": 0.6, "width": 20, "epochs": 5, "threads": 1}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(mixed_dataset, whole, **pruned) == 0
    for looks in (7, 5):
        assert train(mixed_dataset, parts, StopAfter(looks), **pruned) == 75
    assert train(mixed_dataset, parts, **pruned) == 0
    assert (whole / "model").read_bytes() == (parts / "model").read_bytes()
    record = json.loads((whole / "record.json").read_text())
    assert record["model"]["architecture"]["widths"] == [8, 8]
    assert record["model"]["choice"]["kept"] == "network"
    assert record["metrics"]["validation"]["epoch"] > settles(5)
    assert (
        models.parameter_count(load_trained(whole, None).module) == record["model"]["parameters"]
    )


def test_the_served_graph_is_smaller(mixed_dataset: Dataset, tmp_path: Path, train: Train) -> None:
    path = datasets.write(mixed_dataset, tmp_path / "datasets", None)
    sizes: dict[float, int] = {}
    for share in (0.0, 0.75):
        run = tmp_path / f"run{share}"
        assert train(mixed_dataset, run, prune=share, model="network", epochs=3, threads=1) == 0
        request = Request(run, path, tmp_path / f"served{share}", quantise="never", accept="any")
        sizes[share] = optimise(request, lambda _: None)["float"]["size_bytes"]
    assert sizes[0.75] < 0.5 * sizes[0.0]


def test_a_graph_of_convolutions_has_the_cut_channels() -> None:
    module = models.build(Architecture("images", (1, 8, 8), 10, 16)).eval()
    pruning.cut(module, pruning.kept_units(module, 0.5))
    core = export_module(module, (1, 8, 8))
    shapes = [list(each.dims) for each in core.graph.initializer if len(each.dims) == 4]
    assert shapes == [[8, 1, 3, 3], [16, 8, 3, 3], [16, 16, 3, 3]]


@pytest.mark.thorough
def test_two_processes_take_out_the_same(
    mixed_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StopRequest, "install", lambda _: None)
    path = datasets.write(mixed_dataset, tmp_path / "datasets", None)
    found: dict[str, dict[str, Any]] = {}
    for processes in ("1", "2"):
        output = tmp_path / f"run{processes}"
        arguments = ["--epochs", "4", "--prune", "0.5", "--processes", processes]
        common = ["run", "--dataset", str(path), "--output", str(output)]
        assert command.main([*common, *arguments]) == 0
        found[processes] = json.loads((output / "record.json").read_text())
    one, two = found["1"], found["2"]
    assert two["model"]["architecture"] == one["model"]["architecture"]
    assert two["metrics"]["validation"]["loss"] == pytest.approx(
        one["metrics"]["validation"]["loss"], rel=1e-3
    )
