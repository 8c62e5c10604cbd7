"""A model in memory: its checked graph, session and schema, its warm-up and measured cost.

A signature says who made a package, not that its graph is harmless. Loading from bytes already
leaves external data without a folder to resolve against; `check` refuses it by name, with
operators of unknown domains (custom libraries), before the runtime sees the graph. See the
external data advisories CVE-2022-25882, CVE-2024-27318, CVE-2025-51480.

The most frequent request, one row of numbers, has a path of its own (`RowModel`): in plain JSON,
or as binary tensors behind JSON that was checked before. The row goes straight into buffers that
are bound to the session once, and the outputs are read from bound buffers, which saves a third of
a small model's run. Anything else than a plain, correct row (null, NaN, options, other shapes,
mistakes) is left to `oip.Schema`, which also words the refusals. It runs on the event loop only:
the buffers belong to the request under way.
"""

from __future__ import annotations

import math
import struct
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
import orjson
from numpy.typing import NDArray

from falaj.workloads.engines import (
    OPENVINO,
    Engine,
    Graph,
    Session,
    engine_of,
    graph_of,
    open_openvino,
)
from falaj.workloads.inference.drift.answers import counted
from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.language.cache import CacheForm, Kept, form_of
from falaj.workloads.inference.protocol.oip import (
    ONNX_TYPES,
    USUAL_RANK,
    Array,
    Inference,
    Schema,
    TensorSpec,
)
from falaj.workloads.inference.settings import Limits
from falaj.workloads.remembering import LOGITS, is_kept

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


_FORMATS = {
    "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "FP32": "f", "FP64": "d",
}  # fmt: skip
_R, _L = b"rl"
_WHOLE = frozenset({int})
_NUMBERS = frozenset({int, float})
_ALIGNMENT = 64
"""Bytes: of a processor's cache line, and what vector instructions like best."""
MAX_ELEMENTS = 4096
"""Larger rows gain nothing here, and `struct` would keep a long format for each."""
_NUMPY = orjson.OPT_SERIALIZE_NUMPY
_LOOKS = 64
"""Requests that differ from the one that is remembered, to each that is remembered instead."""
_MOST_AROUND = 1024
"""Bytes around the data of a request that is remembered: names, and no space that was let in."""
_FORMS_KEPT = 64
"""Of requests with binary tensors: a client has one or two."""


class _Slot:
    """One input's bound buffer and how values get into it."""

    __slots__ = (
        "_buffer", "_count", "_finite", "_floats", "_pack_into", "_types", "datatype", "shape",
    )  # fmt: skip

    def __init__(self, spec: TensorSpec, buffer: Array) -> None:
        self.datatype = spec.datatype
        self.shape = orjson.dumps(buffer.shape)
        """As JSON, in which 1, 1.0 and true differ."""
        self._buffer = buffer.data.cast("B")
        self._floats = buffer.ravel() if spec.dtype.kind == "f" else None
        self._finite = np.empty(buffer.size, dtype=bool)
        self._count = buffer.size
        self._types = _NUMBERS if spec.datatype in {"FP32", "FP64"} else _WHOLE
        self._pack_into: Callable[..., None] = struct.Struct(
            f"<{self._count}{_FORMATS[spec.datatype]}"
        ).pack_into

    def fill(self, values: Any, text: bytes | bytearray) -> bool:
        """Put values into the buffer; False if they aren't those of a row.

        Args:
            values: anything that JSON can be.
            text: JSON in which they stand.

        Raises:
            TypeError: they have no length, or aren't numbers.
            OverflowError, struct.error: as of `struct`, for what doesn't fit.
        """
        # Beside numbers, `struct` takes true and false for some: where neither an r nor an l is
        # in the text, neither of them is. (To look for a number takes a fifth of the time.)
        if len(values) != self._count or (
            (_R in text or _L in text) and not self._types.issuperset(map(type, values))
        ):
            return False
        self._pack_into(self._buffer, 0, *values)
        return True

    @property
    def size(self) -> int:
        """Bytes of the values in binary form."""
        return self._buffer.nbytes

    def put(self, data: bytes | bytearray) -> bool:
        """Put `size` bytes of values into the buffer; False if one of them is NaN or infinite."""
        self._buffer[:] = data
        floats = self._floats
        # To look for a zero among the bytes takes half the time of `all`.
        return floats is None or b"\0" not in np.isfinite(floats, self._finite).tobytes()


