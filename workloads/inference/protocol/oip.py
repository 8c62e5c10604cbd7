"""Tensors, requests and answers of the Open Inference Protocol v2 over REST.

Everything that a client says about a tensor (name, datatype, shape, sizes) is compared with the
model's schema and with its own data before memory is taken for it. JSON `null` stands for a
missing value: NaN in FP32 and FP64, where the package says that the input takes them
(`missing`), the empty text in BYTES. NaN is refused elsewhere, infinity everywhere. BYTES
elements are UTF-8 texts, because that is what an ONNX string tensor holds. FP16 travels in binary
form only (the protocol leaves its JSON form open); BF16 has no NumPy type, so a model that uses
it isn't served.

The JSON form and the binary tensor data extension (binary inputs and outputs mixed with JSON,
and the raw request with `Inference-Header-Content-Length: 0`). Unknown members and parameters
are ignored, as the protocol allows, but those that would change the answer and that this server
doesn't offer (classification, shared memory) are refused.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any, cast

import numpy as np
import orjson
from numpy.typing import NDArray

from falaj.workloads.inference.errors import RequestError, bad_request

Array = NDArray[Any]

NUMPY_TYPES: dict[str, np.dtype[Any]] = {
    "BOOL": np.dtype(np.bool_),
    "UINT8": np.dtype(np.uint8),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype(np.int8),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}
ONNX_TYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}

_NUMBERS = frozenset({int, float})
_JSON_TYPES: dict[str, tuple[frozenset[type], str]] = {
    "BOOL": (frozenset({bool}), "true or false"),
    "FP32": (frozenset({int, float, type(None)}), "numbers, or null for a missing value"),
    "FP64": (frozenset({int, float, type(None)}), "numbers, or null for a missing value"),
    "BYTES": (frozenset({str, type(None)}), "texts, or null for a missing value"),
} | {
    name: (frozenset({int}), "whole numbers")
    for name in NUMPY_TYPES
    if name.startswith(("INT", "UINT"))
}
_PLANS_KEPT = 256
_PACKED_ELEMENTS = 4096
"""Up to this count, `struct` is twice as fast as NumPy in turning a list into FP32 and it
refuses what FP32 can't hold; above it the compiled format string would take too much memory."""


class Plan:
    """How the data of one input with one checked shape are read."""

    __slots__ = ("count", "pack", "rows", "shape")

    def __init__(self, shape: tuple[int, ...], count: int, datatype: str) -> None:
        self.shape = shape
        self.count = count
        self.rows = shape[0] if shape else 1
        self.pack = (
            struct.Struct(f"<{count}f").pack
            if datatype == "FP32" and count <= _PACKED_ELEMENTS
            else None
        )


