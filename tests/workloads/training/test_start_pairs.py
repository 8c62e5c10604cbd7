"""A training goes on with the byte pairs of the model that it begins with, and with no others."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from falaj.components.local.provider.beginnings import vocabulary_sha256
from falaj.components.local.provider.resources import dataset as resource
from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import command, language, llama, llama_folder, snapshot
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_learned, load_trained
from falaj.workloads.training.decoder_size import DecoderSize
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.start import open_start, vocabulary_of
from falaj.workloads.vocabulary import BytePairs, Characters, Vocabulary
from tests.workloads.optimization.conftest import called
from tests.workloads.training.conftest import Train
from tests.workloads.training.other_programs import ask_transformers
from tests.workloads.training.test_llama import PAIRS, trained

SHORT: dict[str, Any] = {"epochs": 1, "threads": 1, "batch_size": 8}
FIRST = "the water runs down to the fields of dates. تمر وماء " * 120
OTHER = "all the wells of that town ran dry; dates do not! تمر " * 100


def cut(folder: Path, text: str, vocabulary: int | Vocabulary | None) -> Dataset:
    (folder / "text.txt").write_text(text, encoding="utf-8")
    source = str(folder / "text.txt")
    return datasets.build(datasets.Source(source, context=16, vocabulary=vocabulary))


@pytest.fixture
def begun(tmp_path: Path, train: Train) -> Path:
    """A run on the first text, in learned tokens."""
    text = cut(tmp_path, FIRST, 270)
    assert train(text, tmp_path / "begun", width=16, layers=1, **SHORT) == 0
    return tmp_path / "begun"


# What is refused.


@pytest.mark.parametrize("other", [None, 264, BytePairs(())])
def test_other_tokens_are_refused_with_what_to_do(
    other: int | Vocabulary | None, begun: Path, tmp_path: Path
) -> None:
    text = cut(tmp_path, OTHER, other)
    with pytest.raises(WorkloadError) as caught:
        open_start(begun, None, text)
    vocabulary = text.vocabulary
    assert vocabulary is not None
    said = f"(270 tokens) than this dataset ({vocabulary.size} {vocabulary.unit})"
    assert said in str(caught.value)
    assert f"(dataset --vocabulary-of {begun})" in str(caught.value)


def test_as_many_other_tokens_are_refused(begun: Path, tmp_path: Path) -> None:
    text = cut(tmp_path, OTHER, 270)
    assert text.classes == load_learned(begun, None).record["classes"]
    with pytest.raises(WorkloadError, match="another vocabulary"):
        open_start(begun, None, text)


def test_two_vocabularies_are_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text(FIRST, encoding="utf-8")
    done = called(
        command.main, "dataset", "--source", str(tmp_path / "text.txt"), "--dry-run",
        "--vocabulary", "280", "--vocabulary-of", str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 2
    assert "--vocabulary 280 learns tokens, and --vocabulary-of" in done.stderr
    given: dict[str, Any] = {
        "source": "digits",
        "vocabulary": 280,
        "vocabularyOf": str(tmp_path),
        "site": "/s",
    }
    with pytest.raises(resource.InvalidInputsError, match="leave one of both out"):
        resource.DatasetHandler().check(given, {})


def test_sealed_tokens_are_read_with_their_keys_alone(tmp_path: Path) -> None:
    KeyRing.create(tmp_path / "keys")
    ring = KeyRing.open(tmp_path / "keys")
    text = datasets.write(cut(tmp_path, FIRST, 270), tmp_path / "datasets", ring)
    sealed, run = ("--keyring", str(tmp_path / "keys")), tmp_path / "run"
    done = called(
        command.main, "run", "--dataset", str(text), "--output", str(run), *sealed,
        "--epochs", "1", "--width", "16", "--layers", "1", "--threads", "1",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with pytest.raises(WorkloadError, match=r"--vocabulary-of .*run: .*(key|sealed)"):
        vocabulary_of(run, None)
    cutting = ("dataset", "--source", str(tmp_path / "text.txt"), "--context", "16", "--json",
               "--vocabulary-of", str(run), "--dry-run")  # fmt: skip
    assert called(command.main, *cutting).returncode == 2
    done = called(command.main, *cutting, *sealed)
    assert done.returncode == 0, done.stderr
    known = snapshot.open_dataset(text, ring).pairs
    assert known is not None
    described = json.loads(done.stdout)["features"][0]["vocabulary"]
    assert described == known.described
    assert vocabulary_sha256(run, "vocabularyOf") == known.digest


Change = Callable[[dict[str, Any]], object]
SAME = "isn't the one that cuts a text into the tokens of model.vocab"
REFUSED: list[tuple[Change, str]] = [
    (lambda of: of["model"].update(merges=7), "model.merges has 7: allowed are lists of two"),
    (lambda of: of["model"].update(merges=["a b"]), 'model.merges has "a b": allowed are lists'),
    (lambda of: of["model"]["merges"].append(["a"]), 'model.merges has ["a"]'),
    (lambda of: of["model"]["merges"].append(["a", 1]), 'model.merges has ["a", 1]'),
    (lambda of: of["model"]["merges"].append(["a", "none"]), 'model.merges has ["a", "none"]'),
    (lambda of: of["model"]["merges"].append([]), "model.merges has []"),
    (lambda of: of["model"]["merges"].append(of["model"]["merges"][0]), "is there twice"),
    (lambda of: of["model"]["merges"].reverse(), "tokenizer.json: model"),
    (lambda of: of["model"]["merges"].pop(), f"model {SAME}"),
    (lambda of: of["model"]["vocab"].update(a=98, b=97), "tokenizer.json: model"),
    (lambda of: of["model"]["vocab"].update(more=len(of["model"]["vocab"])), f"model {SAME}"),
    (lambda of: of["model"]["vocab"].update(a=True), "model.vocab doesn't say a number for each"),
    (lambda of: of["model"].update(dropout=0.1), f"model {SAME}"),
    (lambda of: of["model"].update(ignore_merges=True), f"model {SAME}"),
    (lambda of: of["model"].update(type="Unigram"), f"model {SAME}"),
    (lambda of: of["pre_tokenizer"]["pretokenizers"].pop(), f"pre_tokenizer {SAME}"),
    (lambda of: of["pre_tokenizer"]["pretokenizers"][1].update(add_prefix_space=True),
     f"pre_tokenizer {SAME}"),
    (lambda of: of.update(normalizer={"type": "NFC"}), f"normalizer {SAME}"),
    (lambda of: of.update(decoder=None), f"decoder {SAME}"),
    (lambda of: of.update(post_processor={"type": "ByteLevel"}), f"post_processor {SAME}"),
    (lambda of: of.update(added_tokens=[{"id": 97, "content": "a"}]), "added_tokens has some"),
    (lambda of: of.update(added_tokens=[{"id": 999, "content": "<s>"}]), "added_tokens has some"),
]  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("llama") / "model"
    llama.write(trained(DecoderSize(1, 2, 1), 16, pairs=PAIRS), folder)
    return folder


@pytest.mark.parametrize(("change", "words"), REFUSED)
def test_pairs_of_another_form_are_refused(
    change: Change, words: str, written: Path, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(written, tmp_path / "model"))
    path = model / llama.TOKENISER
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")
    for read in (llama_folder.read_vocabulary, llama_folder.read):
        with pytest.raises(WorkloadError) as caught:
            read(model)
        assert str(path) in str(caught.value)
        assert words in str(caught.value)


def test_another_number_of_tokens_is_refused(written: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(written, tmp_path / "model"))
    path = model / llama.CONFIGURATION
    path.write_text(json.dumps({**json.loads(path.read_text()), "vocab_size": 300}))
    with pytest.raises(WorkloadError, match=rf"has {PAIRS.size} tokens, and config.json says 300"):
        llama_folder.read(model)


# What is read, and learned.


def test_pairs_that_are_written_are_read(written: Path, tmp_path: Path) -> None:
    found = llama_folder.read(written)
    assert isinstance(found.vocabulary, BytePairs)
    assert found.vocabulary.pairs == PAIRS.pairs
    assert found.architecture.outputs == PAIRS.size
    assert vocabulary_sha256(written, "vocabularyOf") == PAIRS.digest
    asked = {"folder": str(written), "tokens": [], "text": "ab", "more": 0}
    ask_transformers([{**asked, "again": str(tmp_path / "again")}])
    again = llama_folder.read(tmp_path / "again")
    assert (again.architecture, again.vocabulary) == (found.architecture, found.vocabulary)
    assert all(torch.equal(again.state[name], each) for name, each in found.state.items())


def test_the_largest_vocabulary_is_read(tmp_path: Path) -> None:
    """Of few bytes each; that its file is short enough, what is read says."""
    pairs = [(first, second) for first in range(256) for second in range(255)]
    largest = BytePairs(tuple(pairs))
    (tmp_path / llama.TOKENISER).write_text(json.dumps(llama.tokeniser(largest)))
    assert largest.size == 65_536
    assert llama_folder.read_vocabulary(tmp_path) == largest


@pytest.mark.parametrize("low_ranks", [{}, {"lora_rank": 4}], ids=["all", "low ranks"])
def test_a_training_goes_on_in_learned_tokens_as_from_the_folder(
    low_ranks: dict[str, Any], begun: Path, tmp_path: Path, train: Train
) -> None:
    llama.write(load_trained(begun, None), tmp_path / "folder")
    known = vocabulary_of(begun, None)
    assert isinstance(known, BytePairs)
    assert known == vocabulary_of(tmp_path / "folder", None)
    other = cut(tmp_path, OTHER, known)
    assert other.pairs == known
    assert "cut with the 270 tokens of a model" in other.description["notes"]
    models: list[bytes] = []
    for start in (begun, tmp_path / "folder"):
        output = tmp_path / f"from-{start.name}"
        assert train(other, output, start_run=start, **SHORT, **low_ranks) == 0
        models.append((output / "model").read_bytes())
    assert models[0] == models[1]
    after = load_trained(tmp_path / "from-begun", None)
    assert after.vocabulary == known
    record, name = after.record, "nats_per_character"
    assert record["dataset"]["vocabulary"] == known.described
    assert record["start"]["before"][name] > record["metrics"]["held_out"][name]


def test_characters_are_cut_as_before(tmp_path: Path) -> None:
    own = cut(tmp_path, FIRST, None)
    assert isinstance(own.vocabulary, Characters)
    again = cut(tmp_path, FIRST, own.vocabulary)
    assert again.digest == own.digest
    assert (again.inputs[language.TOKENS] == own.inputs[language.TOKENS]).all()
