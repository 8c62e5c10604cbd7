"""A model that is divided among processes learns what one process learns.

Real processes over gloo: each division's losses are those of one process to a few millionths, and
a training that was stopped goes on in another number of processes, divided otherwise.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained

PROGRAM = Path(__file__).parent / "programs" / "teams.py"
SENTENCES = (
    "the water runs below the sand", "a channel brings it to the palms",
    "who opens the gate waits",
    "in the morning it is turned to another field", "nobody takes more than a share of the day",
)  # fmt: skip
PLAIN = (
    "--width", "32", "--epochs", "3", "--batch-size", "8", "--threads", "1", "--device", "cpu",
    "--precision", "float32",
)  # fmt: skip
LARGE = ("--layers", "5", "--heads", "8", "--key-value-heads", "4")
DIVISIONS: dict[str, tuple[int, tuple[str, ...]]] = {
    "one": (1, ()),
    "copies of halves": (4, ("--shard", "2")),
    "quarters": (4, ("--shard", "4", "--accumulation", "2")),
    "matrices": (4, ("--shard", "2", "--tensor", "2")),
    "layers": (4, ("--pipeline", "4")),
    "layers and matrices": (4, ("--pipeline", "2", "--tensor", "2", "--recompute", "layers")),
    "halves, compiled": (2, ("--shard", "2", "--compile", "always")),
    "again": (1, ("--recompute", "layers")),
    "bfloat16": (2, ("--shard", "2", "--precision", "bfloat16")),
    "large": (1, LARGE),
    "four heads": (4, (*LARGE, "--tensor", "4")),
    "five layers": (4, (*LARGE, "--pipeline", "4")),
}
COMPRESSIONS = ("float16", "bfloat16", "powersgd")


def text() -> str:
    return "\n".join(
        f"{SENTENCES[number % 5]} {SENTENCES[number * 7 % 5]} {number % 11}"
        for number in range(140)
    )


class Made:
    """The runs of the module, one program for all of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.keys = KeyRing.create(folder / "keys")
        (folder / "text.txt").write_text(text())
        source = datasets.Source(str(folder / "text.txt"), None, "auto", None, 7, 0.2)
        self.text = datasets.write(datasets.build(source), folder / "data", self.keys)
        source = datasets.Source("digits", None, "auto", None, 7, 0.5)
        self.digits = datasets.write(datasets.build(source), folder / "data", self.keys)

    def run(self, name: str, processes: int, *words: str, data: Path | None = None,
            **more: Any) -> dict[str, Any]:  # fmt: skip
        arguments = [
            "run", "--dataset", str(data or self.text), "--output", str(self.folder / name),
            "--keyring", str(self.folder / "keys"), *(PLAIN if data is None else ()), *words,
        ]  # fmt: skip
        return {"processes": processes, "arguments": arguments,
                "said": str(self.folder / "said" / name), **more}  # fmt: skip

    def together(self, *runs: dict[str, Any]) -> list[list[int]]:
        done = subprocess.run(
            [sys.executable, str(PROGRAM)], input=json.dumps(runs), text=True, check=False,
            capture_output=True, timeout=600, env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def losses(self, name: str) -> list[float]:
        lines = (self.folder / name / "metrics.jsonl").read_text().splitlines()
        return [json.loads(each)[key] for each in lines for key in ("loss", "validation_loss")]

    def said(self, name: str, rank: int = 0) -> str:
        return (self.folder / "said" / name / f"{rank}.txt").read_text()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return Made(tmp_path_factory.mktemp("divided"))


@pytest.fixture(scope="module")
def divided(made: Made) -> Made:
    runs = [
        made.run(name, count, *words, "--epochs", "2")
        for name, (count, words) in DIVISIONS.items()
    ]
    statuses = made.together(*runs)
    assert statuses == [[0] * count for count, _ in DIVISIONS.values()], made.said("one")
    return made


pytestmark = pytest.mark.thorough


@pytest.mark.parametrize(
    "name", [each for each in DIVISIONS if each not in {"one", "bfloat16", "large"}]
)
def test_each_division_learns_what_one_process_does(divided: Made, name: str) -> None:
    alone = "large" if DIVISIONS[name][1][: len(LARGE)] == LARGE else "one"
    assert divided.losses(name) == pytest.approx(divided.losses(alone), abs=1e-5)
    one = load_trained(divided.folder / alone, divided.keys)
    found = load_trained(divided.folder / name, divided.keys)
    assert found.record["identity"] == one.record["identity"]
    kept = one.module.state_dict()
    for key, tensor in found.module.state_dict().items():
        assert tensor.shape == kept[key].shape
        assert float((tensor - kept[key]).abs().max()) < 1e-4, key


def test_bfloat16_is_near(divided: Made) -> None:
    assert divided.losses("bfloat16") == pytest.approx(divided.losses("one"), abs=2e-2)


def test_what_is_said_names_the_division(divided: Made) -> None:
    assert "4 process(es) on cpu (pipeline 2 x tensor 2)" in divided.said("layers and matrices")
    assert "(data 2 x shard 2)" in divided.said("copies of halves")
    for name, (count, _) in DIVISIONS.items():
        for rank in range(count):
            assert "arning" not in divided.said(name, rank)


def test_nothing_of_a_sealed_run_is_plain(divided: Made) -> None:
    files = [each.name for each in (divided.folder / "matrices").iterdir()]
    assert sum(each.startswith("checkpoint.") and each.endswith(".sealed") for each in files) >= 4
    assert not [each for each in files if each.startswith("checkpoint") and "sealed" not in each]


def test_a_stopped_training_goes_on_divided_otherwise(made: Made) -> None:
    stop = {"stop_after": "epoch 1/3", "signal": "SIGTERM"}
    again = {"stop_after": "epoch 2/3", "signal": "SIGTERM"}
    statuses = made.together(
        made.run("whole", 1),
        made.run("moved", 4, "--pipeline", "2", "--shard", "2", **stop),
        made.run("moved", 2, "--tensor", "2", **again),
        made.run("moved", 1),
        made.run("back", 1, **stop),
        made.run("back", 4, "--shard", "4"),
    )
    assert statuses == [[0], [75] * 4, [75] * 2, [0], [75], [0] * 4], made.said("moved")
    assert "going on from epoch 2" in made.said("moved")
    assert "going on from epoch 1" in made.said("back")
    for name in ("moved", "back"):
        assert made.losses(name) == pytest.approx(made.losses("whole"), abs=1e-5)


def test_a_killed_process_loses_one_interval_at_most(made: Made) -> None:
    kill = {"stop_after": "epoch 2/3", "signal": "SIGKILL"}
    killed, done = made.together(
        made.run("killed", 2, "--shard", "2", **kill), made.run("killed", 2, "--shard", "2")
    )
    assert killed == [74, -9]
    assert done == [0, 0]
    assert made.said("killed").startswith("going on from epoch")
    made.together(made.run("calm", 1))
    assert made.losses("killed") == pytest.approx(made.losses("calm"), abs=1e-5)


def test_a_part_that_is_gone_costs_time_alone(made: Made) -> None:
    stop = {"stop_after": "epoch 1/3", "signal": "SIGTERM"}
    (stopped,) = made.together(made.run("torn", 2, "--shard", "2", **stop))
    assert stopped == [75, 75]
    next((made.folder / "torn").glob("checkpoint.*.1*")).unlink()
    (done,) = made.together(made.run("torn", 2, "--shard", "2"))
    assert done == [0, 0]
    assert "starting from the beginning instead" in made.said("torn")


def test_networks_of_images_are_sharded_with_what_they_count(made: Made) -> None:
    words = ("--epochs", "2", "--threads", "1", "--device", "cpu", "--precision", "float32")
    code = made.folder / "code"
    code.mkdir()
    (code / "mine.py").write_text(
        "from torch import nn\n\n\n"
        "class Network(nn.Sequential):\n"
        "    def __init__(self, inputs, outputs):\n"
        "        channels = inputs[0]\n"
        "        super().__init__(nn.Conv2d(channels, 6, 3), nn.BatchNorm2d(6), nn.ReLU(),\n"
        "                         nn.Flatten(), nn.Linear(6 * 36, outputs))\n"
    )
    own = ("--code", str(code), "--model", "mine:Network")
    light = ("--model", "mobilenet", "--width", "8", "--batch-size", "1000")
    statuses = made.together(
        made.run("digits", 1, *words, data=made.digits),
        made.run("digits divided", 2, "--shard", "2", *words, data=made.digits),
        made.run("own", 2, *own, *words, data=made.digits),
        made.run("own divided", 2, *own, "--shard", "2", *words, data=made.digits),
        made.run("light", 2, *light, *words, data=made.digits),
        made.run("light divided", 2, *light, "--shard", "2", *words, data=made.digits),
    )
    assert statuses == [[0], *[[0, 0]] * 5], made.said("light divided")
    assert made.losses("digits divided") == pytest.approx(made.losses("digits"), abs=1e-5)
    assert made.losses("own divided") == pytest.approx(made.losses("own"), abs=1e-4)
    # Of few steps: normalisations one after another make more of what is rounded otherwise.
    assert made.losses("light divided") == pytest.approx(made.losses("light"), abs=1e-4)


ENCODER = """
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.asked, self.key, self.value = (nn.Linear(width, width, False) for _ in range(3))
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.size, self.dropout = width // heads, nn.Dropout(0.1)

    def heads(self, rows):
        return rows.unflatten(-1, (HEADS, self.size)).transpose(1, 2)

    def forward(self, rows):
        normal = self.before(rows)
        taken = [self.heads(each(normal)) for each in (self.asked, self.key, self.value)]
        mixed = nn.functional.scaled_dot_product_attention(*taken)
        rows = rows + self.dropout(self.out(mixed.transpose(1, 2).flatten(2)))
        return rows + self.dropout(self.down(BETWEEN(self.up(self.between(rows)))))


class Encoder(nn.Module):
    def __init__(self, inputs, outputs, width=16, heads=4):
        super().__init__()
        self.first = nn.Linear(inputs[1] * inputs[0], width)
        self.place = nn.Parameter(torch.zeros(inputs[2], width))
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(2))
        self.last = nn.Linear(width, outputs)

    def forward(self, rows):
        rows = self.first(rows.flatten(1, 2).transpose(1, 2) / 16) + self.place
        for each in self.layers:
            rows = each(rows)
        return self.last(rows.mean(1))

    def tensor_plan(self):
        return {
            **{f"layers.*.{each}": "colwise" for each in ("asked", "key", "value", "up")},
            **{f"layers.*.{each}": "rowwise" for each in ("out", "down")},
        }
"""


def encoder(folder: Path, heads: str = "-1", between: str = "nn.functional.gelu") -> list[str]:
    """A model of a team's own that says how it is divided; the options that name it."""
    folder.mkdir()
    text = ENCODER.replace("HEADS", heads).replace("BETWEEN", between)
    (folder / "mine.py").write_text(text)
    return ["--code", str(folder), "--model", "mine:Encoder", "--epochs", "2", *OF_IMAGES]


OF_IMAGES = ("--threads", "1", "--device", "cpu", "--precision", "float32")


def test_a_model_of_one_s_own_is_divided_as_it_says(made: Made) -> None:
    own = encoder(made.folder / "encoder")
    stop = {"stop_after": "epoch 1/2", "signal": "SIGTERM"}
    statuses = made.together(
        made.run("encoder", 1, *own, data=made.digits),
        made.run("encoder halves", 2, *own, "--tensor", "2", data=made.digits),
        made.run("encoder copies", 4, *own, "--tensor", "2", data=made.digits),
        made.run("encoder shards", 4, *own, "--tensor", "2", "--shard", "2", data=made.digits),
        made.run("encoder moved", 2, *own, "--tensor", "2", data=made.digits, **stop),
        made.run("encoder moved", 1, *own, data=made.digits),
    )
    assert statuses == [[0], [0] * 2, [0] * 4, [0] * 4, [75] * 2, [0]], made.said("encoder halves")
    assert "(tensor 2)" in made.said("encoder halves")
    one = load_trained(made.folder / "encoder", made.keys).module.state_dict()
    for name, rows_alike in (
        ("encoder halves", True), ("encoder moved", True),
        # Which rows' numbers are dropped is another in each part of a batch.
        ("encoder copies", False), ("encoder shards", False),
    ):  # fmt: skip
        slack = 1e-5 if rows_alike else 0.1
        assert made.losses(name) == pytest.approx(made.losses("encoder"), abs=slack), name
        found = load_trained(made.folder / name, made.keys).module.state_dict()
        assert {key: each.shape for key, each in found.items()} == {
            key: each.shape for key, each in one.items()
        }
        if rows_alike:
            assert max(float((found[key] - one[key]).abs().max()) for key in one) < 1e-4


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"heads": "4"}, "Encoder can't be run divided as tensor_plan() says"),
        (
            {"between": "(lambda rows: nn.functional.gelu(rows - rows.mean(-1, keepdim=True)))"},
            "Encoder answers otherwise when it is divided as tensor_plan() says",
        ),
    ],
)
def test_a_model_that_isn_t_the_same_divided_is_refused(
    made: Made, changed: dict[str, str], why: str
) -> None:
    name = "wrong " + next(iter(changed))
    own = encoder(made.folder / name, **changed)
    (status,) = made.together(made.run(f"of {name}", 2, *own, "--tensor", "2", data=made.digits))
    assert status == [2, 2], made.said(f"of {name}")
    assert why in made.said(f"of {name}")
    assert "Traceback" not in made.said(f"of {name}")


