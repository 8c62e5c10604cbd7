"""Inference requests and answers of the Open Inference Protocol v2 over REST.

The JSON form and the binary tensor data extension (binary inputs and outputs mixed with JSON,
and the raw request with `Inference-Header-Content-Length: 0`). Unknown members and parameters
are ignored, as the protocol allows, but those that would change the answer and that this server
doesn't offer (classification, shared memory) are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import orjson

from falaj.workloads.inference.errors import RequestError, bad_request
from falaj.workloads.inference.tensors import Array, TensorSpec

REFUSED_PARAMETERS = ("classification", "shared_memory_region")
MAX_ID_CHARACTERS = 1024


class Inference:
    """A checked request: arrays by input name, and what is asked back."""

    __slots__ = ("binary", "binary_default", "feed", "identifier", "outputs", "rows")

    def __init__(self) -> None:
        self.feed: dict[str, Array] = {}
        self.rows = 1
        self.identifier: str | None = None
        self.outputs: list[str] | None = None
        self.binary: dict[str, bool] = {}
        self.binary_default = False


class Schema:
    """The model's inputs and outputs with the limits that requests are held to."""

    def __init__(
        self,
        name: str,
        version: str,
        inputs: Sequence[TensorSpec],
        outputs: Sequence[TensorSpec],
        *,
        batched: bool,
        max_rows: int,
        max_elements: int,
    ) -> None:
        self.inputs = {spec.name: spec for spec in inputs}
        self.outputs = {spec.name: spec for spec in outputs}
        self.output_names = list(self.outputs)
        self._output_specs = list(outputs)
        self._batched = batched
        self.name = name
        self.version = version
        self.max_rows = max_rows
        self.max_elements = max_elements
        self.head = orjson.dumps({"model_name": name, "model_version": version})[:-1]

    def metadata(self) -> dict[str, Any]:
        """Return the tensors of `$metadata_model_response`."""
        return {
            "inputs": [spec.metadata() for spec in self.inputs.values()],
            "outputs": [spec.metadata() for spec in self.outputs.values()],
        }

    def read(self, body: bytes, header_length: int | None) -> Inference:
        """Check a request body against the model.

        Args:
            body: the whole HTTP body.
            header_length: the value of `Inference-Header-Content-Length`: how many bytes of
                the body are JSON; None: all of them; 0: the body is one raw tensor.

        Raises:
            RequestError: 400 with the reason.
        """
        if header_length == 0:
            return self._read_raw(body)
        try:
            if header_length is None:
                document = orjson.loads(body)
                blobs = b""
            else:
                if header_length > len(body):
                    raise bad_request(
                        f"Inference-Header-Content-Length is {header_length}, "
                        f"but the body has {len(body)} bytes"
                    )
                document = orjson.loads(body[:header_length])
                blobs = body[header_length:]
        except orjson.JSONDecodeError as error:
            raise bad_request(f"the request is not JSON: {error}") from error
        if type(document) is not dict:
            raise bad_request("the request must be a JSON object with a list of inputs")
        return self._read_document(cast("dict[str, Any]", document), blobs)

    def _read_document(self, document: dict[str, Any], blobs: bytes) -> Inference:
        items = document.get("inputs")
        if type(items) is not list or not items:
            raise bad_request("the request must have a list of inputs")
        inference = Inference()
        feed = inference.feed
        position = 0
        rows = 0
        for item in cast("list[Any]", items):
            spec = self._input(item, feed)
            plan = spec.plan(item.get("shape"), self.max_rows, self.max_elements)
            size = self._binary_size(spec, item)
            if size is None:
                feed[spec.name] = spec.from_json(item.get("data"), plan)
            else:
                if size > len(blobs) - position:
                    raise bad_request(
                        f"input '{spec.name}': binary_data_size is {size}, but only "
                        f"{len(blobs) - position} bytes are left in the body"
                    )
                feed[spec.name] = spec.from_binary(blobs[position : position + size], plan)
                position += size
            if rows != plan.rows:
                if rows and self._batched:
                    raise bad_request(
                        f"input '{spec.name}' has {plan.rows} rows, another has {rows}"
                    )
                rows = plan.rows
        if position != len(blobs):
            raise bad_request(f"{len(blobs) - position} bytes follow the last binary tensor")
        if len(feed) != len(self.inputs):
            missing = ", ".join(f"'{name}'" for name in self.inputs if name not in feed)
            raise bad_request(f"missing inputs: {missing}")
        if self._batched:
            inference.rows = rows
        if len(document) > 1:
            self._read_options(document, inference)
        return inference

    def _input(self, item: Any, feed: Mapping[str, Array]) -> TensorSpec:
        if type(item) is not dict:
            raise bad_request("each of the inputs must be an object")
        name = item.get("name")
        spec = self.inputs.get(name) if type(name) is str else None
        if spec is None:
            raise bad_request(
                f"unknown input {_quoted(name)}; the model's inputs are: {', '.join(self.inputs)}"
            )
        if spec.name in feed:
            raise bad_request(f"input '{spec.name}' is there twice")
        if item.get("datatype") != spec.datatype:
            raise bad_request(
                f"input '{spec.name}': datatype {_quoted(item.get('datatype'))}, "
                f"the model expects {spec.datatype}"
            )
        return spec

    def _binary_size(self, spec: TensorSpec, item: dict[str, Any]) -> int | None:
        parameters = item.get("parameters")
        if parameters is None:
            return None
        if type(parameters) is not dict:
            raise bad_request(f"input '{spec.name}': parameters must be an object")
        _refuse_parameters(f"input '{spec.name}'", cast("dict[str, Any]", parameters))
        size = parameters.get("binary_data_size")
        if size is None:
            return None
        if type(size) is not int or size < 0:
            raise bad_request(f"input '{spec.name}': binary_data_size must be a number of bytes")
        if "data" in item:
            raise bad_request(f"input '{spec.name}' has both data and binary_data_size")
        return size

    def _read_options(self, document: dict[str, Any], inference: Inference) -> None:
        identifier = document.get("id")
        if identifier is not None:
            if type(identifier) is not str or len(identifier) > MAX_ID_CHARACTERS:
                raise bad_request(f"id must be a text of at most {MAX_ID_CHARACTERS} characters")
            inference.identifier = identifier
        parameters = document.get("parameters")
        if parameters is not None:
            if type(parameters) is not dict:
                raise bad_request("parameters must be an object")
            inference.binary_default = _flag(parameters, "binary_data_output", "the request")
        outputs = document.get("outputs")
        if outputs is not None:
            self._read_outputs(outputs, inference)

    def _read_outputs(self, outputs: Any, inference: Inference) -> None:
        if type(outputs) is not list:
            raise bad_request("outputs must be a list")
        names: list[str] = []
        for item in cast("list[Any]", outputs):
            name = item.get("name") if type(item) is dict else None
            if type(name) is not str or name not in self.outputs:
                raise bad_request(
                    f"unknown output {_quoted(name)}; "
                    f"the model's outputs are: {', '.join(self.outputs)}"
                )
            if name in names:
                raise bad_request(f"output '{name}' is asked for twice")
            names.append(name)
            parameters = item.get("parameters")
            if parameters is not None:
                if type(parameters) is not dict:
                    raise bad_request(f"output '{name}': parameters must be an object")
                _refuse_parameters(f"output '{name}'", parameters)
                if "binary_data" in parameters:
                    inference.binary[name] = _flag(parameters, "binary_data", f"output '{name}'")
        if names:
            inference.outputs = names

    def _read_raw(self, body: bytes) -> Inference:
        """Read a raw request: one input, one row, every output comes back binary."""
        if len(self.inputs) != 1:
            raise bad_request(
                "a raw binary request needs a model with one input; this one has "
                f"{len(self.inputs)}: send JSON with binary_data_size"
            )
        (spec,) = self.inputs.values()
        inference = Inference()
        inference.binary_default = True
        shape = list(spec.shape)
        if self._batched and shape:
            shape[0] = 1
        if spec.datatype == "BYTES":
            # The whole body is the one element; there is no length before it.
            plan = spec.plan([1] * len(shape), self.max_rows, self.max_elements)
            data = len(body).to_bytes(4, "little") + body
        else:
            data = body
            plan = spec.plan(_solve(spec, shape, len(body)), self.max_rows, self.max_elements)
        inference.feed[spec.name] = spec.from_binary(data, plan)
        return inference

    def write(self, inference: Inference, results: Sequence[Any]) -> tuple[bytes, int | None]:
        """Return the answer's body, and the length of its JSON part if binary data follow it."""
        head = self.head
        if inference.identifier is not None:
            head += b',"id":' + orjson.dumps(inference.identifier)
        if inference.outputs is None:
            specs = self._output_specs
            if not inference.binary_default:
                items = [spec.to_json(a) for spec, a in zip(specs, results, strict=True)]
                return head + b',"outputs":[' + b",".join(items) + b"]}", None
        else:
            specs = [self.outputs[name] for name in inference.outputs]
        items: list[bytes] = []
        blobs: list[bytes] = []
        for spec, result in zip(specs, results, strict=True):
            array = np.asarray(result)
            if inference.binary.get(spec.name, inference.binary_default):
                blob = spec.to_binary(array)
                blobs.append(blob)
                items.append(
                    orjson.dumps(
                        {
                            "name": spec.name,
                            "datatype": spec.datatype,
                            "shape": list(array.shape),
                            "parameters": {"binary_data_size": len(blob)},
                        }
                    )
                )
            else:
                items.append(spec.to_json(array))
        body = head + b',"outputs":[' + b",".join(items) + b"]}"
        if not blobs:
            return body, None
        return body + b"".join(blobs), len(body)


def _solve(spec: TensorSpec, shape: list[int], size: int) -> list[int]:
    """Fill in the one free size of a raw tensor from the number of bytes."""
    free = [index for index, given in enumerate(shape) if given == -1]
    if len(free) > 1:
        raise bad_request("a raw binary request needs a model with at most one free size")
    if free:
        known = spec.dtype.itemsize
        for given in shape:
            known *= given if given != -1 else 1
        if size == 0 or size % known:
            raise bad_request(f"{size} bytes are no whole number of {known} byte pieces")
        shape[free[0]] = size // known
    return shape


def _flag(parameters: Mapping[str, Any], key: str, where: str) -> bool:
    value = parameters.get(key, False)
    if type(value) is not bool:
        raise bad_request(f"{where}: {key} must be true or false")
    return value


def _refuse_parameters(where: str, parameters: Mapping[str, Any]) -> None:
    for key in REFUSED_PARAMETERS:
        if key in parameters:
            raise RequestError(
                400, f"{where}: the parameter {key} belongs to an extension not offered here"
            )


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else type(value).__name__
    return f"'{text[:80]}'" if isinstance(value, str) else f"of type {text}"
