"""A training that begins with an earlier run's weights: refused where they don't fit the data."""

from __future__ import annotations

import csv
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
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import command, language, launcher, snapshot
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_learned, load_trained
from falaj.workloads.training.options import Requested
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.start import open_start, vocabulary_of
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.vocabulary import Characters
from tests.workloads.training.conftest import StopAfter, Train

SHORT: Mapping[str, Any] = {"epochs": 2, "threads": 1, "batch_size": 8}
SMALL: Mapping[str, Any] = {**SHORT, "width": 16, "layers": 2}
FIRST = "the water runs down to the fields of dates. " * 60
OTHER = "all the wells of that town ran dry; dates do not! " * 50


def cut(folder: Path, text: str, **options: Any) -> Dataset:
    source = folder / "text.txt"
    source.write_text(text)
    return datasets.build(datasets.Source(str(source), context=16, **options))


@pytest.fixture
def begun(tmp_path: Path, train: Train) -> Path:
    """A run on the first text."""
    assert train(cut(tmp_path, FIRST), tmp_path / "begun", **SMALL) == 0
    return tmp_path / "begun"


# What is refused.


def test_a_folder_without_a_finished_run_is_refused(tmp_path: Path) -> None:
    text = cut(tmp_path, FIRST)
    with pytest.raises(WorkloadError, match=r"--start .*nothing: .*record"):
        open_start(tmp_path / "nothing", None, text)
    with pytest.raises(WorkloadError, match=r"--vocabulary-of .*nothing.*record"):
        vocabulary_of(tmp_path / "nothing", None)


def test_another_vocabulary_is_refused_with_what_to_do(begun: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError) as caught:
        open_start(begun, None, cut(tmp_path, OTHER))
    assert f"make the dataset with that one (dataset --vocabulary-of {begun})" in str(caught.value)
    assert open_start(begun, None, cut(tmp_path, OTHER, vocabulary=vocabulary_of(begun, None)))


def test_a_contradicting_size_is_refused_by_name(begun: Path, tmp_path: Path) -> None:
    text = cut(tmp_path, FIRST)
    start = open_start(begun, None, text)
    for name, size, option in (
        ("layers", 6, "--layers is 6"), ("width", 32, "--width is 32"),
        ("heads", 2, "--heads is 2"), ("key_value_heads", 1, "--key-value-heads is 1"),
    ):  # fmt: skip
        values: dict[str, Any] = {name: size}
        with pytest.raises(WorkloadError, match=f"{option}, and the model in .*leave --"):
            launcher.resolve(Requested(**values), text, None, None, start)
    said = launcher.resolve(Requested(layers=2, width=16), text, None, None, start)
    assert (said.layers, said.width, said.heads) == (2, 16, 4)
    assert said.start == start.digest


def test_another_split_of_the_same_text_is_refused(begun: Path, tmp_path: Path) -> None:
    for other in ({"seed": 4}, {"holdout": 0.3}):
        text = cut(tmp_path, FIRST, **other)
        with pytest.raises(WorkloadError, match="has seen some that are held out here"):
            open_start(begun, None, text)


def test_other_kinds_of_data_are_refused(begun: Path, mixed_dataset: Dataset) -> None:
    for dataset in (mixed_dataset, datasets.build(datasets.Source("digits"))):
        with pytest.raises(WorkloadError, match="is of other data \\(text\\) than this dataset"):
            open_start(begun, None, dataset)


def test_a_vocabulary_is_of_texts_alone(mixed: Path, tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"--vocabulary-of is of texts, and .* is none"):
        datasets.build(
            datasets.Source(str(mixed), "churn", vocabulary=Characters((language.UNKNOWN,)))
        )
    for record in ({"task": "classification", "classes": ["no", "yes"]}, {}, [],
                   {"task": "language", "classes": ["a", "b"]}):  # fmt: skip
        (tmp_path / "record.json").write_text(json.dumps(record))
        with pytest.raises(WorkloadError, match="is no language model's: name the folder"):
            vocabulary_of(tmp_path, None)


def test_trees_and_pruned_networks_are_refused(
    mixed_dataset: Dataset, tmp_path: Path, train: Train
) -> None:
    assert train(mixed_dataset, tmp_path / "pruned", epochs=3, threads=1, prune=0.5) == 0
    with pytest.raises(WorkloadError, match="units were taken out of that network"):
        open_start(tmp_path / "pruned", None, mixed_dataset)
    record = tmp_path / "trees"
    assert train(mixed_dataset, record, epochs=1, threads=1, learning_rate=1e-9) == 0
    assert load_learned(record, None).architecture.trees
    with pytest.raises(WorkloadError, match="that run kept trees"):
        open_start(record, None, mixed_dataset)


