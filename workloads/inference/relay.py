"""Checked requests written anew for another server, and its answers checked like a client's.

What a client sent is never passed on as it was: another parser might read it otherwise (a key that
is there twice, a size that wraps around), and what it reads would not have been checked. The
arrays go in the binary form of the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
import orjson

from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.oip import Inference, Schema
from falaj.workloads.inference.tensors import Array, TensorSpec


class AnswerError(Exception):
    """The other server's answer isn't one to this request; the message says why."""


def encode(schema: Schema, inference: Inference) -> tuple[bytes, int]:
    """Return the body of a request and the length of its JSON part in bytes."""
    items: list[dict[str, Any]] = []
    blobs: list[bytes] = []
    for spec in schema.inputs.values():
        array = inference.feed[spec.name]
        blob = spec.to_binary(array)
        blobs.append(blob)
        items.append(
            {
                "name": spec.name,
                "datatype": spec.datatype,
                "shape": list(array.shape),
                "parameters": {"binary_data_size": len(blob)},
            }
        )
    asked = inference.outputs or schema.output_names
    outputs = [{"name": name, "parameters": {"binary_data": True}} for name in asked]
    head = orjson.dumps({"inputs": items, "outputs": outputs})
    return b"".join((head, *blobs)), len(head)


def decode(
    schema: Schema, inference: Inference, body: bytes, header_length: int | None
) -> Sequence[Array]:
    """Return the arrays that were asked for, in the order of the request.

    Args:
        schema: the model's.
        inference: what was asked.
        body: of the answer.
        header_length: of its JSON part; None: all of it.

    Raises:
        AnswerError: an output is missing, or isn't what the model gives for this request.
    """
    size = len(body) if header_length is None else header_length
    if size > len(body):
        raise AnswerError(f"its JSON part has {size} bytes, the answer {len(body)}")
    try:
        document: Any = orjson.loads(body[:size])
        items: Any = document["outputs"]
        arrays: dict[str, Array] = {}
        position = size
        for item in cast("list[Any]", items):
            spec = schema.outputs[str(item["name"])]
            if item["datatype"] != spec.datatype:
                raise AnswerError(f"'{spec.name}' is {item['datatype']}, not {spec.datatype}")
            length = (item.get("parameters") or {}).get("binary_data_size")
            if length is None:
                arrays[spec.name] = _array(schema, spec, item["shape"], item["data"])
            else:
                blob = body[position : position + length]
                position += length
                arrays[spec.name] = _array(schema, spec, item["shape"], blob)
        found = [arrays[name] for name in inference.outputs or schema.output_names]
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise AnswerError(f"it lacks what was asked for, or is malformed ({error!r})") from error
    except RequestError as error:
        raise AnswerError(error.message) from error
    for name, array in arrays.items():
        if schema.outputs[name].shape[:1] == (-1,) and array.shape[0] != inference.rows:
            raise AnswerError(f"'{name}' has {array.shape[0]} rows for {inference.rows}")
    return found


def _array(schema: Schema, spec: TensorSpec, shape: Any, data: Any) -> Array:
    sizes = list(shape)
    # Triton has no tensor without a size beside the batch's: one value a row comes as [rows, 1].
    if len(sizes) == len(spec.shape) + 1 and sizes[-1] == 1:
        sizes.pop()
    plan = spec.plan(sizes, schema.max_rows, schema.max_elements)
    if isinstance(data, bytes):
        return spec.from_binary(data, plan)
    return np.asarray(spec.from_json(data, plan))
