"""Loaded models, and requests of the Open Inference Protocol for them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from onnx import TensorProto

from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.models import model
from falaj.workloads.inference.settings import Limits
from tests.workloads.inference import models
from tests.workloads.inference.serving import row

LIMITS = Limits(max_body_bytes=65536, max_rows=32)
KINDS = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}


def loaded(content: bytes, *, missing: bool = False) -> model.Model:
    """A model in memory; with ``missing``, its package says that its inputs take such values."""
    manifest = models.fields(content) if missing else {}
    for entry in manifest.get("inputs", ()):
        entry["missing"] = True
    return model.load(
        content, name="mlp", version="3", manifest=manifest, threads=1, limits=LIMITS
    )


MLP = loaded(models.mlp())
TABLE = loaded(models.table(), missing=True)
ECHO = {name: loaded(models.echo({"x": kind}, ("batch", 2))) for name, kind in KINDS.items()}


def answer(served: model.Model, document: Any) -> dict[str, Any]:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    inference = served.schema.read(body, None)
    content, header_length = served.schema.write(inference, served.run(inference))
    assert header_length is None
    return json.loads(content)


def refusal(served: model.Model, document: Any, header_length: int | None = None) -> str:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    if served.row is not None:
        assert served.row.answer(body, header_length) is None
    with pytest.raises(RequestError) as caught:
        served.schema.read(body, header_length)
    assert caught.value.status == 400
    return caught.value.message


def changed(**changes: Any) -> dict[str, Any]:
    tensor = row()["inputs"][0] | changes
    return {"inputs": [{k: v for k, v in tensor.items() if v is not ...}]}


def echo_request(datatype: str, data: Any, shape: Any = (1, 2)) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": datatype, "shape": list(shape), "data": data}]}