class _Form(NamedTuple):
    """A request of one row whose tensors are all binary, but for their values.

    Its JSON says it all: what stands behind it are values alone.
    """

    slots: tuple[_Slot, ...]
    """In the order of their values."""
    size: int
    """Bytes of these."""
    head: bytes
    """The JSON of its answer."""
    outputs: tuple[Array, ...]
    """Whose values follow that."""
    is_counted: bool
    """Whether the output is among them whose values are counted."""


class RowModel:
    """A model bound to buffers of one row."""

    def __init__(
        self,
        session: ort.InferenceSession,
        inputs: dict[str, Array],
        outputs: dict[str, Array],
        specs: dict[str, TensorSpec],
        *,
        head: bytes,
        memory: NDArray[np.uint8],
    ) -> None:
        self.memory = memory.data
        """The bytes of all buffers: a copy of them is a copy of the row and its answer."""
        self._views = {
            name: (array.ctypes.data - memory.ctypes.data, array.nbytes, array.dtype, array.shape)
            for name, array in (*inputs.items(), *outputs.items())
        }
        self._outputs = outputs
        # Of the outputs the one whose values are counted: its one value.
        self._counted_name = name = counted([specs[each] for each in outputs])
        self._counted = None if name is None else outputs[name].ravel().data
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
        self._differing = 0
        self._alike: tuple[bytes, bytes, int, int, _Slot | None] = b"", b"", 0, 0, None
        self._forms: dict[bytes, _Form] = {}

    def rows_of(self, memories: bytes) -> dict[str, Array]:
        """Return the inputs and outputs of copies of `memory`, one behind the other, as rows."""
        rows = np.frombuffer(memories, np.uint8).reshape(-1, len(self.memory))
        return {
            name: rows[:, start : start + size].copy().view(dtype).reshape(-1, *shape[1:])
            for name, (start, size, dtype, shape) in self._views.items()
        }

    def answer(
        self, body: bytes | bytearray, header_length: int | None = None
    ) -> tuple[bytes, int | None, Any] | None:
        """Answer a request.

        Args:
            body: of it.
            header_length: how many bytes of it are JSON. Default: None, all.

        Returns:
            The answer's body, how many bytes of that are JSON (None: all), and the value of the
            output whose values are counted (None: it isn't answered). None if the request isn't
            one for here.
        """
        form: _Form | None = None
        try:
            if header_length is not None:
                form = self._forms.get(bytes(body[:header_length]))
                if form is None or not self._fill_binary(form, body, header_length):
                    return None
            elif not (self._fill_alike(body) or self._fill(body)):
                return None
        except (LookupError, TypeError, ValueError, OverflowError, struct.error):
            return None
        start = time.perf_counter()
        try:
            self._run(self._binding)
        except Exception:  # the general way meets the same failure and answers for it
            return None
        self.run_seconds = time.perf_counter() - start
        counted = self._counted
        value = None if counted is None else counted[0]
        if form is not None:
            out = form.head
            for array in form.outputs:
                out += array.tobytes()
            return out, len(form.head), value if form.is_counted else None
        out = b""
        for before, array in self._parts:
            out += before + orjson.dumps(array, None, _NUMPY)
        return out + b"}]}", None, value

    @staticmethod
    def _fill_binary(form: _Form, body: bytes | bytearray, header_length: int) -> bool:
        """Put a request's values into the buffers; False if it isn't one for here."""
        if len(body) != header_length + form.size:
            return False
        start = header_length
        for slot in form.slots:
            end = start + slot.size
            if not slot.put(body[start:end]):
                return False
            start = end
        return True

    def learn(
        self, body: bytes | bytearray, header_length: int, inference: Inference, schema: Schema
    ) -> None:
        """Remember the JSON of a request that was checked, where it is one for here.

        Args:
            body: of the request.
            header_length: how many bytes of it are JSON.
            inference: what it says.
            schema: that checked it.
        """
        head, size = bytes(body[:header_length]), len(body) - header_length
        names = inference.outputs or list(self._outputs)
        if (
            header_length > _MOST_AROUND
            or head in self._forms
            or inference.rows != 1
            or inference.identifier is not None
            or inference.timeout is not None
            or inference.rank != USUAL_RANK
            # Else one of them stands in the JSON.
            or size != sum(array.nbytes for array in inference.feed.values())
            or not all(inference.binary.get(name, inference.binary_default) for name in names)
        ):
            return
        outputs = tuple(self._outputs[name] for name in names)
        answer, length = schema.write(inference, outputs)
        if len(self._forms) >= _FORMS_KEPT:
            self._forms.clear()
        self._forms[head] = _Form(
            tuple(self._slots[name] for name in inference.feed), size, answer[:length], outputs,
            self._counted_name in names,
        )  # fmt: skip

    def _fill(self, body: bytes | bytearray) -> bool:
        """Put a request's values into the buffers; False if it isn't one for here."""
        document = orjson.loads(body)
        items = document["inputs"]
        if len(document) != 1 or len(items) != len(self._slots):
            return False
        for item in items:
            slot = self._slots[item["name"]]
            if (
                len(item) != 4
                or item["datatype"] != slot.datatype
                or orjson.dumps(item["shape"]) != slot.shape
                or not slot.fill(item["data"], body)
            ):
                return False
        if len(items) == 1:
            self._learn(body, document)
        return len(items) == 1 or len({item["name"] for item in items}) == len(items)

    # A client's requests are alike but for the numbers: what stands around them is checked once.
    # Of a row with 64 numbers that saves 0.8 us of 2.9.

    def _learn(self, body: bytes | bytearray, document: dict[str, Any]) -> None:
        """Remember what stands around the data of a request with one input that was checked."""
        self._differing += 1
        if self._differing % _LOOKS != 1:
            return
        start = body.rfind(b"[")
        end = body.find(b"]", start) + 1
        before, after = bytes(body[:start]), bytes(body[end:])
        if len(before) + len(after) > _MOST_AROUND:
            return
        # Another list at that place has to be the data, and nothing else.
        document["inputs"][0]["data"] = []
        try:
            stands = orjson.loads(before + b"[]" + after) == document
        except ValueError:
            return
        if stands:
            (slot,) = self._slots.values()
            self._alike = before, after, len(before), -len(after), slot

    def _fill_alike(self, body: bytes | bytearray) -> bool:
        """Do what `_fill` does where all but the data is as it was before; False if it isn't."""
        before, after, start, end, slot = self._alike
        if slot is None or not (body.startswith(before) and body.endswith(after)):
            return False
        data = body[start:end]
        return slot.fill(orjson.loads(data), data)


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
    if any(math.prod(spec.shape[1:]) > MAX_ELEMENTS for spec in specs):
        return None
    if len({spec.name for spec in specs}) != len(specs):
        return None
    memory, buffers = _buffers(specs)
    known: dict[str, Any] = {spec.name: spec for spec in specs}
    try:
        model = RowModel(
            session,
            {spec.name: buffers[spec.name] for spec in inputs},
            {spec.name: buffers[spec.name] for spec in outputs},
            known,
            head=head,
            memory=memory,
        )
        expected = session.run(None, {spec.name: buffers[spec.name] for spec in inputs})
    except Exception:  # a model that can't be bound is served the general way
        return None
    shapes = [np.asarray(result).shape for result in expected]
    return model if shapes == [buffers[spec.name].shape for spec in outputs] else None


