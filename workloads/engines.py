"""Engines that run a graph: ONNX Runtime, which runs all, and OpenVINO where it is installed.

A model is packaged with the engine that was fastest on the machine that measured it, of one row,
and with those that were accurate enough beside. Elsewhere the same graph runs in ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from falaj.workloads.bounds import ENGINES
from falaj.workloads.errors import WorkloadError
from falaj.workloads.processor import relevant_cpu_flags
from falaj.workloads.remembering import layers_of

if TYPE_CHECKING:
    from falaj.workloads.openvino_session import OpenVinoSession

ONNXRUNTIME, OPENVINO = ENGINES
AUTO: Final = "auto"
"""What asks for whichever engine is fastest."""
PRECISIONS: Final = ("f32", "bf16", "int8", "int4")
"""That a model is computed with in OpenVINO; the last two are quantised graphs."""
_GRAPHS: Final[dict[str, Literal["int8", "int4"]]] = {"int8": "int8", "int4": "int4"}

NOT_INSTALLED: Final = (
    "openvino isn't installed here; it comes with the extra openvino (in a clone of Falaj: "
    "python3 engine/environment.py --extra openvino)"
)
_STANDARD: Final = frozenset({"", "ai.onnx"})
_LOOKUP: Final = "LabelEncoder"


def graph_named(precision: str) -> Literal["float", "int8", "int4"]:
    """Return which graph of a model a precision is of."""
    return _GRAPHS.get(precision, "float")


class Session(Protocol):
    """What runs a graph: ONNX Runtime's session, or another engine's with as much of it."""

    @property
    def run(self) -> Callable[..., Sequence[Any]]:
        """Takes outputs' names (None: all), inputs by name, and options; returns these outputs."""
        ...


@dataclass(frozen=True)
class Tensor:
    """An input or output of a graph, as ONNX Runtime's sessions describe theirs.

    Attributes:
        name: of it.
        type: such as ``tensor(float)``.
        shape: sizes; a name or None where one is free.
    """

    name: str
    type: str
    shape: list[int | str | None]


@dataclass(frozen=True)
class Graph:
    """A model as OpenVINO can run it: texts that only name a class are looked up behind it.

    Attributes:
        model: the serialised graph, without that.
        inputs: of the whole, that have to be given.
        outputs: of the whole.
        texts: by output, see `OpenVinoSession`.
        optional: inputs that have a default.
        defaults: these.
        order: names of all inputs, as ``model`` has them.
    """

    model: bytes
    inputs: list[Tensor]
    outputs: list[Tensor]
    texts: Mapping[str, NDArray[Any]]
    optional: list[Tensor]
    defaults: Mapping[str, NDArray[Any]]
    order: list[str]


class NoCandidateError(WorkloadError):
    """OpenVINO can't run a graph, and why."""


def graph_of(model: bytes) -> Graph:
    """Return what OpenVINO can run of a model that was checked.

    Raises:
        NoCandidateError: it has texts or operators that OpenVINO has none for.
    """
    parsed = onnx.ModelProto.FromString(model)
    graph = parsed.graph
    known = {each.name for each in graph.initializer}
    inputs = [_tensor(each) for each in graph.input if each.name not in known]
    optional, defaults = _cut_defaults(graph)
    order = [each.name for each in (*inputs, *optional)]
    order.sort(key=[each.name for each in graph.input].index)
    outputs = [_tensor(each) for each in graph.output]
    texts = _cut_names(graph)
    for each in (*graph.input, *graph.output):
        if each.type.tensor_type.elem_type == TensorProto.STRING:
            raise NoCandidateError(f"OpenVINO knows no texts, and {each.name!r} is one")
    for node in _nodes(graph):
        if node.domain not in _STANDARD:
            raise NoCandidateError(f"OpenVINO has no operator {node.op_type} of {node.domain}")
        if node.op_type == "DynamicQuantizeLinear":
            raise NoCandidateError("ranges that are found in each run are slower there than float")
    _check_blocks(graph)
    return Graph(parsed.SerializeToString(), inputs, outputs, texts, optional, defaults, order)


