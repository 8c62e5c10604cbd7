"""Low-rank adaptation: what stays as it is does so, and what is merged answers the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.pipeline import Request, optimise
from falaj.workloads.training import checkpoint, command, launcher, llama, lora
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from falaj.workloads.training.options import Parameters, Requested, check
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.start import open_start, vocabulary_of
from falaj.workloads.training.stopping import StopRequest
from tests.workloads.optimization.conftest import called
from tests.workloads.training.conftest import StopAfter, Train
from tests.workloads.training.other_programs import ask_transformers
from tests.workloads.training.test_start import FIRST, OTHER, SHORT, SMALL, cut

LOW: Mapping[str, Any] = {**SHORT, "lora_rank": 2, "learning_rate": 0.01}


@pytest.fixture
def begun(tmp_path: Path, train: Train) -> Path:
    assert train(cut(tmp_path, FIRST), tmp_path / "begun", **SMALL) == 0
    return tmp_path / "begun"


@pytest.fixture
def text(begun: Path, tmp_path: Path) -> Dataset:
    return cut(tmp_path, OTHER, vocabulary=vocabulary_of(begun, None))


def parameters_of(rank: int, alpha: float, matrices: str) -> Parameters:
    dataset = Dataset(
        {"family": "text", "task": "language", "classes": ["a"], "rows": {"train": 9},
         "features": [{"shape": [8]}]}, {}, torch.zeros(9).numpy(),
    )  # fmt: skip
    asked = Requested(device="cpu", threads=1)
    found = launcher.resolve(asked, dataset).to_json()
    return Parameters(
        **found, lora_rank=rank, lora_alpha=alpha, lora_matrices=matrices
    )  # fmt: skip


# What is refused.


def test_a_rank_out_of_range_is_refused() -> None:
    for rank in (0, -1, 1025):
        with pytest.raises(WorkloadError, match=f"--lora-rank is {rank}: allowed is 1 to 1,024"):
            check(Requested(lora_rank=rank))
    with pytest.raises(WorkloadError, match=r"--lora-alpha is 0: allowed is 0\.01 to 10,000"):
        check(Requested(lora_rank=1, lora_alpha=0))
    with pytest.raises(WorkloadError, match="--lora-matrices is 'norms': allowed is one of all"):
        check(Requested(lora_rank=1, lora_matrices="norms"))


def test_a_rank_larger_than_a_matrix_is_refused(begun: Path, text: Dataset) -> None:
    start = open_start(begun, None, text)
    for rank, matrices, most in ((9, "all", 8), (9, "attention", 8), (17, "units", 16)):
        asked = Requested(lora_rank=rank, lora_matrices=matrices)
        words = f"--lora-rank is {rank}: allowed is 1 to {most}, the shorter side"
        with pytest.raises(WorkloadError, match=words):
            launcher.resolve(asked, text, None, None, start)
        asked = Requested(lora_rank=most, lora_matrices=matrices)
        assert launcher.resolve(asked, text, None, None, start).lora_rank == most


def test_a_rank_without_weights_to_add_to_is_refused(
    text: Dataset, mixed_dataset: Dataset, tmp_path: Path, train: Train
) -> None:
    with pytest.raises(WorkloadError, match="--lora-rank 2 adds to weights that are there: name"):
        launcher.resolve(Requested(lora_rank=2), text)
    for asked, option in (
        (Requested(lora_alpha=2.0), "--lora-alpha"),
        (Requested(lora_matrices="units"), "--lora-matrices"),
    ):
        with pytest.raises(WorkloadError, match=f"{option} is of low-rank adaptation: name its"):
            launcher.resolve(asked, text)
    assert train(mixed_dataset, tmp_path / "table", model="network", **SHORT) == 0
    start = open_start(tmp_path / "table", None, mixed_dataset)
    with pytest.raises(WorkloadError, match="--lora-rank 2 is of Falaj's language model, and"):
        launcher.resolve(Requested(lora_rank=2), mixed_dataset, None, None, start)


def test_a_divided_model_is_refused_before_anything_starts(
    begun: Path, text: Dataset, tmp_path: Path
) -> None:
    path = datasets.write(text, tmp_path / "datasets", None)
    run = ("run", "--dataset", str(path), "--output", str(tmp_path / "run"), "--start", str(begun))
    done = called(command.main, *run, "--lora-rank", "2", "--processes", "2", "--shard", "2")
    assert done.returncode == 2
    assert "--lora-rank 2 is for networks that each process has whole" in done.stderr
    assert not (tmp_path / "run").exists()


# What is computed.


@given(
    rank=st.integers(1, 4), alpha=st.floats(0.01, 64), seed=st.integers(0, 1_000),
    matrices=st.sampled_from(["all", "attention", "units"]),
)  # fmt: skip
def test_merged_answers_as_unmerged(rank: int, alpha: float, seed: int, matrices: str) -> None:
    torch.manual_seed(seed)
    # Of 64 bits, so that it is exact however much the products are multiplied by.
    module = Decoder(8, 7, 16, DecoderSize(2, 4, 2)).double()
    before = {name: each.clone() for name, each in module.state_dict().items()}
    tokens = torch.randint(0, 7, (2, 8))
    plain = module(tokens)
    lora.add(module, parameters_of(rank, alpha, matrices))
    module.double()
    # Nothing is added before anything was learned.
    torch.testing.assert_close(module(tokens), plain, rtol=0, atol=0)
    with torch.no_grad():
        for name, each in module.named_parameters():
            assert each.requires_grad == (".lora_" in name)
            if name.endswith("lora_b"):
                each.normal_(std=0.05)
    answers = module(tokens)
    lora.merge(module)
    assert module.state_dict().keys() == before.keys()
    torch.testing.assert_close(module(tokens), answers, rtol=1e-4, atol=1e-4)
    for name, each in module.state_dict().items():
        is_changed = any(f".{part}." in name for part in ("attention", "units")) and (
            matrices == "all" or f".{matrices}." in name
        )
        assert torch.equal(each, before[name]) != is_changed, name


def test_a_layer_adds_what_the_paper_says() -> None:
    torch.manual_seed(2)
    base = torch.nn.Linear(6, 5, bias=False)
    layer = lora.LowRank(base, 3, 12.0)
    with torch.no_grad():
        layer.lora_b.normal_()
    stream = torch.randn(4, 6)
    wanted = stream @ (base.weight + 4.0 * layer.lora_b @ layer.lora_a).T
    torch.testing.assert_close(layer(stream), wanted)


# What is learned.


def test_what_is_not_added_to_stays_as_it_is(
    begun: Path, text: Dataset, tmp_path: Path, train: Train
) -> None:
    given_ones = {**LOW, "lora_matrices": "attention"}
    assert train(text, tmp_path / "run", start_run=begun, **given_ones) == 0
    first, second = (
        load_trained(each, None).module.state_dict() for each in (begun, tmp_path / "run")
    )
    for name, each in first.items():
        assert torch.equal(second[name], each) != (".attention." in name), name
        if ".attention." in name:
            assert int(torch.linalg.matrix_rank((second[name] - each).double(), rtol=1e-4)) == 2


def test_a_run_that_was_stopped_ends_in_the_same_network(
    begun: Path, text: Dataset, tmp_path: Path, train: Train
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(text, whole, start_run=begun, **LOW) == 0
    assert train(text, parts, StopAfter(7), start_run=begun, **LOW) == 75
    state = checkpoint.load(parts / "checkpoint", None, b"")
    for of in ("module", "average", "best"):
        assert all(".lora_" in name for name in state["optimisation"][of])
    assert state["base"] == open_start(begun, None, text).digest
    assert train(text, parts, start_run=begun, **LOW) == 0
    assert (whole / "model").read_bytes() == (parts / "model").read_bytes()


def test_a_checkpoint_of_other_weights_is_not_gone_on_from(
    begun: Path, text: Dataset, tmp_path: Path, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(text, whole, start_run=begun, **LOW) == 0
    assert train(text, parts, StopAfter(7), start_run=begun, **LOW) == 75
    state = checkpoint.load(parts / "checkpoint", None, b"")
    checkpoint.save(parts / "checkpoint", {**state, "base": "0" * 64}, None, b"")
    assert train(text, parts, start_run=begun, **LOW) == 0
    assert "holds what is added to other weights (--start)" in capsys.readouterr().out
    assert (whole / "model").read_bytes() == (parts / "model").read_bytes()


def test_record_package_and_card_say_what_was_learned(
    begun: Path, text: Dataset, tmp_path: Path, train: Train
) -> None:
    assert train(text, tmp_path / "run", start_run=begun, **LOW) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    # Two layers of a width of 16 with 40 units: seven matrices each.
    sides = [16 + 16, 16 + 8, 16 + 8, 16 + 16, 16 + 40, 16 + 40, 40 + 16]
    learned = 2 * 2 * sum(sides)
    assert record["lora"] == {
        "rank": 2, "alpha": 4.0, "matrices": "all", "parameters": learned,
        "share": learned / record["model"]["parameters"],
    }  # fmt: skip
    assert record["start"]["digest"] == record["parameters"]["start"]
    path = datasets.write(text, tmp_path / "datasets", None)
    optimise(Request(tmp_path / "run", path, tmp_path / "served", accept="any"), lambda _: None)
    fields = json.loads((tmp_path / "served" / "fields.json").read_text())
    assert fields["lineage"]["lora"] == record["lora"]
    assert "by low ranks of 2 (LoRA)" in (tmp_path / "served" / "card.html").read_text()


def test_other_programs_answer_as_what_was_adapted(
    begun: Path, text: Dataset, tmp_path: Path, train: Train
) -> None:
    assert train(text, tmp_path / "run", start_run=begun, **LOW) == 0
    learned = load_trained(tmp_path / "run", None)
    llama.write(learned, tmp_path / "model")
    tokens = torch.randint(0, len(text.classes or []), (2, 16))
    asked = {"folder": str(tmp_path / "model"), "tokens": tokens.tolist(), "text": "", "more": 0}
    [other] = ask_transformers([asked])
    with torch.no_grad():
        wanted = learned.module(tokens)
    torch.testing.assert_close(torch.tensor(other["logits"]), wanted, rtol=1e-4, atol=1e-4)


def test_low_ranks_have_a_rate_of_their_own(begun: Path, text: Dataset) -> None:
    start = open_start(begun, None, text)

    def rate(**asked: Any) -> float:
        return launcher.resolve(Requested(**asked), text, None, None, start).learning_rate

    assert (rate(), rate(lora_rank=2)) == (3e-3, 1e-2)
    assert rate(lora_rank=2, learning_rate=1e-3) == 1e-3


def test_another_rank_is_another_run(begun: Path, text: Dataset) -> None:
    start = open_start(begun, None, text)
    asked: list[dict[str, Any]] = [
        {}, {"lora_rank": 1}, {"lora_rank": 2}, {"lora_rank": 2, "lora_alpha": 1.0},
        {"lora_rank": 2, "lora_matrices": "units"},
    ]  # fmt: skip
    names = {
        launcher.resolve(Requested(**each), text, None, None, start).identity(text.digest)
        for each in asked
    }
    assert len(names) == len(asked)


@pytest.mark.thorough
def test_two_processes_learn_the_same(
    begun: Path, text: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StopRequest, "install", lambda _: None)
    path = datasets.write(text, tmp_path / "datasets", None)
    run = ["run", "--dataset", str(path), "--start", str(begun), "--lora-rank", "2", "--epochs"]
    found: dict[str, float] = {}
    for processes in ("1", "2"):
        output = tmp_path / f"run{processes}"
        more = ["1", "--output", str(output), "--processes", processes, "--recompute", "layers"]
        assert command.main([*run, *more, "--threads", "1"]) == 0
        record = json.loads((output / "record.json").read_text())
        found[processes] = record["metrics"]["validation"]["loss"]
    assert found["2"] == pytest.approx(found["1"], rel=1e-4)