def _buffers(specs: Sequence[TensorSpec]) -> tuple[NDArray[np.uint8], dict[str, Array]]:
    """Return memory for one row, and each tensor's part of it."""
    sizes = [math.prod(spec.shape[1:]) * spec.dtype.itemsize for spec in specs]
    *starts, end = accumulate((-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes), initial=0)
    whole = np.zeros(end + _ALIGNMENT, dtype=np.uint8)
    first = -whole.ctypes.data % _ALIGNMENT
    memory = whole[first : first + end]
    buffers = {
        spec.name: memory[start : start + size].view(spec.dtype).reshape(1, *spec.shape[1:])
        for spec, start, size in zip(specs, starts, sizes, strict=True)
    }
    return memory, buffers


MODEL_FILE = "model.onnx"
INLINE_SECONDS = 200e-6
"""Runs expected to be shorter than this happen on the event loop. Handing a run to a thread
costs tens of microseconds and, with several threads on one small session, lowers the total
throughput; a longer run would hold up every other connection."""
EWMA_WEIGHT = 0.05
WARM_UP_ROWS = (1, 2, 4, 8, 16)
WARM_UP_RUNS = 8
MAX_CONTEXT = 1 << 20
"""Of what a manifest says that matters of a row's length."""


class Model:
    """One version of a model, ready to run."""

    def __init__(self, name: str, version: str, session: Session, schema: Schema, engine: Engine):
        self.name = name
        self.version = version
        self.schema = schema
        self.engine = engine
        """What runs it, and why that isn't what its manifest names."""
        self.cache: CacheForm | None = None
        """What it keeps of a text from token to token; None: it can't be told the past."""
        self.session = session
        """What computes."""
        self._run = session.run
        self._names = schema.output_names
        self.row: RowModel | None = None
        # Expected seconds of a run, by the bit length of its number of rows.
        self.expected = [0.0] * 32
        self.measured = set[int]()
        """Numbers of rows whose time was measured, and isn't estimated."""

    def run(self, inference: Inference) -> Sequence[Any]:
        """Return the outputs that the request asks for (all of them, if it names none)."""
        return self._run(inference.outputs or self._names, inference.feed, inference.options)

    def observe(self, rows: int, seconds: float) -> None:
        """Move the expected time of runs with about ``rows`` rows towards ``seconds``.

        One run that the system interrupted for milliseconds says nothing about the model, so a
        single step is bounded; a model that has become slower is still noticed in some 30 runs.
        """
        index = rows.bit_length()
        before = self.expected[index]
        most = 4 * before + 1e-5
        self.expected[index] = before + EWMA_WEIGHT * (
            (seconds if seconds < most else most) - before
        )

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
                quickest = self.measure(rows)
                self.expected[index] = quickest
            else:
                # Twice the rows take at most about twice the time; runs will correct it.
                quickest *= 2 if batched else 1
                self.expected[index] = quickest

    def measure(self, rows: int) -> float:
        """Return the seconds of a run with so many rows: the quickest of `WARM_UP_RUNS`.

        Raises:
            InferenceError: the model fails on an input of zeros and empty texts.
        """
        feed = {spec.name: _blank(spec, rows) for spec in self.schema.inputs.values()}
        times: list[float] = []
        for _ in range(WARM_UP_RUNS):
            start = time.perf_counter()
            try:
                self._run(self._names, feed)
            except Exception as error:  # the runtime's exceptions share no public base class
                raise InferenceError(f"the model fails in its warm-up run: {error}") from error
            times.append(time.perf_counter() - start)
        self.measured.add(rows)
        return min(times)

    def remember(self, form: CacheForm) -> None:
        """Have texts generated with what was computed of their tokens before.

        Raises:
            InferenceError: the model fails where it is told the past.
        """
        (tokens,) = self.schema.inputs.values()
        kept = Kept(form, 2)
        try:
            # As far as a window goes, which may be as short as one token.
            for length in (1, 2, 1)[: form.context]:
                given = np.zeros((2, min(length, form.context - kept.filled)), dtype=tokens.dtype)
                feed = {tokens.name: given, **kept.feed()}
                _, *more = self._run([LOGITS, *kept.outputs], feed)
                kept.add(more)
        except Exception as error:  # the runtime's exceptions share no public base class
            raise InferenceError(
                f"the model fails where it is told keys and values of the past: {error}"
            ) from error
        self.cache = form