def _check_blocks(graph: onnx.GraphProto) -> None:
    """Refuse weights in blocks that OpenVINO would have no word for.

    Raises:
        NoCandidateError: a block isn't whole.
    """
    sizes = {each.name: each.dims for each in graph.initializer}
    for node in graph.node:
        block = next((each.i for each in node.attribute if each.name == "block_size"), 0)
        rows = sizes[node.input[0]][0] if block and node.input[0] in sizes else 0
        if block and rows % block:
            raise NoCandidateError(
                f"OpenVINO takes weights in blocks of {block} where these divide a matrix, and "
                f"one has {rows} rows"
            )


def _cut_defaults(graph: onnx.GraphProto) -> tuple[list[Tensor], dict[str, NDArray[Any]]]:
    """Take away the defaults of a language model's past; return its inputs, and these.

    OpenVINO takes an input that has a default for a constant.
    """
    given = {each.name: each for each in graph.initializer}
    optional = [_tensor(each) for each in graph.input if each.name in given]
    if not layers_of([each.name for each in optional]):
        return [], {}
    defaults = {each.name: numpy_helper.to_array(given[each.name]) for each in optional}
    for name in defaults:
        graph.initializer.remove(given[name])
    return optional, defaults


def _cut_names(graph: onnx.GraphProto) -> dict[str, NDArray[Any]]:
    """Take away what looks a class's text up by its number; return the texts by output."""
    texts: dict[str, NDArray[Any]] = {}
    used = {name for node in graph.node for name in node.input}
    made = {name for node in graph.node for name in node.output}
    for place, output in enumerate(graph.output):
        node = next((each for each in graph.node if output.name in each.output), None)
        if node is None or node.op_type != _LOOKUP or output.name in used:
            continue
        values = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        keys = list(values.get("keys_int64s", ()))
        names = [text.decode() for text in values.get("values_strings", ())]
        if keys != list(range(len(names))) or not names or node.input[0] not in made:
            continue
        names.append(values.get("default_string", b"_Unused").decode())
        texts[output.name] = np.array(names, dtype=object)
        shape = [_size(each) for each in output.type.tensor_type.shape.dim]
        graph.output[place].CopyFrom(
            helper.make_tensor_value_info(node.input[0], TensorProto.INT64, shape)
        )
        graph.node.remove(node)
    return texts


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _tensor(value: onnx.ValueInfoProto) -> Tensor:
    kind = value.type.tensor_type
    name = TensorProto.DataType.Name(kind.elem_type).lower()
    return Tensor(value.name, f"tensor({name})", [_size(each) for each in kind.shape.dim])


def _size(dimension: onnx.TensorShapeProto.Dimension) -> int | str | None:
    return dimension.dim_value if dimension.HasField("dim_value") else dimension.dim_param or None


def has_openvino() -> bool:
    """Tell whether OpenVINO is installed and can be loaded."""
    try:
        from falaj.workloads import openvino_session  # noqa: PLC0415 - of an extra
    except (ImportError, OSError):  # OSError: a library that this system doesn't have
        return False
    return bool(openvino_session.VERSION)


def openvino_precisions() -> tuple[str, ...]:
    """Return the precisions of float models that this processor computes in OpenVINO."""
    from falaj.workloads.openvino_session import computes_bfloat16  # noqa: PLC0415 - of an extra

    return PRECISIONS[:2] if computes_bfloat16() else PRECISIONS[:1]


def openvino_version() -> str | None:
    """Return OpenVINO's version; None where it isn't installed."""
    if not has_openvino():
        return None
    from falaj.workloads.openvino_session import VERSION  # noqa: PLC0415 - of an extra

    return VERSION


