"""Folders of pictures larger than memory: kept apart by picture, streamed, resumed."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from falaj.workloads import bounds
from falaj.workloads.errors import IntegrityError, WorkloadError
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import command, launcher, picture_files, shard_set
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.batches import Augmentation, prepare
from falaj.workloads.training.options import Requested
from falaj.workloads.training.shards import Shards, place
from falaj.workloads.training.snapshot import Dataset, open_dataset, require_whole
from falaj.workloads.training.streamed import StreamedBatches
from tests.examples import examples
from tests.workloads.training.conftest import StopAfter, Train
from tests.workloads.training.test_streaming import Memory, goes_on, history, weights

COUNT = 140
"""Pictures of each class."""
CLASSES = ("dawn", "dusk", "ليل")
SIDE = 8
SMALL: dict[str, Any] = {"width": 4, "epochs": 2, "threads": 1, "batch_size": 32, "seed": 3}

Row = tuple[bytes, int]


def pixels(number: int, label: int, side: int = SIDE) -> Any:
    """Noise that is lightest in the channel of its class."""
    random = np.random.default_rng((number, label))
    image = random.integers(0, 120, (side, side, 3), dtype=np.uint8)
    image[..., label] += 130
    return image


def write(folder: Path, count: int = COUNT, side: int = SIDE, ending: str = "png") -> Path:
    for label, name in enumerate(CLASSES):
        for number in range(count):
            path = folder / name / f"of-{number % 2}" / f"{number:04d}.{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels(number, label, side)).save(path)
    return folder


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "skies")


@pytest.fixture
def few_in_memory(monkeypatch: pytest.MonkeyPatch, small_shards: None) -> None:
    monkeypatch.setattr(bounds, "PICTURES_IN_MEMORY", 50)


def made(source: Path, output: Path, keyring: KeyRing | None = None, **asked: Any) -> Dataset:
    wanted = datasets.Source(str(source), **asked)
    return open_dataset(datasets.write(datasets.build(wanted), output, keyring), keyring)


@pytest.fixture
def dataset(source: Path, tmp_path: Path, few_in_memory: None) -> Dataset:
    return made(source, tmp_path / "datasets")


def rows_in(images: Any, labels: Any) -> list[Row]:
    return [
        (image.astype(np.uint8).tobytes(), int(label))
        for image, label in zip(images, labels, strict=True)
    ]


def read(dataset: Dataset) -> tuple[list[Row], list[Row], list[Row]]:
    """The pictures that are learned from, validated with and held out, with their classes."""
    shards = Shards(dataset)
    learned: list[Row] = []
    for each in range(len(shards.rows)):
        inputs, labels = shards.read(each)
        assert inputs["image"].dtype == np.uint8
        learned += rows_in(inputs["image"], labels)
    judged, held = (
        rows_in(dataset.inputs["image"][rows], dataset.labels[rows])
        for rows in (dataset.rows("train"), dataset.rows("held_out"))
    )
    return learned, judged, held


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"target": "digit"}, "pictures in folders have one target, 'class', not 'digit'"),
        ({"task": "regression"}, "are classified: use --task auto or classification"),
        ({"task": "language"}, "--task language is of texts"),
        ({"context": 64}, "--context 64 is of texts"),
        ({"holdout": 0.9}, "--holdout is 0.9: allowed is 0.05 to 0.5"),
    ],
)
def test_options_that_pictures_dont_have(
    source: Path, tmp_path: Path, few_in_memory: None, asked: dict[str, Any], words: str
) -> None:
    made(source, tmp_path / "d")
    wanted = datasets.Source(str(source), **asked)
    for refuse in (
        lambda: datasets.build(wanted), lambda: datasets.made_before(wanted, tmp_path / "d", None),
    ):  # fmt: skip
        with pytest.raises(WorkloadError) as caught:
            refuse()
        assert words in str(caught.value)


def test_who_needs_all_rows_refuses_a_stream(
    dataset: Dataset, tmp_path: Path, train: Train
) -> None:
    with pytest.raises(WorkloadError, match="or of 50 pictures at most"):
        require_whole(dataset, "a federation")
    with pytest.raises(WorkloadError, match="--class-weights balanced needs the classes"):
        train(dataset, tmp_path / "run", **SMALL, class_weights="balanced")


def test_a_picture_that_changes_while_it_is_read(
    source: Path, tmp_path: Path, few_in_memory: None
) -> None:
    built = datasets.build(datasets.Source(str(source)))
    changed = source / "dawn" / "of-1" / "0001.png"
    Image.fromarray(pixels(7, 2)).save(changed)
    with pytest.raises(WorkloadError, match=r"dawn/of-1/0001\.png changed while it was read"):
        datasets.write(built, tmp_path / "datasets", None)
    assert list((tmp_path / "datasets").iterdir()) == []


def test_a_picture_that_is_cut_off_leaves_nothing(
    source: Path, tmp_path: Path, few_in_memory: None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = source / "dusk" / "of-1" / "0139.png"
    path.write_bytes(path.read_bytes()[:-80])
    output = tmp_path / "datasets"
    assert command.main(["dataset", "--source", str(source), "--output", str(output)]) == 2
    said = capsys.readouterr().err
    assert f"1 of {3 * COUNT} files of" in said
    assert "dusk/of-1/0139.png (" in said
    assert "put whole ones in their place" in said
    assert list(output.iterdir()) == []


def test_size_alone_decides(
    source: Path, monkeypatch: pytest.MonkeyPatch, small_shards: None
) -> None:
    for most, is_streamed in ((3 * COUNT, False), (3 * COUNT - 1, True)):
        monkeypatch.setattr(bounds, "PICTURES_IN_MEMORY", most)
        built = datasets.build(datasets.Source(str(source)))
        assert (built.stream is not None) == is_streamed


def test_it_is_what_the_same_folder_is_in_memory(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_shards: None
) -> None:
    for number in range(0, COUNT, 3):
        shutil.copy(
            source / "dawn" / f"of-{number % 2}" / f"{number:04d}.png",
            source / "dawn" / f"copy-{number}.png",
        )
    for number in range(5):
        # The same picture in another class, and in another form.
        Image.fromarray(pixels(number, 1)).save(source / "dawn" / f"wrong-{number}.bmp")
    (source / "notes.txt").write_text("x")
    whole = datasets.build(datasets.Source(str(source)))
    monkeypatch.setattr(bounds, "PICTURES_IN_MEMORY", 50)
    found = made(source, tmp_path / "d")
    parts = read(found)
    every = [row for part in parts for row in part]
    assert Counter(every) == Counter(rows_in(whole.inputs["image"], whole.labels))
    for key in ("classes", "features", "target", "task", "family"):
        assert found.description[key] == whole.description[key]
    for key in ("total", "dropped"):
        assert found.description["rows"][key] == whole.description["rows"][key]
    notes = found.description["notes"]
    assert notes[0] == f"streamed from {3 * COUNT + 47 + 5} pictures"
    assert notes[1:] == whole.description["notes"]
    assert "10 pictures lie in more than one class" in notes
    # However often and in whatever class it is there, it is in one part.
    seen = [{image for image, _ in part} for part in parts]
    assert all(seen)
    assert not seen[0] & seen[1]
    assert not seen[0] & seen[2]
    assert not seen[1] & seen[2]
    assert 0.1 < len(parts[2]) / len(every) < 0.3


@pytest.mark.parametrize(("colour", "channels"), [((0, 0, 0), 1), ((0, 0, 1), 3)])
def test_colours_are_counted_as_in_memory(
    tmp_path: Path, few_in_memory: None, colour: tuple[int, int, int], channels: int
) -> None:
    """Files that may have colours and don't, but for one at most."""
    for number in range(60):
        light = np.full((SIDE, SIDE, 3), number, dtype=np.uint8)
        light[0] += np.array(colour if number == 59 else (0, 0, 0), dtype=np.uint8)
        path = tmp_path / "light" / str(number % 2) / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(light).save(path)
    shape = datasets.build(datasets.Source(str(tmp_path / "light"))).inputs["image"].shape
    assert shape[1:] == (channels, SIDE, SIDE)