class ModelOfLengths(Model):
    """A model whose rows differ in length, measured with rows as long as matters to it.

    A shorter row takes less, which says nothing about the next one: what was measured stays.
    """

    def observe(self, rows: int, seconds: float) -> None:
        """Learn nothing."""
        del rows, seconds


def _blank(spec: TensorSpec, rows: int) -> Array:
    shape = spec.sized(rows)
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
    streams: int = 1,
) -> Model:
    """Make a session from the bytes of an ONNX model, check it against its manifest, warm it up.

    The engine is the one that the manifest names. Where that can't be had, or fails, ONNX Runtime
    runs the same graph; the model says so, and a line on stderr.

    Args:
        model_bytes: of the package's model.
        name: of the model.
        version: of it.
        manifest: of the package.
        threads: that one run may take.
        limits: of requests.
        streams: runs at once that there are threads for. Default: one.

    Raises:
        InferenceError: the graph is refused, the runtime can't load it, or its inputs and
            outputs aren't those that the manifest states.
    """
    check(model_bytes)
    engine = engine_of(manifest)
    given: dict[str, Any] = {
        "name": name, "version": version, "manifest": manifest, "threads": threads,
        "limits": limits, "streams": streams,
    }  # fmt: skip
    if engine.name == OPENVINO:
        try:
            return load_in(engine, model_bytes, **given)
        except Exception as error:  # whatever it is, ONNX Runtime runs the model
            note = f"the manifest names {engine}, which can't run the model here: {error}"
            engine = Engine(note=note)
    if engine.note:
        print(f"the engine is {engine}", file=sys.stderr, flush=True)
    return load_in(engine, model_bytes, **given)


