"""A loss or gradient that is no number is told by its layer, its step and what came before it."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.divergence import Watch, first_broken, weights
from falaj.workloads.training.snapshot import Dataset

NAME = "mine.network:Network"
MODEL = """
import torch
from torch import nn

class Root(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("asked", torch.zeros((), dtype=torch.int64))

    def forward(self, given):
        if self.training:
            self.asked += 1
        # After the second step: the first was tried before the training.
        lowered = given - 1e3 if WHEN else given
        return WHAT

class Network(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(*inputs, 8), nn.ReLU(), Root())
        self.last = nn.Linear(8, outputs)

    def forward(self, features):
        return self.last(self.features(features))
"""
LATE = "self.training and self.asked > 3"


def write(folder: Path, what: str, when: str = LATE, more: str = "") -> Path:
    (folder / "mine").mkdir(parents=True, exist_ok=True)
    text = MODEL.replace("WHEN", when).replace("WHAT", what)
    (folder / "mine" / "network.py").write_text(text + more)
    return folder


def refused(dataset: Dataset, folder: Path, *more: str, processes: int = 1) -> str:
    """What the command says of a training that ends so."""
    path = datasets.write(dataset, folder / "datasets", None)
    done = subprocess.run(
        [sys.executable, "-m", "falaj.workloads.training", "run", "--dataset", str(path),
         "--output", str(folder / "run"), "--device", "cpu", "--model", NAME,
         "--code", str(folder), "--epochs", "3", "--batch-size", "32", "--threads", "1",
         "--processes", str(processes), *more],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    assert not (folder / "run" / "record.json").exists()
    return done.stderr


def test_a_layer_that_makes_no_numbers_of_numbers_is_named(
    mixed_dataset: Dataset, tmp_path: Path
) -> None:
    said = refused(mixed_dataset, write(tmp_path, "torch.sqrt(lowered + 1e-6)"))
    assert "no longer a number in epoch 2, step 1 of" in said
    assert "the output of features.2 (Root)" in said
    assert "sqrt of less than 0" in said
    assert "--learning-rate" not in said


@pytest.mark.thorough
def test_of_several_processes_the_one_that_knows_says_it(
    mixed_dataset: Dataset, tmp_path: Path
) -> None:
    """All end at once: none waits for one that has gone."""
    when = f"{LATE} and __import__('os').environ['RANK'] == '1'"
    said = refused(mixed_dataset, write(tmp_path, "torch.sqrt(lowered + 1e-6)", when), processes=2)
    assert "the output of features.2 (Root)" in said
    assert "in another process, which says more" in said


class Halves(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.Identity())

    def forward(self, given: Tensor) -> Tensor:
        return self.inner(given) / 0 if given.sum() > 10 else self.inner(given)


def watched(module: nn.Module, clip: float = 1.0) -> Watch:
    return Watch(module, 0.01, clip)


def test_a_model_whose_own_forward_breaks_has_no_layer_to_name() -> None:
    module, inputs = Halves(), torch.full((3, 2), 9.0)
    assert first_broken(module, inputs) == ""
    watch = watched(module)
    watch.loss(inputs, module(inputs), torch.tensor(math.nan))
    assert "the output of the model" in watch.step("epoch 1", loss=math.nan)


def test_a_loss_of_its_own_that_breaks_is_named_with_what_it_was_given() -> None:
    module = nn.Linear(2, 2)
    watch = watched(module)
    outputs = torch.tensor([[-2.0, 0.5]])
    watch.loss(torch.ones(1, 2), outputs, torch.tensor(-math.inf))
    said = watch.step("epoch 1, step 2 of 3", loss=math.nan)
    assert "epoch 1, step 2 of 3: the loss itself, of outputs between -2 and 0.5" in said
    assert watch.has_found


def test_weights_that_are_no_numbers_are_named_and_not_all_of_many() -> None:
    module = nn.Sequential(*(nn.Linear(2, 2) for _ in range(4)))
    assert weights(module) == ""
    with torch.no_grad():
        for each in module.parameters():
            each.fill_(math.inf)
    assert weights(module) == "the weights 0.weight, 0.bias, 1.weight and 5 more"
    watch = watched(module)
    watch.loss(torch.ones(1, 2), module(torch.ones(1, 2)), torch.tensor(math.nan))
    said = watch.step("epoch 1", loss=math.nan)
    assert "the weights 0.weight" in said
    assert "--learning-rate 0.01; use a lower one" in said


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_gradient_that_is_no_number_is_named_with_the_norms_before(clip: float) -> None:
    module = nn.Linear(2, 1)
    watch = watched(module, clip)
    for norm in (7.0, 1.0, 2.0, 30.0, 400.0, 5e4):
        watch.gradient(torch.tensor(norm))
    for each in module.parameters():
        each.grad = torch.zeros_like(each)
    assert module.weight.grad is not None
    module.weight.grad[0, 1] = math.inf
    watch.gradient(torch.tensor(math.inf))
    # Another's loss makes everybody's gradient no number.
    assert "in another process" in watch.step("epoch 1", loss=math.nan)
    said = watch.step("epoch 1", loss=0.5)
    assert "the gradient is no longer a number in epoch 1: that of weight (" in said
    assert "(norms of the gradients before: 1, 2, 30, 4e+02, 5e+04)" in said
    assert ("clip gradients" in said) == (clip == 0)


def test_what_came_first_is_told_and_growth_decides_what_to_do() -> None:
    module = nn.Linear(2, 1)
    watch = watched(module)
    for norm in (1.0, 300.0):
        watch.gradient(torch.tensor(norm))
    watch.loss(torch.ones(1, 2), torch.full((1, 1), math.inf), torch.tensor(math.inf))
    watch.loss(torch.ones(1, 2), torch.ones(1, 1), torch.tensor(math.nan))
    said = watch.step("epoch 1", loss=math.nan)
    assert "the output of the model" in said
    assert "use a lower one" in said


def test_where_nothing_was_found_here_it_is_somewhere_else() -> None:
    said = watched(nn.Linear(1, 1)).epoch("epoch 4", "the loss of other rows")
    assert "in epoch 4: the loss of other rows; " in said
    module = nn.Linear(1, 1)
    with torch.no_grad():
        module.bias.fill_(math.nan)
    assert "in epoch 4: the weights bias; " in watched(module).epoch("epoch 4", "other rows")


def test_names_of_layers_steer_no_terminal() -> None:
    module = nn.Sequential()
    module.add_module("a\x1b[2J", Halves())
    assert first_broken(module, torch.full((3, 2), 9.0)) == "a\\x1b[2J (Halves)"


def test_a_model_that_fails_when_it_is_asked_again_hides_nothing() -> None:
    class Once(nn.Module):
        def forward(self, given: Tensor) -> Tensor:
            raise KeyError(given)

    assert first_broken(nn.Sequential(Halves(), Once()), torch.full((3, 2), 9.0)) == "0 (Halves)"
    assert first_broken(nn.Sequential(Once()), torch.ones(1)) == ""


def test_gradients_are_clipped_to_the_same_bits_as_before(
    train: Any, mixed_dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What looks at the norm in between changes no number."""

    def run(name: str) -> bytes:
        output = tmp_path / name
        assert train(mixed_dataset, output, epochs=2, gradient_clip=0.01) == 0
        return (output / "metrics.jsonl").read_bytes().split(b'"seconds"')[0]

    ours = run("ours")

    def torchs(self: Any) -> Tensor:
        return nn.utils.clip_grad_norm_(self.module.parameters(), 0.01, foreach=True)

    monkeypatch.setattr("falaj.workloads.training.loop.Optimisation._clipped", torchs)
    assert run("torchs") == ours


def test_diverging_is_told_by_its_step(train: Any, mixed_dataset: Dataset, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"in epoch \d+, step \d+ of \d+: .*gradients before"):
        train(
            mixed_dataset, tmp_path / "run", learning_rate=10.0, gradient_clip=0.0, epochs=50,
            weight_decay=10.0, batch_size=1,
        )  # fmt: skip
