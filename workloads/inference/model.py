"""A model in memory: its session, schema, warm-up and measured cost."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

from falaj.workloads.inference import graph, row
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.oip import Inference, Schema
from falaj.workloads.inference.settings import Limits
from falaj.workloads.inference.tensors import ONNX_TYPES, Array, TensorSpec

MODEL_FILE = "model.onnx"
INLINE_SECONDS = 200e-6
"""Runs expected to be shorter than this happen on the event loop. Handing a run to a thread
costs tens of microseconds and, with several threads on one small session, lowers the total
throughput; a longer run would hold up every other connection."""
EWMA_WEIGHT = 0.05
WARM_UP_ROWS = (1, 2, 4, 8, 16)
WARM_UP_RUNS = 8


class Model:
    """One version of a model, ready to run."""

    def __init__(self, name: str, version: str, session: ort.InferenceSession, schema: Schema):
        self.name = name
        self.version = version
        self.schema = schema
        self._session = session
        self._run = session.run
        self._names = schema.output_names
        self.row: row.RowModel | None = None
        # Expected seconds of a run, by the bit length of its number of rows.
        self.expected = [0.0] * 32

    def run(self, inference: Inference) -> Sequence[Any]:
        """Return the outputs that the request asks for (all of them, if it names none)."""
        return self._run(inference.outputs or self._names, inference.feed)

    def observe(self, rows: int, seconds: float) -> None:
        """Move the expected time of runs with about ``rows`` rows towards ``seconds``.

        One run that the system interrupted for milliseconds says nothing about the model, so a
        single step is bounded; a model that has become slower is still noticed in some 30 runs.
        """
        index = rows.bit_length()
        before = self.expected[index]
        self.expected[index] = before + EWMA_WEIGHT * (min(seconds, 4 * before + 1e-5) - before)

    def is_quick(self, rows: int) -> bool:
        """Tell whether a run with ``rows`` rows belongs on the event loop."""
        return self.expected[rows.bit_length()] < INLINE_SECONDS

    def warm_up(self, *, max_rows: int, batched: bool) -> None:
        """Run each small batch size some times and note the time; larger ones are estimated.

        Raises:
            InferenceError: the model fails on an input of zeros and empty texts.
        """
        quickest = 0.0
        for index in range(len(self.expected)):
            rows = 1 << max(index - 1, 0)
            if rows in WARM_UP_ROWS and rows <= max_rows and (batched or rows == 1):
                quickest = self._measure(rows)
                self.expected[index] = quickest
            else:
                # Twice the rows take at most about twice the time; runs will correct it.
                quickest *= 2 if batched else 1
                self.expected[index] = quickest

    def _measure(self, rows: int) -> float:
        feed = {spec.name: _blank(spec, rows) for spec in self.schema.inputs.values()}
        times: list[float] = []
        for _ in range(WARM_UP_RUNS):
            start = time.perf_counter()
            try:
                self._run(self._names, feed)
            except Exception as error:  # the runtime's exceptions share no public base class
                raise InferenceError(f"the model fails in its warm-up run: {error}") from error
            times.append(time.perf_counter() - start)
        return min(times)


def _blank(spec: TensorSpec, rows: int) -> Array:
    shape = tuple(
        rows if index == 0 and size == -1 else max(size, 1)
        for index, size in enumerate(spec.shape)
    )
    if spec.datatype == "BYTES":
        return np.full(shape, "", dtype=object)
    return np.zeros(shape, dtype=spec.dtype)


def load(
    model_bytes: bytes,
    *,
    name: str,
    version: str,
    manifest: Mapping[str, Any],
    threads: int,
    limits: Limits,
) -> Model:
    """Make a session from the bytes of an ONNX model, check it against its manifest, warm it up.

    Raises:
        InferenceError: the graph is refused, the runtime can't load it, or its inputs and
            outputs aren't those that the manifest states.
    """
    graph.check(model_bytes)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    # A spinning pool burns the core that the event loop needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        session = ort.InferenceSession(
            model_bytes, sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the runtime's exceptions share no public base class
        raise InferenceError(f"the runtime can't load the model: {error}") from error
    inputs = [_spec(node) for node in session.get_inputs()]
    outputs = [_spec(node) for node in session.get_outputs()]
    _compare("inputs", inputs, manifest.get("inputs"))
    _compare("outputs", outputs, manifest.get("outputs"))
    batched = all(spec.shape[:1] == (-1,) for spec in inputs)
    schema = Schema(
        name,
        version,
        inputs,
        outputs,
        batched=batched,
        max_rows=limits.max_rows,
        max_elements=limits.max_body_bytes,
    )
    model = Model(name, version, session, schema)
    model.warm_up(max_rows=limits.max_rows, batched=batched)
    # What a graph's outputs leave open is the number of rows, if its inputs are batched.
    model.row = row.bind(session, inputs, outputs, schema.head) if batched else None
    return model


def _spec(node: Any) -> TensorSpec:
    datatype = ONNX_TYPES.get(node.type)
    if datatype is None:
        raise InferenceError(
            f"the model's '{node.name}' is a {node.type}, which the protocol can't carry"
        )
    shape = tuple(size if isinstance(size, int) and size > 0 else -1 for size in node.shape)
    return TensorSpec(node.name, datatype, shape)


def _compare(what: str, specs: Sequence[TensorSpec], stated: Any) -> None:
    """Refuse a package whose manifest describes another model than the one inside.

    Sizes are compared where both sides state one: what a graph leaves open is -1.
    """
    if stated is None:
        return
    told = {
        str(entry.get("name")): (entry.get("datatype"), entry.get("shape", ())) for entry in stated
    }
    found = {spec.name: (spec.datatype, spec.shape) for spec in specs}
    fits = told.keys() == found.keys() and all(
        told[name][0] == datatype and _shapes_fit(told[name][1], shape)
        for name, (datatype, shape) in found.items()
    )
    if not fits:
        raise InferenceError(
            f"the manifest's {what} aren't the model's: stated are {told}, found are {found}"
        )


def _shapes_fit(stated: Sequence[Any], found: Sequence[int]) -> bool:
    return not found or (
        len(stated) == len(found)
        and all(
            -1 in (a, b) or not isinstance(a, int) or a == b
            for a, b in zip(stated, found, strict=True)
        )
    )
