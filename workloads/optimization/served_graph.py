"""The served graph: raw inputs, the model's core, and answers in a person's terms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import onnx
import onnx.compose
from onnx import TensorProto, helper

from falaj.workloads.optimization.export import BATCH, INPUT, OUTPUT, strip_notes
from falaj.workloads.optimization.safety import check_graph
from falaj.workloads.optimization.tables_graph import (
    ML_DOMAIN,
    ML_OPSET,
    GraphPart,
    build_inputs,
    every_column,
    free_prefix,
)
from falaj.workloads.training.preprocessing import TablePreprocessing

IMAGE = "image"

Role = Literal["probabilities", "label", "prediction"]

_DATATYPES: dict[int, str] = {
    TensorProto.FLOAT: "FP32",
    TensorProto.INT64: "INT64",
    TensorProto.STRING: "BYTES",
}


@dataclass(frozen=True)
class Serving:
    """What stands around the core.

    Attributes:
        preprocessing: a table's recipe; None for images, whose core takes the served input.
        shape: one row of the core's input.
        classes: the classes in the order of the core's outputs; None for a regression.
        text_labels: answer the class's text; else its number.
        target: mean and scale of a regression's target, from standardised to real units.
    """

    preprocessing: TablePreprocessing | None
    shape: tuple[int, ...]
    classes: list[str] | None
    text_labels: bool
    target: tuple[float, float] | None

    def input_names(self) -> list[str]:
        """Return the served inputs' names in their order."""
        if self.preprocessing is None:
            return [IMAGE]
        return [item.name for item in every_column(self.preprocessing)]

    def output_name(self, role: Role) -> str:
        """Return the output's name: its role, unless a column is already called that."""
        name: str = role
        while name in self.input_names():
            name = f"predicted_{name}"
        return name


def assemble(core: onnx.ModelProto, serving: Serving) -> onnx.ModelProto:
    """Put ``serving``'s input and output nodes around ``core``.

    Args:
        core: float or quantised, from the input ``input`` to the output ``output``.
        serving: what stands around it.

    Returns:
        A checked model. Inputs: ``image`` float32 (N, *shape), or one (N, 1) per column.
        Outputs: ``probabilities`` float32 (N, classes) and ``label`` (N,); or ``prediction``
        float32 (N, 1) in real units.
    """
    prefix = free_prefix(serving.input_names())
    inner = onnx.compose.add_prefix(core, prefix + "core/")
    part = GraphPart(prefix)
    if serving.preprocessing is None:
        inputs = [helper.make_tensor_value_info(IMAGE, TensorProto.FLOAT, [BATCH, *serving.shape])]
        features = IMAGE
    else:
        inputs, part, features = build_inputs(serving.preprocessing, BATCH)
    part.node("Identity", [features], f"{prefix}core/{INPUT}")
    part.nodes.extend(inner.graph.node)
    part.initializers.extend(inner.graph.initializer)
    outputs = _answers(part, f"{prefix}core/{OUTPUT}", serving)
    graph = helper.make_graph(part.nodes, "falaj", inputs, outputs, part.initializers)
    opsets = {item.domain: item.version for item in core.opset_import}
    opsets[ML_DOMAIN] = ML_OPSET
    used = {node.domain for node in part.nodes}
    model = helper.make_model(
        graph,
        opset_imports=[
            helper.make_opsetid(domain, version)
            for domain, version in opsets.items()
            if domain in used
        ],
        ir_version=core.ir_version,
        producer_name="falaj",
    )
    strip_notes(model)
    check_graph(model)
    onnx.checker.check_model(model, full_check=True)
    return model


def describe_inputs(model: onnx.ModelProto) -> list[dict[str, Any]]:
    """Return the inputs as the Open Inference Protocol does: name, datatype, shape (-1: free)."""
    return [_describe(value) for value in model.graph.input]


def describe_outputs(model: onnx.ModelProto, serving: Serving) -> list[dict[str, Any]]:
    """Return the outputs likewise, each with its ``role``."""
    roles: tuple[Role, ...] = ("probabilities", "label", "prediction")
    by_name = {serving.output_name(role): role for role in roles}
    return [{**_describe(value), "role": by_name[value.name]} for value in model.graph.output]


def _answers(part: GraphPart, raw: str, serving: Serving) -> list[onnx.ValueInfoProto]:
    if serving.classes is None:
        prediction = serving.output_name("prediction")
        mean, scale = serving.target or (0.0, 1.0)
        factor = part.constant("target_scale", np.array([scale], dtype=np.float32))
        offset = part.constant("target_mean", np.array([mean], dtype=np.float32))
        scaled = part.node("Mul", [raw, factor], part.name("scaled"))
        part.node("Add", [scaled, offset], prediction)
        return [helper.make_tensor_value_info(prediction, TensorProto.FLOAT, [BATCH, 1])]
    probabilities, label = serving.output_name("probabilities"), serving.output_name("label")
    part.node("Softmax", [raw], probabilities, axis=-1)
    number = part.name("class") if serving.text_labels else label
    part.node("ArgMax", [raw], number, axis=1, keepdims=0)
    if serving.text_labels:
        part.node(
            "LabelEncoder",
            [number],
            label,
            domain=ML_DOMAIN,
            keys_int64s=list(range(len(serving.classes))),
            values_strings=[text.encode() for text in serving.classes],
            default_string=b"",
        )
    kind = TensorProto.STRING if serving.text_labels else TensorProto.INT64
    size = len(serving.classes)
    return [
        helper.make_tensor_value_info(probabilities, TensorProto.FLOAT, [BATCH, size]),
        helper.make_tensor_value_info(label, kind, [BATCH]),
    ]


def _describe(value: onnx.ValueInfoProto) -> dict[str, Any]:
    tensor = value.type.tensor_type
    shape = [item.dim_value if item.HasField("dim_value") else -1 for item in tensor.shape.dim]
    return {"name": value.name, "datatype": _DATATYPES[tensor.elem_type], "shape": shape}
