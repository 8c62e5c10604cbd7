"""Texts larger than memory: refused by file, kept apart by document, streamed, resumed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.workloads.errors import WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import command, language, launcher, shard_set, text_set
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.batches import prepare
from falaj.workloads.training.options import Requested
from falaj.workloads.training.shards import Shards, place
from falaj.workloads.training.snapshot import Dataset, open_dataset
from falaj.workloads.training.streamed import StreamedBatches
from falaj.workloads.vocabulary import BytePairs, Vocabulary
from tests.examples import examples
from tests.workloads.training.conftest import StopAfter, Train
from tests.workloads.training.test_streaming import (
    Memory,
    goes_on,
)

_parquet: Any = pyarrow.parquet  # of which the types here know less

CONTEXT, DOCUMENTS = 16, 240
SMALL: dict[str, Any] = {
    "width": 8, "layers": 1, "heads": 1, "key_value_heads": 1, "epochs": 2, "threads": 1,
    "batch_size": 64, "seed": 3,
}  # fmt: skip
WORDS = ("قهوة", "شاي", "تمر", "coffee", "tea", "dates", "1971\n")


def document(number: int) -> str:
    """Words, and a sign that no other document has."""
    chosen = random.Random(number)
    sign = chr(0x4E00 + number)
    return " ".join(sign if chosen.random() < 0.1 else chosen.choice(WORDS) for _ in range(40))


def write(folder: Path, count: int = DOCUMENTS) -> Path:
    for number in range(count):
        path = folder / f"of-{number % 3}" / f"{number:03d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document(number), encoding="utf-8")
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "texts")


def wanted_of(source: Path, **asked: Any) -> datasets.Source:
    values: dict[str, Any] = {"context": CONTEXT, **asked}
    return datasets.Source(str(source), **values)


def made(source: Path, output: Path, keyring: KeyRing | None = None, **asked: Any) -> Dataset:
    wanted = wanted_of(source, **asked)
    return open_dataset(datasets.write(datasets.build(wanted), output, keyring), keyring)


@pytest.fixture
def dataset(source: Path, tmp_path: Path, small_shards: None) -> Dataset:
    return made(source, tmp_path / "datasets")


def refused(folder: Path, **asked: Any) -> str:
    with pytest.raises(WorkloadError) as caught:
        datasets.build(wanted_of(folder, **asked))
    return str(caught.value)


def spoilt(path: Path) -> None:
    path.write_bytes(b"one\ntwo\n\xff\xfe")


NO_UTF8: Any = pa.array([b"a", b"\xff"]).view(pa.string())


def with_nul(path: Path) -> None:
    path.write_text("a\0b")


def link(path: Path) -> None:
    path.symlink_to("/etc/passwd")


@pytest.mark.parametrize(
    ("spoil", "asked", "words"),
    [
        (spoilt, {}, "z.txt is not utf-8 behind line 0: 'utf-8' codec can't decode byte 0xff"),
        (with_nul, {}, "z.txt holds a NUL character at position 1"),
        (link, {}, "z.txt is no file, but a link"),
        (None, {"encoding": "latin-0"}, "unknown encoding 'latin-0'"),
        (None, {"encoding": "rot13"}, "unknown encoding 'rot13'"),
        (None, {"encoding": "base64"}, "unknown encoding 'base64'"),
        (None, {"encoding": "a\0b"}, r"unknown encoding 'a\x00b'"),
        (None, {"encoding": "undefined"}, "unknown encoding 'undefined'"),
        (None, {"target": "x"}, "a folder of texts has one target"),
        (None, {"task": "regression"}, "use --task auto or language, not regression"),
        (None, {"context": 4_096}, "are needed to be streamed by 4,096 at a time"),
        (None, {"vocabulary": 100}, "--vocabulary is 100"),
    ],
)
def test_texts_that_cant_be_used(
    source: Path, spoil: Callable[[Path], None] | None, asked: dict[str, Any], words: str
) -> None:
    if spoil is not None:
        spoil(source / "of-1" / "z.txt")
    assert words in refused(source, **asked)


@pytest.mark.parametrize(
    ("columns", "asked", "words"),
    [
        ({"text": ["a"]}, {"task": "language"}, "name the column of texts (--target)"),
        (
            {"text": ["a"]},
            {"task": "language", "target": "body"},
            "0.parquet has no column 'body' of texts; it has: 'text'",
        ),
        (
            {"text": [1.5]},
            {"task": "language", "target": "text"},
            "'text' of the shard 0.parquet is numeric (from record 1 on)",
        ),
        (
            {"text": [["a"]]},
            {"task": "language", "target": "text"},
            "'text' of the shard 0.parquet is neither numbers nor texts (from record 1 on)",
        ),
        (
            {"text": ["a", "b\0"]},
            {"task": "language", "target": "text"},
            "'text' of the shard 0.parquet holds a NUL character in record 2",
        ),
        (
            {"text": NO_UTF8},
            {"task": "language", "target": "text"},
            "the column 'text' of the shard 0.parquet behind record 0 is damaged: Invalid UTF8",
        ),
        (
            {"text": NO_UTF8},
            {"target": "text", "context": None},
            "the column 'text' of the shard 0.parquet behind",
        ),
        (
            {"text": ["a", "b"] * 200},
            {"target": "text", "context": None},
            "a language model learns from 'text' itself (--task language)",
        ),
        (
            {"text": ["a", None]},
            {"task": "language", "target": "text"},
            "have 2 characters; at least 3,200 are needed",
        ),
        (
            {"text": ["a"]},
            {"task": "language", "target": "text", "encoding": "utf-8"},
            "--encoding utf-8 is of text files",
        ),
        (
            {"text": ["a"]},
            {"target": "text"},
            "leave it out, or learn from a column of texts of shards (--task language)",
        ),
    ],
)
def test_columns_that_no_language_model_learns_from(
    tmp_path: Path, columns: dict[str, Any], asked: dict[str, Any], words: str
) -> None:
    _parquet.write_table(pa.table(columns), tmp_path / "0.parquet")
    assert words in refused(tmp_path, **asked)


def test_links_to_folders_are_counted(source: Path, tmp_path: Path, small_shards: None) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "a.txt").write_text("a")
    (source / "of-1" / "more").symlink_to(tmp_path / "elsewhere")
    notes = datasets.build(wanted_of(source)).description["notes"]
    assert "1 links to folders weren't followed" in notes


def test_who_isnt_a_text_has_another_task(tmp_path: Path) -> None:
    table = tmp_path / "a.csv"
    table.write_text("a,b\n1,2\n" * 30)
    assert "--task language is of texts" in refused(table, task="language", context=None)


def test_pictures_with_notes_beside_are_pictures(tmp_path: Path) -> None:
    write(tmp_path, 3)
    (tmp_path / "of-2" / "a.png").touch()
    assert "pictures in" in refused(tmp_path, context=None)


@settings(max_examples=examples(100), deadline=None)
@given(st.text(st.sampled_from("ab\n\r é\U0001f600")), st.integers(1, 9))
def test_parts_are_the_document(text: str, most: int) -> None:
    found = list(text_set.parts_of(StringIO(text, newline=None), Path("a.txt"), most))
    whole = text.replace("\r\n", "\n").replace("\r", "\n")
    ended = whole + "\n" * (bool(whole) and not whole.endswith("\n"))
    assert "".join(found) == ended
    assert all(len(each) <= most + 1 for each in found)
    for each in found:
        assert each.endswith("\n") or "\n" not in each


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.integers(0, 40), max_size=8), st.integers(1, 9), st.integers(1, 5))
def test_windows_are_those_of_the_whole(sizes: list[int], context: int, at_once: int) -> None:
    numbers = np.arange(sum(sizes), dtype=np.uint16)
    found: list[tuple[Any, Any]] = []
    windows = text_set.Windows(context)
    for size, end in zip(sizes, np.cumsum(sizes), strict=True):
        windows.add(numbers[end - size : end])
        while windows.rows >= at_once:
            found.append(windows.take(at_once))
    if windows.rows:
        found.append(windows.take(windows.rows))
    count = max(0, len(numbers) - 1) // context
    rows, after = language.taken(numbers, count, context)
    empty = np.zeros((0, context), dtype=np.uint16)
    inputs = np.concatenate([empty, *(each[language.TOKENS] for each, _ in found)])
    assert np.array_equal(inputs, rows)
    assert np.array_equal(np.concatenate([after[:0], *(each for _, each in found)]), after)


def read(dataset: Dataset) -> tuple[str, str, str]:
    """The texts that are learned from, validated with and held out."""
    vocabulary = dataset.vocabulary
    assert isinstance(vocabulary, Vocabulary)
    shards = Shards(dataset)
    every = [shards.read(each)[0] for each in range(len(shards.rows))]
    assert {each[language.TOKENS].dtype for each in every} == {np.dtype(np.uint16)}
    resident = dataset.inputs[language.TOKENS]
    parts = (
        np.concatenate([each[language.TOKENS] for each in every]),
        resident[dataset.rows("train")],
        resident[dataset.rows("held_out")],
    )
    learned, judged, held = (vocabulary.decode(each.ravel().tolist()) for each in parts)
    return learned, judged, held


@pytest.mark.parametrize("vocabulary", [None, 300])
def test_a_document_is_in_one_part_however_often_it_is_there(
    tmp_path: Path, small_shards: None, vocabulary: int | None
) -> None:
    source = write(tmp_path / "texts")
    for number in range(0, DOCUMENTS, 2):
        (source / f"again-{number}.md").write_text(document(number), encoding="utf-8")
    found = made(source, tmp_path / "d", vocabulary=vocabulary)
    signs = [{each for each in part if "\u4e00" <= each < "\u5e00"} for part in read(found)]
    learned, judged, held = signs
    if vocabulary is None:
        # A character that is held out alone is none of the vocabulary, and stands as one that is
        # unknown.
        assert not held
        assert learned | judged <= set(found.classes or [])
        assert 0.6 * DOCUMENTS < len(learned | judged) < 0.95 * DOCUMENTS
    else:
        assert len(learned) > 30
        assert held
        assert len(learned | judged | held) > 0.95 * DOCUMENTS
        counted = found.description["statistics"]["target"]["counts"]
        assert not held & counted.keys()
    assert not learned & judged
    assert not learned & held
    assert not judged & held


def test_the_rows_are_counted_and_the_source_is_named(dataset: Dataset) -> None:
    stream, rows = dataset.stream or {}, dataset.description["rows"]
    shards = Shards(dataset)
    assert len(shards.rows) > 8
    assert sum(shards.rows) == stream["rows"]
    assert rows["train"] == stream["rows"] + stream["sample"]
    assert rows["total"] == stream["rows"] + len(dataset.labels)
    ((name, digest),) = ((each["name"], each["sha256"]) for each in stream["sources"])
    assert name == "240 texts"
    assert len(digest) == 64
    # What follows a window is the next one's first token.
    inputs, after = shards.read(0)
    assert np.array_equal(inputs[language.TOKENS][1:, 0], after[:-1])


def test_the_same_is_tokenised_once(source: Path, tmp_path: Path, small_shards: None) -> None:
    output = tmp_path / "datasets"

    def before(**asked: Any) -> bool:
        wanted = wanted_of(source, **{"vocabulary": 300, **asked})
        return datasets.made_before(wanted, output, None) is not None

    assert not before()
    first = made(source, output, vocabulary=300)
    assert before()
    assert first.pairs is not None
    assert not any(before(**each) for each in (
        {"context": 8}, {"vocabulary": 301}, {"vocabulary": None}, {"seed": 1}, {"holdout": 0.1},
        {"vocabulary": first.pairs},
    ))  # fmt: skip
    # Cut with the tokens of a model, it is of the same ones.
    other = made(source, output, vocabulary=first.pairs)
    assert other.pairs == first.pairs
    assert before(vocabulary=first.pairs)
    assert first.folder is not None
    place(first.folder, 1).unlink()
    assert not before()
    (source / "more.txt").write_text("more")
    assert not before(vocabulary=first.pairs)


def test_a_text_that_changes_while_it_is_read(
    source: Path, tmp_path: Path, small_shards: None
) -> None:
    built = datasets.build(datasets.Source(str(source), context=CONTEXT))
    (source / "of-1" / "001.txt").write_text("tea " * 300)
    with pytest.raises(WorkloadError, match="changed while they were read"):
        datasets.write(built, tmp_path / "datasets", None)
    assert list((tmp_path / "datasets").iterdir()) == []


def test_tokens_are_sealed(source: Path, tmp_path: Path, small_shards: None) -> None:
    keyring = KeyRing.create(tmp_path / "keys")
    found = made(source, tmp_path / "d", keyring, vocabulary=300)
    assert found.folder is not None
    names = [each.name for each in (found.folder / "shards").iterdir()]
    assert all(each.endswith(".parquet.sealed") for each in names)
    assert "coffee" in read(found)[0]


def test_columns_of_shards_are_documents(
    tmp_path: Path, small_shards: None, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [document(each) for each in range(DOCUMENTS)]
    rows: dict[str, Any] = {"text": [*texts, None, ""], "number": range(DOCUMENTS + 2)}
    folders = [tmp_path / each for each in ("parquet", "jsonl")]
    for folder in folders:
        folder.mkdir()
    _parquet.write_table(pa.table(rows), folders[0] / "0.parquet")
    (folders[1] / "0.jsonl").write_text(
        "".join(json.dumps({"text": each}) + "\n" for each in [*texts, None])
    )
    contents: list[tuple[Any, ...]] = []
    for folder in folders:
        asked = ["dataset", "--source", str(folder), "--target", "text", "--task", "language",
                 "--context", str(CONTEXT), "--output", str(tmp_path / "d"), "--json"]  # fmt: skip
        assert command.main(asked) == 0
        described = json.loads(capsys.readouterr().out)
        contents.append(read(open_dataset(Path(described["path"]), None)))
        assert command.main(asked) == 0  # which finds what was made
        assert json.loads(capsys.readouterr().out)["path"] == described["path"]
    assert contents[0] == contents[1]


def test_the_command_cuts_each_document_once(
    source: Path, tmp_path: Path, small_shards: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring, output = KeyRing.create(tmp_path / "keys"), tmp_path / "datasets"
    cut: list[str] = []
    encode = BytePairs.encode

    def counted(pairs: BytePairs, text: str) -> list[int]:
        cut.append(text)
        return encode(pairs, text)

    monkeypatch.setattr(BytePairs, "encode", counted)
    asked = ["dataset", "--source", str(source), "--vocabulary", "300", "--context", str(CONTEXT),
             "--output", str(output), "--keyring", str(tmp_path / "keys")]  # fmt: skip
    assert command.main(asked) == 0
    assert len(cut) == DOCUMENTS
    (folder,) = output.iterdir()  # and nothing else is left
    monkeypatch.undo()
    monkeypatch.setattr(shard_set, "LEAST_SHARD", 2_000)
    found = made(source, tmp_path / "again", vocabulary=300)
    assert folder.name == found.digest[:16]
    assert read(open_dataset(folder, keyring)) == read(found)


def batches(dataset: Dataset, rank: int, processes: int) -> StreamedBatches:
    parameters = launcher.resolve(Requested(device="cpu", **SMALL), dataset)
    return StreamedBatches(
        Shards(dataset), prepare(dataset, parameters), torch.device("cpu"),
        batch_size=50, accumulation=1, seed=3, rank=rank, processes=processes, is_even=False,
    )  # fmt: skip


def rows_of(made: StreamedBatches, epoch: int, step: int) -> list[tuple[int, ...]]:
    found: list[tuple[int, ...]] = []
    for each in made.shares(made.order(epoch), epoch, step):
        assert each.inputs.dtype == each.labels.dtype == torch.int64
        # What follows each token is the next one.
        assert torch.equal(each.inputs[:, 1:], each.labels[:, :-1])
        rows = torch.cat((each.inputs, each.labels[:, -1:]), 1).numpy()
        found += [tuple(map(int, row)) for row in rows]
    return found


def test_processes_share_each_batch_and_an_epoch_has_each_window(dataset: Dataset) -> None:
    whole = batches(dataset, 0, 1)
    team = [batches(dataset, rank, 4) for rank in range(4)]
    every: list[tuple[int, ...]] = []
    for step in range(whole.steps):
        rows = rows_of(whole, 1, step)
        every += rows
        if step < 2:
            assert sorted(row for each in team for row in rows_of(each, 1, step)) == sorted(rows)
    for each in (whole, *team):
        each.close()
    shards = Shards(dataset)
    parts = [shards.read(each) for each in range(len(shards.rows))]
    wanted: list[tuple[int, ...]] = []
    for inputs, after in parts:
        rows = np.concatenate([inputs[language.TOKENS], after[:, None]], axis=1)
        wanted += [tuple(map(int, row)) for row in rows]
    assert sorted(every) == sorted(wanted)
    assert every != wanted


def test_a_training_that_stopped_or_was_killed_goes_on_with_the_next_window(
    dataset: Dataset, tmp_path: Path, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    learn = partial(train, dataset, **SMALL)
    goes_on(learn, tmp_path, capsys, killed=11, steps=4, said="epoch 0, step 8")
    record = json.loads((tmp_path / "whole" / "record.json").read_text())
    assert 0 <= record["timings"]["rows_share"] < 1


def test_it_learns_what_is_in_the_texts(
    source: Path, tmp_path: Path, small_shards: None, train: Train
) -> None:
    found = made(source, tmp_path / "d", vocabulary=280)
    asked = {**SMALL, "width": 32, "epochs": 3, "learning_rate": 0.01, "batch_size": 16}
    assert train(found, tmp_path / "run", **asked) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    figures = record["metrics"]["held_out"]
    assert figures["nats_per_character"] < 0.6 * figures["baseline_nats"]


class StopAfterMemory(StopAfter):
    """Looks at the memory as well."""

    def __init__(self, memory: Memory, looks: int) -> None:
        super().__init__(looks)
        self._memory = memory

    def asked(self) -> bool:
        self._memory.asked()
        return super().asked()


def test_memory_has_a_small_part_of_a_large_text(
    tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 12 million characters, which are 96 MB as the numbers that are learned from."""
    # What is at hand is as large of a set of any size, and would be much of one so small.
    monkeypatch.setattr(shard_set, "SAMPLE_BYTES", 1 << 20)
    source, small = tmp_path / "texts", write(tmp_path / "small")
    source.mkdir()
    chosen = np.random.default_rng(0)
    letters = chosen.integers(0x61, 0x7B, (4, 3_000_000), dtype=np.uint8)
    letters[:, ::80] = 0x0A
    for number in range(4):
        (source / f"{number}.txt").write_bytes(letters[number].tobytes())
    del letters
    made(small, tmp_path / "first")  # what is loaded once isn't the set's
    memory = Memory()
    found = made(source, tmp_path / "d", context=128)
    memory.asked()
    assert (found.stream or {})["rows"] > 75_000
    size = 8 * 12 << 20
    assert memory.most < size / 2
    asked = {**SMALL, "epochs": 1, "batch_size": 128}
    train(found, tmp_path / "warm", StopAfter(2), **asked)
    memory = Memory()
    assert train(found, tmp_path / "run", StopAfterMemory(memory, 6), **asked) == 75
    assert memory.most < size / 2
