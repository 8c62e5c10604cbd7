"""A text in tokens that are pairs of bytes, from its file to a model that is served."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.local.provider.resources import dataset as resource
from falaj.workloads import vocabulary
from falaj.workloads.errors import WorkloadError
from falaj.workloads.inference.language.cache import since
from falaj.workloads.optimization import __main__ as optimization
from falaj.workloads.optimization import card_text
from falaj.workloads.optimization.worth import NotComparableError, Served
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import batches, language, loop, snapshot
from falaj.workloads.training import command as training
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.byte_pairs import learn
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.vocabulary import BytePairs, Characters, Vocabulary
from tests.workloads.inference.languages import ask, joined, streamed, texts
from tests.workloads.inference.serving import Site, started
from tests.workloads.optimization.conftest import Run, called, trained

WORDS = ("قهوة", "شاي", "تمر", "☕🌴", "coffee", "dates 2026")
CONTEXT = 16


def written(folder: Path, words: int = 4_000) -> Path:
    """Each word is mostly followed by the next one."""
    chosen, said, place = random.Random(3), list[str](), 0
    for _ in range(words):
        place = chosen.randrange(len(WORDS)) if chosen.random() < 0.2 else place + 1
        said.append(WORDS[place % len(WORDS)])
    path = folder / "orders.txt"
    path.write_text(" ".join(said), encoding="utf-8")
    return path


def source(path: Path, vocabulary: int | Vocabulary | None = 280) -> datasets.Source:
    return datasets.Source(str(path), context=CONTEXT, vocabulary=vocabulary)


# -- the dataset ---------------------------------------------------------------------------


def test_a_vocabulary_is_learned_from_the_training_part_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = written(tmp_path), list[str]()

    def listening(parts: Iterable[str], size: int) -> BytePairs:
        seen.extend(parts)
        return learn(seen, size)

    monkeypatch.setattr(datasets, "learn", listening)
    made = datasets.build(source(path))
    plain = datasets.build(source(path, vocabulary=None))
    assert made.pairs is not None
    characters = Characters(tuple(plain.classes or ()))
    assert plain.vocabulary == characters
    train = characters.decode(plain.inputs[language.TOKENS][plain.rows("train")].ravel())
    assert sorted("".join(seen)) == sorted(train)
    # What is held out are the same characters, whatever the tokens.
    held_out = characters.decode(plain.inputs[language.TOKENS][plain.rows("held_out")].ravel())
    tokens = made.inputs[language.TOKENS][made.rows("held_out")]
    assert held_out.encode().startswith(
        b"".join(made.pairs.contents[each] for each in tokens.ravel())
    )
    same = ("content_digest", "split_digest")
    assert [made.description[each] for each in same] == [plain.description[each] for each in same]


def test_the_same_text_is_the_same_dataset_and_another_vocabulary_another_one(
    tmp_path: Path,
) -> None:
    path = written(tmp_path)
    digests = [datasets.build(source(path, vocabulary=each)).digest for each in (280, 280, 260)]
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("own", [None, 270])
def test_a_text_can_be_cut_with_the_vocabulary_of_another_one(
    own: int | None, tmp_path: Path
) -> None:
    first = datasets.build(source(written(tmp_path), own)).vocabulary
    assert first is not None
    other = tmp_path / "other.txt"
    other.write_text("عود وقهوة, oud and coffee 7. " * 200, encoding="utf-8")
    made = datasets.build(source(other, first))
    folder = datasets.write(made, tmp_path / "kept", None)
    assert snapshot.open_dataset(folder, None).vocabulary == made.vocabulary == first
    said = first.decode(made.inputs[language.TOKENS][made.rows("train")].ravel())
    assert "وقهوة" in said
    assert ("\ufffd" in said) is (own is None)


def test_windows_follow_each_other_and_are_followed_by_the_next_token(tmp_path: Path) -> None:
    made = datasets.build(source(written(tmp_path)))
    for part in ("train", "held_out"):
        rows = made.rows(part)
        tokens, after = made.inputs[language.TOKENS][rows], made.labels[rows]
        assert tokens.shape[1] == made.context == CONTEXT
        assert (after[:-1] == tokens[1:, 0]).all()
    assert int(made.inputs[language.TOKENS].max()) < 280


def test_what_is_asked_for_is_said_where_a_text_has_not_so_many_pairs(tmp_path: Path) -> None:
    made = datasets.build(source(written(tmp_path), vocabulary=65_536))
    assert made.pairs is not None
    assert any("not 65,536: no more pairs" in note for note in made.description["notes"])
    assert made.description["classes"] == [str(each) for each in range(made.pairs.size)]


def test_a_snapshot_has_its_vocabulary_sealed_with_its_rows(tmp_path: Path) -> None:
    ring = KeyRing.create(tmp_path / "ring")
    made = datasets.build(source(written(tmp_path)))
    folder = datasets.write(made, tmp_path / "sealed", ring)
    again = snapshot.open_dataset(folder, ring)
    assert again.pairs == again.vocabulary == made.pairs
    assert (again.digest, again.context) == (made.digest, CONTEXT)
    assert made.pairs is not None
    words = [each.strip() for each in made.pairs.contents if len(each) > 5]
    assert b"coffee" in words
    for file in folder.iterdir():
        assert not any(each in file.read_bytes() for each in (*words, b"falaj.vocabulary"))
    assert datasets.write(made, tmp_path / "sealed", ring) == folder


@pytest.mark.parametrize("noted", [None, b"", b"{}", BytePairs(()).to_bytes()])
def test_a_vocabulary_that_was_changed_is_refused(noted: bytes | None, tmp_path: Path) -> None:
    folder = datasets.write(datasets.build(source(written(tmp_path))), tmp_path / "plain", None)
    table = pq.read_table(folder / "data.parquet")
    metadata = None if noted is None else {b"falaj.vocabulary": noted}
    pq.write_table(table.replace_schema_metadata(metadata), folder / "data.parquet")
    with pytest.raises(WorkloadError, match=r"changed after it was made|vocabulary can't be used"):
        snapshot.open_dataset(folder, None)


def test_what_can_have_no_vocabulary_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, 300)
    for size in (255, 65_537):
        with pytest.raises(WorkloadError, match=f"--vocabulary is {size}: allowed is 256 to 65,5"):
            datasets.build(source(path, vocabulary=size))
    with pytest.raises(WorkloadError, match="--vocabulary 280 is of texts, and digits is none"):
        datasets.build(datasets.Source("digits", vocabulary=280))
    with pytest.raises(WorkloadError, match=r"windows of 16 tokens.*a smaller --context"):
        datasets.build(source(path, vocabulary=400))


def test_a_stack_is_told_how_many_there_are_and_not_which(tmp_path: Path) -> None:
    made = datasets.build(source(written(tmp_path)))
    outputs = resource._outputs(made.description)  # pyright: ignore[reportPrivateUsage]
    assert outputs["classes"] == []
    assert outputs["features"] == 1


# -- figures and memory --------------------------------------------------------------------


@given(st.lists(st.integers(0, 299), min_size=1, max_size=50))
def test_nats_of_a_token_are_those_of_a_character_by_their_numbers(tokens: list[int]) -> None:
    pairs = learn([" ".join(WORDS) * 9], 280)
    some = [each % pairs.size for each in tokens]
    share = language.tokens_a_character(pairs, np.array(some))
    begun = sum(b & 0xC0 != 0x80 for each in some for b in pairs.contents[each])
    assert share == len(some) / max(1, begun)
    known = Characters(("\ufffd", "a", "ق", "🌴"))
    assert language.tokens_a_character(known, np.array([[0, 1], [2, 3]])) == 1


def test_fewer_windows_are_asked_at_once_of_a_large_vocabulary() -> None:
    assert loop.windows_at_once(128, 1_000) == 32
    assert loop.windows_at_once(128, 65_536) == 8
    assert loop.windows_at_once(32_768, 65_536) == 1
    inputs, targets = torch.zeros(9, 4, dtype=torch.int64), torch.ones(9, 4, dtype=torch.int64)
    asked: list[int] = []

    def module(windows: torch.Tensor) -> torch.Tensor:
        asked.append(len(windows))
        return torch.zeros(*windows.shape, 2)

    nats, _ = loop.follow(module, inputs, targets, 1 << 22)
    assert (nats, asked) == (pytest.approx(math.log(2)), [4, 4, 1])


def test_a_vocabulary_that_memory_does_not_suffice_for_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = datasets.write(datasets.build(source(written(tmp_path))), tmp_path / "plain", None)
    free = SimpleNamespace(available=4 << 20)
    monkeypatch.setattr(batches.psutil, "virtual_memory", lambda: free)
    done = called(
        training.main, "run", "--dataset", str(folder), "--output", str(tmp_path / "run"),
        "--device", "cpu", "--width", "4096",
    )  # fmt: skip
    assert done.returncode == 2
    assert "280 tokens, a matrix of the width 4,096" in done.stderr
    assert "take a smaller --vocabulary, --context, --width" in done.stderr


# -- a run, what is made of it, and its answers --------------------------------------------


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("pairs")
    cut = ("--source", str(written(folder)), "--vocabulary", "280", "--context", str(CONTEXT))
    return trained(
        folder, *cut, epochs=4, model="auto", more=("--width", "16", "--layers", "1")
    )  # fmt: skip


@pytest.fixture(scope="module")
def made(orders: Run) -> Path:
    output = orders.path.parent / "optimised"
    done = called(
        optimization.main, "--run", str(orders.path), "--dataset", str(orders.dataset),
        "--output", str(output), "--engine", "onnxruntime",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return output


def told(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def test_a_record_has_figures_of_characters_tokens_and_bytes(orders: Run) -> None:
    record, opened = told(orders.path / "record.json"), load_trained(orders.path, None)
    known = snapshot.open_dataset(orders.dataset, None).pairs
    assert known is not None
    assert opened.pairs == opened.vocabulary == known
    assert record["dataset"]["vocabulary"] == known.described
    figures = record["metrics"]["held_out"]
    assert figures["tokens"] == figures["rows"] * CONTEXT
    assert figures["characters"] > figures["tokens"]
    total = figures["nats_per_token"] * figures["tokens"]
    assert figures["nats_per_character"] == pytest.approx(total / figures["characters"], rel=1e-4)
    assert figures["perplexity"] == pytest.approx(math.exp(figures["nats_per_character"]))
    assert figures["nats_per_character"] < figures["baseline_nats"]
    # An Arabic letter has two bytes and a palm tree four.
    bits = figures["nats_per_character"] / math.log(2)
    assert bits / 4 < figures["bits_per_byte"] < bits


def test_a_package_says_what_its_tokens_are_and_hides_which(made: Path, orders: Run) -> None:
    fields = told(made / "fields.json")
    figures = told(orders.path / "record.json")["metrics"]["held_out"]
    known = load_trained(orders.path, None).pairs
    assert known is not None
    assert fields["classes"] is None
    assert fields["dataset"]["features"][0]["vocabulary"] == known.described
    assert set(fields["statistics"]["target"]["counts"]) == set(" ".join(WORDS))
    assert fields["outputs"][0]["shape"] == [-1, 280]
    for each in ("model.onnx", "model.float.onnx"):
        [noted] = onnx.load(str(made / each)).metadata_props
        assert (noted.key, vocabulary.of_bytes(noted.value)) == (vocabulary.METADATA, known)
    record = told(made / "optimization.json")
    assert record["float"]["nats_per_character"] == pytest.approx(
        figures["nats_per_character"], rel=1e-4
    )
    assert record["parity"] < 1e-4
    lines = dict(card_text.lines(fields))
    assert (lines["vocabulary"], lines["looks back on"]) == ("280 tokens", f"{CONTEXT} tokens")
    assert "saying how frequent each token is" in lines["held-out nats per character"]


def test_a_version_of_other_tokens_is_not_compared(made: Path, orders: Run) -> None:
    fields, about = told(made / "fields.json"), told(orders.dataset / "dataset.json")
    rows = snapshot.load_rows(orders.dataset, None, "held_out")
    served: Any = SimpleNamespace(manifest=fields, version=1)
    other = json.loads(json.dumps(about))
    other["features"][0]["vocabulary"]["digest"] = "0" * 64
    with pytest.raises(NotComparableError, match="its tokens are others"):
        Served(served, None).losses(rows, other)


def test_the_service_goes_on_as_the_trained_model_does(
    made: Path, orders: Run, tmp_path: Path
) -> None:
    opened = load_trained(orders.path, None)
    known = opened.pairs
    assert known is not None

    def goes_on(prompt: str, most: int) -> str:
        tokens = known.encode(prompt)
        for _ in range(most):
            with torch.no_grad():
                window = tokens[since(len(tokens), CONTEXT) :]
                answers = opened.module(torch.tensor([window]))
            tokens.append(int(answers[0, -1].argmax()))
        return known.decode(tokens[-most:])

    site = Site(tmp_path / "site")
    site.write(model="orders")
    content = (made / "model.float.onnx").read_bytes()
    site.publish(content, name="orders", fields=told(made / "fields.json"))
    with started(site, 1) as server:
        token = site.token("predict")
        for prompt in ("قهوة ☕", "dates 20", "x"):
            more = {"model": "orders", "temperature": 0, "max_tokens": 24}
            whole = ask(server, token, prompt, **more)
            assert texts(whole) == [goes_on(prompt, 24)]
            assert whole[1]["usage"]["prompt_tokens"] == len(known.encode(prompt))
            pieces = streamed(ask(server, token, prompt, stream=True, **more))
            assert joined(pieces) == goes_on(prompt, 24)
