"""A worker's counts: the cells that training rows fell into, whatever way a row came."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from falaj.workloads.inference.connections.http import Exchange
from falaj.workloads.inference.drift import counting, reference, shifts
from falaj.workloads.inference.drift.counting import Counting
from falaj.workloads.inference.drift.reference import Reference
from falaj.workloads.inference.model_service import Watched
from falaj.workloads.inference.models import model
from falaj.workloads.inference.models.remote import RelayedModel, schema_of
from falaj.workloads.inference.protocol.oip import Inference
from falaj.workloads.inference.service import Service
from falaj.workloads.training import dataset
from tests.workloads.inference import models, watched
from tests.workloads.inference.oip import LIMITS

FLOATS = st.floats(-1e6, 1e6, width=32) | st.sampled_from([0.7, 0.1, 3.0, float("nan")])


def known(features: dict[str, Any], shape: tuple[int, ...] = (-1, 1)) -> Reference:
    inputs = [
        {"name": name, "shape": list(shape), "datatype": "BYTES" if each["kind"] == "text" else
         "FP32"}
        for name, each in features.items()
    ]  # fmt: skip
    return reference.read({"inputs": inputs, "statistics": {"features": features}})


def request(feed: dict[str, Any], size: int = 0) -> Inference:
    inference = Inference()
    inference.feed = feed
    inference.rows = len(next(iter(feed.values())))
    inference.size = size
    return inference


def counted(layout: Reference, *feeds: dict[str, Any]) -> NDArray[Any]:
    sent: list[dict[str, Any]] = []
    counts = Counting(layout, sent.append, [])
    for feed in feeds:
        counts.add(request(feed), None)
    counts.fold()
    assert json.loads(json.dumps(sent)) == [
        {**each, "busy": list(each["busy"])} for each in sent
    ]  # fmt: skip
    assert sum(each["rows"] for each in sent) == sum(len(f["x"]) for f in feeds)
    return sum((np.array(each["counts"]) for each in sent), np.zeros(layout.size, dtype=int))


@given(st.lists(FLOATS, min_size=1, max_size=60))
@example([0.7] * 9 + [0.1, 0.2])
@example([2.0, 2.0, 2.0, 3.0])
def test_training_rows_fall_into_their_own_cells(values: list[float]) -> None:
    made_from = np.array(values)
    layout = known({"x": dataset.of_numbers(made_from)})
    if not layout.features:
        assert np.isnan(made_from).all()
        return
    (feature,) = layout.features
    for served in (made_from.astype(np.float32)[:, None], made_from[:, None]):
        found = counted(layout, {"x": served[:1]}, {"x": served[1:]})
        assert found[0] == feature.missing
        assert found[1:].tolist() == feature.counts.tolist()


@pytest.mark.parametrize("share", [0.0, 0.05])
def test_a_flag_that_is_seldom_set_is_watched(share: float) -> None:
    made_from = (np.arange(1_000) < share * 1_000).astype(np.float64)
    layout = known({"x": dataset.of_numbers(made_from)})
    (feature,) = layout.features
    set_more_often = (np.arange(1_000) < 300).astype(np.float32)[:, None]
    as_ever = counted(layout, {"x": made_from[:, None].astype(np.float32)})[1:]
    found = counted(layout, {"x": set_more_often})[1:]
    assert not shifts.of_numbers(feature.counts, as_ever, 1e-4).is_over
    assert shifts.of_numbers(feature.counts, found, 1e-4).is_over


@given(st.lists(st.sampled_from(["", "a", "b", "ب"]), min_size=1, max_size=60))
def test_training_texts_fall_into_their_own_cells(values: list[str]) -> None:
    texts: Any = np.array(values, dtype=object)
    layout = known({"x": dataset.of_texts(texts)})
    if not layout.features:
        return
    found = counted(layout, {"x": texts[:, None]})
    assert found.tolist() == [layout.features[0].missing, *layout.features[0].counts]


def test_unlisted_categories_without_end_take_no_memory() -> None:
    layout = known({"x": dataset.of_texts(np.array(["a", "b"] * 50, dtype=object))})
    sent: list[dict[str, Any]] = []
    counts = Counting(layout, sent.append, [])
    for number in range(40):
        counts._next = 0
        texts: Any = np.array([f"{number} {each}" for each in range(100)], dtype=object)
        counts.add(request({"x": texts[:, None]}), None)
        assert counts._rows < counting.ROWS + 100
    counts.fold()
    assert sum(np.array(each["counts"]) for each in sent).tolist() == [0, 0, 0, 4_000]


def test_free_texts_are_counted_by_their_length_alone() -> None:
    texts: Any = np.array([("word " * (each % 9 + 1)) for each in range(200)], dtype=object)
    found = dataset.of_texts(texts) | {
        "categories": {}, "lengths": dataset.of_numbers(dataset.lengths(texts)),
    }  # fmt: skip
    layout = known({"x": found})
    assert layout.features[0].kind == "text"
    assert (
        counted(layout, {"x": texts[:, None]})[1:].tolist() == layout.features[0].counts.tolist()
    )


@pytest.mark.parametrize("value", [2**62, -(2**62), 0])
def test_huge_whole_numbers_are_counted(value: int) -> None:
    layout = known({"x": dataset.of_numbers(np.arange(100.0))})
    found = counted(layout, {"x": np.full((3, 1), value)})
    assert found.sum() == 3


def test_a_row_by_the_quick_way_is_the_row_by_the_other() -> None:
    content, fields = watched.digits_model()
    served = model.load(
        content, name="digits", version="1", manifest=fields, threads=1, limits=LIMITS
    )
    layout = reference.read(reference.part_of(fields))
    assert served.row is not None
    _, _, images, _ = watched.digits()
    quick: list[dict[str, Any]] = []
    other: list[dict[str, Any]] = []
    by_row = Counting(layout, quick.append, served.schema.output_names)
    by_feed = Counting(layout, other.append, served.schema.output_names)
    for image in images[:300]:
        tensor = {
            "name": "image", "datatype": "FP32", "shape": [1, 1, 8, 8],
            "data": image.ravel().tolist(),
        }  # fmt: skip
        body = json.dumps({"inputs": [tensor]}).encode()
        by_row._next = by_feed._next = 0
        assert served.row.answer(body) is not None
        by_row.row(served.row)
        inference = served.schema.read(body, None)
        by_feed.add(inference, served.run(inference))
    by_row.fold()
    by_feed.fold()
    assert len(quick) == len(other) == 2
    for one, two in zip(quick, other, strict=True):
        assert one["counts"] == two["counts"]
        assert one["rows"] == two["rows"]
        assert one["level"] == pytest.approx(two["level"])


def test_while_counting_rests_rows_go_by_and_nothing_is_kept() -> None:
    layout = known({"x": dataset.of_numbers(np.arange(100.0))})
    sent: list[dict[str, Any]] = []
    counts = Counting(layout, sent.append, [])
    counts._next, counts._next_of_processor = float("inf"), float("inf")
    for _ in range(10):
        counts.add(request({"x": np.zeros((200, 1), np.float32)}), None)
    assert counts._rows == 400
    assert sent == []
    counts.flush(10, 1.0)
    assert sent == []
    counts._next = 0
    counts.flush(10, 1.0)
    assert (sent[0]["rows"], sent[0]["busy"]) == (400, (10, 1.0))
    counts.flush(10, 1.0)
    assert len(sent) == 1


def test_neither_way_of_asking_is_counted_more_often_than_it_is_used() -> None:
    # Rows with ids, with missing values and in batches don't go the quick way: on a busy server
    # the place that one way leaves unused would otherwise make the other's share too large.
    layout = known({"x": dataset.of_numbers(np.arange(100.0))})
    sent: list[dict[str, Any]] = []
    counts = Counting(layout, sent.append, [])
    memory = np.zeros(4, np.uint8)
    row: Any = SimpleNamespace(
        memory=memory.data,
        rows_of=lambda packed: {"x": np.zeros((len(packed) // 4, 1), np.float32)},
    )
    for _ in range(5):
        counts._next, counts._next_of_processor = float("inf"), float("inf")
        for number in range(20_000):
            if number % 10:
                counts.row(row)
            else:
                counts.add(request({"x": np.full((1, 1), np.nan, np.float32)}), None)
        assert counts._rows + counts._ring_used == counting.ROWS
        counts._next = 0
        counts.fold()
    found = np.array([each["counts"] for each in sent]).sum(axis=0)
    assert found[0] / found.sum() == pytest.approx(0.1, abs=0.02)


def test_large_bodies_are_counted_at_once_and_of_many_rows_some() -> None:
    layout = known({"x": dataset.of_numbers(np.arange(100.0))})
    sent: list[dict[str, Any]] = []
    counts = Counting(layout, sent.append, [])
    for _ in range(3):
        counts._next = 0
        counts.add(request({"x": np.zeros((1, 1), np.float32)}, counting.KEPT_BYTES), None)
    assert len(sent) == 2
    counts.fold()
    counts.add(request({"x": np.zeros((100_000, 1), np.float32)}), None)
    counts.fold()
    assert sent[-1]["rows"] <= 4_096


def test_answers_that_were_not_asked_for_are_not_counted() -> None:
    content, fields = watched.digits_model()
    served = model.load(
        content, name="digits", version="1", manifest=fields, threads=1, limits=LIMITS
    )
    layout = reference.read(reference.part_of(fields))
    sent: list[dict[str, Any]] = []
    counts = Counting(layout, sent.append, served.schema.output_names)
    inference = request({"image": watched.digits()[2][:5]})
    inference.outputs = ["label"]
    counts.add(inference, served.run(inference))
    counts.add(request({"image": watched.digits()[2][:5]}), None)
    counts.fold()
    assert sent[0]["rows"] == 10
    assert "level" not in sent[0]


@pytest.mark.parametrize(
    "statistics",
    [
        None, [], "x", {"features": 3}, {"features": {"x": None}}, {"features": {"x": {}}},
        {"features": {"x": {"edges": [2, 1], "shares": [0.1, 0.2, 0.7], "count": 3,
                            "missing": 0}}},
        {"features": {"x": {"edges": [1], "shares": [1], "count": 3, "missing": 0}}},
        {"features": {"x": {"edges": [None], "shares": [0, 1], "count": 3, "missing": 0}}},
        {"features": {"x": {"kind": "numeric", "count": 0, "missing": 9}}},
        {"outputs": {"counts": {"a": 1}}}, {"outputs": {"calibration": [[1], "x", None]}},
    ],
)  # fmt: skip
def test_packages_that_say_nothing_of_use_have_no_reference(statistics: Any) -> None:
    manifest = {
        "inputs": [{"name": "x", "shape": [-1, 1], "datatype": "FP32"}, {"name": 3}, None],
        "outputs": [{"name": "p", "role": "probabilities"}, "x"],
        "classes": ["a", "b"],
        "statistics": statistics,
    }
    found = reference.read(manifest)
    assert not found.is_known
    assert (found.size, found.features) == (0, ())
    sent: list[dict[str, Any]] = []
    counts = Counting(found, sent.append, ["p"])
    counts.add(request({"x": np.zeros((1, 1), np.float32)}), [np.array([[0.2, 0.8]])])
    counts.fold()
    assert sent[0]["rows"] == 1


def test_the_made_up_table_is_read() -> None:
    fields = watched.table_fields(models.table())
    found = reference.read(reference.part_of(fields))
    assert [(each.name, each.kind) for each in found.features] == [
        ("age", "number"), ("city", "category"),
    ]  # fmt: skip
    assert found.features[1].lists_all
    assert found.level is not None
    assert found.mix is None


class Beside:
    """A runtime beside the server, in this process."""

    connections = 1

    def __init__(self, served: model.Model) -> None:
        self._served = served

    async def infer(self, inference: Inference) -> Any:
        return self._served.run(inference)


def test_rows_of_a_runtime_beside_are_counted() -> None:
    content, fields = watched.digits_model()
    served = model.load(
        content, name="digits", version="1", manifest=fields, threads=1, limits=LIMITS
    )
    relayed = RelayedModel(schema_of("digits", "1", fields, LIMITS))
    layout = reference.read(reference.part_of(fields))
    sent: list[dict[str, Any]] = []
    counts = Counting(layout, sent.append, relayed.schema.output_names)
    settings: Any = SimpleNamespace(limits=LIMITS, priorities=False)
    anybody: Any = None
    service = Service(
        settings, model=relayed, authenticator=anybody, pool=anybody, threads=1, metrics=anybody,
        upstream=Beside(served),  # pyright: ignore[reportArgumentType] - what is used of a Remote
        watched=Watched(layout, counts, None, anybody),
    )  # fmt: skip

    async def ask() -> None:
        answer = await service.runs.start(Exchange(), request({"image": watched.digits()[2][:7]}))
        assert answer.status == 200

    asyncio.run(ask())
    counts.fold()
    assert sent[0]["rows"] == sent[0]["level"][0] == 7
    assert sum(sent[0]["counts"]) == 7 * 13
