"""A team's own model in the forms that libraries of models have: frozen, tied, adapted, answers
that are objects, numbers of tokens, packages of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor

from falaj.workloads.errors import CodeError, WorkloadError
from falaj.workloads.optimization.pipeline import FLOAT_MODEL, Request, optimise
from falaj.workloads.training import checkpoint, distributed, launcher, own_model
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.finishing import Setting
from falaj.workloads.training.options import Requested
from falaj.workloads.training.own_code import read_folder
from falaj.workloads.training.own_model import guarded
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.session import Session
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.tensors import seed
from tests.workloads.training.conftest import StopAfter
from tests.workloads.training.test_own_packages import mirror, wheel

__all__ = ["mirror"]

#: As a classifier of a library: it is asked by names and answers with an object; its weights are
#: read from a file, two of its matrices are one.
LIBRARY = """
import torch
from dataclasses import dataclass
from torch import nn

@dataclass
class Output:
    logits: torch.Tensor
    loss: torch.Tensor | None = None

class Encoder(nn.Module):
    def __init__(self, words, outputs, width=8):
        super().__init__()
        self.words = nn.Embedding(words, width, padding_idx=0)
        self.mix = nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.back = nn.Linear(width, words, bias=False)
        self.back.weight = self.words.weight
        self.head = nn.Linear(words, outputs)

    def forward(self, *, input_ids, attention_mask):
        known = attention_mask.unsqueeze(-1).float()
        mean = (self.words(input_ids) * known).sum(1) / known.sum(1).clamp(min=1)
        return Output(self.head(self.back(self.drop(torch.relu(self.mix(mean))))))

class Adapted(nn.Module):
    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base
        self.lora_a = nn.Parameter(torch.randn(rank, base.in_features))
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, rank))

    def forward(self, rows):
        return self.base(rows) + rows @ self.lora_a.T @ self.lora_b.T

    def merge(self):
        with torch.no_grad():
            self.base.weight += self.lora_b @ self.lora_a
        return self.base
"""
WHOLE = """
from torch import nn
from mine.library import Adapted, Encoder
import torch

class Network(nn.Module):
    raw_numbers = True

    def __init__(self, inputs, outputs, weights="", adapted=False):
        super().__init__()
        self.encoder = Encoder(12, outputs)
        if weights:
            self.encoder.load_state_dict(torch.load(weights, weights_only=True))
        if adapted:
            self.encoder.requires_grad_(False)
            self.encoder.mix = Adapted(self.encoder.mix)
            self.encoder.head.requires_grad_(True)

    def forward(self, rows):
        tokens = rows.round().long().clamp(0, 11)
        given = {"input_ids": tokens, "attention_mask": (tokens != 0).long()}
        return self.encoder(**given).logits
"""
MERGED = """
    def merged(self):
        self.encoder.mix = self.encoder.mix.merge()
        return self