def test_each_shard_has_all_classes(dataset: Dataset) -> None:
    shards = Shards(dataset)
    assert len(shards.rows) > 20
    mixed = [len(set(shards.read(each)[1].tolist())) for each in range(len(shards.rows) - 1)]
    assert sum(mixed) / len(mixed) > 2.5
    stream, rows = dataset.stream or {}, dataset.description["rows"]
    assert rows["total"] == 3 * COUNT == stream["rows"] + len(dataset.labels)
    assert rows["train"] == stream["rows"] + stream["sample"]
    ((name, digest),) = ((each["name"], each["sha256"]) for each in stream["sources"])
    assert name == "420 pictures"
    assert len(digest) == 64


def test_the_same_is_made_once(source: Path, tmp_path: Path, few_in_memory: None) -> None:
    output = tmp_path / "datasets"

    def before(**asked: Any) -> bool:
        return (
            datasets.made_before(datasets.Source(str(source), **asked), output, None) is not None
        )

    assert not before()
    first = made(source, output)
    assert before()
    assert not before(seed=1)
    assert not before(holdout=0.3)
    moved = tmp_path / "elsewhere" / "skies"
    shutil.copytree(source, moved)
    assert made(moved, tmp_path / "other").digest == first.digest
    assert first.folder is not None
    place(first.folder, 1).unlink()
    assert not before()
    made(source, output)
    assert before()
    (source / "dawn" / "of-0" / "0000.png").rename(source / "dawn" / "renamed.png")
    assert not before()


