"""Labels that come later: read strictly, joined once, bounded in memory, and judged."""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads.inference.drift import labels
from falaj.workloads.inference.drift.labels import Labels, Memory, Sender, digest, parse
from falaj.workloads.inference.drift.reference import Answers, Reference
from falaj.workloads.inference.errors import RequestError

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


def sent(answers: Answers, results: Any, identifier: str = "a", caller: str = "shop") -> bytes:
    packed: list[bytes] = []
    name = answers.probabilities or answers.prediction or ""
    sender = Sender(answers, [name], packed.append, lambda work: None)
    sender.add(identifier, caller, None, [results])
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


@pytest.mark.parametrize("is_labelled", [False, True])
def test_an_id_of_two_callers_is_of_neither(is_labelled: bool) -> None:
    # Whoever may only ask must not choose which answer another one's label is joined with.
    scored, memory = judged(CLASSES)
    scored.remember(sent(CLASSES, np.array([[0.9, 0.1, 0.0]])), 0.0)
    if is_labelled:
        assert scored.join([(digest("a").hex(), [0])])["matched"] == 1
    scored.remember(sent(CLASSES, np.array([[0.1, 0.9, 0.0]]), caller="thief"), 0.0)
    assert scored.join([(digest("a").hex(), [0])])["unknown"] == 1
    scored.remember(sent(CLASSES, np.array([[0.1, 0.9, 0.0]]), caller="thief"), 0.0)
    assert scored.join([(digest("a").hex(), [0])])["unknown"] == 1
    assert scored.seen == is_labelled
    assert memory._bytes == labels._ENTRY_BYTES


def test_the_oldest_id_is_found_at_once_however_many_went_before() -> None:
    # Of a dict's first key, Python looks through the places of all that were taken out.
    assert isinstance(Memory()._known, OrderedDict)


def test_labels_by_another_versions_classes_are_read_by_their_names() -> None:
    # A worker that leaves still takes labels; its model may know other classes.
    scored, _ = judged(CLASSES)
    for name in "abc":
        scored.remember(sent(CLASSES, np.array([[0.9, 0.1, 0.0]]), name), 0.0)
    before = Answers("probabilities", None, ("1", "gone", "maybe", "no"))
    body = orjson.dumps({"labels": [{"id": "a", "label": "no"}, {"id": "b", "label": "gone"}]})
    found = scored.join(parse(body, before), before)
    assert (found["matched"], found["invalid"]) == (1, 1)
    assert (scored.seen, scored.wrong) == (1, 0)
    body = orjson.dumps({"labels": [{"id": "c", "label": 1}]})
    assert scored.join(parse(body, NUMBERS), NUMBERS)["invalid"] == 1
    numbers, _ = judged(NUMBERS)
    numbers.remember(sent(NUMBERS, np.array([[1.0]])), 0.0)
    body = orjson.dumps({"labels": [{"id": "a", "label": "1"}]})
    assert numbers.join(parse(body, CLASSES), CLASSES)["invalid"] == 1


@pytest.mark.parametrize("cut", [1, 27, 31])
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


def test_a_sure_model_that_is_right_about_how_sure_it_is_is_well() -> None:
    # One miss in twenty rows of 99.9 % is seven standard errors, and happens in one of fifty.
    sure = Answers("probabilities", None, ("no", "yes"))
    scored, _ = judged(sure)

    def is_off(seed: int, rows: int, surer: float = 0.0) -> bool:
        random = np.random.default_rng(seed)
        stated = 1 - np.clip(random.beta(0.15, 8, 2_000), 1e-9, 0.5)
        hits = random.random(2_000) < stated - surer
        scored._rows.clear()
        scored._rows.extend([(p, float(hit), 0.0) for p, hit in zip(stated, hits, strict=True)])
        while len(scored._rows) > rows:
            scored._rows.pop()
        return scored._calibration()[1]

    for seed in range(20):
        assert not any(is_off(seed, rows) for rows in (200, 300, 500, 1_000, 2_000))
    assert is_off(1, 2_000, surer=0.05)


def test_a_verdict_at_its_limit_does_not_change_with_each_label() -> None:
    scored, _ = judged(CLASSES)
    assert not scored._calibration()[1]
    flips, before = 0, False
    for hits in (*range(190, 120, -1), *([135, 136] * 20), *([150, 151] * 20)):
        scored._rows.clear()
        scored._rows.extend([(0.9, float(each < hits), 0.0) for each in range(200)])
        scored.seen += 1
        now = scored.calibration[1]
        flips += now != before
        before = now
    assert flips <= 3


def test_a_model_that_answers_no_number_is_as_wrong_as_it_gets() -> None:
    scored, _ = judged(NUMBERS, rmse=1.0)
    for number in range(300):
        answer = math.nan if number == 3 else 1.0
        scored.remember(sent(NUMBERS, np.array([[answer]]), f"{number}"), 0.0)
        scored.join([(digest(f"{number}").hex(), [1.0])])
    assert scored._stream.mean == pytest.approx(0.1 / 300, rel=10)
    assert orjson.dumps(scored.report())


def test_losses_that_fall_by_a_part_are_still_higher_than_before() -> None:
    scored, _ = judged(CLASSES)
    random = np.random.default_rng(1)
    for mean, is_higher in ((0.05, False), (0.8, True), (0.6, True), (0.9, True), (0.6, True),
                            (0.05, False)):  # fmt: skip
        for _ in range(1_500):
            scored._watch(float(random.random() < mean))
        assert (scored._alarm is not None) == is_higher, mean


@pytest.mark.parametrize(("classes", "label", "place"), [
    (("False", "True"), True, 1), (("FALSE", "TRUE"), False, 0), (("false", "true"), True, 1),
    (("0", "1"), True, "?"),
])  # fmt: skip
def test_truth_is_found_as_tables_write_it(classes: Any, label: bool, place: Any) -> None:
    body = orjson.dumps({"labels": [{"id": "x", "label": label}]})
    assert parse(body, Answers("probabilities", None, classes))[0][1] == [place]


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