class TensorSpec:
    """One input or output of the model.

    Args:
        name: its name.
        datatype: of the protocol.
        shape: its sizes; -1 is one that the client chooses.
        missing: whether an input takes values that are missing: NaN, and null in JSON. Default:
            False; infinity is never taken.
        context: how much of a free size after the first matters to the model. Default: 1.
    """

    def __init__(
        self,
        name: str,
        datatype: str,
        shape: tuple[int, ...],
        *,
        missing: bool = False,
        context: int = 1,
    ) -> None:
        self.name = name
        self.missing = missing
        self.context = context
        self.datatype = datatype
        self.shape = shape
        self.dtype = NUMPY_TYPES[datatype]
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._json_prefixes: dict[tuple[int, ...], bytes] = {}

    def metadata(self) -> dict[str, Any]:
        """Return the protocol's `$metadata_tensor` object."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

    def sized(self, rows: int) -> tuple[int, ...]:
        """Return the shape of so many rows that are as long as matters to the model."""
        first = (rows if size == -1 else size for size in self.shape[:1])
        return (*first, *(self.context if size == -1 else size for size in self.shape[1:]))

    def plan(self, shape: object, max_rows: int, max_elements: int) -> Plan:
        """Check a client's shape and return how its data are read.

        Raises:
            RequestError: 400; the shape is no list of sizes, doesn't fit the model's, or
                means more than ``max_rows`` rows or ``max_elements`` elements.
        """
        if type(shape) is not list:
            raise bad_request(f"input '{self.name}': shape must be a list of whole numbers")
        sizes = cast("list[Any]", shape)
        for size in sizes:
            # Compared by type, since true == 1 and 1.0 == 1 would find a remembered plan.
            if type(size) is not int:
                raise bad_request(f"input '{self.name}': shape must be a list of whole numbers")
        key = tuple(cast("list[int]", sizes))
        known = self._plans.get(key)
        return known if known is not None else self._new_plan(key, max_rows, max_elements)

    def _new_plan(self, shape: tuple[int, ...], max_rows: int, max_elements: int) -> Plan:
        expected = list(self.shape)
        if len(shape) != len(expected):
            raise bad_request(
                f"input '{self.name}': shape {_shown(shape)} has {len(shape)} dimensions, "
                f"the model expects {expected}"
            )
        count = 1
        for given, wanted in zip(shape, expected, strict=True):
            if given < 1 or wanted not in (-1, given):
                raise bad_request(
                    f"input '{self.name}': shape {_shown(shape)} doesn't fit the model's "
                    f"{expected} (-1 is any size from 1)"
                )
            count *= given
        if shape and expected[0] == -1 and shape[0] > max_rows:
            raise bad_request(
                f"input '{self.name}': {_shown(shape[:1])} rows in one request; "
                f"at most {max_rows} are allowed, so send several requests"
            )
        if count > max_elements:
            raise bad_request(
                f"input '{self.name}': shape {_shown(shape)} means more elements than a body "
                f"of the allowed size can hold ({max_elements})"
            )
        plan = Plan(shape, count, self.datatype)
        if len(self._plans) >= _PLANS_KEPT:
            self._plans.clear()
        self._plans[shape] = plan
        return plan

    def from_json(self, data: object, plan: Plan) -> Array:
        """Return the array of flat or nested JSON data (row-major).

        Raises:
            RequestError: 400; wrong number or type of elements, or a value out of range.
        """
        if type(data) is not list:
            raise bad_request(f"input '{self.name}': data must be a list")
        values = cast("list[Any]", data)
        if len(values) == plan.count and plan.pack is not None:
            types = set(map(type, values))
            if types <= _NUMBERS:
                try:
                    packed = plan.pack(*values)
                except (OverflowError, struct.error) as error:
                    raise self._out_of_range() from error
                return np.frombuffer(packed, self.dtype).reshape(plan.shape)
        return self._from_json_slowly(values, plan)

    def _from_json_slowly(self, values: list[Any], plan: Plan) -> Array:
        if self.datatype == "FP16":
            raise bad_request(
                f"input '{self.name}': FP16 is accepted as binary data only; send it behind the "
                "JSON, with binary_data_size"
            )
        if values and type(values[0]) is list:
            values = self._flatten(values, plan.shape)
        if len(values) != plan.count:
            raise bad_request(
                f"input '{self.name}': {len(values)} elements in data, but shape "
                f"{_shown(plan.shape)} means {plan.count}"
            )
        allowed, words = _JSON_TYPES[self.datatype]
        types = set(map(type, values))
        if type(None) in types and not self.missing and self.datatype != "BYTES":
            raise self._not_finite("null is a missing value")
        if not types <= allowed:
            raise bad_request(f"input '{self.name}': {self.datatype} data must be {words}")
        if self.datatype == "BYTES":
            if type(None) in types:
                values = ["" if value is None else value for value in values]
            return np.array(values, dtype=object).reshape(plan.shape)
        try:
            # float64 first: NumPy would turn what FP32 can't hold into infinity.
            if self.datatype in {"FP32", "FP64"}:
                wide = np.array(values, dtype=np.float64)
                with np.errstate(over="ignore"):
                    array = wide.astype(self.dtype, copy=False)
                if np.isinf(array).any():
                    raise self._out_of_range()
            else:
                array = np.array(values, dtype=self.dtype)
        except OverflowError as error:
            raise self._out_of_range() from error
        return array.reshape(plan.shape)

    def _flatten(self, values: list[Any], shape: tuple[int, ...]) -> list[Any]:
        level = values
        for size, inner in zip(shape, (*shape[1:], 0), strict=True):
            if inner and any(type(row) is not list or len(row) != inner for row in level):
                break
            if level is values and len(level) != size:
                break
            if not inner:
                return level
            level = list(chain.from_iterable(level))
        raise bad_request(
            f"input '{self.name}': the nesting of data doesn't fit the shape {_shown(shape)}"
        )

    def _require_finite(self, array: Array) -> Array:
        """Refuse what a model would answer with nonsense, and 200."""
        if np.isfinite(array).all():
            return array
        if not self.missing:
            raise self._not_finite("a value is NaN or infinite")
        if np.isinf(array).any():
            raise bad_request(
                f"input '{self.name}': a value is infinite; allowed are numbers, and NaN for a "
                "missing value"
            )
        return array

    def _not_finite(self, found: str) -> RequestError:
        return bad_request(
            f"input '{self.name}': {found}, which this model doesn't say that it takes; send a "
            "number"
        )

    def _out_of_range(self) -> RequestError:
        return bad_request(f"input '{self.name}': a value is out of the range of {self.datatype}")

    def from_binary(self, data: bytes | bytearray, plan: Plan) -> Array:
        """Return the array of binary tensor data (little-endian, row-major, no padding).

        Raises:
            RequestError: 400; the size doesn't fit the shape, or an element is malformed.
        """
        if self.datatype == "BYTES":
            return self._texts(data, plan)
        if len(data) != plan.count * self.dtype.itemsize:
            raise bad_request(
                f"input '{self.name}': {len(data)} bytes of binary data, but shape "
                f"{_shown(plan.shape)} of {self.datatype} takes {plan.count * self.dtype.itemsize}"
            )
        if self.datatype == "BOOL" and data.strip(b"\x00\x01") != b"":
            raise bad_request(f"input '{self.name}': a BOOL byte must be 0 or 1")
        return np.frombuffer(data, self.dtype).reshape(plan.shape)

    def input_from_binary(self, data: bytes | bytearray, plan: Plan) -> Array:
        """As `from_binary`, for what a client sends: its numbers have to be some.

        Raises:
            RequestError: 400; also for NaN and infinity.
        """
        array = self.from_binary(data, plan)
        return self._require_finite(array) if self.dtype.kind == "f" else array

    def _texts(self, data: bytes | bytearray, plan: Plan) -> Array:
        texts: list[str] = []
        position, end = 0, len(data)
        try:
            while position < end:
                (length,) = struct.unpack_from("<I", data, position)
                position += 4
                if length > end - position or len(texts) == plan.count:
                    break
                texts.append(data[position : position + length].decode())
                position += length
        except struct.error as error:
            raise self._malformed_texts(plan) from error
        except UnicodeDecodeError as error:
            raise bad_request(f"input '{self.name}': a BYTES element isn't UTF-8 text") from error
        if position != end or len(texts) != plan.count:
            raise self._malformed_texts(plan)
        return np.array(texts, dtype=object).reshape(plan.shape)

    def _malformed_texts(self, plan: Plan) -> RequestError:
        return bad_request(
            f"input '{self.name}': the binary data are not {plan.count} BYTES elements, each with "
            "its length in 4 bytes before it"
        )

    def to_json(self, array: Array) -> bytes:
        """Return the `$response_output` object with JSON data (NaN and infinities are null).

        FP16 has no such form: `Schema.read` refuses who asks for it.
        """
        prefix = self._json_prefixes.get(array.shape)
        if prefix is None:
            head = {"name": self.name, "datatype": self.datatype, "shape": list(array.shape)}
            prefix = orjson.dumps(head)[:-1] + b',"data":'
            if len(self._json_prefixes) >= _PLANS_KEPT:
                self._json_prefixes.clear()
            self._json_prefixes[array.shape] = prefix
        flat = array.ravel()
        if self.datatype == "BYTES":
            return prefix + orjson.dumps(flat.tolist()) + b"}"
        return prefix + orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY) + b"}"

    def to_binary(self, array: Array) -> bytes:
        """Return the output as binary tensor data."""
        if self.datatype != "BYTES":
            return array.tobytes()
        parts: list[bytes] = []
        for text in array.ravel().tolist():
            encoded = str(text).encode()
            parts += (struct.pack("<I", len(encoded)), encoded)
        return b"".join(parts)


def _shown(shape: tuple[int, ...]) -> str:
    """Return a shape for a message, cut short: a client may send thousands of sizes."""
    text = str(list(shape))
    return text if len(text) <= 80 else f"{text[:77]}..."


REFUSED_PARAMETERS = ("classification", "shared_memory_region")
PRIORITIES = ("high", "normal", "low")
"""What a request may say of how urgent it is."""
USUAL_RANK = PRIORITIES.index("normal")
MAX_ID_CHARACTERS = 1024
MOST_TIMEOUT = 3_600_000_000
"""Microseconds that a request may say it waits: an hour."""


class Inference:
    """A checked request: arrays by input name, and what is asked back."""

    __slots__ = (
        "binary", "binary_default", "caller", "feed", "identifier", "options", "outputs", "rank",
        "request_id", "rows", "size", "timeout",
    )  # fmt: skip

    def __init__(self) -> None:
        self.feed: dict[str, Array] = {}
        self.rows = 1
        self.size = 0
        """Bytes of the request that the arrays may keep in memory; 0: their own."""
        self.identifier: str | None = None
        self.request_id = ""
        """The transport's name of a request without an id; labels may name it."""
        self.caller = ""
        """Whose request it is: an id means nothing without."""
        self.timeout: float | None = None
        """Seconds after which it isn't to run any more."""
        self.rank = USUAL_RANK
        """How urgent it is: 0 is the most."""
        self.outputs: list[str] | None = None
        self.binary: dict[str, bool] = {}
        self.binary_default = False
        self.options: Any = None
        """Of the runtime, for its run; None: its own."""


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
        self._binary_only = [spec.name for spec in outputs if spec.datatype == "FP16"]
        self.batched = batched
        self.name = name
        self.version = version
        self.max_rows = max_rows
        self.max_elements = max_elements
        self.takes_timeout = False
        """Whether a request may say how long it waits, as Triton's schedule policy has it."""
        self.takes_priority = False
        """Whether a request may say how urgent it is."""
        self.head = orjson.dumps({"model_name": name, "model_version": version})[:-1]

    def metadata(self) -> dict[str, Any]:
        """Return the tensors of `$metadata_model_response`."""
        return {
            "inputs": [spec.metadata() for spec in self.inputs.values()],
            "outputs": [spec.metadata() for spec in self.outputs.values()],
        }

    def read(self, body: bytes | bytearray, header_length: int | None) -> Inference:
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
        document: dict[str, Any]
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
        return self._read_document(document, blobs)

    def _read_document(self, document: dict[str, Any], blobs: bytes | bytearray) -> Inference:
        items: list[Any] | None = document.get("inputs")
        if type(items) is not list or not items:
            raise bad_request("the request must have a list of inputs")
        inference = Inference()
        feed = inference.feed
        position = 0
        rows = 0
        for item in items:
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
                blob = blobs[position : position + size]
                feed[spec.name] = spec.input_from_binary(blob, plan)
                position += size
            if rows != plan.rows:
                if rows and self.batched:
                    raise bad_request(
                        f"input '{spec.name}' has {plan.rows} rows, another has {rows}"
                    )
                rows = plan.rows
        if position != len(blobs):
            raise bad_request(f"{len(blobs) - position} bytes follow the last binary tensor")
        if len(feed) != len(self.inputs):
            missing = ", ".join(f"'{name}'" for name in self.inputs if name not in feed)
            raise bad_request(f"missing inputs: {missing}")
        if self.batched:
            inference.rows = rows
        if len(document) > 1:
            self._read_options(document, inference)
        if self._binary_only:
            self._require_binary(inference)
        return inference

    def _require_binary(self, inference: Inference) -> None:
        """Refuse, before the model runs, what its answer couldn't say in JSON."""
        for name in self._binary_only:
            asked = inference.outputs is None or name in inference.outputs
            if asked and not inference.binary.get(name, inference.binary_default):
                raise bad_request(
                    f"output '{name}' is FP16, which is answered as binary data only; ask for it "
                    "with binary_data, for all of them with binary_data_output, or for others"
                )

    def _input(self, item: Any, feed: Mapping[str, Array]) -> TensorSpec:
        entry: dict[str, Any] = item
        if type(item) is not dict:
            raise bad_request("each of the inputs must be an object")
        name = entry.get("name")
        spec = self.inputs.get(name) if type(name) is str else None
        if spec is None:
            raise bad_request(
                f"unknown input {_quoted(name)}; the model's inputs are: {', '.join(self.inputs)}"
            )
        if spec.name in feed:
            raise bad_request(f"input '{spec.name}' is there twice")
        if entry.get("datatype") != spec.datatype:
            raise bad_request(
                f"input '{spec.name}': datatype {_quoted(entry.get('datatype'))}, "
                f"the model expects {spec.datatype}"
            )
        return spec

    def _binary_size(self, spec: TensorSpec, item: dict[str, Any]) -> int | None:
        parameters: dict[str, Any] | None = item.get("parameters")
        if parameters is None:
            return None
        if type(parameters) is not dict:
            raise bad_request(f"input '{spec.name}': parameters must be an object")
        _refuse_parameters(f"input '{spec.name}'", parameters)
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
        parameters: dict[str, Any] | None = document.get("parameters")
        if parameters is not None:
            if type(parameters) is not dict:
                raise bad_request("parameters must be an object")
            inference.binary_default = _flag(parameters, "binary_data_output", "the request")
            if self.takes_timeout:
                inference.timeout = _timeout(parameters)
            _check_values(parameters)
            if self.takes_priority and "priority" in parameters:
                inference.rank = _rank(parameters["priority"])
        outputs = document.get("outputs")
        if outputs is not None:
            self._read_outputs(outputs, inference)

    def _read_outputs(self, outputs: Any, inference: Inference) -> None:
        items: list[Any] = outputs
        if type(outputs) is not list:
            raise bad_request("outputs must be a list")
        names: list[str] = []
        for item in items:
            entry: dict[str, Any] = item
            name = entry.get("name") if type(item) is dict else None
            if type(name) is not str or name not in self.outputs:
                raise bad_request(
                    f"unknown output {_quoted(name)}; "
                    f"the model's outputs are: {', '.join(self.outputs)}"
                )
            if name in names:
                raise bad_request(f"output '{name}' is asked for twice")
            names.append(name)
            parameters: dict[str, Any] | None = entry.get("parameters")
            if parameters is not None:
                if type(parameters) is not dict:
                    raise bad_request(f"output '{name}': parameters must be an object")
                _refuse_parameters(f"output '{name}'", parameters)
                if "binary_data" in parameters:
                    inference.binary[name] = _flag(parameters, "binary_data", f"output '{name}'")
        if names:
            inference.outputs = names

    def _read_raw(self, body: bytes | bytearray) -> Inference:
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
        if self.batched and shape:
            shape[0] = 1
        if spec.datatype == "BYTES":
            # The whole body is the one element; there is no length before it.
            plan = spec.plan([1] * len(shape), self.max_rows, self.max_elements)
            data = len(body).to_bytes(4, "little") + body
        else:
            data = body
            plan = spec.plan(_solve(spec, shape, len(body)), self.max_rows, self.max_elements)
        inference.feed[spec.name] = spec.input_from_binary(data, plan)
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