def test_what_says_nothing_of_it_is_refused(made: Made) -> None:
    own = encoder(made.folder / "plain")
    (made.folder / "plain" / "mine.py").write_text(
        ENCODER.replace("HEADS", "-1").replace("BETWEEN", "torch.relu").replace("_plan", "_plans")
    )
    runs = [
        made.run("of plain", 2, *own, "--tensor", "2", data=made.digits),
        made.run("of layers", 2, *own, "--pipeline", "2", data=made.digits),
    ]
    assert made.together(*runs) == [[2, 2], [2, 2]], made.said("of plain")
    assert "and Encoder has none: give it one that returns" in made.said("of plain")
    assert "--pipeline 2 is of Falaj's language model" in made.said("of layers")


def test_compressed_gradients_learn_too(made: Made) -> None:
    more = ("--epochs", "6")
    runs = [made.run(f"by {each}", 2, "--compression", each, *more) for each in COMPRESSIONS]
    statuses = made.together(made.run("uncompressed", 2, *more), *runs)
    assert statuses == [[0, 0]] * 4, made.said("by powersgd")
    wanted = made.losses("uncompressed")
    for each in COMPRESSIONS:
        losses = made.losses(f"by {each}")
        assert losses != wanted
        assert losses[-1] < losses[1]
        # Two thin matrices for a gradient learn more slowly.
        slack = 0.4 if each == "powersgd" else 2e-2
        assert losses[-1] == pytest.approx(wanted[-1], abs=slack)
