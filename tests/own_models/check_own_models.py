"""Teams' own models of `transformers`, `peft`, `timm` and `torchvision`, from rows to answers.

Run by `make test-own-models`; never part of another target. What a team does is done: packages
pinned beside the code, weights and a tokenizer made in a folder, a run that is killed and goes on,
two processes, ONNX, a package, and a server that is asked over HTTPS.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from falaj.workloads.optimization import pipeline
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import read_artifact
from falaj.workloads.training import checkpoint, own_packages
from falaj.workloads.training.batches import features
from falaj.workloads.training.checkpoint import Trained, load_rows, load_trained
from falaj.workloads.training.own_code import provide_packages
from falaj.workloads.training.record import CHECKPOINT, context_of
from falaj.workloads.training.snapshot import open_dataset
from tests.newcomer import documents
from tests.workloads.inference.serving import Site, call, started

ROOT = Path(__file__).resolve().parents[2]
TOKENS = 12
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
PATIENCE = 300.0

#: A team's step before training; in a process of its own, as it needs what is pinned.
MAKE = """
import json, sys
from pathlib import Path
sys.path.append(sys.argv[2])
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

folder, special = Path(sys.argv[1]), ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
texts = json.loads((folder / "texts.json").read_text())
made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
made.pre_tokenizer = pre_tokenizers.Whitespace()
made.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=120, special_tokens=special))
made.post_processor = processors.TemplateProcessing(
    single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
)
made.enable_padding(length=12)
made.enable_truncation(12)
for dropout in (0.0, 0.1):
    place = folder / f"weights-{dropout}"
    PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]",
        sep_token="[SEP]",
    ).save_pretrained(place)
    torch.manual_seed(3)
    BertForSequenceClassification(BertConfig(
        vocab_size=made.get_vocab_size(), hidden_size=32, num_hidden_layers=2,
        num_attention_heads=2, intermediate_size=64, max_position_embeddings=12,
        hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout,
        classifier_dropout=dropout,
    )).save_pretrained(place)
# As it is read again: from the folder alone.
read = PreTrainedTokenizerFast.from_pretrained(folder / "weights-0.1")
(folder / "tokens.json").write_text(json.dumps(
    read(texts, padding="max_length", truncation=True, max_length=12)["input_ids"]
))
"""


#: What the documents don't show: a network of torchvision, and weights by a name.
PUBLISHED = """
import timm
from torch import nn
from torchvision.models import mobilenet_v3_small


class Timm(nn.Module):
    def __init__(self, inputs, outputs, pretrained):
        super().__init__()
        self.network = timm.create_model("resnet10t", pretrained=pretrained, num_classes=outputs)


class Torchvision(nn.Module):
    def __init__(self, inputs, outputs, weights=""):
        super().__init__()
        self.network = mobilenet_v3_small(weights=weights or None)
        self.network.classifier[-1] = nn.Linear(1024, outputs)
        for each in self.network.modules():
            if isinstance(each, nn.BatchNorm2d):
                each.momentum = 0.1

    def forward(self, images):
        rows = (images / 16).expand(-1, 3, -1, -1)
        return self.network(nn.functional.interpolate(rows, size=32))