def test_a_table_of_other_columns_or_classes_is_refused(
    mixed: Path, mixed_rows: list[list[Any]], mixed_dataset: Dataset, tmp_path: Path,
    train: Train,
) -> None:  # fmt: skip
    assert train(mixed_dataset, tmp_path / "run", model="network", **SHORT) == 0
    other = tmp_path / "other.csv"
    with other.open("w", newline="", encoding="utf-8") as stream:
        rows = [[row[1], row[2], row[3], "new" if row[6] == "no" else "old"] for row in mixed_rows]
        csv.writer(stream).writerows([["city", "age", "income", "churn"], *rows])
    with pytest.raises(WorkloadError, match=r"is of other classes \(no, yes\) than .*new, old"):
        open_start(tmp_path / "run", None, datasets.build(datasets.Source(str(other), "churn")))
    other.write_text(other.read_text().replace("new\n", "no\n").replace("old\n", "yes\n"))
    with pytest.raises(WorkloadError, match=r"other columns .* owner \(categorical\) is only the"):
        open_start(tmp_path / "run", None, datasets.build(datasets.Source(str(other), "churn")))
    numbers = datasets.build(datasets.Source(str(mixed), "income"))
    with pytest.raises(WorkloadError, match="is of other task \\(classification\\)"):
        open_start(tmp_path / "run", None, numbers)


# What is cut with a given vocabulary.


LETTERS = st.characters(exclude_categories=["Cs", "Cc"])


@given(st.text(LETTERS, min_size=900, max_size=1200), st.text(LETTERS, max_size=40))
def test_what_is_not_in_the_vocabulary_counts_as_unknown(
    tmp_path_factory: pytest.TempPathFactory, text: str, known: str
) -> None:
    characters = [language.UNKNOWN, *sorted(set(known) - {language.UNKNOWN})]
    assert language.is_vocabulary(characters)
    found = cut(tmp_path_factory.mktemp("text"), text, vocabulary=Characters(tuple(characters)))
    tokens = found.inputs[language.TOKENS]
    read = "".join(characters[each] for row in tokens for each in row)
    assert set(read) <= set(characters)
    assert found.classes == characters
    unknown = int((tokens == 0).sum())
    assert f"{unknown:,} ({unknown / tokens.size:.2%}) aren't" in " ".join(
        found.description["notes"]
    )


def test_a_vocabulary_makes_another_dataset(begun: Path, tmp_path: Path) -> None:
    own, given_one = (
        cut(tmp_path, OTHER),
        cut(tmp_path, OTHER, vocabulary=vocabulary_of(begun, None)),
    )
    assert own.digest != given_one.digest
    assert own.description["content_digest"] == given_one.description["content_digest"]


# What is learned.


def test_it_begins_with_the_weights(begun: Path, tmp_path: Path, train: Train) -> None:
    text = cut(tmp_path, OTHER, vocabulary=vocabulary_of(begun, None))
    still: dict[str, Any] = {**SHORT, "epochs": 1, "learning_rate": 1e-9, "weight_decay": 0.0}
    assert train(text, tmp_path / "still", start_run=begun, **still) == 0
    first, second = (load_trained(each, None) for each in (begun, tmp_path / "still"))
    for name, each in first.module.state_dict().items():
        torch.testing.assert_close(second.module.state_dict()[name], each, rtol=0, atol=1e-6)
    assert train(text, tmp_path / "drawn", **SMALL) == 0
    assert train(text, tmp_path / "tuned", start_run=begun, **SHORT) == 0
    drawn, tuned = (
        json.loads((tmp_path / each / "record.json").read_text()) for each in ("drawn", "tuned")
    )
    name = "nats_per_character"
    assert tuned["metrics"]["held_out"][name] < drawn["metrics"]["held_out"][name]
    assert "start" not in drawn
    assert "start" not in drawn["parameters"]


def test_a_run_that_was_stopped_ends_in_the_same_network(
    begun: Path, tmp_path: Path, train: Train
) -> None:
    text = cut(tmp_path, OTHER, vocabulary=vocabulary_of(begun, None))
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert train(text, whole, start_run=begun, **SHORT) == 0
    assert train(text, parts, StopAfter(7), start_run=begun, **SHORT) == 75
    assert train(text, parts, start_run=begun, **SHORT) == 0
    assert (whole / "model").read_bytes() == (parts / "model").read_bytes()