def open_openvino(
    graph: Graph, precision: str, *, threads: int, streams: int = 1
) -> OpenVinoSession:
    """Compile a graph in OpenVINO.

    Args:
        graph: of `graph_of`.
        precision: one of `PRECISIONS`, that of the graph where it is quantised.
        threads: that one run may take.
        streams: runs at once.

    Raises:
        NoCandidateError: it isn't installed, or can't compile the graph.
    """
    if not has_openvino():
        raise NoCandidateError(NOT_INSTALLED)
    from falaj.workloads.openvino_session import OpenVinoSession  # noqa: PLC0415 - of an extra

    try:
        return OpenVinoSession(
            graph.model,
            inputs=graph.order,
            defaults=graph.defaults,
            outputs=[each.name for each in graph.outputs],
            texts=graph.texts,
            precision="bf16" if precision == "bf16" else "f32",
            threads=threads,
            streams=streams,
        )
    except WorkloadError as error:
        raise NoCandidateError(str(error)) from error


@dataclass(frozen=True)
class Engine:
    """What runs a model.

    Attributes:
        name: `ONNXRUNTIME` or `OPENVINO`.
        precision: one of `PRECISIONS` where it is OpenVINO; empty: as the graph says.
        note: why it isn't the engine that the manifest names; empty where it is.
    """

    name: str = ONNXRUNTIME
    precision: str = ""
    note: str = ""

    def __str__(self) -> str:
        precision = f" ({self.precision})" if self.precision else ""
        return f"{self.name}{precision}" + (f": {self.note}" if self.note else "")


USUAL: Final = Engine()


def engine_of(manifest: Mapping[str, Any]) -> Engine:
    """Return the engine that a package's manifest names, or ONNX Runtime with what is against it.

    What was measured on another processor says nothing here: 8-bit sums may saturate, bfloat16 be
    emulated.
    """
    quantisation = _members(manifest.get("quantisation"))
    stated = quantisation.get("engine")
    if stated is None:
        return USUAL
    name, precision = (_members(stated).get(key) for key in ("name", "precision"))
    if name == ONNXRUNTIME:
        return USUAL
    if name != OPENVINO or precision not in PRECISIONS:
        return _instead(f"the manifest names {name!r} ({precision!r}), which isn't known here")
    measured = quantisation.get("cpu_flags")
    if not _was_measured_here(quantisation):
        return _instead(
            f"openvino ({precision}) was chosen on a processor with {_listed(measured)}; this one "
            f"has {_listed(relevant_cpu_flags())}"
        )
    if not has_openvino():
        return _instead(f"the manifest names openvino ({precision}), and {NOT_INSTALLED}")
    return Engine(OPENVINO, str(precision))


def admitted(manifest: Mapping[str, Any]) -> list[Engine]:
    """Return all that may run a package's model here, when somebody wants to know what is fastest.

    That is ONNX Runtime and, in OpenVINO, each precision of the packaged graph that was accurate
    enough on a processor like this one. It is the manifest's alone where whoever made the package
    asked for one engine.
    """
    quantisation = _members(manifest.get("quantisation"))
    stated = _members(quantisation.get("engine"))
    if stated.get("asked") != AUTO or not _was_measured_here(quantisation) or not has_openvino():
        return [engine_of(manifest)]
    refused = _members(stated.get("left_out"))
    found = [
        Engine(OPENVINO, precision)
        for precision in _members(stated.get("candidates"))
        if precision in PRECISIONS
        and precision not in refused
        and graph_named(precision) == quantisation.get("accepted")
    ]
    return [USUAL, *found]


def _was_measured_here(quantisation: Mapping[str, Any]) -> bool:
    return quantisation.get("cpu_flags") == relevant_cpu_flags()


def _instead(note: str) -> Engine:
    return Engine(note=note)


def _members(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _listed(flags: object) -> str:
    known = cast("list[object]", flags) if isinstance(flags, list) else []
    return ", ".join(map(str, known)) or "no extensions that are known"