"""


@dataclass(frozen=True)
class Form:
    """A model to try.

    Attributes:
        model: module and class.
        data: ``tokens`` or ``digits``.
        options: of the class.
        epochs: of its training.
        rate: its learning rate.
        apart: by how much losses of two processes may be apart from those of one, relatively.
        least: the accuracy that it has to reach.
    """

    model: str
    data: str
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    epochs: int = 4
    rate: float = 0.002
    apart: float = 1e-3
    least: float = 0.9


FORMS = {
    "transformers": Form("mine.bert:Classifier", "tokens", epochs=8),
    "peft": Form("mine.adapted:Classifier", "tokens", epochs=10, rate=0.02),
    # Each process normalises its own share of a batch.
    "timm": Form("mine.images:Network", "digits", apart=0.5, epochs=6),
    "torchvision": Form("mine.published:Torchvision", "digits", apart=0.5, epochs=10),
}


def done(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", *arguments],
        capture_output=True, text=True, check=False, env={**os.environ, **environment},
    )  # fmt: skip


class Project:
    """A team's folder: code, packages, weights, tables, keys."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.code = folder, folder / "models"
        (self.code / "mine").mkdir(parents=True)
        for name, scenario in (
            ("bert", "own-bert"),
            ("adapted", "own-peft"),
            ("images", "own-timm"),
        ):
            text = documents.other(scenario, "python")
            (self.code / "mine" / f"{name}.py").write_text(text)
        (self.code / "mine" / "published.py").write_text(PUBLISHED)
        pinned = ROOT / "requirements" / "own-models.txt"
        shutil.copy(pinned, self.code / own_packages.FILE)
        self.keys = folder / "keys"
        self.keyring = KeyRing.create(self.keys)
        provide_packages(self.code)
        site = own_packages.provide(pinned.read_bytes(), "pinned")
        self._write_tokens(str(site or folder))
        self.data = {
            "tokens": self._dataset(str(folder / "tokens.csv"), "--target", "kind"),
            "digits": self._dataset("digits"),
        }

    def _write_tokens(self, site: str) -> None:
        random = np.random.default_rng(1)
        kinds = {
            "good": ["fast", "kind", "clean", "great", "helpful"],
            "bad": ["slow", "rude", "dirty", "awful", "broken"],
        }
        usual = ["the", "room", "was", "very", "and", "our", "stay", "felt", "quite", "with"]
        texts, labels = list[str](), list[str]()
        for _ in range(400):
            label = str(random.choice(list(kinds)))
            words = [*random.choice(usual, int(random.integers(2, 8))),
                     *random.choice(kinds[label], 2)]  # fmt: skip
            random.shuffle(words)
            texts.append(" ".join(map(str, words)))
            labels.append(label)
        (self.folder / "texts.json").write_text(json.dumps(texts))
        subprocess.run([sys.executable, "-c", MAKE, str(self.folder), site], check=True)
        rows = json.loads((self.folder / "tokens.json").read_text())
        lines = [",".join([*(f"t{n:02}" for n in range(TOKENS)), "kind"])]
        lines += [",".join([*map(str, row), label])
                  for row, label in zip(rows, labels, strict=True)]  # fmt: skip
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n")

    def _dataset(self, source: str, *more: str) -> Path:
        made = done(
            "falaj.workloads.training", "dataset", "--source", source, *more,
            "--output", str(self.folder / "data"), "--keyring", str(self.keys), "--json",
        )  # fmt: skip
        assert made.returncode == 0, made.stderr
        return Path(json.loads(made.stdout.splitlines()[-1])["path"])

    def command(self, form: Form, output: Path, *more: str, dropout: float = 0.1) -> list[str]:
        options = dict(form.options)
        if form.data == "tokens":
            options["weights"] = str(self.folder / f"weights-{dropout}")
        named = [
            part for name, value in options.items() for part in ("--option", f"{name}={value}")
        ]
        return [
            "falaj.workloads.training", "run", "--dataset", str(self.data[form.data]),
            "--output", str(output), "--keyring", str(self.keys), "--device", "cpu",
            "--model", form.model, "--code", str(self.code), *named, "--threads", "1",
            "--epochs", str(form.epochs), "--learning-rate", str(form.rate), *more,
        ]  # fmt: skip


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("team") / "project")


@pytest.fixture(scope="module", params=FORMS)
def form(request: pytest.FixtureRequest) -> Form:
    return FORMS[request.param]


