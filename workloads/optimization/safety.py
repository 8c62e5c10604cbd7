"""What a served graph may hold: known operators and its own weights, nothing beside the file."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from google.protobuf.message import DecodeError

from falaj.workloads.errors import WorkloadError

ALLOWED_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""The operator sets of the ONNX standard; custom operators would need code beside the model."""

MAXIMUM_BYTES = 2**31 - 1
"""Protocol buffers end at 2 GiB; a larger model needs external data, which is refused."""

MAXIMUM_DEPTH = 8
"""Nested subgraphs (of If, Loop, Scan); the models exported here have none."""


class UnsafeModelError(WorkloadError):
    """The bytes are no ONNX model, or one that reaches outside itself."""


def check_model(model: bytes) -> onnx.ModelProto:
    """Parse ``model`` and refuse external data, functions and operators beyond the standard's.

    The bytes are parsed without a base folder, so nothing beside them is ever opened.

    Returns:
        The parsed model.

    Raises:
        UnsafeModelError: says what was found and where.
    """
    if len(model) > MAXIMUM_BYTES:
        raise UnsafeModelError(f"the model has {len(model):,} bytes; at most {MAXIMUM_BYTES:,}")
    try:
        parsed = onnx.ModelProto.FromString(model)
    except DecodeError:
        raise UnsafeModelError("not an ONNX model: damaged, or another kind of file") from None
    if not parsed.graph.node or not parsed.opset_import:
        raise UnsafeModelError("the ONNX model is not whole: damaged, or another kind of file")
    check_graph(parsed)
    return parsed


def check_graph(model: onnx.ModelProto) -> None:
    """Refuse external data, functions and foreign operators anywhere in ``model``.

    Raises:
        UnsafeModelError: says what was found and where.
    """
    if model.functions:
        raise UnsafeModelError(
            f"the model defines its own function {model.functions[0].name!r}; "
            "allowed are operators of the ONNX standard only"
        )
    foreign = sorted({item.domain for item in model.opset_import} - ALLOWED_DOMAINS)
    if foreign:
        raise UnsafeModelError(_foreign(f"imports the operator set {foreign[0]!r}"))
    for graph in _graphs(model.graph, 0):
        for tensor in _tensors(graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
                raise UnsafeModelError(
                    f"the tensor {tensor.name!r} keeps its values in another file; "
                    "a served model must hold all of its weights"
                )
        for node in graph.node:
            if node.domain not in ALLOWED_DOMAINS:
                raise UnsafeModelError(_foreign(f"uses {node.op_type!r} of {node.domain!r}"))


def _foreign(what: str) -> str:
    allowed = ", ".join(repr(name) for name in sorted(ALLOWED_DOMAINS) if name)
    return f"the model {what}; allowed are the standard operator sets {allowed}"


def _graphs(graph: onnx.GraphProto, depth: int) -> Iterator[onnx.GraphProto]:
    if depth > MAXIMUM_DEPTH:
        raise UnsafeModelError(f"subgraphs are nested deeper than {MAXIMUM_DEPTH}")
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g, depth + 1)
            for inner in attribute.graphs:
                yield from _graphs(inner, depth + 1)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor.values
                yield attribute.sparse_tensor.indices
            for sparse in attribute.sparse_tensors:
                yield sparse.values
                yield sparse.indices