def load_in(
    engine: Engine,
    model_bytes: bytes,
    *,
    name: str,
    version: str,
    manifest: Mapping[str, Any],
    threads: int,
    limits: Limits,
    streams: int = 1,
) -> Model:
    """Do what `load` does with a graph that was checked, in one engine and in no other.

    Raises:
        InferenceError: as of `load`.
        NoCandidateError: OpenVINO can't run the graph.
    """
    if engine.name == OPENVINO:
        graph = graph_of(model_bytes)
        opened = open_openvino(graph, engine.precision, threads=threads, streams=streams)
        return _made(
            opened, graph, engine, name=name, version=version, manifest=manifest, limits=limits
        )
    session = _session(model_bytes, threads)
    model = _made(
        session, session, engine, name=name, version=version, manifest=manifest, limits=limits
    )
    if model.schema.batched:
        # What a graph's outputs leave open is the number of rows, if its inputs are batched.
        specs = list(model.schema.inputs.values()), list(model.schema.outputs.values())
        model.row = bind(session, *specs, model.schema.head)
    return model


def _session(model_bytes: bytes, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    # A spinning pool burns the core that the event loop needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    try:
        return ort.InferenceSession(
            model_bytes, sess_options=options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # the runtime's exceptions share no public base class
        raise InferenceError(f"the runtime can't load the model: {error}") from error


def _made(
    session: Session,
    graph: Graph | ort.InferenceSession,
    engine: Engine,
    *,
    name: str,
    version: str,
    manifest: Mapping[str, Any],
    limits: Limits,
) -> Model:
    """A model of a session, whose inputs and outputs ``graph`` describes, warmed up."""
    stated: Sequence[Mapping[str, Any]] = manifest.get("inputs") or ()
    missing = {entry.get("name") for entry in stated if entry.get("missing") is True}
    contexts = {entry.get("name"): context_of(entry) for entry in stated if "context" in entry}
    whole = isinstance(graph, Graph)
    inputs = [
        _spec(node, missing=node.name in missing, context=contexts.get(node.name, 1))
        for node in (graph.inputs if whole else graph.get_inputs())
    ]
    optional = graph.optional if whole else graph.get_overridable_initializers()
    form = form_of(optional, max(contexts.values(), default=1)) if contexts else None
    outputs = [
        _spec(node)
        for node in (graph.outputs if whole else graph.get_outputs())
        if form is None or not is_kept(node.name)
    ]
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
    model = (ModelOfLengths if contexts else Model)(name, version, session, schema, engine)
    model.warm_up(max_rows=limits.max_rows, batched=batched)
    if form is not None:
        model.remember(form)
    return model


def context_of(entry: Mapping[str, Any]) -> int:
    """Return how much of a free size of an input matters, where the manifest says so.

    Raises:
        InferenceError: it is no number that could.
    """
    found = entry["context"]
    if type(found) is not int or not 1 <= found <= MAX_CONTEXT:
        raise InferenceError(
            f"the manifest's '{entry.get('name')}' has the context {found!r}; allowed is a whole "
            f"number from 1 to {MAX_CONTEXT}"
        )
    return found


def _spec(node: Any, *, missing: bool = False, context: int = 1) -> TensorSpec:
    datatype = ONNX_TYPES.get(node.type)
    if datatype is None:
        raise InferenceError(
            f"the model's '{node.name}' is a {node.type}, which the protocol can't carry"
        )
    shape = tuple(size if isinstance(size, int) and size > 0 else -1 for size in node.shape)
    return TensorSpec(node.name, datatype, shape, missing=missing, context=context)


def _compare(what: str, specs: Sequence[TensorSpec], stated: Any) -> None:
    """Refuse a package whose manifest describes another model than the one inside.

    Sizes are compared where both sides state one: what a graph leaves open is -1.
    """
    if stated is None:
        return
    declared = {
        str(entry.get("name")): (entry.get("datatype"), entry.get("shape", ())) for entry in stated
    }
    found = {spec.name: (spec.datatype, spec.shape) for spec in specs}
    fits = declared.keys() == found.keys() and all(
        declared[name][0] == datatype and _shapes_fit(declared[name][1], shape)
        for name, (datatype, shape) in found.items()
    )
    if not fits:
        raise InferenceError(
            f"the manifest's {what} aren't the model's: stated are {declared}, found are {found}"
        )


def _shapes_fit(stated: Sequence[Any], found: Sequence[int]) -> bool:
    return not found or (
        len(stated) == len(found)
        and all(
            -1 in (a, b) or not isinstance(a, int) or a == b
            for a, b in zip(stated, found, strict=True)
        )
    )
