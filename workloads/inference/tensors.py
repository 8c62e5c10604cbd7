"""Tensors of the Open Inference Protocol: datatypes, and the checks between bytes and arrays.

Everything that a client says about a tensor (name, datatype, shape, sizes) is compared with the
model's schema and with its own data before memory is taken for it. JSON `null` stands for a
missing value: NaN in FP32 and FP64, the empty text in BYTES. BYTES elements are UTF-8 texts,
because that is what an ONNX string tensor holds. FP16 travels in binary form only (the protocol
leaves its JSON form open); BF16 has no NumPy type, so a model that uses it isn't served.
"""

from __future__ import annotations

import struct
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
    """One input or output of the model: -1 in ``shape`` is a size that the client chooses."""

    def __init__(self, name: str, datatype: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        self.dtype = NUMPY_TYPES[datatype]
        self._plans: dict[tuple[int, ...], Plan] = {}
        self._json_prefixes: dict[tuple[int, ...], bytes] = {}

    def metadata(self) -> dict[str, Any]:
        """Return the protocol's `$metadata_tensor` object."""
        return {"name": self.name, "datatype": self.datatype, "shape": list(self.shape)}

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
            raise bad_request(f"input '{self.name}': FP16 is accepted as binary data only")
        if values and type(values[0]) is list:
            values = self._flatten(values, plan.shape)
        if len(values) != plan.count:
            raise bad_request(
                f"input '{self.name}': {len(values)} elements in data, but shape "
                f"{_shown(plan.shape)} means {plan.count}"
            )
        allowed, words = _JSON_TYPES[self.datatype]
        types = set(map(type, values))
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

    def _out_of_range(self) -> RequestError:
        return bad_request(f"input '{self.name}': a value is out of the range of {self.datatype}")

    def from_binary(self, data: bytes, plan: Plan) -> Array:
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

    def _texts(self, data: bytes, plan: Plan) -> Array:
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
        """Return the `$response_output` object with JSON data (NaN and infinities are null)."""
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
        if self.datatype == "FP16":
            raise bad_request(f"output '{self.name}': ask for FP16 with binary_data")
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