@pytest.fixture(scope="module")
def run(form: Form, project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("run") / "run"
    trained = done(*project.command(form, output))
    assert trained.returncode == 0, trained.stderr
    return output


def opened(run: Path, project: Project) -> Trained:
    return load_trained(run, project.keyring)


def numbers(run: Path, project: Project) -> bytes:
    state = opened(run, project).module.state_dict()
    return b"".join(each.numpy().tobytes() for each in state.values())


def losses(run: Path) -> list[float]:
    return [json.loads(each)["loss"] for each in (run / "metrics.jsonl").read_text().splitlines()]


def test_it_learns_and_is_sealed(form: Form, run: Path, project: Project) -> None:
    record = json.loads((run / "record.json").read_text())
    assert record["metrics"]["held_out"]["accuracy"] > form.least
    sealed = {path.name for path in run.iterdir()}
    assert {"checkpoint.sealed", "model.sealed", "code.zip.sealed"} <= sealed
    for name in ("checkpoint", "model", "code.zip"):
        assert b"weight" not in (run / f"{name}.sealed").read_bytes()
    if form.model.startswith("mine.adapted"):
        context = context_of(record["identity"], CHECKPOINT)
        state = checkpoint.load(run / CHECKPOINT, project.keyring, context)["optimisation"]
        for part in ("module", "average", "best"):
            names = [name for name in state[part] if "lora_" not in name]
            assert all("classifier" in name for name in names), names
        assert len(state["optimised"]) == len(state["module"])


def test_a_run_that_is_killed_goes_on_with_the_same_bits(
    form: Form, run: Path, project: Project, tmp_path: Path
) -> None:
    output = tmp_path / "killed"
    words = project.command(form, output)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + PATIENCE
        while not (output / "checkpoint.sealed").exists() and time.monotonic() < deadline:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert not (output / "record.json").exists(), "it had ended by then"
    again = done(*words)
    assert again.returncode == 0, again.stderr
    assert "going on from epoch" in again.stdout + again.stderr
    assert numbers(output, project) == numbers(run, project)


def test_two_processes_learn_as_one(form: Form, project: Project, tmp_path: Path) -> None:
    """Without dropout, of which each draws its own."""
    for name, more in (("one", []), ("two", ["--processes", "2"])):
        words = project.command(form, tmp_path / name, *more, dropout=0.0)
        trained = done(*words)
        assert trained.returncode == 0, trained.stderr
    one, two = losses(tmp_path / "one"), losses(tmp_path / "two")
    assert two == pytest.approx(one, rel=form.apart, abs=0.05 if form.apart > 0.1 else 0)


def test_the_package_answers_as_torch_does(
    form: Form, run: Path, project: Project, tmp_path: Path
) -> None:
    dataset, trained = project.data[form.data], opened(run, project)
    made = done(
        "falaj.workloads.optimization", "--run", str(run), "--dataset", str(dataset),
        "--output", str(tmp_path / "optimised"), "--keyring", str(project.keys),
        "--engine", "onnxruntime", "--quantise", "never", "--json",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    fields = json.loads((tmp_path / "optimised" / "fields.json").read_text())
    context = pipeline.context_of(trained.record["identity"], pipeline.MODEL)
    model = read_artifact(tmp_path / "optimised" / pipeline.MODEL, project.keyring, context)
    rows = load_rows(dataset, project.keyring, "held_out")
    with torch.no_grad():
        given = features(open_dataset(dataset, project.keyring), "held_out", trained.preprocessing)
        wanted = torch.softmax(trained.module(given[:5]), 1).numpy()
    kinds = {"f": "FP32"}
    inputs = [
        {
            "name": name, "datatype": kinds[np.asarray(values).dtype.kind],
            "shape": [5, *(np.asarray(values).shape[1:] or (1,))],
            "data": np.asarray(values[:5], dtype=np.float32).reshape(-1).tolist(),
        }
        for name, values in rows.inputs.items()
    ]  # fmt: skip
    site = Site(tmp_path / "site")
    with started(site, site.publish(model, fields=fields)) as server:
        status, answer = call(
            server.connect(), "POST", "/v2/models/mlp/infer", token=site.token(),
            body={"inputs": inputs},
        )  # fmt: skip
    assert status == 200, answer
    outputs = {each["name"]: each for each in answer["outputs"]}
    served = np.array(outputs["probabilities"]["data"]).reshape(wanted.shape)
    assert np.abs(served - wanted).max() < 1e-5


@pytest.mark.parametrize(
    ("model", "option", "words"),
    [
        ("mine.bert:Classifier", "weights=google-bert/bert-base-uncased", "mine/bert.py, line 12"),
        ("mine.published:Timm", "pretrained=true", "mine/published.py, line 10"),
        ("mine.published:Torchvision", "weights=IMAGENET1K_V1", "download.pytorch.org"),
    ],
)
def test_weights_by_a_name_are_refused(
    project: Project, tmp_path: Path, model: str, option: str, words: str
) -> None:
    """Nothing is asked of the network, whatever the shell says."""
    data = "tokens" if "bert" in model else "digits"
    refused = done(
        "falaj.workloads.training", "run", "--dataset", str(project.data[data]), "--output",
        str(tmp_path / "run"), "--keyring", str(project.keys), "--device", "cpu", "--model", model,
        "--code", str(project.code), "--option", option, "--epochs", "1",
        HF_HUB_OFFLINE="0", TRANSFORMERS_OFFLINE="0", HF_HOME=str(tmp_path / "hub"),
        TORCH_HOME=str(tmp_path / "torch"),
    )  # fmt: skip
    assert refused.returncode == 2, refused.stderr
    assert words in refused.stderr
    assert "weights and tokenizers are read from folders of this machine" in refused.stderr
    assert "Traceback" not in refused.stderr
