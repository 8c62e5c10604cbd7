"""The networks that servers are measured with: a tiny one, an encoder like BERT's, a ResNet-50.

Weights are drawn: how long a network takes doesn't depend on what it has learnt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.workloads.inference import models

TOKENS: Final = 64
VOCABULARY: Final = 8_000
PIXELS: Final = 112


@dataclass(frozen=True)
class Network:
    """A network with one input and one output, both by their batch.

    Attributes:
        content: the ONNX model; ``input`` → ``probabilities``.
        rows: inputs that requests have in turns, one row each.
    """

    content: bytes
    rows: NDArray[Any]

    @property
    def datatype(self) -> str:
        """The protocol's name of the inputs' type."""
        return {"f": "FP32", "i": "INT64"}[self.rows.dtype.kind]


class _Graph:
    """Nodes and drawn weights, by the order in which they are asked for."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = np.random.default_rng(0)

    def drawn(self, *shape: int, fan: int = 1) -> str:
        values = (self._random.standard_normal(shape) / np.sqrt(fan)).astype(np.float32)
        return self.constant(values)

    def constant(self, values: NDArray[Any]) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def model(self, last: str, kind: int, shape: list[int], classes: int) -> bytes:
        self.nodes.append(helper.make_node("Softmax", [last], ["probabilities"], axis=1))
        given = helper.make_tensor_value_info("input", kind, ["batch", *shape])
        found = helper.make_tensor_value_info(
            "probabilities", TensorProto.FLOAT, ["batch", classes]
        )
        return models.model_of(self.nodes, [given], [found], self.weights)


def tiny() -> Network:
    """64-128-64-10: some ten microseconds."""
    rows = np.random.default_rng(1).integers(0, 17, (32, 64)).astype(np.float32)
    return Network(models.mlp(), rows)


def encoder(layers: int = 6, width: int = 384, heads: int = 6) -> Network:
    """An encoder as BERT's (Devlin et al. 2019) over 64 tokens, in the size of MiniLM-L6."""
    graph = _Graph()

    def dense(given: str, wide: int, high: int) -> str:
        product = graph.node("MatMul", given, graph.drawn(wide, high, fan=wide))
        return graph.node("Add", product, graph.constant(np.zeros(high, np.float32)))

    def normal(given: str) -> str:
        ones, zeros = np.ones(width, np.float32), np.zeros(width, np.float32)
        return graph.node(
            "LayerNormalization", given, graph.constant(ones), graph.constant(zeros), axis=-1
        )

    def gelu(given: str) -> str:
        root = graph.constant(np.array(np.sqrt(2), np.float32))
        erf = graph.node("Erf", graph.node("Div", given, root))
        one, half = (graph.constant(np.array(each, np.float32)) for each in (1, 0.5))
        return graph.node("Mul", graph.node("Mul", given, graph.node("Add", erf, one)), half)

    each = width // heads
    apart = graph.constant(np.array([0, TOKENS, heads, each], np.int64))
    joined = graph.constant(np.array([0, TOKENS, width], np.int64))
    scale = graph.constant(np.array(1 / np.sqrt(each), np.float32))

    def attention(given: str) -> str:
        def part(order: list[int]) -> str:
            divided = graph.node("Reshape", dense(given, width, width), apart)
            return graph.node("Transpose", divided, perm=order)

        queries, keys, values = part([0, 2, 1, 3]), part([0, 2, 3, 1]), part([0, 2, 1, 3])
        scores = graph.node("Mul", graph.node("MatMul", queries, keys), scale)
        mixed = graph.node("MatMul", graph.node("Softmax", scores, axis=-1), values)
        together = graph.node("Reshape", graph.node("Transpose", mixed, perm=[0, 2, 1, 3]), joined)
        return dense(together, width, width)

    words = graph.node("Gather", graph.drawn(VOCABULARY, width), "input")
    hidden = normal(graph.node("Add", words, graph.drawn(1, TOKENS, width)))
    for _ in range(layers):
        hidden = normal(graph.node("Add", hidden, attention(hidden)))
        wide = gelu(dense(hidden, width, 4 * width))
        hidden = normal(graph.node("Add", hidden, dense(wide, 4 * width, width)))
    pooled = graph.node("ReduceMean", hidden, axes=[1], keepdims=0)
    content = graph.model(dense(pooled, width, 2), TensorProto.INT64, [TOKENS], 2)
    rows = np.random.default_rng(1).integers(0, VOCABULARY, (32, TOKENS))
    return Network(content, rows)


def residual(blocks: tuple[int, ...] = (3, 4, 6, 3)) -> Network:
    """ResNet-50 (He et al. 2016, with norms folded into convolutions) on 112 x 112 pixels."""
    graph = _Graph()

    def convolution(given: str, wide: int, high: int, size: int, stride: int = 1) -> str:
        weight = graph.drawn(high, wide, size, size, fan=wide * size * size)
        bias = graph.constant(np.zeros(high, np.float32))
        return graph.node(
            "Conv", given, weight, bias, kernel_shape=[size, size], strides=[stride, stride],
            pads=[size // 2] * 4,
        )  # fmt: skip

    hidden = graph.node("Relu", convolution("input", 3, 64, 7, 2))
    hidden = graph.node("MaxPool", hidden, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    wide = 64
    for stage, count in enumerate(blocks):
        inner, high = 64 << stage, 256 << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            first = graph.node("Relu", convolution(hidden, wide, inner, 1))
            second = graph.node("Relu", convolution(first, inner, inner, 3, stride))
            third = convolution(second, inner, high, 1)
            beside = hidden if block else convolution(hidden, wide, high, 1, stride)
            hidden = graph.node("Relu", graph.node("Add", third, beside))
            wide = high
    pooled = graph.node("Flatten", graph.node("GlobalAveragePool", hidden))
    classes = graph.node(
        "Gemm", pooled, graph.drawn(wide, 1000, fan=wide),
        graph.constant(np.zeros(1000, np.float32)),
    )  # fmt: skip
    content = graph.model(classes, TensorProto.FLOAT, [3, PIXELS, PIXELS], 1000)
    rows = np.random.default_rng(1).random((4, 3, PIXELS, PIXELS), np.float32)
    return Network(content, rows)
