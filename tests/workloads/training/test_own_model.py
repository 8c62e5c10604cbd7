"""A team's own model: refused before it trains, told of when it fails, else trained like ours."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from torch import nn

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.pipeline import Request, optimise
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import command, distributed, launcher
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.batches import Augmentation, Batches, prepare
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.finishing import Setting
from falaj.workloads.training.options import Requested, check
from falaj.workloads.training.own_code import read_folder
from falaj.workloads.training.own_model import guarded
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.session import Session
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.stopping import StopRequest
from tests.newcomer import documents
from tests.workloads.training.conftest import StopAfter

NAME = "mine.network:Network"
BEGIN = """
import torch
from torch import nn

class Network(nn.Module):
    def __init__(self, inputs, outputs, width=8, norm=True):
        super().__init__()
        before = nn.BatchNorm1d(width) if norm else nn.Identity()
        self.layers = nn.Sequential(nn.Linear(*inputs, width), before, nn.ReLU())
        self.last = nn.Linear(width, outputs)
"""
FORWARD = """
    def forward(self, features):
        return self.last(self.layers(features))
"""

Own = Callable[..., int]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "models" / "mine").mkdir(parents=True)
    return write(tmp_path / "models", BEGIN + FORWARD)


def write(folder: Path, text: str) -> Path:
    (folder / "mine" / "network.py").write_text(text)
    return folder


@pytest.fixture
def own(mixed_dataset: Dataset, folder: Path, tmp_path: Path) -> Own:
    """Train in this process, as the launcher does."""

    def run(
        name: str = "run", stop: StopRequest | None = None, keyring: KeyRing | None = None,
        **given: Any,
    ) -> int:  # fmt: skip
        asked: dict[str, Any] = {
            "device": "cpu",
            "model": NAME,
            "code": folder,
            "epochs": 3,
            **given,
        }
        requested = Requested(**asked)
        check(requested)
        code, output = read_folder(folder), tmp_path / name
        parameters = launcher.resolve(requested, mixed_dataset, code)
        identity = parameters.identity(mixed_dataset.digest)
        output.mkdir(exist_ok=True)
        setting = Setting(
            mixed_dataset, parameters, output, keyring, identity,
            (output / "checkpoint").exists(), None, code,
        )  # fmt: skip
        progress = Progress("json", True, lambda: None)
        with guarded():
            session = Session(setting, distributed.join("cpu"), stop or StopRequest(), progress)
            return session.run()

    return run


def refused(own: Own, **given: Any) -> str:
    with pytest.raises(WorkloadError) as caught:
        own(**given)
    return str(caught.value)


def forward(body: str) -> str:
    return BEGIN + "\n    def forward(self, features):\n" + textwrap.indent(body, " " * 8) + "\n"


LOSS = "\n    def loss(self, outputs, labels):\n        return "
OPTIMIZER = "\n    def optimizer(self, learning_rate, weight_decay):\n        return "


@pytest.mark.parametrize(
    ("text", "given", "words"),
    [
        ("Network = 3", {}, "Network is a int, but no subclass of torch.nn.Module"),
        ("class Network: pass", {}, "Network is a class, but no subclass of torch.nn.Module"),
        (BEGIN + FORWARD, {"options": {"depth": 3}}, "(inputs, outputs, width=8, norm=True)"),
        (BEGIN + FORWARD, {"options": {"width": "wide"}}, "mine/network.py, line 8: TypeError"),
        ("import absent" + BEGIN, {}, "line 1: ModuleNotFoundError: No module named 'absent'"),
        ("raise SystemExit(0)" + BEGIN, {}, "mine/network.py, line 1: it ended"),
        (
            "from mine.other import x" + BEGIN, {},
            "can't be imported: mine/other.py, line 1: SyntaxError",
        ),
        (BEGIN, {}, "Network can't be run on inputs of the shape (27, "),
        (forward("return self.layers(features)"), {}, "the shape (27, 8) for 27 row(s)"),
        (forward("return [features]"), {}, "Network gives a list for 27 row(s): a tensor"),
        (forward("return self.last(features)"), {}, "network.py, line 13: RuntimeError: "),
        (
            forward("return self.last(self.layers(features)) / 0"), {},
            "gives what is no number (NaN or infinity) before it has learned",
        ),
        (BEGIN + FORWARD + LOSS + "outputs.mean()", {}, "the model's loss gives () for 27 row(s)"),
        (BEGIN + FORWARD + LOSS + "outputs.detach()[:, 0]", {}, "nothing of the model learns"),
        (
            BEGIN + FORWARD + LOSS + "outputs[:, 0]", {"label_smoothing": 0.1},
            "--label-smoothing 0.1: mine.network:Network has a loss of its own",
        ),
        (BEGIN + FORWARD + OPTIMIZER + "'adam'", {}, "gave a str: a torch.optim.Optimizer"),
        (
            BEGIN + FORWARD + OPTIMIZER + "torch.optim.LBFGS(self.parameters())", {},
            "none that wants a closure",
        ),
        (
            forward("return self.last(self.layers(features - features.mean(0)))"), {},
            "Network answers for a row by the rows that come with it, or by chance",
        ),
        (
            forward("return self.last(self.layers(nn.functional.dropout(features)))"), {},
            "Network answers for a row by the rows that come with it, or by chance",
        ),
        (
            BEGIN + "        self.layers[1] = nn.BatchNorm1d(width, track_running_stats=False)\n"
            + FORWARD, {},
            "Network can't be run on one row alone: mine/network.py",
        ),
        (
            BEGIN + FORWARD + "\n    def optimizer(self):\n        pass\n", {},
            "of the model fails: TypeError: Network.optimizer() takes 1",
        ),
        (BEGIN + FORWARD + "\n    optimizer = None\n", {}, "of the model fails: TypeError"),
        (
            BEGIN + FORWARD + OPTIMIZER + "torch.optim.SGD([nn.Parameter(torch.ones(1))], 1)", {},
            "holds parameters that aren't those of the model, of which it would learn nothing",
        ),
        (
            BEGIN + FORWARD + OPTIMIZER + "torch.optim.SparseAdam(self.parameters())", {},
            "the model's optimizer can't take a step: RuntimeError: SparseAdam does not",
        ),
        (
            forward("return self.last(self.layers(features)).double()"), {},
            "Network gives torch.float64: float32 is needed",
        ),
        (
            forward("features /= 16\nreturn self.last(self.layers(features))"), {},
            "Network changes the rows that it is given: have it make new ones",
        ),
        (
            BEGIN + FORWARD + "\n    def loss(self, outputs, labels):\n        labels -= labels\n"
            "        return outputs[:, 0]\n", {},
            "the loss of Network changes the labels",
        ),
        (
            BEGIN + "        self.made = None\n\n    def forward(self, features):\n"
            "        self.made = self.made or nn.Linear(*features.shape[1:], 2)\n"
            "        return self.made(features)\n", {},
            "a new Network can't take the weights of one that was used: make all of its layers",
        ),
        (
            forward(
                "if self.training:\n    self.register_buffer('seen', features.detach())\n"
                "return self.last(self.layers(features))"
            ), {},
            "after it has learned of a batch: seen. Make all parameters and buffers in __init__",
        ),
        (
            BEGIN + "        self.register_buffer('seen', torch.zeros(1))\n\n"
            "    def forward(self, features):\n        if self.training:\n"
            "            self.seen = features.detach().sum(1)\n"
            "        return self.last(self.layers(features))\n", {},
            "after it has learned of a batch: seen. Make all",
        ),
        (
            BEGIN + "        self.spare = nn.Linear(1, 1)\n" + FORWARD
            + "\n    def get_extra_state(self):\n        return 'text'\n", {},
            "_extra_state in the state of Network is a str",
        ),
        (BEGIN + FORWARD, {"batch_size": 1}, "1 row is the smallest part of a batch: a larger"),
    ],
)  # fmt: skip
def test_a_model_that_cannot_train_is_refused_before_it_does(
    own: Own, folder: Path, text: str, given: dict[str, Any], words: str
) -> None:
    write(folder, text)
    (folder / "mine" / "other.py").write_text("x = (\n")
    assert words in refused(own, batch_size=given.pop("batch_size", 27), **given)
    assert {path.name for path in (folder.parent / "run").iterdir()} <= {"code.zip"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            forward(
                "if self.training and self.layers[1].num_batches_tracked > 5:\n"
                "    raise ValueError('a\\nb\\x1b')\nreturn self.last(self.layers(features))"
            ),
            r"the model's code failed in mine/network.py, line 14: ValueError: a b\x1b",
        ),
        (
            forward(
                "tired = self.layers[1].num_batches_tracked > 5\n"
                "return self.last(self.layers(features)) + (float('nan') if tired else 0)"
            ),
            "the loss is no longer a number in epoch 2",
        ),
    ],
)
def test_code_that_fails_while_it_trains_is_told_by_its_line(
    own: Own, folder: Path, tmp_path: Path, text: str, words: str
) -> None:
    write(folder, text)
    assert words in refused(own, batch_size=27)
    assert not (tmp_path / "run" / "record.json").exists()


def test_what_an_ended_run_says_has_no_trace_and_a_status_of_bad_input(
    mixed_dataset: Dataset, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Of several processes any one says it: the code may fail in a single one."""
    monkeypatch.setattr(StopRequest, "install", lambda _: None)
    monkeypatch.setenv("RANK", "1")
    write(folder, "print('{noise}')\n" + forward("raise KeyError('x')"))
    path = datasets.write(mixed_dataset, tmp_path / "datasets", None)
    code = command.main([
        "run", "--dataset", str(path), "--output", str(tmp_path / "run"), "--device", "cpu",
        "--model", NAME, "--code", str(folder), "--json",
    ])  # fmt: skip
    output, errors = capfd.readouterr()
    assert (code, output) == (2, "")
    assert "mine/network.py, line 14: KeyError: 'x'" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            "return torch.lgamma(self.last(self.layers(features)))",
            "can't be exported to ONNX: ONNX has no operator for prims.lgamma",
        ),
        (
            "if features.sum() > 1e6:\n    features = features * 2\n"
            "return self.last(self.layers(features))",
            "(mine/network.py, line 13)",
        ),
        (
            "return self.last.bias.expand(len(features), -1)",
            "takes no batch of 3 rows; have it use its inputs, and",
        ),
        (
            "made = self.last(self.layers(features))\n"
            "return torch.cat([made[:2], 0 * made[2:]]) if len(made) < 4 else made",
            "can't be exported to ONNX",
        ),
    ],
)
def test_a_model_that_cannot_be_served_is_refused_before_it_trains(
    mixed_dataset: Dataset, folder: Path, tmp_path: Path, body: str, words: str
) -> None:
    write(folder, forward(body))
    requested = Requested(device="cpu", model=NAME, code=folder)
    code = read_folder(folder)
    parameters = launcher.resolve(requested, mixed_dataset, code)
    setting = Setting(mixed_dataset, parameters, tmp_path, None, "run", False, None, code)
    progress = Progress("json", True, lambda: None)
    with pytest.raises(WorkloadError) as caught, guarded():
        Session(setting, distributed.join("cpu"), StopRequest(), progress).try_export()
    assert words in str(caught.value)


