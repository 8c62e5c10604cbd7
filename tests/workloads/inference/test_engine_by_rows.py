"""Which engine runs how many rows: by what was measured, and never one that wasn't admitted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.workloads import engines
from falaj.workloads.engines import Engine, admitted
from falaj.workloads.inference.models import engine_by_rows, model
from falaj.workloads.inference.models.batching import PAYS_BELOW
from falaj.workloads.inference.models.engine_by_rows import (
    ALONE_AT_MOST,
    ByRows,
    Choice,
    choose,
    fastest,
)
from falaj.workloads.inference.models.model import INLINE_SECONDS, Model
from falaj.workloads.inference.protocol.oip import Inference
from falaj.workloads.inference.settings import Limits
from falaj.workloads.processor import relevant_cpu_flags
from tests.workloads.inference import models
from tests.workloads.inference.serving import Site, call, row, started

LIMITS = Limits(max_rows=32)
SIZES: tuple[int, ...] = (1, 2, 4, 8, 16, 32)


def measured(
    content: bytes, *precisions: str, refused: dict[str, str] | None = None,
    accepted: str = "float", **engine: Any,
) -> dict[str, Any]:  # fmt: skip
    """A manifest as optimisation writes it, of a model that was measured here."""
    said = {
        "name": "onnxruntime", "precision": None, "asked": "auto",
        "candidates": {each: {} for each in precisions}, "left_out": refused or {},
    }  # fmt: skip
    return models.fields(content) | {
        "quantisation": {
            "engine": said | engine, "cpu_flags": relevant_cpu_flags(), "accepted": accepted,
        }
    }  # fmt: skip


# -- what is admitted --------------------------------------------------------------------------

F32, BF16, INT8, INT4 = (Engine("openvino", each) for each in engines.PRECISIONS)
USUAL = Engine("onnxruntime")


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ({}, [USUAL, F32, BF16]),
        ({"refused": {"bf16": "the accuracy would be 0.5"}}, [USUAL, F32]),
        ({"accepted": "int8"}, [USUAL, INT8]),
        ({"accepted": "int4"}, [USUAL, INT4]),
        ({"asked": "onnxruntime"}, [USUAL]),
        ({"asked": "openvino", "name": "openvino", "precision": "bf16"}, [BF16]),
        ({"asked": None}, [USUAL]),
        ({"candidates": {"f8": {}}}, [USUAL]),
        ({"candidates": ["f32"]}, [USUAL]),
        ({"candidates": None, "left_out": 3}, [USUAL]),
    ],
)
def test_what_was_accurate_enough_of_the_packaged_graph(
    changed: dict[str, Any], found: list[Engine]
) -> None:
    assert admitted(measured(models.mlp(), *engines.PRECISIONS, **changed)) == found


def test_figures_of_another_processor_admit_nothing() -> None:
    manifest = measured(models.mlp(), "f32")
    manifest["quantisation"]["cpu_flags"] = ["sve"]
    assert admitted(manifest) == [USUAL]


@pytest.mark.parametrize("manifest", [{}, {"quantisation": None}, {"quantisation": {"engine": 1}}])
def test_packages_that_say_nothing(manifest: dict[str, Any]) -> None:
    assert [each.name for each in admitted(manifest)] == ["onnxruntime"]


# -- the choice --------------------------------------------------------------------------------


def curve(alone: float, each: float) -> dict[int, float]:
    """Costs of a model whose runs take so long, and so much for each row."""
    return {rows: alone + each * rows for rows in SIZES}


@pytest.mark.parametrize(
    ("costs", "alike", "found"),
    [
        # Dearer calls and cheaper rows: the larger batches, where the answers are alike.
        ([curve(0, 1), curve(4, 0.5)], [True, True], Choice(0, 1, 16)),
        # Where they aren't, its gain has to be worth a single row's loss.
        ([curve(0, 1), curve(4, 0.5)], [True, False], Choice(0, 0)),
        ([curve(0, 1), curve(0.7, 0.5)], [True, False], Choice(1, 1)),
        ([curve(0, 1), curve(0, 0.95)], [True, True], Choice(0, 0)),
        ([curve(0, 1), curve(0, 0.5), curve(0, 0.4)], [True, True, True], Choice(0, 2, 1)),
        ([curve(0, 1), curve(0, 0.5), curve(0, 0.4)], [True, True, False], Choice(2, 2)),
        ([curve(0, 1), curve(0, 0.5), curve(0, 0.48)], [True, True, False], Choice(0, 1, 1)),
        ([curve(0, 1), {}], [True, True], Choice(0, 0)),
        ([curve(0, 1)], [True], Choice(0, 0)),
    ],
)
def test_choices(costs: list[dict[int, float]], alike: list[bool], found: Choice) -> None:
    assert choose(costs, alike) == found


_SECONDS = st.floats(1e-4, 1.0)


@given(
    st.lists(st.tuples(st.booleans(), st.lists(_SECONDS, min_size=1, max_size=6)), max_size=4),
    st.lists(_SECONDS, min_size=6, max_size=6),
)
def test_what_is_chosen_was_clearly_faster_where_it_runs(
    others: list[tuple[bool, list[float]]], usual: list[float]
) -> None:
    costs = [dict(zip(SIZES, usual, strict=True))]
    costs += [dict(zip(SIZES, each, strict=False)) for _, each in others]
    alike = [True, *(each for each, _ in others)]
    found = choose(costs, alike)
    assert found.of(1) in {found.first, found.then}
    if found.then == 0:
        assert found.first == 0
    elif alike[found.then]:
        assert found.first == 0
        for rows, seconds in costs[found.then].items():
            assert found.of(rows) == (found.then if rows >= found.since else 0)
            assert rows < found.since or seconds <= PAYS_BELOW * costs[0][rows]
    else:
        # One that answers otherwise runs all rows or none.
        assert found.first == found.then
        assert costs[found.then][1] <= ALONE_AT_MOST * costs[0][1]
        assert min(t / b for b, t in costs[found.then].items()) <= PAYS_BELOW * min(
            t / b for b, t in costs[0].items()
        )


@pytest.mark.parametrize("since", [1, 4, 8, 32])
def test_each_number_of_rows_runs_where_it_was_chosen_to(since: int) -> None:
    class Named:
        def __init__(self, name: str) -> None:
            self.name = name

        def run(self, names: Any, feed: Any, options: Any = None) -> list[Any]:
            del names, options
            return [self.name, len(feed["x"])]

    choice = Choice(0, 1, since)
    session = ByRows(choice, [Named("few"), Named("many")])
    for rows in range(1, 65):
        name = "many" if rows >= since else "few"
        assert session.run(None, {"x": np.zeros((rows, 2))}) == [name, rows]
        assert choice.of(rows) == (1 if rows >= since else 0)


# -- a model -----------------------------------------------------------------------------------


def load(content: bytes, manifest: dict[str, Any]) -> Model:
    return model.load(
        content, name="mlp", version="1", manifest=manifest, threads=1, limits=LIMITS
    )


def chosen(
    content: bytes, manifest: dict[str, Any], costs: dict[str, dict[int, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> Model:  # fmt: skip
    """The model that is chosen where engines are said to take so long."""

    def measure(self: Model, rows: int) -> float:
        self.measured.add(rows)
        return costs[str(self.engine).partition(":")[0]][rows]

    monkeypatch.setattr(Model, "measure", measure)
    usual = load(content, manifest)
    return fastest(
        usual, content, manifest, name="mlp", version="1", threads=1, limits=LIMITS, streams=1
    )


def asked(rows: int) -> Inference:
    made = Inference()
    made.feed = {"input": np.random.default_rng(rows).random((rows, 64), dtype=np.float32)}
    made.rows = rows
    return made


def test_few_rows_in_one_engine_and_many_in_another(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    content = models.mlp()
    manifest = measured(content, "f32")
    slow = 10 * INLINE_SECONDS
    costs = {"onnxruntime": curve(0, slow), "openvino (f32)": curve(2 * slow, slow / 4)}
    found = chosen(content, manifest, costs, monkeypatch)
    said = str(found.engine)
    assert said.startswith("openvino (f32): for 4 rows and more, onnxruntime for fewer: 32 rows ")
    assert said in capfd.readouterr().err
    assert isinstance(found.session, ByRows)
    usual = load(content, {})
    assert found.row is not None
    for rows in (1, 3, 4, 9, 32):
        np.testing.assert_allclose(
            found.run(asked(rows))[0], usual.run(asked(rows))[0], rtol=1e-4, atol=1e-6
        )
    assert found.expected[1] == slow
    assert found.expected[6] == costs["openvino (f32)"][32]


def test_answers_that_differ_come_from_one_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    content = models.mlp()
    manifest = measured(content, "f32")
    slow = 10 * INLINE_SECONDS
    costs = {"onnxruntime": curve(0, slow), "openvino (f32)": curve(slow / 4, slow / 2)}
    monkeypatch.setattr(engine_by_rows, "agree", lambda one, other: one is other)
    found = chosen(content, manifest, costs, monkeypatch)
    assert str(found.engine).startswith("openvino (f32): 32 rows take ")
    assert found.row is None


def test_one_that_is_not_clearly_faster_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    content = models.mlp()
    slow = 10 * INLINE_SECONDS
    costs = {"onnxruntime": curve(0, slow), "openvino (f32)": curve(0, 0.95 * slow)}
    found = chosen(content, measured(content, "f32"), costs, monkeypatch)
    assert found.engine == USUAL


def test_what_can_not_be_loaded_is_not_tried(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    content = models.table()
    slow = 10 * INLINE_SECONDS
    costs = {"onnxruntime": curve(0, slow)}
    found = chosen(content, measured(content, "f32"), costs, monkeypatch)
    assert found.engine == USUAL
    assert "openvino (f32) isn't tried with batches: OpenVINO knows no texts" in (
        capfd.readouterr().err
    )


def test_a_quick_model_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    content = models.mlp()
    monkeypatch.setattr(engine_by_rows, "admitted", lambda _: pytest.fail("it was looked for"))
    usual = load(content, {})
    usual.expected[1] = INLINE_SECONDS / 2
    assert fastest(usual, content, {}) is usual


# -- the server --------------------------------------------------------------------------------


def test_a_server_says_what_it_has_chosen_and_answers_the_same(site: Site) -> None:
    """What is faster here nobody knows before; whatever is chosen answers alike."""
    site.write(batching=True)
    content = models.heavy()
    version = site.publish(content, fields=measured(content, "f32"))
    wanted = load(content, {}).run(asked(1))[0]
    values = asked(1).feed["input"].ravel().tolist()
    with started(site, version) as server:
        connection = server.connect("caller")
        answer = call(
            connection, "POST", "/v2/models/mlp/infer", token=site.token(), body=row(values)
        )
        told = call(server.connect("caller"), "GET", "/v2/models/mlp/config",
                    token=site.token("observe"))[1]  # fmt: skip
    assert answer[0] == 200
    np.testing.assert_allclose(answer[1]["outputs"][0]["data"], wanted.ravel(), atol=1e-5)
    # Where nothing is clearly faster, ONNX Runtime stays, and there is nothing to say of it.
    assert told["backend"] in {"onnxruntime", "openvino"}
    if told["backend"] == "openvino":
        assert told["parameters"]["engine"]["string_value"].startswith("openvino (f32)")
