"""Models that are refused before or while they are loaded."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper

from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.models import model
from falaj.workloads.inference.settings import Limits
from tests.workloads.inference import models


def external() -> bytes:
    proto = onnx.load_model_from_string(models.mlp())
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="../../etc/passwd")
    return proto.SerializeToString()


def external_in_attribute() -> bytes:
    proto = onnx.load_model_from_string(models.mlp())
    value = helper.make_tensor("hidden", TensorProto.FLOAT, [1], [1.0])
    value.external_data.add(key="location", value="weights.bin")
    proto.graph.node.insert(0, helper.make_node("Constant", [], ["c"], value=value))
    return proto.SerializeToString()


def nested(depth: int) -> bytes:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "leaf",
        [],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
    )
    for _ in range(depth):
        node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
        inner = helper.make_graph(
            [node], "level", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]
        )
    return helper.make_model(inner).SerializeToString()


def foreign() -> bytes:
    node = helper.make_node("Evil", ["x"], ["y"], domain="com.evil")
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])]
    return helper.make_model(helper.make_graph([node], "g", inputs, outputs)).SerializeToString()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "not an ONNX model"),
        (b"nonsense", "not an ONNX model"),
        (models.mlp()[:500], "not an ONNX model"),
        (external(), "keeps the tensor 'w0' in another file"),
        (external_in_attribute(), "keeps the tensor 'hidden' in another file"),
        (foreign(), "domain 'com.evil'"),
    ],
)
def test_unsafe_graphs_are_refused(content: bytes, words: str) -> None:
    with pytest.raises(InferenceError, match=words):
        model.check(content)


def test_deep_subgraphs_are_refused() -> None:
    model.check(nested(3))
    deep = onnx.load_model_from_string(nested(1))
    for _ in range(model.MAX_DEPTH):
        level = onnx.GraphProto()
        level.CopyFrom(deep.graph)
        node = helper.make_node("If", ["c"], ["y"], then_branch=level)
        del deep.graph.node[:]
        deep.graph.node.append(node)
    with pytest.raises(InferenceError, match="nested deeper"):
        model.check(deep.SerializeToString())


def load(content: bytes, manifest: dict[str, object] | None = None) -> model.Model:
    return model.load(
        content,
        name="m",
        version="1",
        manifest=manifest or {},
        threads=1,
        limits=Limits(),
    )


def test_types_that_the_protocol_cannot_carry() -> None:
    with pytest.raises(InferenceError, match=r"can't carry|can't load"):
        load(models.echo({"x": TensorProto.BFLOAT16}))


def test_a_model_that_fails_in_its_warm_up() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    shape = helper.make_tensor("shape", TensorProto.INT64, [1], [7])
    proto = helper.make_model(
        helper.make_graph(
            nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
            [shape],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=9,
    )
    with pytest.raises(InferenceError, match="warm-up"):
        load(proto.SerializeToString())


@pytest.mark.parametrize(
    "inputs",
    [
        [],
        [{"name": "other", "datatype": "FP32", "shape": [-1, 64]}],
        [{"name": "input", "datatype": "FP64", "shape": [-1, 64]}],
        [{"name": "input", "datatype": "FP32", "shape": [-1, 63]}],
        [{"name": "input", "datatype": "FP32", "shape": [-1]}],
    ],
)
def test_a_manifest_of_another_model(inputs: list[dict[str, object]]) -> None:
    with pytest.raises(InferenceError, match="inputs aren't the model's"):
        load(models.mlp(), {"inputs": inputs})


def test_a_fitting_manifest() -> None:
    content = models.mlp()
    assert load(content, models.fields(content)).row is not None
