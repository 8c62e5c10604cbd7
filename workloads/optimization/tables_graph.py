"""A table's preprocessing as ONNX nodes, so that the served model takes raw rows.

The nodes compute `TablePreprocessing.transform`: all numeric columns are joined and treated at
once, since per column a node for each step would cost more than the model itself; the texts are
looked up column by column and become one-hot features in one comparison.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from falaj.workloads.training.preprocessing import (
    CategoricalColumn,
    NumericColumn,
    TablePreprocessing,
)

ML_DOMAIN = "ai.onnx.ml"
ML_OPSET = 4

UNKNOWN = 0
"""The position, within a text column's block of features, of missing and unknown texts."""


@dataclass
class GraphPart:
    """Nodes and constants to be joined with others into one graph.

    Attributes:
        prefix: begins every name made by `name` and `constant`.
    """

    prefix: str
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    initializers: list[onnx.TensorProto] = field(default_factory=list[onnx.TensorProto])

    def name(self, name: str) -> str:
        """Return an inner name that no column can have."""
        return f"{self.prefix}{name}"

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        """Add a constant; return its name."""
        self.initializers.append(numpy_helper.from_array(values, self.name(name)))
        return self.name(name)

    def node(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """Add a node whose single output has the full name ``output``; return that name."""
        made = helper.make_node(operator, inputs, [output], name=f"{output}:node", **attributes)
        self.nodes.append(made)
        return output


def build_inputs(
    preprocessing: TablePreprocessing, batch: str
) -> tuple[list[onnx.ValueInfoProto], GraphPart, str]:
    """Build the graph from raw columns to features.

    Args:
        preprocessing: the recipe that was fixed in training.
        batch: the name of the free first axis.

    Returns:
        The graph's inputs, (N, 1) each, float32 for numbers (NaN: missing) and strings for
        texts ("": missing), in the order of ``preprocessing``; the nodes; and the name of their
        result, float32 (N, F) in the order that `TablePreprocessing` documents.
    """
    part = GraphPart(free_prefix([item.name for item in every_column(preprocessing)]))
    inputs = [
        helper.make_tensor_value_info(
            item.name,
            TensorProto.FLOAT if isinstance(item, NumericColumn) else TensorProto.STRING,
            [batch, 1],
        )
        for item in every_column(preprocessing)
    ]
    features: list[str] = []
    if preprocessing.numeric:
        features.append(_numbers(part, preprocessing.numeric))
    if preprocessing.categorical:
        features.append(_texts(part, preprocessing.categorical))
    result = part.node("Concat", features, part.name("features"), axis=1)
    return inputs, part, result


def every_column(preprocessing: TablePreprocessing) -> list[NumericColumn | CategoricalColumn]:
    """Return the columns in the order of the features."""
    return [*preprocessing.numeric, *preprocessing.categorical]


def free_prefix(names: list[str]) -> str:
    """Return a prefix for inner names that none of ``names`` begins with."""
    prefix = "falaj/"
    while any(name.startswith(prefix) for name in names):
        prefix = f"_{prefix}"
    return prefix


def _numbers(part: GraphPart, columns: list[NumericColumn]) -> str:
    fill, mean, scale = (
        np.array([[getattr(item, key) for item in columns]], dtype=np.float32)
        for key in ("fill", "mean", "scale")
    )
    joined = part.node("Concat", [item.name for item in columns], part.name("numbers"), axis=1)
    missing = part.node("IsNaN", [joined], part.name("missing"))
    filled = part.node(
        "Where", [missing, part.constant("fill", fill), joined], part.name("filled")
    )
    centred = part.node("Sub", [filled, part.constant("mean", mean)], part.name("centred"))
    return part.node("Div", [centred, part.constant("scale", scale)], part.name("standardised"))


def _texts(part: GraphPart, columns: list[CategoricalColumn]) -> str:
    positions: list[str] = []
    for index, column in enumerate(columns):
        positions.append(_position(part, column, index))
    joined = part.node("Concat", positions, part.name("positions"), axis=1)
    widths = [len(item.categories) + 1 for item in columns]
    # Feature f belongs to column owner[f]; it is 1 where that column's text has position own[f].
    owner = np.repeat(np.arange(len(columns)), widths)
    own = np.concatenate([np.arange(width) for width in widths])[np.newaxis, :]
    spread = part.node(
        "Gather", [joined, part.constant("owner", owner)], part.name("spread"), axis=1
    )
    hit = part.node("Equal", [spread, part.constant("own", own)], part.name("hit"))
    return part.node("Cast", [hit], part.name("one_hot"), to=TensorProto.FLOAT)


def _position(part: GraphPart, column: CategoricalColumn, index: int) -> str:
    output = part.name(f"position_{index}")
    if not column.categories:  # LabelEncoder refuses empty keys; every text is unknown
        shape = part.node("Shape", [column.name], part.name(f"shape_{index}"))
        zero = helper.make_tensor("value", TensorProto.INT64, [1], [UNKNOWN])
        return part.node("ConstantOfShape", [shape], output, value=zero)
    return part.node(
        "LabelEncoder",
        [column.name],
        output,
        domain=ML_DOMAIN,
        keys_strings=[text.encode() for text in column.categories],
        values_int64s=list(range(1, len(column.categories) + 1)),
        default_int64=UNKNOWN,
    )