def _check_values(parameters: Mapping[str, Any]) -> None:
    for key, value in parameters.items():
        if not isinstance(value, str | int | float):  # bool is an int
            raise bad_request(
                f"the request: the parameter {_quoted(key)} must be a text, a number, true or "
                "false"
            )


def _timeout(parameters: Mapping[str, Any]) -> float | None:
    """Read microseconds; 0 stands for no timeout."""
    value = parameters.get("timeout", 0)
    if type(value) is not int or not 0 <= value <= MOST_TIMEOUT:
        raise bad_request(
            f"the request: timeout must be a whole number of microseconds from 0 (none) to "
            f"{MOST_TIMEOUT}"
        )
    return value / 1e6 or None


def _rank(given: object) -> int:
    """Read how urgent a request is: a word, or Triton's number, of which 0 is the usual one."""
    if isinstance(given, str) and given in PRIORITIES:
        return PRIORITIES.index(given)
    if type(given) is int and 0 <= given <= len(PRIORITIES):
        return given - 1 if given else USUAL_RANK
    raise bad_request(
        f"the request: priority must be one of {', '.join(PRIORITIES)}, or a number from 1 (the "
        f"most urgent) to {len(PRIORITIES)}, or 0 for {PRIORITIES[USUAL_RANK]}"
    )


def _refuse_parameters(where: str, parameters: Mapping[str, Any]) -> None:
    for key in REFUSED_PARAMETERS:
        if key in parameters:
            raise RequestError(
                400, f"{where}: the parameter {key} belongs to an extension not offered here"
            )


def _quoted(value: object) -> str:
    text = value if isinstance(value, str) else type(value).__name__
    return f"'{text[:80]}'" if isinstance(value, str) else f"of type {text}"