def weights(run: Path, keyring: KeyRing | None = None) -> bytes:
    state = load_trained(run, keyring).module.state_dict()
    return b"".join(tensor.numpy().tobytes() for tensor in state.values())


def test_a_stopped_run_ends_with_the_same_bits(own: Own, tmp_path: Path) -> None:
    """Dropout, running statistics and an optimiser of one's own are in the checkpoint."""
    assert own("whole", batch_size=16) == 0
    assert own("parts", StopAfter(7), batch_size=16) == 75
    torch.manual_seed(99)
    assert own("parts", batch_size=16) == 0
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_layers_that_only_running_makes_are_trained_and_resumed(
    own: Own, folder: Path, tmp_path: Path
) -> None:
    write(folder, BEGIN.replace("nn.Linear(*inputs, width)", "nn.LazyLinear(width)") + FORWARD)
    assert own("whole", batch_size=16) == 0
    assert own("parts", StopAfter(7), batch_size=16) == 75
    assert own("parts", batch_size=16) == 0
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_the_averaged_model_is_judged_by_its_own_loss(
    own: Own, folder: Path, tmp_path: Path
) -> None:
    """Which may be of weights, or of whether it learns: those of the one that learns differ."""
    each = "nn.functional.cross_entropy(outputs, labels, reduction='none')"
    write(folder, BEGIN + FORWARD + LOSS + f"{each} * self.training + 7.0 * (not self.training)\n")
    assert own(epochs=1) == 0
    line = json.loads((tmp_path / "run" / "metrics.jsonl").read_text())
    assert line["validation_loss"] == pytest.approx(7.0)
    assert line["loss"] < 7.0


