"""A language model's weights as other programs read them, compared with one of these."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training import command as training
from falaj.workloads.training import llama
from falaj.workloads.training.byte_pairs import learn
from falaj.workloads.training.checkpoint import Trained
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.decoder_size import DecoderSize
from falaj.workloads.training.language import UNKNOWN
from falaj.workloads.vocabulary import BytePairs
from tests.workloads.optimization.conftest import called
from tests.workloads.training.other_programs import ask_transformers

SIZES = (DecoderSize(1, 1, 1), DecoderSize(2, 4, 2), DecoderSize(3, 6, 3), DecoderSize(2, 4, 4))
CHARACTERS = [UNKNOWN, "\n", " ", "'", "a", "b", "é", "ش", "ق", "👍"]


PAIRS = learn(["ab 'b b\r\nشق قش شق zé 👍👍 ab ab  ab 123 1234"] * 3, 290)


def trained(
    size: DecoderSize, width: int, seed: int = 0, pairs: BytePairs | None = None
) -> Trained:
    torch.manual_seed(seed)
    names = CHARACTERS if pairs is None else pairs.names
    module = Decoder(16, len(names), width, size)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return Trained("text", "language", module.eval(), None, names, None, {}, pairs=pairs)


def test_llama_answers_as_the_model_does(tmp_path: Path) -> None:
    text = "ab\r\nشق zé 👍'"
    models: dict[Path, Trained] = {}
    tokens = torch.randint(0, len(CHARACTERS), (3, 16))
    for number, size in enumerate(SIZES):
        models[tmp_path / str(number)] = model = trained(size, 4 * size.heads, number)
        llama.write(model, tmp_path / str(number))
    asked = [
        {"folder": str(folder), "tokens": tokens.tolist(), "text": text, "more": 0}
        for folder in models
    ]
    known = [each if each in CHARACTERS else UNKNOWN for each in text.replace("\r\n", "\n")]
    for other, model in zip(ask_transformers(asked), models.values(), strict=True):
        with torch.no_grad():
            torch.testing.assert_close(
                torch.tensor(other["logits"]), model.module(tokens), rtol=1e-4, atol=1e-4
            )
        assert other["numbers"] == [CHARACTERS.index(each) for each in known]
        assert other["decoded"] == "".join(known)


def test_pairs_of_bytes_have_the_same_numbers_and_answers(tmp_path: Path) -> None:
    model = trained(DecoderSize(2, 4, 2), 16, pairs=PAIRS)
    files = llama.write(model, tmp_path / "model")
    texts = ["ab\r\nشق zé 👍'", " ", "ab  12345\n\n\tAB", "\u3000ق\u0301 \x00\x7f"]
    tokens = [PAIRS.encode(each) for each in texts]
    asked = [
        {"folder": str(tmp_path / "model"), "tokens": [some[:16]], "text": text, "more": 4}
        for some, text in zip(tokens, texts, strict=True)
    ]
    for other, some, text in zip(ask_transformers(asked), tokens, texts, strict=True):
        rows = torch.tensor([some[:16]])
        with torch.no_grad():
            torch.testing.assert_close(
                torch.tensor(other["logits"]), model.module(rows), rtol=1e-4, atol=1e-4
            )
        assert other["numbers"] == some
        assert other["decoded"] == text
    written = json.loads((tmp_path / "model" / "tokenizer.json").read_text(encoding="utf-8"))
    assert len(written["model"]["vocab"]) == PAIRS.size
    assert "tokenizer.json" in files


def test_each_matrix_stands_once_and_nothing_is_code(tmp_path: Path) -> None:
    files = llama.write(trained(DecoderSize(layers=2), 16), tmp_path / "model")
    assert files == sorted(each.name for each in (tmp_path / "model").iterdir())
    assert {Path(each).suffix for each in files} == {".json", ".safetensors"}
    with safe_open(tmp_path / "model" / llama.WEIGHTS, "pt") as weights:
        names = set(weights.keys())
    assert len(names) == 2 + 2 * 9
    assert "lm_head.weight" not in names
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert config["tie_word_embeddings"] is True
    for each in (tmp_path / "model").iterdir():
        assert each.stat().st_mode & 0o077 == 0


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(WorkloadError, match="is there already: name a new folder"):
        llama.write(trained(DecoderSize(), 16), tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["mine.txt"]


def test_other_models_have_another_form(tmp_path: Path) -> None:
    model = Trained("table", "regression", torch.nn.Linear(2, 1), None, None, None, {})
    with pytest.raises(WorkloadError, match="the run learned a model of table: only a language"):
        llama.write(model, tmp_path / "model")
    done = called(
        training.main, "export", "--run", str(tmp_path), "--output", str(tmp_path / "model")
    )
    assert done.returncode == 2
    assert not (tmp_path / "model").exists()
