"""Tables of the kinds that small businesses have are read as their owners mean them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from falaj.workloads.training import models
from falaj.workloads.training.dataset import Source, build
from falaj.workloads.training.snapshot import Dataset
from tests.workloads.shops import write_export, write_tickets


def _kinds(dataset: Dataset) -> dict[str, str]:
    return {each["name"]: each["kind"] for each in dataset.description["features"]}


def _matrices(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    train, held_out = dataset.rows("train"), dataset.rows("held_out")
    recipe = models.fit(
        {name: values[train] for name, values in dataset.inputs.items()},
        dataset.description["features"],
    )
    inputs = {name: values[held_out] for name, values in dataset.inputs.items()}
    known = {name: values[train] for name, values in dataset.inputs.items()}
    return recipe.transform(known), recipe.transform(inputs)


def test_arabic_tickets_are_told_apart_by_their_words(tmp_path: Path) -> None:
    from sklearn.linear_model import LogisticRegression

    dataset = build(Source(str(write_tickets(tmp_path / "t.csv")), "queue"))
    assert _kinds(dataset) == {"text": "words", "hour": "numeric"}
    notes = dataset.description["notes"]
    assert any("'ticket' was left out: it looks like an identifier" in note for note in notes)
    assert "read as free text, by its words: 'text'" in notes
    # What customers wrote stays in the sealed rows.
    assert "فاتورة" not in str(dataset.description)
    known, unseen = _matrices(dataset)
    model = LogisticRegression(max_iter=500).fit(known, dataset.labels[dataset.rows("train")])
    assert model.score(unseen, dataset.labels[dataset.rows("held_out")]) > 0.9


def test_an_export_of_a_spreadsheet_is_read_as_numbers_and_dates(tmp_path: Path) -> None:
    from sklearn.linear_model import Ridge

    dataset = build(Source(str(write_export(tmp_path / "t.csv")), "Umsatz"))
    assert dataset.task == "regression"
    assert _kinds(dataset) == {
        "Datum": "date", "Preis": "numeric", "Rabatt": "numeric", "Budget": "numeric",
        "Menge": "numeric", "Punkte": "numeric",
    }  # fmt: skip
    # "1.153" is a thousand here, as the other columns have decimal commas.
    assert dataset.inputs["Punkte"].min() >= 1_000
    assert 500 <= dataset.inputs["Budget"].min() <= dataset.inputs["Budget"].max() <= 90_000
    assert dataset.inputs["Menge"].max() == 39
    assert dataset.description["excluded"] == []
    known, unseen = _matrices(dataset)
    model = Ridge().fit(known, dataset.labels[dataset.rows("train")])
    assert model.score(unseen, dataset.labels[dataset.rows("held_out")]) > 0.85
