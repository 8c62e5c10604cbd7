"""Labels that come later: read strictly, joined once, bounded in memory, and judged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference import labels
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.labels import Labels, Memory, Sender, digest, parse
from falaj.workloads.inference.reference import Answers, Reference

CLASSES = Answers("probabilities", None, ("no", "1", "true"))
NUMBERS = Answers(None, "prediction", ())
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["id", "label", "labels", "x"]), inner, max_size=4)
    ),
    max_leaves=12,
)


def sent(answers: Answers, results: Any, identifier: str = "a") -> bytes:
    packed: list[bytes] = []
    name = answers.probabilities or answers.prediction or ""
    sender = Sender(answers, [name], packed.append, lambda work: None)
    sender.add(identifier, None, [results])
    sender.flush()
    return b"".join(packed)


def judged(answers: Answers, **known: Any) -> tuple[Labels, Memory]:
    memory = Memory()
    return Labels(Reference(answers=answers, **known), memory, 1), memory


@given(st.binary(max_size=40) | JSON.map(lambda value: orjson.dumps(str(value))))
def test_no_body_does_more_than_be_refused(body: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        parse(body, CLASSES)
    assert caught.value.status == 400


@given(st.lists(st.fixed_dictionaries({"id": st.text(max_size=3), "label": JSON}), max_size=3))
def test_what_is_parsed_can_be_joined(entries: list[Any]) -> None:
    for answers in (CLASSES, NUMBERS):
        try:
            body = orjson.dumps({"labels": entries})
        except TypeError:  # whole numbers that JSON's writer doesn't take
            return
        try:
            found = parse(body, answers)
        except RequestError as error:
            assert error.status == 400
            continue
        scored, _ = judged(answers)
        scored.remember(sent(answers, np.full((1, labels.width_of(answers)), 0.3)), 0.0)
        counts = scored.join(orjson.loads(orjson.dumps(found)))
        assert counts["received"] == sum(counts.values()) - counts["received"] == len(entries)
        orjson.dumps(scored.report())


@pytest.mark.parametrize(
    ("label", "place"),
    [("no", 0), ("1", 1), (1, 1), (1.0, 1), (True, 2), ("true", 2), (False, "?"), ("No", "?"),
     (1.5, "?"), (2**70, "?"), ("", "?"), ([None, "no"], None)],
)  # fmt: skip
def test_classes_are_named_by_text_number_or_truth(label: Any, place: Any) -> None:
    body = orjson.dumps({"labels": [{"id": "x", "label": label}]}) if label != 2**70 else (
        b'{"labels":[{"id":"x","label":1180591620717411303424}]}')  # fmt: skip
    assert parse(body, CLASSES)[0][1][0] == place


@pytest.mark.parametrize("label", ["12", True, "nan"])
def test_a_regressions_label_is_a_number(label: Any) -> None:
    body = orjson.dumps({"labels": [{"id": "x", "label": label}]})
    assert parse(body, NUMBERS)[0][1] == ["?"]


def test_the_oldest_ids_go_first_and_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_IDS", 10)
    scored, memory = judged(CLASSES)
    for number in range(25):
        scored.remember(sent(CLASSES, np.full((1, 3), 0.3), f"{number}"), 0.0)
    assert (len(memory._known), memory.forgotten) == (10, 15)
    ids = [(digest(f"{number}").hex(), [0]) for number in (3, 14, 15, 24)]
    found = scored.join(ids)
    assert (found["unknown"], found["matched"]) == (2, 2)
    assert scored.report()["coverage"] == pytest.approx(2 / 25)


def test_memory_is_bounded_in_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "MAX_BYTES", 10_000)
    scored, memory = judged(CLASSES)
    for number in range(50):
        scored.remember(sent(CLASSES, np.full((100, 3), 0.3), f"{number}"), 0.0)
        assert memory._bytes <= 10_000
    for number in range(50):
        scored.join([(digest(f"{number}").hex(), [0] * 100)])
    assert memory._bytes == len(memory._known) * labels._ENTRY_BYTES


def test_an_id_that_is_used_again_means_the_newer_answer() -> None:
    scored, _ = judged(CLASSES)
    scored.remember(sent(CLASSES, np.array([[0.9, 0.1, 0.0]])), 0.0)
    scored.remember(sent(CLASSES, np.array([[0.1, 0.9, 0.0]])), 0.0)
    scored.join([(digest("a").hex(), [1])])
    assert scored.report()["accuracy"] == 1
    assert scored.report()["log_loss"] == pytest.approx(-math.log(0.9), rel=1e-6)


@pytest.mark.parametrize("cut", [1, 19, 23])
def test_a_torn_message_of_answers_is_left(cut: int) -> None:
    scored, memory = judged(CLASSES)
    scored.remember(sent(CLASSES, np.full((1, 3), 0.3))[:cut], 0.0)
    assert len(memory._known) == 0


def feed(scored: Labels, stated: Any, truth: Any) -> None:
    for number, (row, label) in enumerate(zip(stated, truth, strict=True)):
        name = f"{number} {scored.seen}"
        scored.remember(sent(CLASSES, row[None], name), 0.0)
        assert scored.join([(digest(name).hex(), [int(label)])])["matched"] == 1


def drawn(rows: int, seed: int, *, honest: bool) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    stated = random.dirichlet([1, 1, 1], rows)
    true = stated if honest else np.sqrt(stated) / np.sqrt(stated).sum(axis=1, keepdims=True)
    return stated, np.array([random.choice(3, p=row) for row in true])


def test_probabilities_that_hold_are_well_and_others_are_told() -> None:
    for seed in range(3):
        scored, _ = judged(CLASSES)
        feed(scored, *drawn(1_500, seed, honest=True))
        assert scored.state == "ok"
    scored, _ = judged(CLASSES)
    feed(scored, *drawn(1_500, 1, honest=False))
    assert scored.state == "drifted"
    found = scored.report()["calibration"]
    assert found["z"] < -4
    assert found["gap"] < -0.02
    forgiven, _ = judged(CLASSES, calibration_gap=0.5)
    feed(forgiven, *drawn(1_500, 1, honest=False))
    assert forgiven.state == "ok"


def test_labels_that_turn_against_the_model_are_found() -> None:
    scored, _ = judged(CLASSES, calibration_gap=1.0)  # so that the losses alone decide
    stated, truth = drawn(3_000, 4, honest=True)
    feed(scored, stated[:2_000], truth[:2_000])
    assert scored.state == "ok"
    feed(scored, stated[2_000:], (truth[2_000:] + 1) % 3)
    assert scored.state == "drifted"
    assert scored.report()["accuracy"] < 0.6


def test_many_classes_keep_one_probability_and_tell_no_log_loss() -> None:
    many = Answers("probabilities", None, tuple(str(each) for each in range(40)))
    scored, _ = judged(many)
    row = np.full((1, 40), 0.01)
    row[0, 7] = 0.61
    scored.remember(sent(many, row), 0.0)
    scored.join([(digest("a").hex(), [8])])
    found = scored.report()
    assert (found["accuracy"], found["log_loss"]) == (0, None)


def test_a_regression_tells_its_error() -> None:
    scored, _ = judged(NUMBERS, rmse=2.0)
    scored.remember(sent(NUMBERS, np.array([[1.0], [2.0]])), 0.0)
    scored.join([(digest("a").hex(), [4.0, None])])
    found = scored.report()
    assert (found["rmse"], found["accuracy"], found["log_loss"]) == (3, None, None)
    scored.remember(sent(NUMBERS, np.array([[1.0]]), "b"), 0.0)
    scored.join([(digest("b").hex(), [1e308])])
    assert orjson.dumps(scored.report())