def test_the_command_makes_each_picture_small_once_and_seals_it(
    source: Path, tmp_path: Path, few_in_memory: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyring, output, seen = KeyRing.create(tmp_path / "keys"), tmp_path / "datasets", []
    square = picture_files.square

    def counted(file: Any, side: int) -> Any:
        seen.append(side)
        return square(file, side)

    monkeypatch.setattr(picture_files, "square", counted)
    asked = ["dataset", "--source", str(source), "--output", str(output), "--keyring",
             str(tmp_path / "keys")]  # fmt: skip
    assert command.main(asked) == 0
    assert len(seen) == 3 * COUNT + 1  # one tells that there are colours
    assert command.main(asked) == 0
    assert len(seen) == 3 * COUNT + 1
    monkeypatch.undo()
    (folder,) = output.iterdir()  # and nothing else is left
    monkeypatch.setattr(bounds, "PICTURES_IN_MEMORY", 50)
    monkeypatch.setattr(shard_set, "LEAST_SHARD", 2_000)
    found = open_dataset(folder, keyring)
    plain = made(source, tmp_path / "plain")
    assert found.digest == plain.digest
    assert read(found) == read(plain)
    files = sorted((folder / "shards").iterdir())
    assert all(each.name.endswith(".parquet.sealed") for each in files)
    files[2].write_bytes(files[1].read_bytes())
    with pytest.raises(IntegrityError, match=r"000002\.parquet\.sealed"):
        Shards(found).read(2)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2)), max_size=60), st.integers(1, 7))
