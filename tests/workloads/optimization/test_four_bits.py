"""Weights of 4 bits: how far from what was learned, in which form, and what of it can't be run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from onnx import TensorProto, helper, numpy_helper

from falaj.workloads.engines import NoCandidateError, graph_of, open_openvino
from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.comparison import open_session, window_nats
from falaj.workloads.optimization.export import assemble, export_module
from falaj.workloads.optimization.four_bits import BLOCK, quantise_weights, rounded
from falaj.workloads.optimization.remembered import check_remembered, past_of
from falaj.workloads.remembering import past_names, present_of
from tests.workloads.inference import decoders

_SIZES = st.tuples(st.integers(1, 2 * BLOCK + 3), st.integers(1, 5))
_LARGE = 2.0**99


def product(weight: np.ndarray[Any, Any]) -> onnx.ModelProto:
    """A graph that multiplies rows with a matrix."""
    rows, columns = weight.shape
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["input", "weight"], ["output"], name="product")], "product",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", rows])],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, ["batch", columns])],
        [numpy_helper.from_array(weight, "weight")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def restored(numbers: Any, scales: Any) -> Any:
    return numbers * np.repeat(scales, BLOCK, axis=0)[: len(numbers)]


# -- what is refused ---------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_weights_that_are_no_numbers_are_refused(wrong: float) -> None:
    weight = np.ones((40, 3), dtype=np.float32)
    weight[39, 1] = wrong
    with pytest.raises(WorkloadError, match=r"infinite or undefined weights.*--learning-rate"):
        quantise_weights(product(weight))


def test_a_graph_without_a_matrix_is_refused() -> None:
    model = product(np.ones((2, 2), dtype=np.float32))
    model.graph.node[0].op_type = "Add"
    with pytest.raises(WorkloadError, match="no product with a matrix to quantise"):
        quantise_weights(model)


# -- numbers and scales ------------------------------------------------------------------------


@given(
    arrays.arrays(np.float32, _SIZES, elements=st.floats(-_LARGE, _LARGE, width=32))
    | arrays.arrays(np.float32, _SIZES, elements=st.floats(-1, 1, width=32))
)
def test_a_block_is_at_most_half_a_step_away(weight: np.ndarray[Any, Any]) -> None:
    numbers, scales = rounded(weight)
    assert numbers.shape == weight.shape
    assert scales.shape == (-(-len(weight) // BLOCK), weight.shape[1])
    assert numbers.min() >= -8
    assert numbers.max() <= 7
    assert (scales > 0).all()
    away = np.abs(restored(numbers, scales).astype(np.float64) - weight)
    steps = np.repeat(scales, BLOCK, axis=0)[: len(weight)]
    # The largest may be cut off, where the others gain more by it.
    inner = (numbers > -8) & (numbers < 7)
    assert (away[inner] <= steps[inner] * (0.5 + 1e-5)).all()
    for start in range(0, len(weight), BLOCK):
        block = slice(start, start + BLOCK)
        half = np.abs(weight[block]).max(axis=0).astype(np.float64) / 7 / 2
        error = np.square(away[block]).sum(axis=0)
        assert (error <= len(weight[block]) * np.square(half) * (1 + 1e-4) + 1e-60).all()


@pytest.mark.parametrize("value", [0.0, 1.0, -3.25, 1e-42, 3e38])
def test_what_is_the_same_everywhere_stays_so(value: float) -> None:
    weight = np.full((33, 3), value, dtype=np.float32)
    found = restored(*rounded(weight))
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, weight, rtol=1e-6, atol=1e-36)


@settings(max_examples=15)
@given(_SIZES, st.integers(0, 2**32 - 1))
def test_a_runtime_multiplies_with_the_same_numbers(size: tuple[int, int], seed: int) -> None:
    """Of odd sizes as well, whose last byte is half empty."""
    random = np.random.default_rng(seed)
    weight = random.normal(size=size).astype(np.float32)
    rows = random.normal(size=(3, size[0])).astype(np.float32)
    model = quantise_weights(product(weight))
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    exact = onnxruntime.InferenceSession(model.SerializeToString(), options)
    wanted = rows @ restored(*rounded(weight))
    np.testing.assert_allclose(exact.run(None, {"input": rows})[0], wanted, rtol=1e-4, atol=1e-4)
    # As it is served, rows are bytes in the product.
    (found,) = open_session(model.SerializeToString()).run(None, {"input": rows})
    scale = np.linalg.norm(rows, axis=1)[:, None] * np.linalg.norm(weight, axis=0)
    assert (np.abs(np.asarray(found) - wanted) <= 0.03 * scale + 1e-6).all()


# -- a language model --------------------------------------------------------------------------

CONTEXT = 40
SERVING = decoders.serving(CONTEXT)
TOKENS = np.random.default_rng(0).integers(0, len(decoders.CHARACTERS), (6, CONTEXT))
AFTER = np.random.default_rng(1).integers(0, len(decoders.CHARACTERS), 6)


@pytest.fixture(scope="module")
def core() -> onnx.ModelProto:
    return export_module(decoders.decoder(CONTEXT), SERVING.shape)


@pytest.fixture(scope="module")
def small(core: onnx.ModelProto) -> onnx.ModelProto:
    return quantise_weights(core)


def test_all_matrices_have_four_bits_and_the_table_of_tokens_eight(
    core: onnx.ModelProto, small: onnx.ModelProto
) -> None:
    kinds = Counter(each.data_type for each in small.graph.initializer if len(each.dims) == 2)
    # Seven of each of two layers, and the last one; cosines and sines are no weights.
    assert kinds[TensorProto.INT4] == 15
    assert kinds[TensorProto.INT8] == 1
    assert {node.domain for node in small.graph.node} == {""}
    largest = max(
        (each for each in small.graph.initializer if each.data_type == TensorProto.FLOAT),
        key=lambda each: len(each.raw_data),
    )
    assert len(largest.raw_data) <= CONTEXT * 8 * 4
    assert small.ByteSize() < 0.5 * core.ByteSize()


def test_it_says_nearly_the_same_and_keys_and_values_are_as_they_were(
    core: onnx.ModelProto, small: onnx.ModelProto
) -> None:
    whole = window_nats(core.SerializeToString(), TOKENS, AFTER)
    assert window_nats(small.SerializeToString(), TOKENS, AFTER).mean() == pytest.approx(
        whole.mean(), rel=0.1
    )
    served = assemble(small, SERVING)
    session, past = open_session(served.SerializeToString()), past_of(served)
    check_remembered(session, past, TOKENS, AFTER, whole=whole, bound_points=10)
    kinds = {each.name: each.type for each in session.get_outputs()}
    assert {kinds[present_of(name)] for name in past_names(2)} == {"tensor(float)"}


def test_a_runtime_makes_one_operator_of_a_product(small: onnx.ModelProto, tmp_path: Any) -> None:
    """Else the weights would be floats in memory again."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(assemble(small, SERVING).SerializeToString(), options)
    kinds = Counter(node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node)
    assert kinds["MatMulNBits"] == 15
    assert kinds["DequantizeLinear"] == 0


def test_openvino_takes_whole_blocks_and_what_it_does_not_take_is_named(
    small: onnx.ModelProto,
) -> None:
    with pytest.raises(NoCandidateError, match=r"blocks of 32 where these divide .* 88 rows"):
        graph_of(assemble(small, SERVING).SerializeToString())
    weight = np.random.default_rng(2).normal(size=(2 * BLOCK, 3)).astype(np.float32)
    rows = np.random.default_rng(3).normal(size=(4, 2 * BLOCK)).astype(np.float32)
    graph = graph_of(quantise_weights(product(weight)).SerializeToString())
    (found,) = open_openvino(graph, "int4", threads=1).run(None, {"input": rows})
    np.testing.assert_allclose(found, rows @ restored(*rounded(weight)), atol=0.3)
