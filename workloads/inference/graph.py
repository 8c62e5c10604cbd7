"""Refusing ONNX graphs that could reach outside themselves.

A signature says who made a package, not that its graph is harmless. Loading from bytes already
leaves external data without a folder to resolve against; this check refuses it by name, with
operators of unknown domains (custom libraries), before the runtime sees the graph. See the
external data advisories CVE-2022-25882, CVE-2024-27318, CVE-2025-51480.
"""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from falaj.workloads.inference.errors import InferenceError

ALLOWED_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
MAX_DEPTH = 16
"""Nesting of subgraphs (If, Loop, Scan)."""


def check(model_bytes: bytes) -> None:
    """Check the graph of a model.

    Raises:
        InferenceError: not an ONNX model, external data, a foreign operator domain, or
            subgraphs nested deeper than MAX_DEPTH.
    """
    try:
        model = onnx.load_model_from_string(model_bytes)
    except Exception as error:  # protobuf's own error type depends on its implementation
        raise InferenceError("the package's model is not an ONNX model") from error
    if not model.graph.node:
        raise InferenceError("the package's model is not an ONNX model, or has no operators")
    for entry in model.opset_import:
        _check_domain(entry.domain)
    _check_graph(model.graph, 0)
    for function in model.functions:
        _check_nodes(function.node, 0)


def _check_domain(domain: str) -> None:
    if domain not in ALLOWED_DOMAINS:
        allowed = ", ".join(sorted(filter(None, ALLOWED_DOMAINS)))
        raise InferenceError(
            f"the model uses operators of the domain '{domain}'; allowed are {allowed}"
        )


def _check_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
        raise InferenceError(
            f"the model keeps the tensor '{tensor.name}' in another file; export it with all "
            "data inside"
        )


def _check_graph(graph: onnx.GraphProto, depth: int) -> None:
    if depth > MAX_DEPTH:
        raise InferenceError(f"the model's subgraphs are nested deeper than {MAX_DEPTH}")
    for tensor in graph.initializer:
        _check_tensor(tensor)
    for sparse in graph.sparse_initializer:
        _check_tensor(sparse.values)
        _check_tensor(sparse.indices)
    _check_nodes(graph.node, depth)


def _check_nodes(nodes: Iterable[onnx.NodeProto], depth: int) -> None:
    for node in nodes:
        _check_domain(node.domain)
        for attribute in node.attribute:
            for tensor in (attribute.t, *attribute.tensors):
                _check_tensor(tensor)
            for sparse in (attribute.sparse_tensor, *attribute.sparse_tensors):
                _check_tensor(sparse.values)
                _check_tensor(sparse.indices)
            if attribute.HasField("g"):
                _check_graph(attribute.g, depth + 1)
            for graph in attribute.graphs:
                _check_graph(graph, depth + 1)