def test_record_and_package_name_the_start(begun: Path, tmp_path: Path, train: Train) -> None:
    text = cut(tmp_path, OTHER, vocabulary=vocabulary_of(begun, None))
    assert train(text, tmp_path / "tuned", start_run=begun, **SHORT) == 0
    record = json.loads((tmp_path / "tuned" / "record.json").read_text())
    first = json.loads((begun / "record.json").read_text())
    assert record["start"]["run"] == first["identity"]
    assert record["start"]["dataset"] == first["dataset"]["digest"]
    assert record["parameters"]["start"] == record["start"]["digest"]
    name = "nats_per_character"
    assert record["start"][name] == first["metrics"]["held_out"][name]
    assert record["start"]["before"][name] > record["metrics"]["held_out"][name]
    path = datasets.write(text, tmp_path / "datasets", None)
    optimise(Request(tmp_path / "tuned", path, tmp_path / "served", accept="any"), lambda _: None)
    fields = json.loads((tmp_path / "served" / "fields.json").read_text())
    assert fields["lineage"]["start"] == record["start"]["digest"]
    assert fields["lineage"]["start_run"] == first["identity"]
    card = (tmp_path / "served" / "card.html").read_text()
    assert record["start"]["digest"][:16] in card


def test_a_table_goes_on_with_its_own_recipe(
    mixed_rows: list[list[Any]], mixed_dataset: Dataset, write_csv: Any, tmp_path: Path,
    train: Train,
) -> None:  # fmt: skip
    assert train(mixed_dataset, tmp_path / "first", model="network", **SHORT) == 0
    names = ["customer", "city", "age", "income", "owner", "note", "churn"]
    newer = [[row[0], "Ajman" if row[1] == "Dubai" else row[1], *row[2:]] for row in mixed_rows]
    dataset = datasets.build(datasets.Source(str(write_csv(names, newer, "new.csv")), "churn"))
    assert train(dataset, tmp_path / "second", start_run=tmp_path / "first", **SHORT) == 0
    first, second = (
        json.loads((tmp_path / each / "record.json").read_text()) for each in ("first", "second")
    )
    assert second["preprocessing"] == first["preprocessing"]
    assert second["model"]["choice"]["kept"] == "network"  # trees begin with nothing


def test_images_and_numbers_go_on(mixed: Path, tmp_path: Path, train: Train) -> None:
    digits = datasets.build(datasets.Source("digits"))
    once: dict[str, Any] = {"epochs": 1, "threads": 1, "batch_size": 16}
    for name, dataset, more in (
        ("images", digits, {"width": 4}),
        ("numbers", datasets.build(datasets.Source(str(mixed), "income")), {"model": "network"}),
    ):
        assert train(dataset, tmp_path / name, **once, **more) == 0
        again = tmp_path / f"{name}-again"
        assert train(dataset, again, start_run=tmp_path / name, **once) == 0
        first, second = (
            json.loads((each / "record.json").read_text()) for each in (tmp_path / name, again)
        )
        assert second["target"] == first["target"]
        began, went_on = (
            json.loads((each / "metrics.jsonl").read_text()) for each in (tmp_path / name, again)
        )
        assert went_on["loss"] < began["loss"]


@pytest.mark.thorough
def test_two_processes_go_on_from_a_sealed_run_whole_and_divided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StopRequest, "install", lambda _: None)
    KeyRing.create(tmp_path / "keys")
    ring = KeyRing.open(tmp_path / "keys")
    text = datasets.write(cut(tmp_path, FIRST), tmp_path / "datasets", ring)
    common = ["run", "--dataset", str(text), "--keyring", str(tmp_path / "keys"), "--epochs", "1"]
    first = tmp_path / "first"
    assert command.main([*common, "--output", str(first), "--width", "16", "--layers", "2"]) == 0
    found: dict[str, float] = {}
    for name, more in (
        ("one", []),
        ("two", ["--processes", "2"]),
        ("shard", ["--processes", "2", "--shard", "2"]),
        ("tensor", ["--processes", "2", "--tensor", "2"]),
        ("pipeline", ["--processes", "2", "--pipeline", "2"]),
    ):
        output = tmp_path / name
        given_ones = ["--output", str(output), "--start", str(first), "--threads", "1"]
        assert command.main([*common, *given_ones, *more]) == 0
        record = json.loads((output / "record.json").read_text())
        found[name] = record["metrics"]["validation"]["loss"]
    for name in ("two", "shard", "tensor", "pipeline"):
        assert found[name] == pytest.approx(found["one"], rel=1e-3)
    assert command.main([*common[:3], "--output", str(tmp_path / "x"), "--start", str(first)]) == 2
    assert snapshot.open_dataset(text, ring)
