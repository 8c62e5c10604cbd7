"""Nodes and constants of a graph in the making."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

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

    def inside(self, name: str) -> GraphPart:
        """Return the same part for nodes of which every inner name begins with ``name``."""
        return replace(self, prefix=self.name(name))

    def constant(self, name: str, values: NDArray[np.generic]) -> str:
        """Add a constant; return its name."""
        self.initializers.append(numpy_helper.from_array(values, self.name(name)))
        return self.name(name)

    def node(
        self,
        operator: str,
        inputs: list[str],
        output: str,
        further: tuple[str, ...] = (),
        **attributes: Any,
    ) -> str:
        """Add a node whose output has the full name ``output``; return that name.

        Args:
            operator: of the standard.
            inputs: full names.
            output: full name.
            further: ends of the names of outputs that nothing uses. Default: it has none.
            attributes: of the operator.
        """
        outputs = [output, *(f"{output}:{name}" for name in further)]
        made = helper.make_node(operator, inputs, outputs, name=f"{output}:node", **attributes)
        self.nodes.append(made)
        return output

    def looked_up(
        self,
        source: str,
        output: str,
        keys: list[str],
        *,
        numbers: list[int] | None = None,
        floats: list[float] | None = None,
    ) -> str:
        """Add a node that gives ``numbers`` for texts, 0 for others; or ``floats``, and NaN."""
        values: dict[str, Any] = (
            {"values_floats": floats, "default_float": float("nan")}
            if floats is not None
            else {"values_int64s": numbers, "default_int64": UNKNOWN}
        )
        return self.node(
            "LabelEncoder", [source], output, domain=ML_DOMAIN,
            keys_strings=[text.encode() for text in keys], **values,
        )  # fmt: skip