def test_the_record_names_class_and_code_and_the_code_goes_along(
    own: Own, folder: Path, tmp_path: Path, mixed_dataset: Dataset
) -> None:
    """What lies in the folder by then is another matter: the run has its own."""
    keyring = KeyRing.create(tmp_path / "keys")
    digest = read_folder(folder).digest
    assert own(keyring=keyring, options={"width": 5}) == 0
    write(folder, "raise RuntimeError('not this')")
    run = tmp_path / "run"
    assert {path.name for path in run.iterdir()} >= {"code.zip.sealed", "record.json"}
    assert b"class Network" not in (run / "code.zip.sealed").read_bytes()
    trained = load_trained(run, keyring)
    # Around it is what makes its probabilities fit.
    inner = trained.module.get_submodule("module.layers.0")
    assert isinstance(inner, nn.Linear)
    assert inner.out_features == 5
    assert not trained.module.training
    record = trained.record
    assert record["model"]["architecture"]["own"] == {
        "name": NAME, "options": {"width": 5}, "code": digest,
    }  # fmt: skip
    assert (record["parameters"]["code"], record["parameters"]["model"]) == (digest, NAME)
    assert "width" not in record["parameters"]
    path = datasets.write(mixed_dataset, tmp_path / "datasets", keyring)
    request = Request(run, path, tmp_path / "optimised", keyring, accept="any", quantise="never")
    optimise(request, lambda _: None)
    fields = json.loads((tmp_path / "optimised" / "fields.json").read_text())
    assert fields["lineage"] | {"model": NAME, "code": digest} == fields["lineage"]
    assert fields["metrics"]["card"]["class"] == NAME
    (run / "code.zip.sealed").write_bytes(b"")
    with pytest.raises(WorkloadError, match=r"code\.zip"):
        load_trained(run, keyring)