def test_what_was_seen_is_known_however_it_is_kept(
    given: list[tuple[int, int]], latest: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(picture_files, "_LATEST", latest)
        seen = picture_files.Seen()
        new = [seen.is_new(np.full(4, image, dtype=np.uint8), label) for image, label in given]
    assert new == [each not in given[:number] for number, each in enumerate(given)]
    classes = Counter(image for image, _ in set(given))
    assert seen.contrary == sum(count for count in classes.values() if count > 1)


def batches(dataset: Dataset, rank: int, processes: int) -> StreamedBatches:
    parameters = launcher.resolve(Requested(device="cpu", **SMALL), dataset)
    return StreamedBatches(
        Shards(dataset), prepare(dataset, parameters), torch.device("cpu"),
        batch_size=50, accumulation=1, seed=3, rank=rank, processes=processes, is_even=False,
    )  # fmt: skip


def rows_of(made: StreamedBatches, epoch: int, step: int) -> list[Row]:
    return [
        row
        for each in made.shares(made.order(epoch), epoch, step)
        for row in rows_in(each.inputs.numpy(), each.labels.numpy())
    ]


def test_what_is_read_ahead_is_bounded_by_its_bytes(dataset: Dataset) -> None:
    data = prepare(dataset, launcher.resolve(Requested(device="cpu", **SMALL), dataset))
    for side, ahead in ((SIDE, 64), (32, 27), (224, 2)):
        architecture = dataclasses.replace(data.architecture, shape=(3, side, side))
        found = StreamedBatches(
            Shards(dataset), dataclasses.replace(data, architecture=architecture),
            torch.device("cpu"), batch_size=50, accumulation=1, seed=3, rank=0, processes=1,
            is_even=False,
        )  # fmt: skip
        assert found.ahead == ahead


def test_processes_share_each_batch_and_an_epoch_has_each_picture(
    dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Augmentation, "apply", lambda _, inputs, __: inputs)
    whole = batches(dataset, 0, 1)
    team = [batches(dataset, rank, 4) for rank in range(4)]
    every: list[Row] = []
    for step in range(whole.steps):
        rows = rows_of(whole, 1, step)
        every += rows
        shared = [rows_of(each, 1, step) for each in team]
        assert sorted(row for each in shared for row in each) == sorted(rows)
        assert max(map(len, shared)) - min(map(len, shared)) <= 2
    for each in (whole, *team):
        each.close()
    assert sorted(every) == sorted(read(dataset)[0])


def test_a_training_that_stopped_or_was_killed_goes_on_with_the_next_picture(
    dataset: Dataset, tmp_path: Path, train: Train, capsys: pytest.CaptureFixture[str]
) -> None:
    learn = partial(train, dataset, **SMALL)
    goes_on(learn, tmp_path, capsys, killed=7, steps=3, said="epoch 0, step 6")


@pytest.mark.thorough
def test_a_process_that_is_killed_goes_on_with_the_same_bits(
    dataset: Dataset, tmp_path: Path, train: Train
) -> None:
    """By SIGKILL, as soon as a checkpoint within the first epoch is there."""
    assert dataset.folder is not None

    def command_of(name: str) -> list[str]:
        asked = {**SMALL, "epochs": 15, "checkpoint_steps": 3}
        options = [f"--{key.replace('_', '-')}={value}" for key, value in asked.items()]
        return [sys.executable, "-m", "falaj.workloads.training", "run", "--dataset",
                str(dataset.folder), "--output", str(tmp_path / name), "--device", "cpu",
                "--progress", "json", *options]  # fmt: skip

    with subprocess.Popen(command_of("killed"), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if json.loads(line)["event"] == "epoch":
                break
        process.kill()
        assert process.wait() == -9
    for name in ("killed", "whole"):
        subprocess.run(command_of(name), check=True, stdout=subprocess.DEVNULL)
    assert history(tmp_path / "killed") == history(tmp_path / "whole")
    assert weights(tmp_path / "killed") == weights(tmp_path / "whole")


def test_it_learns_what_pictures_show(dataset: Dataset, tmp_path: Path, train: Train) -> None:
    asked = {**SMALL, "width": 8, "epochs": 8, "learning_rate": 0.01, "batch_size": 16}
    assert train(dataset, tmp_path / "run", **asked) == 0
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["metrics"]["held_out"]["accuracy"] > 0.9
    assert record["dataset"]["rows"]["total"] == 3 * COUNT


@pytest.mark.thorough
def test_memory_has_a_small_part_of_a_large_folder(
    tmp_path: Path, train: Train, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 6,000 pictures, which are 74 MB as the numbers that are learned from."""
    monkeypatch.setattr(bounds, "PICTURES_IN_MEMORY", 50)
    # What is at hand is as large of a set of any size, and would be much of one so small.
    monkeypatch.setattr(shard_set, "SAMPLE_BYTES", 1 << 20)
    source = write(tmp_path / "skies", 2_000, 40, "bmp")
    small = write(tmp_path / "small", 200, 40, "bmp")
    made(small, tmp_path / "first")  # what is loaded once isn't the set's
    memory = Memory()
    found = made(source, tmp_path / "d")
    memory.asked()
    assert found.inputs["image"].shape[1:] == (3, 32, 32)
    size = 4 * 3 * 32 * 32 * 6_000
    assert memory.most < size / 2
    asked = {**SMALL, "epochs": 1, "batch_size": 128}
    train(found, tmp_path / "warm", StopAfter(2), **asked)
    memory = Memory()
    assert train(found, tmp_path / "run", memory, **asked) == 0
    # Some 16 MiB wait for being learned from; what was freed may have stayed with the process.
    assert memory.most < size
