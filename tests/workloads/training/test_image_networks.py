"""MobileNet and EfficientNet: refused without images, else trained like other models."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from falaj.workloads.bounds import CHOICES, IMAGE_NETWORKS
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization import card_text
from falaj.workloads.optimization.export import PARITY_TOLERANCE, export_module
from falaj.workloads.optimization.pipeline import Request, optimise
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from falaj.workloads.training import command, launcher, models
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.batches import prepare
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.image_networks import (
    NETWORKS,
    Drop,
    ImageNetwork,
    InvertedResidual,
    SqueezeExcitation,
    halvings,
    make_divisible,
)
from falaj.workloads.training.models import Architecture
from falaj.workloads.training.options import Parameters, Requested, check, family_defaults
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.stopping import StopRequest
from tests.workloads.training.conftest import StopAfter
from tests.workloads.training.pictures import write_shapes

BOTH = pytest.mark.parametrize("name", list(IMAGE_NETWORKS))
SMALL: dict[str, Any] = {"width": 8, "batch_size": 256, "epochs": 2, "threads": 1}
"""Of a training that takes seconds."""


@pytest.fixture(scope="module")
def digits() -> Dataset:
    return datasets.build(datasets.Source("digits", seed=0))


# What is refused.


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "mobile"}, "--model is 'mobile': allowed is one of auto, network, mobile"),
        (
            {"model": "MobileNet"},
            "--model is 'MobileNet': allowed is one of auto, network",
        ),
        ({"model": "mobilenet", "code": Path("models")}, "with --code it names a module and a"),
        (
            {"model": "efficientnet", "options": {"depth": 2}},
            "--option depth is of a model of",
        ),
        ({"model": "mobilenet", "width": 0}, "--width is 0: allowed is 1 to 16,384"),
    ],
)
def test_words_that_name_no_network_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        check(Requested(**given))
    assert words in str(caught.value)


@BOTH
def test_a_table_is_refused_before_training_begins(
    name: str, mixed_dataset: Dataset, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(StopRequest, "install", lambda _: None)
    path = datasets.write(mixed_dataset, tmp_path / "datasets", None)
    output = tmp_path / "run"
    with pytest.raises(WorkloadError, match=f"--model {name} learns from images, and this"):
        launcher.resolve(Requested(model=name), mixed_dataset)
    code = command.main(["run", "--dataset", str(path), "--output", str(output), "--model", name])
    assert code == 2
    assert "is a table: leave --model out, or use auto or network" in capfd.readouterr().err
    assert not output.exists()


@BOTH
def test_a_text_is_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "orders.txt"
    path.write_text("".join(f"order {n}: {n * 7 % 11} boxes of dates\n" for n in range(400)))
    dataset = datasets.build(datasets.Source(str(path)))
    with pytest.raises(WorkloadError, match=f"--model {name} learns from images, and .* a text"):
        launcher.resolve(Requested(model=name), dataset)


def test_a_network_of_a_later_version_is_refused() -> None:
    with pytest.raises(WorkloadError, match="unknown network 'vision': mobilenet, efficientnet"):
        models.build(Architecture("images", (1, 8, 8), 10, 16, network="vision"))


# How they are built.


@pytest.mark.parametrize(
    ("value", "made"),
    [(1, 8), (11.9, 16), (12, 16), (16, 16), (19, 24), (22, 24), (72, 72), (60, 64), (92, 96)],
)
def test_channels_are_multiples_and_hardly_less_than_asked_for(value: float, made: int) -> None:
    assert make_divisible(value) == made
    assert made >= 0.9 * value


@pytest.mark.parametrize(
    ("side", "count", "left"),
    [(1, 0, 1), (2, 0, 2), (3, 1, 2), (6, 2, 2), (8, 2, 2), (16, 3, 2), (28, 4, 2), (32, 4, 2),
     (48, 5, 2), (64, 5, 2), (224, 5, 7)],
)  # fmt: skip
@BOTH
def test_two_pixels_are_left_of_small_pictures(
    name: str, side: int, count: int, left: int
) -> None:
    assert halvings(side, 5) == count
    network = NETWORKS[name]((1, side, side), 3, 8, 255.0).eval()
    with torch.no_grad():
        maps: torch.Tensor = network.convolutions(torch.zeros(1, 1, side, side))
        assert maps.shape[2:] == (left, left)
        assert network(torch.zeros(2, 1, side, side)).shape == (2, 3)


@BOTH
def test_the_halvings_that_are_left_out_are_the_first(name: str) -> None:
    def strides(side: int) -> list[int]:
        network = NETWORKS[name]((3, side, side), 3, 8, 255.0)
        found = [each for each in network.modules() if isinstance(each, nn.Conv2d)]
        return [each.stride[0] for each in found if each.kernel_size != (1, 1)]

    whole, small = strides(224), strides(8)
    places = [place for place, stride in enumerate(whole) if stride == 2]
    assert [place for place, stride in enumerate(small) if stride == 2] == places[-2:]


@pytest.mark.parametrize(
    ("name", "count"),
    # https://docs.pytorch.org/vision/stable/models/generated/torchvision.models.mobilenet_v3_small
    # and ….efficientnet_b0: num_params of the papers' networks, made independently of these.
    [("mobilenet", 2_542_856), ("efficientnet", 5_288_548)],
)
def test_as_large_as_in_the_papers(name: str, count: int) -> None:
    network = NETWORKS[name]((3, 224, 224), 1_000, IMAGE_NETWORKS[name], 255.0)
    assert models.parameter_count(network) == count


def test_squeezes_and_gates_are_each_papers_own() -> None:
    def squeezes(name: str) -> list[tuple[int, int]]:
        network = NETWORKS[name]((3, 32, 32), 10, IMAGE_NETWORKS[name], 255.0)
        found = [each.weigh for each in network.modules() if isinstance(each, SqueezeExcitation)]
        wanted = (
            (nn.ReLU, nn.Hardsigmoid) if name == "mobilenet" else (nn.SiLU, nn.Sigmoid)
        )  # fmt: skip
        assert all((type(each[1]), type(each[3])) == wanted for each in found)
        convolutions: list[Any] = [each[0] for each in found]
        return [(each.in_channels, each.out_channels) for each in convolutions]

    assert squeezes("mobilenet")[:3] == [(16, 8), (96, 24), (240, 64)]
    assert squeezes("efficientnet")[:3] == [(32, 8), (96, 4), (144, 6)]


@BOTH
def test_width_scales_all_channels(name: str) -> None:
    def first(width: int) -> list[int]:
        network = NETWORKS[name]((3, 32, 32), 10, width, 255.0)
        found = [each for each in network.modules() if isinstance(each, nn.BatchNorm2d)]
        return [each.num_features for each in found]

    usual = IMAGE_NETWORKS[name]
    assert first(usual)[0] == usual
    assert all(
        large == 2 * small for small, large in zip(first(usual), first(2 * usual), strict=True)
    )
    assert all(each % 8 == 0 for each in first(usual + 3))


def test_blocks_are_left_out_the_more_the_later_they_come() -> None:
    network = NETWORKS["efficientnet"]((1, 8, 8), 10, 8, 16.0)
    blocks = [each for each in network.modules() if isinstance(each, InvertedResidual)]
    assert len(blocks) == 16
    for place, block in enumerate(blocks):
        assert block.drop.share == pytest.approx(0.2 * place / 16 if block.is_added else 0.0)
    others = NETWORKS["mobilenet"]((1, 8, 8), 10, 8, 16.0).modules()
    assert not any(each.drop.share for each in others if isinstance(each, InvertedResidual))


def test_what_is_left_out_follows_the_seed_and_not_the_number_of_rows() -> None:
    drop, rows = Drop(0.25, whole=True), torch.ones(4_000, 3, 2, 2)
    torch.manual_seed(3)
    first = drop(rows)
    state = torch.get_rng_state()
    torch.manual_seed(3)
    few = drop(rows[:100])
    assert torch.equal(few, first[:100])
    assert torch.equal(torch.get_rng_state(), state), "processes with less rows stay in step"
    assert not torch.equal(drop(rows[:100]), few)
    assert all(len(row.unique()) == 1 for row in first), "the whole row or nothing of it"
    assert first.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert float(first.mean()) == pytest.approx(1.0, abs=0.05)
    assert torch.equal(drop.eval()(rows), rows)
    numbers = Drop(0.25, whole=False)(torch.ones(10, 1_000))
    assert all(len(row.unique()) == 2 for row in numbers)


def test_earlier_runs_are_read_and_keep_their_names() -> None:
    """What they and federations were named by has no word of light networks."""
    earlier = Architecture("images", (1, 8, 8), 10, 16, 16.0)
    written = earlier.to_json()
    assert "network" not in written
    assert Architecture.from_json(json.loads(json.dumps(written))) == earlier
    assert isinstance(models.build(earlier), models.ConvolutionalNetwork)
    light = Architecture("images", (1, 8, 8), 10, 16, 16.0, network="mobilenet")
    assert Architecture.from_json(json.loads(json.dumps(light.to_json()))) == light
    assert isinstance(models.build(light), ImageNetwork)
    defaults: dict[str, Any] = family_defaults("images", 1_000)
    given = Parameters(
        **defaults, seed=0, processes=1, precision="float32", device="cpu", class_weights="none",
        model="auto", checkpoint_every=1, threads=1,
    )  # fmt: skip
    assert given.identity("abc") == (
        "612d4102bc90dbe648e911a14243302a6db4760a3750e2b301d2287f8ae0ccc0"
    )


@BOTH
def test_defaults_are_in_range_and_of_the_network(name: str, digits: Dataset) -> None:
    parameters = launcher.resolve(Requested(device="cpu", model=name), digits)
    check(Requested(**parameters.to_json()))
    assert parameters.width == IMAGE_NETWORKS[name]
    assert parameters.epochs == parameters.patience == 30
    assert family_defaults("images", 999, model=name)["epochs"] == 80
    assert set(IMAGE_NETWORKS) == set(NETWORKS)
    assert set(CHOICES["training"]["model"].words) == {"auto", "network", *NETWORKS}


# How they are trained.


def weights(run: Path) -> bytes:
    state = load_trained(run, None).module.state_dict()
    return b"".join(tensor.numpy().tobytes() for tensor in state.values())


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


@BOTH
def test_a_stopped_run_ends_with_the_same_bits(
    name: str, train: Any, digits: Dataset, tmp_path: Path
) -> None:
    """Running statistics and what blocks are left out for are in the checkpoint."""
    given = {**SMALL, "model": name}
    assert train(digits, tmp_path / "whole", **given) == 0
    assert train(digits, tmp_path / "parts", StopAfter(8), **given) == 75
    torch.manual_seed(99)
    assert train(digits, tmp_path / "parts", **given) == 0
    assert lines(tmp_path / "whole")[-1]["steps"] > 8, "it was stopped within the second epoch"
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_statistics_of_the_kept_model_are_those_of_its_weights(
    train: Any, digits: Dataset, tmp_path: Path
) -> None:
    given = {**SMALL, "model": "mobilenet", "epochs": 5, "batch_size": 64}
    assert train(digits, tmp_path / "run", **given) == 0
    trained = load_trained(tmp_path / "run", None)
    told = lines(tmp_path / "run")
    best = told[trained.record["metrics"]["validation"]["epoch"] - 1]
    norms = [each for each in trained.module.modules() if isinstance(each, nn.BatchNorm2d)]
    assert all(int(each.num_batches_tracked or 0) == best["steps"] for each in norms)
    moved = [each.running_mean for each in norms if each.running_mean is not None]
    assert all(float(each.abs().max()) > 0 for each in moved)
    assert best["validation_loss"] < 1.5 * best["loss"]
    assert trained.record["metrics"]["held_out"]["accuracy"] > 0.8


def test_no_batch_is_a_single_row(
    train: Any, digits: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch of one less than all rows would leave one for the next."""
    seen: list[int] = []
    original = ImageNetwork.forward

    def forward(self: ImageNetwork, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            seen.append(len(images))
        return original(self, images)

    monkeypatch.setattr(ImageNetwork, "forward", forward)
    given: dict[str, Any] = {"model": "mobilenet", "width": 8, "epochs": 1, "threads": 1}
    count = len(prepare(digits, launcher.resolve(Requested(**given), digits)).fit_weights)
    assert train(digits, tmp_path / "run", **given, batch_size=count - 1) == 0
    assert seen == [count - count // 2, count // 2]


@pytest.mark.thorough
@BOTH
def test_it_is_exported_compared_and_packaged(
    name: str, train: Any, digits: Dataset, tmp_path: Path
) -> None:
    """Normalisation goes into the convolutions, which are all that 8 bits are tried with."""
    keyring = KeyRing.create(tmp_path / "keys")
    assert train(digits, tmp_path / "run", **{**SMALL, "model": name, "epochs": 3}) == 0
    trained = load_trained(tmp_path / "run", None)
    assert trained.record["model"]["choice"]["kept"] == name
    assert trained.record["model"]["architecture"]["network"] == name
    core = export_module(trained.module, (1, 8, 8))
    kinds = {node.op_type for node in core.graph.node}
    assert "Conv" in kinds
    assert "BatchNormalization" not in kinds
    path = datasets.write(digits, tmp_path / "datasets", None)
    request = Request(tmp_path / "run", path, tmp_path / "optimised", None, accept="any")
    made = optimise(request, lambda _: None)
    assert {"float", "int8"} <= made.keys()
    assert made["parity"] <= PARITY_TOLERANCE
    fields = json.loads((tmp_path / "optimised" / "fields.json").read_text())
    shown = dict(card_text.lines(fields))
    assert shown["model"].startswith("neural network in the form of")
    files = {"model.onnx": (tmp_path / "optimised" / "model.onnx").read_bytes()}
    published = Store(tmp_path / "registry").publish("digits", files, fields, keyring)
    assert published.version == 1


@pytest.mark.thorough
@pytest.mark.slow
def test_two_processes_train_alike_and_go_on_with_the_same_bits(
    train: Any, digits: Dataset, tmp_path: Path
) -> None:
    """Each normalises its own rows: the losses differ by that. Both draw the same."""
    path = datasets.write(digits, tmp_path / "datasets", None)
    given = {**SMALL, "model": "efficientnet"}
    train(digits, tmp_path / "one", **given)

    def two(output: Path) -> subprocess.Popen[str]:
        options = [f"--{key.replace('_', '-')}={value}" for key, value in given.items()]
        return subprocess.Popen(
            [sys.executable, "-m", "falaj.workloads.training", "run", "--dataset", str(path),
             "--output", str(output), "--device", "cpu", "--processes", "2", "--progress", "json",
             *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    with two(tmp_path / "two") as process:
        assert process.wait(250) == 0, process.stderr and process.stderr.read()
    for one, other in zip(lines(tmp_path / "one"), lines(tmp_path / "two"), strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=0.2)
    with two(tmp_path / "parts") as process:
        for line in process.stdout or ():
            if json.loads(line)["event"] == "epoch":
                process.terminate()
                break
        assert process.wait(250) == 75
    with two(tmp_path / "parts") as process:
        assert process.wait(250) == 0
    assert weights(tmp_path / "parts") == weights(tmp_path / "two")


@pytest.mark.slow
@pytest.mark.thorough
@BOTH
def test_digits_are_learned(name: str, train: Any, digits: Dataset, tmp_path: Path) -> None:
    assert train(digits, tmp_path / "run", model=name, width=8, epochs=12) == 0
    held_out = load_trained(tmp_path / "run", None).record["metrics"]["held_out"]
    assert held_out["rows"] == 359
    assert held_out["accuracy"] >= 0.97


@pytest.mark.slow
@pytest.mark.thorough
@BOTH
def test_pictures_are_learned(name: str, train: Any, tmp_path: Path) -> None:
    """Circles and crosses of 32x32; guessing is right in half of the cases.

    So few are one step of an epoch: patience must outlast the steps that the average needs.
    """
    folder = write_shapes(tmp_path / "shapes", 30)
    dataset = datasets.build(datasets.Source(str(folder)))
    assert train(dataset, tmp_path / "run", model=name, width=16, threads=1) == 0
    record = load_trained(tmp_path / "run", None).record
    assert record["epochs"] == record["parameters"]["patience"] == 80
    assert record["metrics"]["held_out"]["accuracy"] >= 0.8
