"""Graphs that reach outside themselves are refused."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.export import UnsafeModelError, check_model


def small_model() -> onnx.ModelProto:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 2])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, 2])
    weight = numpy_helper.from_array(np.ones(2, dtype=np.float32), "w")
    node = helper.make_node("Mul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", [value], [result], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def outside(tensor: onnx.TensorProto) -> onnx.TensorProto:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    return tensor


def test_a_whole_model_passes() -> None:
    assert check_model(small_model().SerializeToString()).graph.node[0].op_type == "Mul"


def test_external_weights_are_refused() -> None:
    model = small_model()
    outside(model.graph.initializer[0])
    with pytest.raises(UnsafeModelError, match="'w' keeps its values in another file"):
        check_model(model.SerializeToString())


def test_an_external_entry_is_refused_even_if_not_in_use() -> None:
    model = small_model()
    model.graph.initializer[0].external_data.add(key="location", value="x")
    with pytest.raises(UnsafeModelError, match="another file"):
        check_model(model.SerializeToString())


def test_external_values_in_a_subgraph_are_refused() -> None:
    model = small_model()
    constant = helper.make_node("Constant", [], ["c"])
    tensor = outside(numpy_helper.from_array(np.ones(2, dtype=np.float32), "inner"))
    constant.attribute.append(helper.make_attribute("value", tensor))
    body = helper.make_graph([constant], "body", [], [])
    branch = helper.make_node("If", ["x"], ["z"], then_branch=body, else_branch=body)
    model.graph.node.append(branch)
    with pytest.raises(UnsafeModelError, match="'inner' keeps its values in another file"):
        check_model(model.SerializeToString())


@pytest.mark.parametrize("where", ["node", "import"])
def test_foreign_operators_are_refused(where: str) -> None:
    model = small_model()
    if where == "node":
        model.graph.node[0].domain = "com.example"
    else:
        model.opset_import.append(helper.make_opsetid("com.example", 1))
    with pytest.raises(UnsafeModelError, match=r"com\.example.*allowed are"):
        check_model(model.SerializeToString())


def test_functions_are_refused() -> None:
    model = small_model()
    model.functions.add(name="sneaky", domain="")
    with pytest.raises(UnsafeModelError, match="'sneaky'"):
        check_model(model.SerializeToString())


def test_endless_nesting_is_refused() -> None:
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [], [])
    for _ in range(12):
        node = helper.make_node("If", ["x"], ["y"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([node], "g", [], [])
        if graph.ByteSize() > 100_000:
            break
    model = helper.make_model(graph)
    with pytest.raises(UnsafeModelError, match="nested deeper"):
        check_model(model.SerializeToString())


@given(st.binary(max_size=200))
def test_other_bytes_are_refused_clearly(data: bytes) -> None:
    with pytest.raises(WorkloadError, match=r"ONNX model|operator sets|function"):
        check_model(data)


def test_a_cut_model_is_refused_wherever_it_was_cut() -> None:
    data = small_model().SerializeToString()
    for length in range(len(data)):
        with pytest.raises(WorkloadError, match=r"ONNX model|operator sets"):
            check_model(data[:length])
