"""Weights of 4 bits: those of products alone, rounded in blocks; what goes through stays float.

Each block of a matrix's column has a scale of its own. The graph stays the standard's: 4-bit
tensors with ``DequantizeLinear`` by blocks (of opset 21), which ONNX Runtime makes one product
with (it calls it ``MatMulNBits``), so that the weights are read from memory as 4 bits.

One more token of a text reads every weight for a single row: its time is that of reading them, and
it is there that fewer bits pay.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.export import INPUT, checked_quantised

BLOCK: Final = 32
"""Weights, one below the other, that have one scale: with larger blocks a step of a model of 31
million weights took 10 to 20 % less, and the error of its answers grew by a seventh to a fifth."""
_OPSET: Final = 21
"""Of 2024, the first with tensors of 4 bits and scales of blocks."""
_NUMBER: Final = helper.tensor_dtype_to_np_dtype(TensorProto.INT4)
_LEAST, _MOST = -8, 7
_DIVISORS: Final = (7.0, 7.5, 8.0, 8.5, 9.0, 9.5, 10.0)
"""Steps from 0 to a block's largest value that are tried: with more of them the others are nearer
to what they were, and the largest is cut off."""
_OF_A_BYTE: Final = 127
_SIZES: Final = 2
"""Of a matrix."""

Matrix = NDArray[np.float32]


def rounded(weight: Matrix, block: int = BLOCK) -> tuple[NDArray[np.int8], Matrix]:
    """Return a matrix as numbers from -8 to 7, and what they are times.

    Of `_DIVISORS` each block takes the one with the least squared error.

    Args:
        weight: (K, N).
        block: rows that have a scale in common; the last block may have fewer.

    Returns:
        The numbers (K, N), and the scales (K / block, N), rounded up; none of these is 0.

    Raises:
        WorkloadError: a weight is infinite or not a number.
    """
    _check_finite(weight)
    rows, columns = weight.shape
    whole = np.pad(weight, ((0, -rows % block), (0, 0))).reshape(-1, block, columns)
    largest = np.abs(whole).max(axis=1, keepdims=True)
    # Where a step would be no normal number, all are 0.
    largest[largest < _DIVISORS[-1] * np.finfo(np.float32).tiny] = np.inf
    shares = whole / largest
    best = np.full(largest.shape, np.inf, dtype=np.float32)
    divisors, numbers = np.ones_like(largest), np.zeros(shares.shape, dtype=np.int8)
    for divisor in _DIVISORS:
        tried = np.clip(np.rint(shares * divisor), _LEAST, _MOST)
        error = np.square(tried / np.float32(divisor) - shares).sum(axis=1, keepdims=True)
        is_better = error < best
        best = np.where(is_better, error, best)
        divisors = np.where(is_better, np.float32(divisor), divisors)
        numbers = np.where(is_better, tried.astype(np.int8), numbers)
    scales = np.where(np.isinf(largest), np.float32(1), largest / divisors)
    return numbers.reshape(-1, columns)[:rows], scales[:, 0, :]


def _check_finite(weight: Matrix) -> None:
    if not np.isfinite(weight).all():
        raise WorkloadError(
            "the model has infinite or undefined weights: it can't be quantised; train again with "
            "a lower --learning-rate"
        )


def quantise_weights(core: onnx.ModelProto) -> onnx.ModelProto:
    """Return a language model's core with weights of 4 bits, and its table of tokens in 8.

    The table, from which rows are taken, is that of the last product too, which has its own copy.

    Args:
        core: the float model, from the input ``input``.

    Raises:
        WorkloadError: it has no product with a matrix, or a weight isn't finite.
    """
    model = onnx.ModelProto.FromString(core.SerializeToString())
    graph = model.graph
    given = {each.name for each in graph.input}
    tables = {
        each.name: each
        for each in graph.initializer
        if each.name not in given and len(each.dims) == _SIZES
        and each.data_type == TensorProto.FLOAT
    }  # fmt: skip
    turned = {
        node.output[0]: node.input[0]
        for node in graph.node
        if node.op_type == "Transpose" and node.input[0] in tables
    }
    nodes: list[onnx.NodeProto] = []
    products = 0
    for node in graph.node:
        if node.op_type == "MatMul" and node.input[1] in tables.keys() | turned.keys():
            name = node.input[1]
            source = turned.get(name, name)
            weight = numpy_helper.to_array(tables[source])
            nodes.append(_of_four_bits(graph, node, weight.T if name in turned else weight))
            products += 1
        elif node.op_type == "Gather" and node.input[1] == INPUT and node.input[0] in tables:
            nodes += _of_a_byte(graph, node, numpy_helper.to_array(tables[node.input[0]]))
            continue
        nodes.append(node)
    if not products:
        raise WorkloadError("the model has no product with a matrix to quantise")
    read = {name for node in nodes for name in node.input}
    nodes = [node for node in nodes if node.output[0] in read or node.op_type != "Transpose"]
    read = {name for node in nodes for name in node.input}
    kept = [each for each in graph.initializer if each.name in read | given]
    del graph.node[:], graph.initializer[:], graph.value_info[:]
    graph.node.extend(nodes)
    graph.initializer.extend(kept)
    for each in model.opset_import:
        if not each.domain:
            each.version = max(each.version, _OPSET)
    return checked_quantised(model)


def _of_four_bits(graph: onnx.GraphProto, node: onnx.NodeProto, weight: Matrix) -> onnx.NodeProto:
    """Have a product take 4 bits; return what makes floats of them."""
    name = f"{node.input[1]}_of_{node.name}"
    numbers, scales = rounded(np.ascontiguousarray(weight))
    graph.initializer.extend([
        numpy_helper.from_array(numbers.astype(_NUMBER), f"{name}_numbers"),
        numpy_helper.from_array(np.ascontiguousarray(scales), f"{name}_scales"),
    ])  # fmt: skip
    node.input[1] = name
    return helper.make_node(
        "DequantizeLinear", [f"{name}_numbers", f"{name}_scales"], [name], name=name, axis=0,
        block_size=BLOCK,
    )  # fmt: skip


def _of_a_byte(
    graph: onnx.GraphProto, node: onnx.NodeProto, table: Matrix
) -> list[onnx.NodeProto]:
    """What takes the same rows out of a table of bytes, each row with a scale of its own."""
    name, index, found = node.input[0], node.input[1], node.output[0]
    _check_finite(table)
    scales = np.abs(table).max(axis=1, keepdims=True) / _OF_A_BYTE
    scales[scales < np.finfo(np.float32).tiny] = 1
    numbers = np.rint(table / scales).astype(np.int8)
    parts: dict[str, Any] = {"numbers": numbers, "scales": scales}
    made: list[onnx.NodeProto] = []
    for part, values in parts.items():
        graph.initializer.append(numpy_helper.from_array(values, f"{name}_{part}"))
        made.append(
            helper.make_node("Gather", [f"{name}_{part}", index], [f"{found}_{part}"], axis=0)
        )
    floats = f"{found}_floats"
    return [
        *made,
        helper.make_node("Cast", [f"{found}_numbers"], [floats], to=TensorProto.FLOAT),
        helper.make_node("Mul", [floats, f"{found}_scales"], [found]),
    ]
