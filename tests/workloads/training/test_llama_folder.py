"""Models in Llama's form that somebody gives: what is damaged or hostile is refused by name."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load, save

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import command, language, llama, llama_folder
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from falaj.workloads.training.start import open_start, vocabulary_of
from tests.workloads.optimization.conftest import called
from tests.workloads.training.conftest import Train
from tests.workloads.training.other_programs import ask_transformers
from tests.workloads.training.test_llama import CHARACTERS, SIZES, trained

Change = Callable[[Path], object]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama") / "model"
    llama.write(trained(DecoderSize(2, 4, 2), 16), folder)
    return folder


@pytest.fixture
def model(written: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(written, tmp_path / "model"))


def configured(values: Mapping[str, Any]) -> Change:
    def change(folder: Path) -> None:
        path = folder / llama.CONFIGURATION
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))

    return change


def cutting(key: str, value: Any) -> Change:
    def change(folder: Path) -> None:
        path = folder / llama.TOKENISER
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))

    return change


def weighing(change: Callable[[dict[str, torch.Tensor]], object]) -> Change:
    def rewrite(folder: Path) -> None:
        path = folder / llama.WEIGHTS
        tensors = load(path.read_bytes())
        change(tensors)
        path.write_bytes(save(tensors))

    return rewrite


def content(name: str, data: bytes) -> Change:
    return lambda folder: (folder / name).write_bytes(data)


NORM = "model.norm.weight"
VOCABULARY = {each: number for number, each in enumerate(CHARACTERS)}
REFUSED: list[tuple[Change, str]] = [
    (configured({"auto_map": {"AutoModel": "evil.Model"}}), "auto_map names code to run"),
    (configured({"quantization_config": {}}), '"quantization_config" isn\'t known'),
    (configured({"model_type": "mistral"}), 'model_type is "mistral": allowed is "llama"'),
    (configured({"hidden_act": "gelu"}), 'hidden_act is "gelu": allowed is "silu"'),
    (configured({"tie_word_embeddings": False}), "tie_word_embeddings is false: allowed is true"),
    (configured({"num_hidden_layers": 0}), "num_hidden_layers is 0: allowed is 1 to 256"),
    (configured({"num_hidden_layers": True}), "num_hidden_layers is true: allowed is 1 to 256"),
    (configured({"num_hidden_layers": 10**30}), "num_hidden_layers is 1"),
    (configured({"hidden_size": "16"}), 'hidden_size is "16": allowed is 1 to 16,384'),
    (configured({"hidden_size": 12}), "hidden_size is 12: allowed is multiples of 8"),
    (configured({"num_key_value_heads": 3}), "num_key_value_heads is 3: allowed is a number that"),
    (configured({"intermediate_size": 64}), "intermediate_size is 64: allowed is 40"),
    (configured({"rms_norm_eps": 1e-5}), "rms_norm_eps is 1e-05: allowed is 1.19"),
    (configured({"rope_theta": 500000.0}), "rope_theta is 500000.0: allowed is 10000.0"),
    (configured({"rope_scaling": {"type": "linear"}}), "rope_scaling is {"),
    (configured({"vocab_size": 11}), "has 10 characters, and config.json says 11"),
    (configured({"max_position_embeddings": 10**9}), "max_position_embeddings is 1000000000"),
    (configured({"num_hidden_layers": 3}), 'tensor "model.layers.2.input_layernorm.weight"'),
    (content(llama.CONFIGURATION, b"{"), "config.json: isn't valid JSON"),
    (content(llama.CONFIGURATION, b"[" * 60_000), "config.json: isn't valid JSON"),
    (content(llama.CONFIGURATION, b"[]"), "config.json: isn't a JSON object"),
    (content(llama.CONFIGURATION, b"\xff\xfe{"), "config.json: isn't valid JSON"),
    (content(llama.CONFIGURATION, b" " * 70_000), "config.json: has more than 65,536 bytes"),
    (content(llama.TOKENISER, b" " * (33 << 20)), "tokenizer.json: has more than 33,554,432"),
    (cutting("model", {"type": "BPE", "vocab": VOCABULARY}), "model isn't the one that cuts"),
    (cutting("model", {"vocab": {"a": "0"}}), "model.vocab doesn't say a number for each"),
    (cutting("model", {"vocab": {**VOCABULARY, "z": 3}}), "model.vocab isn't of the form"),
    (cutting("model", {"vocab": {language.UNKNOWN: 0, "ab": 1}}), "model.vocab isn't of the form"),
    (cutting("model", {"vocab": {language.UNKNOWN: 0, "\ud800": 1}}), "model.vocab isn't of the"),
    (cutting("pre_tokenizer", None), "pre_tokenizer isn't the one that cuts"),
    (cutting("normalizer", {"type": "Lowercase"}), "normalizer isn't the one that cuts"),
    (cutting("added_tokens", [{"id": 10, "content": "<s>"}]), "added_tokens has what isn't in"),
    (cutting("added_tokens", [7]), "added_tokens has what isn't in"),
    (weighing(lambda of: of.update({"lm_head.weight": torch.zeros(1)})), '"lm_head.weight" isn'),
    (weighing(lambda of: of.pop(NORM)), f'the tensor "{NORM}" is missing'),
    (weighing(lambda of: of.update({NORM: torch.zeros(17)})), f"{NORM} has the shape [17]"),
    (weighing(lambda of: of.update({NORM: torch.zeros(16, dtype=torch.int64)})), "is of I64"),
    (weighing(lambda of: of[NORM].fill_(float("nan"))), "numbers that are none"),
    (weighing(lambda of: of[NORM].fill_(float("inf"))), "numbers that are none"),
    (content(llama.WEIGHTS, b""), "model.safetensors: is damaged"),
    (content(llama.WEIGHTS, b"\x80\x04evil."), "has a header of"),
    (content(llama.WEIGHTS, struct.pack("<Q", 1 << 40) + b"{}"), "has a header of 1,099,511"),
    (content(llama.WEIGHTS, struct.pack("<Q", 8) + b"{" + b" " * 7), "model.safetensors: is dama"),
    (content(llama.WEIGHTS, struct.pack("<Q", 2) + b"{}" + b"0" * (1 << 20)), "allowed for 5,616"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_what_is_damaged_or_hostile_is_refused(change: Change, words: str, model: Path) -> None:
    change(model)
    with pytest.raises(WorkloadError) as caught:
        llama_folder.read(model)
    assert str(model) in str(caught.value)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", [llama.CONFIGURATION, llama.TOKENISER, llama.WEIGHTS])
def test_a_missing_file_is_refused(name: str, model: Path) -> None:
    (model / name).unlink()
    with pytest.raises(WorkloadError, match=name):
        llama_folder.read(model)


def test_pickled_weights_are_never_opened(model: Path) -> None:
    (model / llama.WEIGHTS).rename(model / "pytorch_model.bin")
    with pytest.raises(WorkloadError, match="files hold pickled code, which is never run"):
        llama_folder.read(model)


def test_a_pipe_in_place_of_a_file_is_waited_for_by_nobody(model: Path) -> None:
    for name in (llama.TOKENISER, llama.WEIGHTS, llama.CONFIGURATION):
        path = model / name
        kept = path.read_bytes()
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(WorkloadError, match=name):
            llama_folder.read(model)
        path.unlink()
        path.write_bytes(kept)


@given(st.data())
def test_a_changed_file_is_refused_or_gives_numbers(
    written: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = Path(shutil.copytree(written, tmp_path_factory.mktemp("fuzz") / "model"))
    name = data.draw(st.sampled_from([llama.CONFIGURATION, llama.TOKENISER, llama.WEIGHTS]))
    changed = bytearray((folder / name).read_bytes())
    # Of the weights mostly what says how to read them.
    most = min(len(changed), data.draw(st.sampled_from([40, 2_500, len(changed)]))) - 1
    for place in data.draw(st.lists(st.integers(0, most), min_size=1, max_size=4)):
        changed[place] = data.draw(st.integers(0, 255))
    end = data.draw(st.sampled_from([len(changed), len(changed) // 2, most]))
    (folder / name).write_bytes(bytes(changed[:end]))
    try:
        found = llama_folder.read(folder)
    except WorkloadError as error:
        assert str(folder) in str(error)
    else:
        assert all(bool(torch.isfinite(each).all()) for each in found.state.values())
        assert found.vocabulary.size == found.architecture.outputs
    finally:
        shutil.rmtree(folder.parent)


def test_what_is_written_is_read_to_the_last_bit(tmp_path: Path) -> None:
    for number, size in enumerate(SIZES):
        model = trained(size, 4 * size.heads, number)
        llama.write(model, tmp_path / str(number))
        found = llama_folder.read(tmp_path / str(number))
        module = model.module
        assert isinstance(module, Decoder)
        assert (found.architecture.decoder, found.vocabulary) == (size, model.vocabulary)
        assert found.architecture.shape == (module.context,)
        kept = module.state_dict()
        assert found.state.keys() == kept.keys()
        assert all(torch.equal(found.state[name], each) for name, each in kept.items())


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_halves_are_read(kind: torch.dtype, model: Path) -> None:
    weighing(lambda every: every.update({k: v.to(kind) for k, v in every.items()}))(model)
    configured({"torch_dtype": str(kind).partition(".")[2]})(model)
    assert all(each.dtype == torch.float32 for each in llama_folder.read(model).state.values())


def test_what_transformers_writes_again_is_read(model: Path, tmp_path: Path) -> None:
    asked = {"folder": str(model), "tokens": [], "text": "ab", "more": 0}
    ask_transformers([{**asked, "again": str(tmp_path / "again")}])
    before, after = llama_folder.read(model), llama_folder.read(tmp_path / "again")
    assert (after.architecture, after.vocabulary) == (before.architecture, before.vocabulary)
    assert all(torch.equal(after.state[name], each) for name, each in before.state.items())


def test_a_training_begins_with_the_folder_as_with_its_run(tmp_path: Path, train: Train) -> None:
    (tmp_path / "a.txt").write_text("the water runs down to the fields of dates. " * 60)
    (tmp_path / "b.txt").write_text("all the wells of that town ran dry; dates do not! " * 50)
    short: dict[str, Any] = {"epochs": 1, "threads": 1}
    first = datasets.build(datasets.Source(str(tmp_path / "a.txt"), context=16))
    assert train(first, tmp_path / "run", width=16, layers=1, **short) == 0
    llama.write(load_trained(tmp_path / "run", None), tmp_path / "folder")
    known = vocabulary_of(tmp_path / "folder", None)
    assert known == vocabulary_of(tmp_path / "run", None) == first.vocabulary
    other = datasets.build(datasets.Source(str(tmp_path / "b.txt"), context=16, vocabulary=known))
    models: list[bytes] = []
    for name in ("run", "folder"):
        output = tmp_path / f"from-{name}"
        assert train(other, output, start_run=tmp_path / name, **short) == 0
        models.append((output / "model").read_bytes())
    assert models[0] == models[1]
    said = json.loads((tmp_path / "from-folder" / "record.json").read_text())["start"]
    of_run = open_start(tmp_path / "run", None, other)
    assert said.pop("before")["nats_per_character"] > 0
    assert said == {"digest": of_run.digest, "parameters": of_run.to_json()["parameters"]}
    assert "run" in of_run.to_json()


def test_the_command_line_refuses_a_hostile_folder_without_a_trace(
    model: Path, tmp_path: Path
) -> None:
    configured({"auto_map": {}})(model)
    (tmp_path / "a.txt").write_text("ab" * 3000)
    done = called(
        command.main, "dataset", "--source", str(tmp_path / "a.txt"), "--dry-run",
        "--vocabulary-of", str(model / "none"),
    )  # fmt: skip
    assert done.returncode == 2
    data = ("--output", str(tmp_path / "data"), "--context", "16", "--vocabulary-of", str(model))
    assert (
        called(command.main, "dataset", "--source", str(tmp_path / "a.txt"), *data).returncode == 0
    )
    (dataset,) = (tmp_path / "data").iterdir()
    run = ("run", "--dataset", str(dataset), "--output", str(tmp_path / "run"))
    done = called(command.main, *run, "--start", str(model))
    assert done.returncode == 2
    assert "auto_map names code to run" in done.stderr
    assert not (tmp_path / "run").exists()
