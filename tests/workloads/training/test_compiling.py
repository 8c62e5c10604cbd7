"""A compiled network learns what it does as it is written, and leaves the same files.

By the compiler's own part that reads the network and derives the way back, without the one that
writes C++ or Triton, which takes minutes on a processor.
"""

from __future__ import annotations

import json
import stat
from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import checkpoint, compiling, launcher
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.divergence import first_broken
from falaj.workloads.training.options import Parameters, Requested
from falaj.workloads.training.record import context_of
from falaj.workloads.training.snapshot import Dataset
from tests.workloads.training.conftest import StopAfter
from tests.workloads.training.test_divided import text


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    path = tmp_path_factory.mktemp("words") / "text.txt"
    path.write_text(text()[:3_000])
    return datasets.build(datasets.Source(str(path), context=16))


@pytest.fixture
def asked(words: Dataset) -> Parameters:
    return launcher.resolve(Requested(device="cpu"), words)


def nothing(_: str) -> str:
    return ""


GPU: dict[str, Any] = {"device": "cuda"}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "on a processor"),
        ({"compile": "never"}, "turned off"),
        ({**GPU, "layers": 0}, "is small"),
        ({**GPU, "tensor": 2}, "came out wrong"),
        (GPU, "there is no C compiler: looked for gcc or clang (CC names another)"),
    ],
)
def test_what_is_not_compiled_says_why(
    asked: Parameters, changes: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CC", raising=False)
    found = compiling.choose(replace(asked, **changes))
    assert not found.used
    assert reason in found.reason
    assert found.to_json() == {"asked": found.asked, "used": False, "reason": found.reason}


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, "--compile always: there is no C++ compiler: looked for nothing-such"),
        ({"tensor": 2}, "--compile always: gradients of compiled layers .* --compile auto, which"),
    ],
)
def test_what_cannot_be_compiled_is_refused_by_name(
    words: Dataset, changes: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", "nothing-such -O2")
    with pytest.raises(WorkloadError, match=reason.replace("+", r"\+")):
        launcher.resolve(Requested(device="cpu", compile="always", **changes), words)


@pytest.mark.parametrize("given", ["gcc 'x", 'g++ "'])
def test_a_compiler_that_is_named_wrongly_is_told(
    monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    monkeypatch.setenv("CC", given)
    assert f"CC names no compiler: No closing quotation in {given!r}" in compiling.lacking("cuda")


def test_without_a_place_for_it_nothing_is_compiled_that_need_not_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As for a user without a home, which pods have."""
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)

    def homeless(_: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "expanduser", homeless)
    words = "no place to keep what is compiled: Could not determine home directory"
    found = compiling.with_place(compiling.Compilation("auto", used=True, reason="it can"))
    assert not found.used
    assert words in found.reason
    with pytest.raises(WorkloadError, match=words):
        compiling.with_place(compiling.Compilation("always", used=True, reason="it was asked for"))
    never = compiling.Compilation("never", used=False, reason="it was turned off")
    assert compiling.with_place(never) == never


def test_headers_are_needed_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "sh")

    def include(_: str) -> str:
        return str(tmp_path)

    monkeypatch.setattr("sysconfig.get_path", include)
    assert f"({tmp_path}/Python.h)" in compiling.lacking("cuda")
    (tmp_path / "Python.h").touch()
    assert compiling.lacking("cuda") == ""


def test_what_is_compiled_lies_where_nobody_else_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = compiling.keep_apart()
    assert folder == tmp_path / "falaj" / "compiled"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    with pytest.raises(WorkloadError, match="others may write there, and it is run"):
        compiling.keep_apart()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/proc/none/such")
    with pytest.raises(WorkloadError, match="/proc/none/such: No such file"):
        compiling.keep_apart()


def _losses(output: Path) -> list[float]:
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [line[key] for line in lines for key in ("loss", "validation_loss", "gradient_norm")]


@pytest.mark.thorough
def test_a_compiled_network_learns_the_same_and_its_files_have_their_form(
    train: Any, words: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a run is stopped, and goes on compiled or not."""
    monkeypatch.setattr(compiling, "BACKEND", "aot_eager")
    monkeypatch.setattr(compiling, "lacking", nothing)
    small: dict[str, Any] = {"epochs": 2, "width": 16, "layers": 2, "heads": 2, "batch_size": 16}
    small |= {"key_value_heads": 1, "threads": 1}
    runs = {name: tmp_path / name for name in ("plain", "compiled", "first", "second")}
    assert train(words, runs["plain"], **small) == 0
    compiled = {**small, "compile": "always"}
    assert train(words, runs["compiled"], **compiled) == 0
    for name, before, after in (("first", compiled, small), ("second", small, compiled)):
        assert train(words, runs[name], StopAfter(3), **before) == 75
        assert train(words, runs[name], **after) == 0
    identities = set[str]()
    states = list[dict[str, Any]]()
    for name, folder in runs.items():
        assert _losses(folder) == pytest.approx(_losses(runs["plain"]), abs=1e-5), name
        record = json.loads((folder / "record.json").read_text())
        assert record["compile"]["used"] == (name in ("compiled", "second"))
        identities.add(record["identity"])
        context = context_of(record["identity"], "checkpoint")
        states.append(checkpoint.load(folder / "checkpoint", None, context)["optimisation"])
        load_trained(folder, None)
    assert len(identities) == 1
    for state in states:
        for part in ("module", "average", "best"):
            assert list(state[part]) == list(states[0][part])
        assert state["optimised"] == states[0]["optimised"]
    assert not any("_orig_mod" in name for name in states[1]["module"])


def test_what_the_compiler_refuses_runs_as_it_is_written_if_it_need_not_be_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch._dynamo as dynamo

    def refuses(*_: Any) -> Any:
        raise RuntimeError("no such GPU")

    monkeypatch.setattr(compiling, "BACKEND", refuses)
    tokens = torch.zeros((1, 4), dtype=torch.int64)
    module = Decoder(8, 5, 8)
    wanted = module(tokens)
    compiling.compile_in_place(module)
    with pytest.raises(Exception, match="no such GPU"):
        module(tokens)
    with compiling.as_written(module):
        assert torch.equal(module(tokens), wanted)
    dynamo.reset()
    monkeypatch.setattr(dynamo.utils, "counters", defaultdict[str, Counter[str]](Counter))
    with cast("Any", dynamo).config.patch(suppress_errors=False):
        compiling.compile_in_place(module, forgives=True)
        assert torch.equal(module(tokens), wanted)
    found = compiling.Compilation("auto", used=True, reason="x")
    assert found.forgives
    assert not found.to_json()["used"]
    assert "refused the network" in found.to_json()["reason"]


def test_the_layer_that_breaks_is_told_of_a_compiled_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "BACKEND", "eager")
    last = torch.nn.Linear(2, 2)
    module = torch.nn.Sequential(torch.nn.Linear(2, 2), last)
    compiling.compile_in_place(module)
    module(torch.ones(1, 2))
    with torch.no_grad():
        last.weight.fill_(torch.inf)
    assert first_broken(module, torch.ones(1, 2)).startswith("1 (Linear)")