def test_statistics_of_the_kept_model_are_those_of_its_weights(own: Own, tmp_path: Path) -> None:
    """Averaged weights with the first statistics would answer as if nothing had been seen.

    Nor has the model counted the rows that it was judged by.
    """
    assert own(epochs=20, batch_size=16) == 0
    trained = load_trained(tmp_path / "run", None)
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    best = lines[trained.record["metrics"]["validation"]["epoch"] - 1]
    norm: Any = trained.module.get_submodule("module.layers.1")
    assert int(norm.num_batches_tracked) == best["steps"]
    assert float((norm.running_var - 1).abs().max()) > 0.2
    assert lines[-1]["validation_loss"] < 1.5 * lines[-1]["loss"]


def test_hooks_take_the_place_of_loss_and_optimiser(
    own: Own, folder: Path, tmp_path: Path
) -> None:
    hooks = (
        LOSS + "2 * nn.functional.cross_entropy(outputs, labels, reduction='none')\n"
        + OPTIMIZER + "torch.optim.SGD(self.parameters(), 0.1 * learning_rate)\n"
    )  # fmt: skip
    assert own("plain", epochs=1) == 0
    write(folder, BEGIN + FORWARD + hooks)
    assert own("hooked", epochs=1) == 0
    lines = [
        json.loads((tmp_path / name / "metrics.jsonl").read_text()) for name in ("plain", "hooked")
    ]
    assert lines[1]["loss"] > 1.5 * lines[0]["loss"]
    assert lines[1]["learning_rate"] == pytest.approx(0.1 * lines[0]["learning_rate"])


