"""Small ONNX models that are made, not trained."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

NAMES = {
    TensorProto.FLOAT: "FP32",
    TensorProto.DOUBLE: "FP64",
    TensorProto.FLOAT16: "FP16",
    TensorProto.INT64: "INT64",
    TensorProto.INT32: "INT32",
    TensorProto.INT8: "INT8",
    TensorProto.UINT8: "UINT8",
    TensorProto.UINT64: "UINT64",
    TensorProto.BOOL: "BOOL",
    TensorProto.STRING: "BYTES",
}


def mlp(seed: int = 0, *, sizes: tuple[int, ...] = (64, 128, 64, 10)) -> bytes:
    """Return 64-128-64-10 with random weights: `input` FP32 (N,64) -> `probabilities` (N,10)."""
    random = np.random.default_rng(seed)
    nodes: list[Any] = []
    weights: list[Any] = []
    previous = "input"
    for index, (wide, high) in enumerate(pairwise(sizes)):
        weight = (random.standard_normal((wide, high)) / np.sqrt(wide)).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"w{index}"))
        weights.append(numpy_helper.from_array(np.zeros(high, np.float32), f"b{index}"))
        nodes.append(helper.make_node("Gemm", [previous, f"w{index}", f"b{index}"], [f"g{index}"]))
        previous = f"g{index}"
        if index < len(sizes) - 2:
            nodes.append(helper.make_node("Relu", [previous], [f"r{index}"]))
            previous = f"r{index}"
    nodes.append(helper.make_node("Softmax", [previous], ["probabilities"], axis=1))
    inputs = [helper.make_tensor_value_info("input", TensorProto.FLOAT, ["batch", sizes[0]])]
    outputs = [
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", sizes[-1]])
    ]
    return model_of(nodes, inputs, outputs, weights)


def classifier() -> bytes:
    """Return `image` FP32 (N,1,8,8) -> `probabilities` FP32 (N,64) and `label` INT64 (N)."""
    nodes = [
        helper.make_node("Flatten", ["image"], ["flat"]),
        helper.make_node("Softmax", ["flat"], ["probabilities"], axis=1),
        helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1, keepdims=0),
    ]
    inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])]
    outputs = [
        helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 64]),
        helper.make_tensor_value_info("label", TensorProto.INT64, ["batch"]),
    ]
    return model_of(nodes, inputs, outputs, [])


def echo(types: dict[str, int], shape: tuple[Any, ...] = ("batch", 1)) -> bytes:
    """Return a model that gives each input `x` back as `x_out`."""
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in types]
    inputs = [helper.make_tensor_value_info(name, kind, shape) for name, kind in types.items()]
    outputs = [
        helper.make_tensor_value_info(f"{name}_out", kind, shape) for name, kind in types.items()
    ]
    return model_of(nodes, inputs, outputs, [])


def table() -> bytes:
    """Return a model of raw rows: `age` FP32 and `city` BYTES (N,1) -> `score`, `label`.

    `score` is the age, 40 where it is missing; `label` is the city, as text (N).
    """
    nodes = [
        helper.make_node("IsNaN", ["age"], ["missing"]),
        helper.make_node("Where", ["missing", "fill", "age"], ["score"]),
        helper.make_node("Squeeze", ["city", "axis"], ["label"]),
    ]
    constants = [
        numpy_helper.from_array(np.array([40.0], np.float32), "fill"),
        numpy_helper.from_array(np.array([1], np.int64), "axis"),
    ]
    inputs = [
        helper.make_tensor_value_info("age", TensorProto.FLOAT, ["batch", 1]),
        helper.make_tensor_value_info("city", TensorProto.STRING, ["batch", 1]),
    ]
    outputs = [
        helper.make_tensor_value_info("score", TensorProto.FLOAT, ["batch", 1]),
        helper.make_tensor_value_info("label", TensorProto.STRING, ["batch"]),
    ]
    return model_of(nodes, inputs, outputs, constants)


def heavy() -> bytes:
    """Return a model whose run takes milliseconds, so that it belongs in a thread."""
    return mlp(sizes=(64, 2048, 2048, 2048, 10))


def counting() -> bytes:
    """Return a model that takes as long as it is asked to: `steps` INT64 (N,1) -> `x` likewise.

    Each of the steps, the most of a request, adds one to all values.
    """
    scalar = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["goes"]),
            helper.make_node("Add", ["before", "one"], ["after"]),
        ],
        "body",
        [
            scalar("step", TensorProto.INT64, []),
            scalar("go", TensorProto.BOOL, []),
            scalar("before", TensorProto.INT64, ["batch", 1]),
        ],
        [scalar("goes", TensorProto.BOOL, []), scalar("after", TensorProto.INT64, ["batch", 1])],
    )
    nodes = [
        helper.make_node("ReduceMax", ["steps"], ["most"], keepdims=0),
        helper.make_node("Loop", ["most", "", "steps"], ["x"], body=body),
    ]
    inputs = [helper.make_tensor_value_info("steps", TensorProto.INT64, ["batch", 1])]
    outputs = [helper.make_tensor_value_info("x", TensorProto.INT64, ["batch", 1])]
    constants = [numpy_helper.from_array(np.array([1], np.int64), "one")]
    return model_of(nodes, inputs, outputs, constants)


def model_of(nodes: list[Any], inputs: list[Any], outputs: list[Any], weights: list[Any]) -> bytes:
    """Return the model of a graph, as all of these tests have it."""
    graph = helper.make_graph(nodes, "model", inputs, outputs, weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()


def fields(model: bytes, run: str = "run-1") -> dict[str, Any]:
    """Return the manifest's fields for a model."""
    graph = onnx.load_model_from_string(model).graph
    missing = {name for node in graph.node if node.op_type == "IsNaN" for name in node.input}

    def tensors(values: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": value.name,
                "datatype": NAMES[value.type.tensor_type.elem_type],
                "shape": [d.dim_value or -1 for d in value.type.tensor_type.shape.dim],
                **({"missing": True} if value.name in missing else {}),
            }
            for value in values
        ]

    return {
        "dataset": {"digest": "0" * 64},
        "lineage": {"run": run, "dataset": "0" * 64},
        "inputs": tensors(graph.input),
        "outputs": tensors(graph.output),
    }
