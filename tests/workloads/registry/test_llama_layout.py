"""A package's graph as Llama's folder, judged by `transformers`."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper
from safetensors.numpy import load_file

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.comparison import open_session
from falaj.workloads.registry import __main__ as registry
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.llama_layout import weights_of, write_folder
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.store import Store
from falaj.workloads.training import llama
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from tests.workloads.inference import decoders, languages
from tests.workloads.optimization.conftest import called
from tests.workloads.training.other_programs import ask_transformers

CONTEXT = 16
SIZE = DecoderSize(2, 4, 2)


@cache
def learned() -> Decoder:
    """A decoder whose numbers differ everywhere, those of its norms as well."""
    torch.manual_seed(0)
    made = Decoder(CONTEXT, len(decoders.CHARACTERS), 16, SIZE)
    with torch.no_grad():
        for each in made.parameters():
            each.add_(torch.randn_like(each) * 0.3)
    return made.eval().requires_grad_(False)


@cache
def packaged() -> tuple[bytes, dict[str, Any]]:
    return decoders.packaged(learned(), decoders.serving(CONTEXT))


def published(root: Path, graph: bytes, fields: dict[str, Any]) -> tuple[Package, KeyRing]:
    keyring = KeyRing.create(root / "keyring")
    store = Store(root / "registry", keyring)
    store.publish("text", {"model.onnx": graph}, fields, keyring)
    return store.load("text", 1, keyring, keyring.verify_key()), keyring


def test_what_was_learned_is_found_bit_for_bit() -> None:
    """By the names that `transformers` reads a run's export with, in `test_llama`."""
    found, shape = weights_of(packaged()[0], CONTEXT, "it")
    wanted = llama.tensors(learned())
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[each], wanted[each].numpy()) for each in found)
    assert (shape.heads, shape.key_value_heads, shape.layers) == (4, 2, 2)


@pytest.mark.thorough
def test_another_program_answers_as_the_graph_does(tmp_path: Path) -> None:
    tokens = np.random.default_rng(0).integers(1, len(decoders.CHARACTERS), (3, CONTEXT))
    graph, fields = packaged()
    package, _ = published(tmp_path, graph, fields)
    folder = write_folder(package, tmp_path / "open")
    # The vocabulary isn't there: whoever runs it is asked for numbers.
    (other,) = ask_transformers([{"folder": str(folder), "tokens": tokens.tolist()}])
    feed = {"tokens": tokens, "asked": np.arange(CONTEXT)}
    (logits,) = open_session(graph).run(["logits"], feed)
    np.testing.assert_allclose(np.array(other["logits"]), logits, rtol=1e-4, atol=1e-4)


def test_the_folder_has_weights_and_sizes_alone_and_nobody_else_reads_it(tmp_path: Path) -> None:
    package, _ = published(tmp_path, *packaged())
    folder = write_folder(package, tmp_path / "open", CONTEXT)
    # After a restart the same again.
    assert write_folder(package, tmp_path / "open", CONTEXT) == folder
    assert sorted(each.name for each in folder.iterdir()) == ["config.json", "model.safetensors"]
    assert folder.stat().st_mode & 0o777 == 0o500
    assert {each.stat().st_mode & 0o777 for each in folder.iterdir()} == {0o400}
    said = json.loads((folder / "config.json").read_text())
    assert said["architectures"] == ["LlamaForCausalLM"]
    assert said["max_position_embeddings"] == CONTEXT + 1
    weights: Any = load_file(folder / "model.safetensors")
    assert {name: each.shape for name, each in weights.items()} == {
        name: tuple(each.shape) for name, each in llama.tensors(learned()).items()
    }


def changed(graph: bytes, change: Any) -> bytes:
    made = onnx.ModelProto.FromString(graph)
    change(made.graph)
    return made.SerializeToString()


def without_a_product(graph: onnx.GraphProto) -> None:
    found = next(each for each in graph.node if each.op_type == "MatMul")
    found.op_type = "Mul"


def in_bytes(graph: onnx.GraphProto) -> None:
    graph.initializer.append(numpy_helper.from_array(np.zeros((2, 2), np.int8), "quantised"))


def swapped_size(graph: onnx.GraphProto) -> None:
    for each in graph.initializer:
        if list(each.dims) == [16, 40]:
            each.dims[:] = [40, 16]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without_a_product, "isn't that of a decoder that is told the past"),
        (in_bytes, "have 8 or 4 bits each.*quantise 'never'"),
        (swapped_size, "has the sizes"),
    ],
)
def test_a_graph_of_which_anything_is_not_known_is_refused(change: Any, words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        weights_of(changed(packaged()[0], change), CONTEXT, "text version 1")


@settings(max_examples=30)
@given(st.data())
def test_another_operator_anywhere_never_gives_other_weights(data: st.DataObject) -> None:
    """What is found is what was learned, or nothing is."""
    graph, _ = packaged()
    before, _ = weights_of(graph, CONTEXT, "it")
    count = len(onnx.ModelProto.FromString(graph).graph.node)
    place = data.draw(st.integers(0, count - 1))

    def change(made: onnx.GraphProto) -> None:
        made.node[place].op_type = "Unknown"

    try:
        found, _ = weights_of(changed(graph, change), CONTEXT, "it")
    except WorkloadError:
        return
    assert found.keys() == before.keys()
    assert all(np.array_equal(found[each], before[each]) for each in found)


def test_other_models_and_older_ones_are_refused(tmp_path: Path) -> None:
    graph, fields = packaged()
    old, _ = published(tmp_path / "old", decoders.forgetful(graph), fields)
    with pytest.raises(WorkloadError, match="optimise it again"):
        write_folder(old, tmp_path / "open")
    other, _ = published(tmp_path / "other", graph, fields | {"task": "classification"})
    with pytest.raises(WorkloadError, match="text version 1 is no language model"):
        write_folder(other, tmp_path / "open")
    made, _ = published(
        tmp_path / "made", languages.bigrams(languages.table()), languages.fields()
    )
    with pytest.raises(WorkloadError, match="can't be opened for vLLM"):
        write_folder(made, tmp_path / "open")
    new, _ = published(tmp_path / "new", graph, fields)
    with pytest.raises(WorkloadError, match=r"looks back on 16 tokens.*18 were asked for"):
        write_folder(new, tmp_path / "open", CONTEXT + 2)
    assert not (tmp_path / "open").exists()


def test_the_command_opens_into_memory_alone(tmp_path: Path) -> None:
    published(tmp_path, *packaged())
    arguments = [
        "unseal", "--registry", str(tmp_path / "registry"), "--model", "text", "--version", "1",
        "--keyring", str(tmp_path / "keyring"), "--layout", "vllm", "--to", str(tmp_path / "open"),
    ]  # fmt: skip
    refused = called(registry.main, *arguments)
    assert refused.returncode == 2
    assert "memory" in refused.stderr
    done = called(registry.main, *arguments, "--allow-disk")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "open" / "text" / "model.safetensors").exists()