"""
Own = Callable[..., int]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Rows of 6 tokens, 0 after their end; a word of either kind decides."""
    random = np.random.default_rng(5)
    rows = list[list[Any]]()
    for _ in range(160):
        label = int(random.integers(2))
        row: list[Any] = [*random.integers(5, 12, int(random.integers(1, 5))), 1 + label]
        random.shuffle(row)
        rows.append([*row, *[0] * (6 - len(row)), label])
    path = tmp_path_factory.mktemp("tokens") / "tokens.csv"
    names = [*(f"t{n}" for n in range(6)), "kind"]
    path.write_text("\n".join(",".join(map(str, row)) for row in [names, *rows]) + "\n")
    return datasets.build(datasets.Source(str(path), "kind", "classification"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    mine = tmp_path / "models" / "mine"
    mine.mkdir(parents=True)
    (mine / "library.py").write_text(LIBRARY)
    (mine / "network.py").write_text(WHOLE)
    return mine.parent


@pytest.fixture
def weights(tmp_path: Path, folder: Path) -> str:
    """Those of an encoder, as a library saved them."""
    made: dict[str, Any] = {}
    exec(LIBRARY, made)  # noqa: S102 - the text above
    seed(11)
    torch.save(made["Encoder"](12, 2).state_dict(), tmp_path / "weights.pt")
    return str(tmp_path / "weights.pt")


@pytest.fixture
def own(tokens: Dataset, folder: Path, tmp_path: Path) -> Own:
    def run(
        name: str = "run", stop: StopRequest | None = None, *, exported: bool = False,
        **given: Any,
    ) -> int:  # fmt: skip
        asked: dict[str, Any] = {
            "device": "cpu", "model": "mine.network:Network", "code": folder, "epochs": 4,
            "batch_size": 16, "learning_rate": 0.05, **given,
        }  # fmt: skip
        code, output = read_folder(folder), tmp_path / name
        parameters = launcher.resolve(Requested(**asked), tokens, code)
        output.mkdir(exist_ok=True)
        setting = Setting(
            tokens, parameters, output, None, parameters.identity(tokens.digest),
            (output / "checkpoint").exists(), None, code,
        )  # fmt: skip
        progress = Progress("json", True, lambda: None)
        with guarded():
            session = Session(setting, distributed.join("cpu"), stop or StopRequest(), progress)
            if exported:
                session.try_export()
            return session.run()

    return run


def state(run: Path) -> dict[str, Any]:
    return checkpoint.load(run / "checkpoint", None, b"")["optimisation"]


def numbers(run: Path) -> bytes:
    held = load_trained(run, None).module.state_dict()
    return b"".join(each.numpy().tobytes() for each in held.values())


def test_tied_weights_and_tokens_train_and_go_on_with_the_same_bits(
    own: Own, tmp_path: Path
) -> None:
    assert own("whole", exported=True) == 0
    assert own("parts", StopAfter(9)) == 75
    seed(99)
    assert own("parts") == 0
    assert numbers(tmp_path / "whole") == numbers(tmp_path / "parts")
    trained = load_trained(tmp_path / "whole", None)
    held: dict[str, Tensor] = trained.module.state_dict()
    words, back = (next(v for k, v in held.items() if k.endswith(n))
                   for n in ("words.weight", "back.weight"))  # fmt: skip
    assert words.data_ptr() == back.data_ptr()
    numeric = trained.record["preprocessing"]["numeric"]
    assert {(each["fill"], each["mean"], each["scale"]) for each in numeric} == {(0.0, 0.0, 1.0)}


def test_checkpoint_and_optimiser_have_what_is_learned_alone(
    own: Own, tmp_path: Path, weights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"options": {"weights": weights, "adapted": True}}
    assert own("whole", **given) == 0
    capsys.readouterr()
    assert own("parts", StopAfter(9), **given) == 75
    said = capsys.readouterr()
    count = 2 * 8 + 8 * 2 + 12 * 2 + 2  # both thin matrices, and the head
    assert f"training {count} parameters" in said.out + said.err
    learned = {"lora_a", "lora_b", "weight", "bias"}
    found = state(tmp_path / "parts")
    for part in ("module", "average", "best"):
        names = set(found[part])
        assert {name.rpartition(".")[2] for name in names} == learned
        assert all(".mix.lora" in name or ".head." in name for name in names)
    assert len(found["optimised"]) == 4
    assert len(found["optimiser"]["state"]) == 4
    assert own("parts", **given) == 0
    assert numbers(tmp_path / "whole") == numbers(tmp_path / "parts")
    # The finished model has all: nobody needs the file any more for its numbers.
    before = torch.load(weights, weights_only=True)
    after = load_trained(tmp_path / "parts", None).module.state_dict()
    frozen = next(value for name, value in after.items() if name.endswith("words.weight"))
    assert torch.equal(frozen, before["words.weight"])


def test_other_frozen_weights_than_those_that_it_began_with_are_no_continuation(
    own: Own, tmp_path: Path, weights: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {"options": {"weights": weights, "adapted": True}}
    assert own("parts", StopAfter(9), **given) == 75
    changed = torch.load(weights, weights_only=True)
    torch.save({name: value + 0.25 for name, value in changed.items()}, weights)
    assert own("parts", **given) == 0
    said = capsys.readouterr()
    assert "the frozen weights that the model's code reads" in said.out + said.err
    assert own("anew", **given) == 0
    assert numbers(tmp_path / "parts") == numbers(tmp_path / "anew")


def test_frozen_weights_that_the_module_moves_by_itself_are_in_the_checkpoint(
    own: Own, folder: Path, tmp_path: Path
) -> None:
    """As a second encoder that follows the first."""
    text = WHOLE.replace(
        "        tokens = rows",
        "        if self.training:\n"
        "            with torch.no_grad():\n"
        "                self.encoder.mix.bias.lerp_(self.encoder.head.weight[0, :8], 0.1)\n"
        "        tokens = rows",
    ).replace(
        "        if adapted:",
        "        self.encoder.mix.bias.requires_grad_(False)\n        if adapted:",
    )
    (folder / "mine" / "network.py").write_text(text)
    assert own("whole") == 0
    assert own("parts", StopAfter(9)) == 75
    assert "encoder.mix.bias" in state(tmp_path / "parts")["module"]
    assert own("parts") == 0
    assert numbers(tmp_path / "whole") == numbers(tmp_path / "parts")


@pytest.mark.parametrize(
    "change",
    [
        "self.encoder.words.weight.requires_grad_(True)",
        "self.encoder.words.weight.add_(1)",
    ],
)
def test_frozen_weights_that_change_later_are_refused(
    own: Own, folder: Path, tmp_path: Path, change: str
) -> None:
    text = WHOLE.replace(
        "        tokens = rows",
        "        self.steps = getattr(self, 'steps', 0) + self.training\n"
        "        if self.steps == 7:\n"
        f"            with torch.no_grad():\n                {change}\n"
        "        tokens = rows",
    )
    (folder / "mine" / "network.py").write_text(text)
    with pytest.raises(CodeError, match=r"changed encoder\.words\.weight.* after its first batch"):
        own(options={"adapted": True})


def test_what_is_exported_is_merged_and_answers_the_same(
    own: Own, folder: Path, tokens: Dataset, tmp_path: Path, weights: str
) -> None:
    (folder / "mine" / "network.py").write_text(WHOLE + MERGED)
    assert own(options={"weights": weights, "adapted": True}, exported=True, epochs=8) == 0
    path = datasets.write(tokens, tmp_path / "datasets", None)
    request = Request(
        tmp_path / "run", path, tmp_path / "optimised", None, accept="any", quantise="never"
    )
    done = optimise(request, lambda _: None)
    graph = onnx.load_model_from_string((tmp_path / "optimised" / FLOAT_MODEL).read_bytes())
    assert not [each.name for each in graph.graph.initializer if "lora" in each.name]
    assert done["parity"] < 1e-4
    trained = load_trained(tmp_path / "run", None)
    assert any("lora_b" in name for name in trained.module.state_dict())  # it stays as it learned


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (WHOLE.replace(".logits", ""), "Network gives a Output for 15 row(s): a tensor"),
        (WHOLE.replace(".logits", ""), "is needed: have forward() return its .logits"),
        (WHOLE.replace("raw_numbers = True", "raw_numbers = 'yes'"), "raw_numbers is 'yes'"),
        (
            WHOLE + "\n    def merged(self):\n        pass\n",
            "merged() of Network gives a NoneType: a torch.nn.Module",
        ),
        (
            WHOLE + "\n    def merged(self):\n        raise KeyError('adapter')\n",
            "merged() of Network fails: mine/network.py, line 25: KeyError: 'adapter'",
        ),
        (
            WHOLE + "\n    def merged(self):\n        return Network((6,), 2)\n",
            "the graph's answers differ from its own",
        ),
        (
            WHOLE.replace("import torch", "import socket, torch").replace(
                "        if weights:", "        socket.create_connection(('192.0.2.1', 443))\n"
                "        if weights:",
            ),
            "line 12: it wants 192.0.2.1:443 of the network, which is kept from it: weights",
        ),
        ("import peft_of_a_team\n" + WHOLE, "are pinned in requirements.txt in the folder"),
    ],
)  # fmt: skip
def test_forms_that_cannot_be_trained_are_refused_with_what_to_do(
    own: Own, folder: Path, text: str, words: str
) -> None:
    (folder / "mine" / "network.py").write_text(text)
    with pytest.raises(WorkloadError) as caught:
        own(exported=True)
    assert words in str(caught.value)


def test_packages_of_its_own_are_there_when_the_code_is_imported(
    own: Own, folder: Path, tmp_path: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for the stages that have the archive alone; without a trace in a second process."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(own_model, "_provided", [])
    (folder / "requirements.txt").write_text(wheel(mirror, "teams_words"))
    text = "from teams_words import word\nassert word == 'found'\n" + WHOLE
    (folder / "mine" / "network.py").write_text(text)
    assert own(epochs=1) == 0
    assert sys.path[-1].startswith(str(tmp_path / "own-packages"))
    assert load_trained(tmp_path / "run", None).module is not None
    (folder / "requirements.txt").write_text(wheel(mirror, "teams_others"))
    with pytest.raises(WorkloadError, match="pins other packages than that of another model"):
        own("other", epochs=1)
    assert json.loads((tmp_path / "run" / "record.json").read_text())["status"] == "finished"