def test_the_documents_model_is_trained_by_the_documents_settings(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    write(tmp_path, documents.other("own-model", "python"))
    said = yaml.safe_load(documents.other("own-model", "yaml"))["config"]["falaj:training"]
    requested = Requested(
        device="cpu", model=said["model"], code=tmp_path, options=said["options"], epochs=2
    )
    check(requested)
    code = read_folder(tmp_path)
    dataset = datasets.build(datasets.Source("digits"))
    parameters = launcher.resolve(requested, dataset, code)
    output = tmp_path / "run"
    output.mkdir()
    setting = Setting(dataset, parameters, output, None, "run", False, None, code)
    progress = Progress("json", True, lambda: None)
    with guarded():
        assert Session(setting, distributed.join("cpu"), StopRequest(), progress).run() == 0
    trained = load_trained(output, None)
    assert trained.record["metrics"]["held_out"]["accuracy"] > 0.5
    choice = trained.record["model"]["choice"]
    assert choice["kept"] == "own"
    # It has a factor of its own, not of the code, and the labels stay the same.
    assert choice["calibration"]["after"] < choice["calibration"]["before"]
    inner = trained.module.get_submodule("module")
    inputs = prepare(dataset, parameters).validation[0]
    torch.testing.assert_close(trained.module(inputs), choice["factor"] * inner(inputs))


def test_changed_code_or_options_are_another_run(
    own: Own, folder: Path, mixed_dataset: Dataset
) -> None:
    def identity(**given: Any) -> str:
        requested = Requested(device="cpu", model=NAME, code=folder, **given)
        parameters = launcher.resolve(requested, mixed_dataset, read_folder(folder))
        return parameters.identity(mixed_dataset.digest)

    first = identity()
    assert identity() == first
    changed = identity(options={"width": 9})
    (folder / "mine" / "note.py").write_text("")
    assert len({first, changed, identity()}) == 3


def test_batches_are_even_and_no_share_is_smaller_than_said() -> None:

    inputs, labels = torch.zeros(97, 2), torch.zeros(97, dtype=torch.int64)
    for is_even, least in ((True, 12), (False, 1)):
        made = [
            Batches(
                inputs, labels, np.ones(97, np.float32), batch_size=32, accumulation=1, seed=1,
                augmentation=Augmentation([]), rank=rank, processes=2, is_even=is_even,
            )
            for rank in range(2)
        ]  # fmt: skip
        order = made[0].order(0)
        sizes = [len(s.inputs) for each in made for n in range(each.steps)
                 for s in each.shares(order, 0, n)]  # fmt: skip
        assert min(sizes) == made[0].least_rows == least


@pytest.mark.thorough
@pytest.mark.slow
def test_two_processes_train_as_one_but_for_batch_statistics(
    own: Own, mixed_dataset: Dataset, folder: Path, tmp_path: Path
) -> None:
    """Each normalises its own share: the losses differ by that, and the run is as good."""
    path = datasets.write(mixed_dataset, tmp_path / "datasets", None)
    own("one", batch_size=48, options={"norm": True})
    done = subprocess.run(
        [sys.executable, "-m", "falaj.workloads.training", "run", "--dataset", str(path),
         "--output", str(tmp_path / "two"), "--device", "cpu", "--epochs", "3",
         "--batch-size", "48", "--model", NAME, "--code", str(folder), "--option", "norm=true",
         "--processes", "2", "--threads", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    for one, two in zip(losses(tmp_path / "one"), losses(tmp_path / "two"), strict=True):
        assert two == pytest.approx(one, rel=0.3)
    assert load_trained(tmp_path / "two", None).module.get_submodule("module.layers.1")


def losses(output: Path) -> list[float]:
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]
