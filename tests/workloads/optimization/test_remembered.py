"""A language model that is told the past says the same, whatever runs it, or isn't served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from falaj.workloads.engines import PRECISIONS, graph_of, open_openvino
from falaj.workloads.errors import WorkloadError
from falaj.workloads.openvino_session import OpenVinoSession
from falaj.workloads.optimization import pipeline
from falaj.workloads.optimization.comparison import open_session, window_nats
from falaj.workloads.optimization.export import assemble, export_module, quantise
from falaj.workloads.optimization.remembered import (
    Past,
    check_remembered,
    nats_of,
    past_of,
    step_of,
)
from falaj.workloads.remembering import past_names, present_of
from tests.workloads.inference import decoders
from tests.workloads.optimization.conftest import Run
from tests.workloads.optimization.test_language_served import orders

__all__ = ["orders"]
CONTEXT = 300
"""More than is run at once."""
RANDOM = np.random.default_rng(0)
TOKENS = RANDOM.integers(0, len(decoders.CHARACTERS), (6, CONTEXT))
AFTER = RANDOM.integers(0, len(decoders.CHARACTERS), 6)
SERVING = decoders.serving(CONTEXT)


@pytest.fixture(scope="module")
def core() -> onnx.ModelProto:
    return export_module(decoders.decoder(CONTEXT), SERVING.shape)


@pytest.fixture(scope="module")
def whole(core: onnx.ModelProto) -> Any:
    return window_nats(core.SerializeToString(), TOKENS, AFTER)


def judged(session: Any, past: Past, whole: Any, points: float | None = None) -> None:
    check_remembered(session, past, TOKENS, AFTER, whole=whole, bound_points=points)


def test_part_by_part_it_says_the_same(core: onnx.ModelProto, whole: Any) -> None:
    served = assemble(core, SERVING)
    past = past_of(served)
    assert past.sizes == dict.fromkeys(past_names(2), (2, 8))
    session = open_session(served.SerializeToString())
    np.testing.assert_allclose(nats_of(session, past, TOKENS, AFTER), whole, rtol=1e-4)
    judged(session, past, whole)


@pytest.mark.parametrize("precision", [each for each in PRECISIONS if each != "int4"])
def test_it_does_in_openvino(core: onnx.ModelProto, whole: Any, precision: str) -> None:
    graph = quantise(core, TOKENS, reduce_range=True) if precision == "int8" else core
    served = assemble(graph, SERVING)
    session = open_openvino(graph_of(served.SerializeToString()), precision, threads=1)
    judged(session, past_of(served), whole, 5)
    np.testing.assert_allclose(
        nats_of(session, past_of(served), TOKENS, AFTER), whole,
        rtol=1e-4 if precision == "f32" else 0.2,
    )  # fmt: skip


def test_eight_bits_leave_keys_and_values_as_they_are(core: onnx.ModelProto, whole: Any) -> None:
    served = assemble(quantise(core, TOKENS, reduce_range=True), SERVING)
    names = past_names(2)
    readers = {node.op_type for node in served.graph.node for name in node.input if name in names}
    assert readers <= {"MatMul", "Transpose", "Shape"}
    makers = {
        node.op_type
        for node in served.graph.node
        for name in node.output
        if name in map(present_of, names)
    }
    assert "DequantizeLinear" not in makers
    judged(open_session(served.SerializeToString()), past_of(served), whole, 5)


def test_a_step_is_one_character_of_a_window(core: onnx.ModelProto) -> None:
    served = assemble(core, SERVING)
    session = open_session(served.SerializeToString())
    answered: Any = step_of(session, past_of(served), TOKENS[:1])()
    assert [each.shape for each in answered] == [
        (1, len(decoders.CHARACTERS)),
        *[(1, 2, 1, 8)] * 4,
    ]


# -- what is refused ---------------------------------------------------------------------------


def test_a_graph_that_mixes_its_past_up_is_refused(core: onnx.ModelProto, whole: Any) -> None:
    served = assemble(core, SERVING)
    swap = {"past.0.keys": "past.1.keys", "past.1.keys": "past.0.keys"}
    for node in served.graph.node:
        node.input[:] = [swap.get(each, each) for each in node.input]
    session = open_session(served.SerializeToString())
    with pytest.raises(WorkloadError, match="told keys and values of the past the nats_per_char"):
        judged(session, past_of(served), whole)


def test_a_graph_that_loses_more_than_is_allowed_is_refused(
    core: onnx.ModelProto, whole: Any
) -> None:
    served = assemble(core, SERVING)
    session = open_session(served.SerializeToString())
    judged(session, past_of(served), whole / 1.01, 2)
    with pytest.raises(WorkloadError, match="of the float model over whole windows"):
        judged(session, past_of(served), whole / 1.03, 2)


def test_a_graph_that_fails_is_refused(core: onnx.ModelProto, whole: Any) -> None:
    session = open_session(assemble(core, SERVING).SerializeToString())
    other = Past(dict.fromkeys(past_names(2), (3, 8)))
    with pytest.raises(WorkloadError, match="fails where it is told keys and values"):
        judged(session, other, whole)


@pytest.mark.thorough
def test_an_engine_that_can_not_be_told_the_past_is_left_out(
    orders: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(session: Any, *_: Any, **__: Any) -> None:
        if isinstance(session, OpenVinoSession):
            raise WorkloadError("it fails where it is told the past")

    monkeypatch.setattr(pipeline, "check_remembered", never)
    request = pipeline.Request(orders.path, orders.dataset, tmp_path / "made", quantise="never")
    record = pipeline.optimise(request, lambda _: None)
    assert record["engine"]["name"] == "onnxruntime"
    assert record["engine"]["candidates"] == {}
    assert record["engine"]["left_out"]["f32"] == "it fails where it is told the past"
