"""The shortest way through the most frequent request: one row of numbers in plain JSON.

The row is packed straight into buffers that are bound to the session once, and the outputs are
read from bound buffers, which saves a third of a small model's run. Anything else than a plain,
correct row (null, options, other shapes, mistakes) is left to `oip.Schema`, which also words the
refusals. Runs on the event loop only: the buffers belong to the request under way.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
import orjson

from falaj.workloads.inference.tensors import Array, TensorSpec

_FORMATS = {
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "FP32": "f", "FP64": "d",
}  # fmt: skip
_WHOLE = frozenset({int})
_NUMBERS = frozenset({int, float})
_SIZES = frozenset({int})
MAX_ELEMENTS = 4096
"""Larger rows gain nothing here, and `struct` would keep a long format for each."""


class _Slot:
    """One input's bound buffer and how values get into it."""

    __slots__ = ("buffer", "count", "datatype", "pack_into", "shape", "types")

    def __init__(self, spec: TensorSpec, buffer: Array) -> None:
        self.buffer = buffer.data.cast("B")
        self.count = buffer.size
        self.datatype = spec.datatype
        self.shape = list(buffer.shape)
        self.types = _NUMBERS if spec.datatype in {"FP32", "FP64"} else _WHOLE
        self.pack_into: Callable[..., None] = struct.Struct(
            f"<{self.count}{_FORMATS[spec.datatype]}"
        ).pack_into


class RowModel:
    """A model bound to buffers of one row."""

    def __init__(
        self,
        session: ort.InferenceSession,
        inputs: dict[str, Array],
        outputs: dict[str, Array],
        specs: dict[str, TensorSpec],
        head: bytes,
    ) -> None:
        self._binding = session.io_binding()
        self._run = session.run_with_iobinding
        self._kept = (*inputs.values(), *outputs.values())
        for name, array in inputs.items():
            self._binding.bind_input(
                name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data
            )
        for name, array in outputs.items():
            self._binding.bind_output(
                name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data
            )
        self._slots = {name: _Slot(specs[name], array) for name, array in inputs.items()}
        # The answer is these texts with each output's data between them.
        self._parts: list[tuple[bytes, Array]] = []
        before = head + b',"outputs":['
        for name, array in outputs.items():
            tensor = {
                "name": name, "datatype": specs[name].datatype, "shape": list(array.shape)
            }  # fmt: skip
            self._parts.append((before + orjson.dumps(tensor)[:-1] + b',"data":', array.ravel()))
            before = b"},"
        self.run_seconds = 0.0

    def answer(self, body: bytes) -> bytes | None:
        """Return the answer's body, or None if the request isn't one for here."""
        try:
            document = orjson.loads(body)
            items = document["inputs"]
            if len(document) != 1 or len(items) != len(self._slots):
                return None
            filled = set[str]()
            for item in items:
                name = item["name"]
                slot = self._slots[name]
                shape = item["shape"]
                values = item["data"]
                if (
                    len(item) != 4
                    or item["datatype"] != slot.datatype
                    or shape != slot.shape
                    or not _SIZES.issuperset(map(type, shape))
                    or len(values) != slot.count
                    or not slot.types.issuperset(map(type, values))
                ):
                    return None
                slot.pack_into(slot.buffer, 0, *values)
                filled.add(name)
            if len(filled) != len(items):
                return None
        except (LookupError, TypeError, ValueError, OverflowError, struct.error):
            return None
        start = time.perf_counter()
        try:
            self._run(self._binding)
        except Exception:  # the general way meets the same failure and answers for it
            return None
        self.run_seconds = time.perf_counter() - start
        out = b""
        for before, array in self._parts:
            out += before + orjson.dumps(array, option=orjson.OPT_SERIALIZE_NUMPY)
        return out + b"}]}"


def bind(
    session: ort.InferenceSession,
    inputs: list[TensorSpec],
    outputs: list[TensorSpec],
    head: bytes,
) -> RowModel | None:
    """Bind a session to buffers of one row; None if the model isn't made for it.

    It is when every tensor is of numbers and only its first size is free.
    """
    specs = [*inputs, *outputs]
    if not all(spec.datatype in _FORMATS and spec.shape[:1] == (-1,) for spec in specs):
        return None
    if any(-1 in spec.shape[1:] for spec in specs):
        return None
    buffers = {spec.name: np.zeros((1, *spec.shape[1:]), dtype=spec.dtype) for spec in specs}
    if any(buffer.size > MAX_ELEMENTS for buffer in buffers.values()):
        return None
    if len({spec.name for spec in specs}) != len(specs):
        return None
    known: dict[str, Any] = {spec.name: spec for spec in specs}
    try:
        model = RowModel(
            session,
            {spec.name: buffers[spec.name] for spec in inputs},
            {spec.name: buffers[spec.name] for spec in outputs},
            known,
            head,
        )
        expected = session.run(None, {spec.name: buffers[spec.name] for spec in inputs})
    except Exception:  # a model that can't be bound is served the general way
        return None
    shapes = [np.asarray(result).shape for result in expected]
    return model if shapes == [buffers[spec.name].shape for spec in outputs] else None
