"""From a trained torch module to the served graph: raw inputs in, answers in a person's terms out.

A served graph holds known operators and its own weights, and nothing beside the file.

The nodes compute `TablePreprocessing.transform`: all numeric columns are joined and treated at
once, since per column a node for each step would cost more than the model itself; the texts are
looked up column by column and become one-hot features in one comparison.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
import onnx
import onnx.compose
import onnx.shape_inference
import onnxruntime
import torch
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationMethod, QuantType
from onnxruntime.quantization.calibrate import TensorsData
from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization import layers, texts
from falaj.workloads.optimization.graph_part import ML_DOMAIN, ML_OPSET, UNKNOWN, GraphPart
from falaj.workloads.pictures import IMAGE
from falaj.workloads.remembering import ASKED, FILLED, LOGITS, is_kept, past_names, present_of
from falaj.workloads.training.decoder import Decoder, Remembering
from falaj.workloads.training.language import FAMILY, TOKENS
from falaj.workloads.training.models import CategoricalColumn, NumericColumn, TablePreprocessing
from falaj.workloads.training.own_model import causes, place_of
from falaj.workloads.training.quantisation import Ranges
from falaj.workloads.training.trees import Forest, TableTrees
from falaj.workloads.vocabulary import METADATA, BytePairs

ALLOWED_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})
"""The operator sets of the ONNX standard; custom operators would need code beside the model."""

MAXIMUM_BYTES = 2**31 - 1
"""Protocol buffers end at 2 GiB; a larger model needs external data, which is refused."""

MAXIMUM_DEPTH = 8
"""Nested subgraphs (of If, Loop, Scan); the models exported here have none."""


class UnsafeModelError(WorkloadError):
    """The bytes are no ONNX model, or one that reaches outside itself."""


def check_model(model: bytes) -> onnx.ModelProto:
    """Parse ``model`` and refuse external data, functions and operators beyond the standard's.

    The bytes are parsed without a base folder, so nothing beside them is ever opened.

    Returns:
        The parsed model.

    Raises:
        UnsafeModelError: says what was found and where.
    """
    if len(model) > MAXIMUM_BYTES:
        raise UnsafeModelError(f"the model has {len(model):,} bytes; at most {MAXIMUM_BYTES:,}")
    try:
        parsed = onnx.ModelProto.FromString(model)
    except DecodeError:
        raise UnsafeModelError("not an ONNX model: damaged, or another kind of file") from None
    if not parsed.graph.node or not parsed.opset_import:
        raise UnsafeModelError("the ONNX model is not whole: damaged, or another kind of file")
    check_graph(parsed)
    return parsed


def check_graph(model: onnx.ModelProto) -> None:
    """Refuse external data, functions and foreign operators anywhere in ``model``.

    Raises:
        UnsafeModelError: says what was found and where.
    """
    if model.functions:
        raise UnsafeModelError(
            f"the model defines its own function {model.functions[0].name!r}; "
            "allowed are operators of the ONNX standard only"
        )
    foreign = sorted({item.domain for item in model.opset_import} - ALLOWED_DOMAINS)
    if foreign:
        raise UnsafeModelError(_foreign(f"imports the operator set {foreign[0]!r}"))
    for graph in _graphs(model.graph, 0):
        for tensor in _tensors(graph):
            if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.external_data:
                raise UnsafeModelError(
                    f"the tensor {tensor.name!r} keeps its values in another file; "
                    "a served model must hold all of its weights"
                )
        for node in graph.node:
            if node.domain not in ALLOWED_DOMAINS:
                raise UnsafeModelError(_foreign(f"uses {node.op_type!r} of {node.domain!r}"))


def _check_whole(model: onnx.ModelProto) -> None:
    """Refuse a graph whose parts don't fit. Raises onnx.checker.ValidationError."""
    # The checker's types leave open what a path is of, which is another way to name a model.
    cast("Any", onnx.checker).check_model(model, full_check=True)


def _foreign(what: str) -> str:
    allowed = ", ".join(repr(name) for name in sorted(ALLOWED_DOMAINS) if name)
    return f"the model {what}; allowed are the standard operator sets {allowed}"


def _graphs(graph: onnx.GraphProto, depth: int) -> Iterator[onnx.GraphProto]:
    if depth > MAXIMUM_DEPTH:
        raise UnsafeModelError(f"subgraphs are nested deeper than {MAXIMUM_DEPTH}")
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _graphs(attribute.g, depth + 1)
            for inner in attribute.graphs:
                yield from _graphs(inner, depth + 1)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
        yield sparse.indices
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
            if attribute.HasField("sparse_tensor"):
                yield attribute.sparse_tensor.values
                yield attribute.sparse_tensor.indices
            for sparse in attribute.sparse_tensors:
                yield sparse.values
                yield sparse.indices


INPUT = "input"
POSITIONS = "positions"
"""Of a language model's core: which characters of a row are answered."""
OUTPUT = "output"
BATCH = "batch"
LENGTH = "length"
"""The free second axis of rows of characters."""
_SLOTS = "slots"
_PAST_ROWS = "past_rows"
"""The first axis of keys and values of the past: as many as rows, or one for all of them."""

OPSET = 20
"""Of 2023; every ONNX Runtime since 1.17 runs it."""

_OPERATOR = re.compile(r"No ONNX function found for <\w+\(op='([\w.]+)'")
"""How PyTorch's exporter names what it can't translate."""

_IR_VERSION = 10
"""Of 2024, as the exporter of networks writes it."""

PARITY_TOLERANCE = 1e-4
"""Of the largest output (at least of 1): both add the same float32 products, in another order."""


def export_module(module: torch.nn.Module, shape: tuple[int, ...]) -> onnx.ModelProto:
    """Export ``module`` with a free first axis ``batch``.

    Args:
        module: in evaluation mode; takes one float32 tensor (N, *shape), gives (N, outputs). Or a
            `Decoder`.
        shape: one row's shape.

    Returns:
        A checked model with the input ``input``, the output ``output``, and no external data;
        what the exporter notes about source files and stack traces is removed. That of a decoder
        has a free second axis, the input ``positions`` as well, and inputs and outputs of
        `falaj.workloads.remembering`, those with defaults.

    Raises:
        WorkloadError: the module uses what ONNX cannot express.
    """
    if isinstance(module, TableTrees):
        return _trees(module.forest(), shape[0])
    written = layers.graph_of(module, shape, INPUT, OUTPUT, BATCH)
    if written is not None:
        return _checked(_model(written))
    # A batch of 1 would be taken for a constant.
    batch = torch.export.Dim(BATCH)
    examples: tuple[Any, ...] = (torch.zeros((2, *shape), dtype=torch.float32),)
    free: tuple[Any, ...] = ({0: batch},)
    inputs, outputs, past = [INPUT], [OUTPUT], list[str]()
    exported = module.cpu().eval()
    if isinstance(module, Decoder):
        exported = Remembering(module).eval()
        past = past_names(module.size.layers)
        inputs += [POSITIONS, FILLED, *past]
        outputs += map(present_of, past)
        examples = (
            torch.zeros((2, *shape), dtype=torch.int64), torch.arange(2), torch.tensor([3]),
            [torch.zeros(_slots(module, 4)) for _ in past],
        )  # fmt: skip
        free = (
            {0: batch, 1: torch.export.Dim(LENGTH, max=module.context)},
            {0: torch.export.Dim(POSITIONS)},
            None,
            [{2: torch.export.Dim(_SLOTS)}] * len(past),
        )
    try:
        with _quiet(), torch.no_grad():
            program = cast("Any", torch.onnx).export(
                exported,
                examples,
                input_names=inputs,
                output_names=outputs,
                dynamic_shapes=free,
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    except torch.onnx.errors.OnnxExporterError as error:
        raise WorkloadError(f"the module can't be exported to ONNX: {_reason(error)}") from error
    if program is None:
        raise WorkloadError("the module can't be exported to ONNX: the exporter returned nothing")
    model = onnx.ModelProto.FromString(program.model_proto.SerializeToString())
    strip_notes(model)
    if isinstance(module, Decoder):
        for value in model.graph.input:
            if value.name in past:
                value.type.tensor_type.shape.dim[0].dim_param = _PAST_ROWS
        nothing = np.zeros(_slots(module, 1), dtype=np.float32)
        defaults = {FILLED: _numbers_of(0), **dict.fromkeys(past, nothing)}
        model.graph.initializer.extend(
            numpy_helper.from_array(values, name) for name, values in defaults.items()
        )
    return _checked(model)


def _checked(model: onnx.ModelProto) -> onnx.ModelProto:
    """A core, checked, with the shapes of all that it computes."""
    _check_whole(model)
    check_graph(model)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)


def _model(graph: onnx.GraphProto, *domains: onnx.OperatorSetIdProto) -> onnx.ModelProto:
    """A graph of the standard's operators, and of those of ``domains``, as a model."""
    opsets = [helper.make_opsetid("", OPSET), *domains]
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def _slots(decoder: Decoder, count: int) -> tuple[int, ...]:
    """The shape of one row's keys or values of a layer in so many slots."""
    size = decoder.embedding.embedding_dim // decoder.size.heads
    return 1, decoder.size.key_value_heads, count, size


def _reason(error: BaseException) -> str:
    """Which operator the standard has none for, else the first words of what was wrong; where."""
    chain = list(causes(error))
    place = place_of(error)
    where = f" ({place})" if place else ""
    for each in chain:
        found = _OPERATOR.search(str(each))
        if found:
            return f"ONNX has no operator for {found[1]}{where}"
    first = next((line for line in str(chain[-1]).splitlines() if line.strip()), "")
    return f"{first.strip() or type(chain[-1]).__name__}{where}"


def _trees(forest: Forest, width: int) -> onnx.ModelProto:
    """Trees as one operator of the standard, from features to outputs."""
    nodes: dict[str, Any] = {name: [] for name in (
        "nodes_treeids", "nodes_nodeids", "nodes_featureids", "nodes_values", "nodes_modes",
        "nodes_truenodeids", "nodes_falsenodeids", "target_treeids", "target_nodeids",
        "target_ids", "target_weights",
    )}  # fmt: skip
    for tree, output in enumerate(forest.output.tolist()):
        # Nodes that nothing leads to are padding.
        reached = [0]
        for node in reached:
            left, right = int(forest.left[tree, node]), int(forest.right[tree, node])
            is_leaf = left == node
            for name, value in (
                ("treeids", tree), ("nodeids", node), ("truenodeids", 0 if is_leaf else left),
                ("falsenodeids", 0 if is_leaf else right),
                ("featureids", int(forest.feature[tree, node])),
                ("values", float(forest.threshold[tree, node])),
                ("modes", "LEAF" if is_leaf else "BRANCH_LEQ"),
            ):  # fmt: skip
                nodes[f"nodes_{name}"].append(value)
            if is_leaf:
                nodes["target_treeids"].append(tree)
                nodes["target_nodeids"].append(node)
                nodes["target_ids"].append(output)
                nodes["target_weights"].append(float(forest.value[tree, node]))
            else:
                reached += [left, right]
    outputs = len(forest.base)
    # Not the operator's own base values: ONNX Runtime leaves them out where no tree adds to an
    # output, which is so of the first of two classes.
    made = [
        helper.make_node(
            "TreeEnsembleRegressor", [INPUT], ["leaves"], name="trees", domain=ML_DOMAIN,
            n_targets=outputs, **nodes,
        ),
        helper.make_node("Add", ["leaves", "base"], [OUTPUT], name="sum"),
    ]  # fmt: skip
    graph = helper.make_graph(
        made,
        "trees",
        [helper.make_tensor_value_info(INPUT, TensorProto.FLOAT, [BATCH, width])],
        [helper.make_tensor_value_info(OUTPUT, TensorProto.FLOAT, [BATCH, outputs])],
        [numpy_helper.from_array(forest.base, "base")],
    )
    model = _model(graph, helper.make_opsetid(ML_DOMAIN, ML_OPSET))
    _check_whole(model)
    return model


def strip_notes(model: onnx.ModelProto) -> None:
    """Remove comments and metadata, which would tell paths and source lines of this machine."""
    graph = model.graph
    holders = [model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info]
    for holder in [*holders, *graph.initializer]:
        holder.ClearField("doc_string")
        holder.ClearField("metadata_props")


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Keep the exporter's progress and its notes on missing optional packages off the streams."""
    logger = logging.getLogger("torch.onnx")
    level, sink = logger.level, io.StringIO()
    logger.setLevel(logging.ERROR)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(sink),
            contextlib.redirect_stderr(sink),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def build_inputs(
    preprocessing: TablePreprocessing, batch: str
) -> tuple[list[onnx.ValueInfoProto], GraphPart, str]:
    """Build the graph from raw columns to features.

    Args:
        preprocessing: the recipe that was fixed in training.
        batch: the name of the free first axis.

    Returns:
        The graph's inputs, (N, 1) each, float32 for numbers (NaN: missing) and strings for
        texts ("": missing), in the order of ``preprocessing``; the nodes; and the name of their
        result, float32 (N, F) in the order that `TablePreprocessing` documents.
    """
    part = GraphPart(free_prefix([item.name for item in preprocessing.columns]))
    inputs = [
        helper.make_tensor_value_info(
            item.name,
            TensorProto.FLOAT if isinstance(item, NumericColumn) else TensorProto.STRING,
            [batch, 1],
        )
        for item in preprocessing.columns
    ]
    features: list[str] = []
    if preprocessing.numeric:
        features.append(_numbers(part, preprocessing.numeric))
    if preprocessing.categorical:
        features.append(_texts(part, preprocessing.categorical))
    features += [
        texts.date(part, column, index) for index, column in enumerate(preprocessing.dates)
    ]
    features += [
        texts.words(part, column, index) for index, column in enumerate(preprocessing.words)
    ]
    result = part.node("Concat", features, part.name("features"), axis=1)
    return inputs, part, result


def free_prefix(names: list[str]) -> str:
    """Return a prefix for inner names that none of ``names`` begins with."""
    prefix = "falaj/"
    while any(name.startswith(prefix) for name in names):
        prefix = f"_{prefix}"
    return prefix


def _numbers(part: GraphPart, columns: list[NumericColumn]) -> str:
    fill, mean, scale = (
        np.array([[getattr(item, key) for item in columns]], dtype=np.float32)
        for key in ("fill", "mean", "scale")
    )
    joined = part.node("Concat", [item.name for item in columns], part.name("numbers"), axis=1)
    missing = part.node("IsNaN", [joined], part.name("missing"))
    filled = part.node(
        "Where", [missing, part.constant("fill", fill), joined], part.name("filled")
    )
    centred = part.node("Sub", [filled, part.constant("mean", mean)], part.name("centred"))
    return part.node("Div", [centred, part.constant("scale", scale)], part.name("standardised"))


def _texts(part: GraphPart, columns: list[CategoricalColumn]) -> str:
    positions: list[str] = []
    for index, column in enumerate(columns):
        positions.append(_position(part, column, index))
    joined = part.node("Concat", positions, part.name("positions"), axis=1)
    widths = [len(item.categories) + 1 for item in columns]
    # Feature f belongs to column owner[f]; it is 1 where that column's text has position own[f].
    owner = np.repeat(np.arange(len(columns)), widths)
    own = np.concatenate([np.arange(width) for width in widths])[np.newaxis, :]
    spread = part.node(
        "Gather", [joined, part.constant("owner", owner)], part.name("spread"), axis=1
    )
    hit = part.node("Equal", [spread, part.constant("own", own)], part.name("hit"))
    return part.node("Cast", [hit], part.name("one_hot"), to=TensorProto.FLOAT)


def _position(part: GraphPart, column: CategoricalColumn, index: int) -> str:
    output = part.name(f"position_{index}")
    if not column.categories:  # LabelEncoder refuses empty keys; every text is unknown
        shape = part.node("Shape", [column.name], part.name(f"shape_{index}"))
        zero = helper.make_tensor("value", TensorProto.INT64, [1], [UNKNOWN])
        return part.node("ConstantOfShape", [shape], output, value=zero)
    numbers = list(range(1, len(column.categories) + 1))
    return part.looked_up(column.name, output, column.categories, numbers=numbers)


Role = Literal["probabilities", "label", "prediction"]

_DATATYPES: dict[int, str] = {
    TensorProto.FLOAT: "FP32",
    TensorProto.INT64: "INT64",
    TensorProto.STRING: "BYTES",
}


@dataclass(frozen=True)
class Serving:
    """What stands around the core.

    Attributes:
        family: ``images``, ``table`` or ``text``.
        preprocessing: a table's recipe; None for images, whose core takes the served input, and
            for texts.
        shape: one row of the core's input.
        classes: the classes in the order of the core's outputs; None for a regression.
        text_labels: answer the class's text; else its number.
        target: mean and scale of a regression's target, from standardised to real units.
        pairs: vocabulary of a text whose tokens aren't its characters.
    """

    family: str
    preprocessing: TablePreprocessing | None
    shape: tuple[int, ...]
    classes: list[str] | None
    text_labels: bool
    target: tuple[float, float] | None
    pairs: BytePairs | None = None

    def input_names(self) -> list[str]:
        """Return the served inputs' names in their order."""
        if self.preprocessing is not None:
            return [item.name for item in self.preprocessing.columns]
        return [TOKENS if self.is_text else IMAGE]

    @property
    def is_text(self) -> bool:
        """Whether rows are tokens, whose number isn't fixed."""
        return self.family == FAMILY

    def output_name(self, role: Role) -> str:
        """Return the output's name: its role, unless a column is already called that."""
        name: str = role
        while name in self.input_names():
            name = f"predicted_{name}"
        return name


def assemble(core: onnx.ModelProto, serving: Serving) -> onnx.ModelProto:
    """Put ``serving``'s input and output nodes around ``core``.

    Args:
        core: float or quantised, from the input ``input`` to the output ``output``.
        serving: what stands around it.

    Returns:
        A checked model, with its vocabulary of pairs in its metadata. Inputs: ``image`` float32
        (N, *shape), or one (N, 1) per column, or ``tokens`` int64 (N, S), of which the last
        ``serving.shape`` are looked at, and numbers that no token has count as 0. Outputs:
        ``probabilities`` float32 (N, classes) and ``label`` (N,), of a text those of what follows
        the row; or ``prediction`` float32 (N, 1) in real units. Of a text also inputs and outputs
        of `falaj.workloads.remembering`.
    """
    prefix = free_prefix(serving.input_names())
    inner = onnx.compose.add_prefix(core, prefix + "core/")
    further: tuple[list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]] = ([], [])
    part = GraphPart(prefix)
    if serving.preprocessing is not None:
        inputs, part, features = build_inputs(serving.preprocessing, BATCH)
    elif serving.is_text:
        inputs = [helper.make_tensor_value_info(TOKENS, TensorProto.INT64, [BATCH, LENGTH])]
        features = _characters(part, serving.shape[0], len(serving.classes or ()))
        further = _remembered(inner.graph, f"{prefix}core/")
        part.initializers.append(numpy_helper.from_array(_numbers_of(-1), ASKED))
    else:
        inputs = [helper.make_tensor_value_info(IMAGE, TensorProto.FLOAT, [BATCH, *serving.shape])]
        features = IMAGE
    part.node("Identity", [features], f"{prefix}core/{INPUT}")
    part.nodes.extend(inner.graph.node)
    part.initializers.extend(inner.graph.initializer)
    raw = f"{prefix}core/{OUTPUT}"
    if serving.is_text:
        last = part.constant("last", np.array(-1, dtype=np.int64))
        raw = part.node("Gather", [LOGITS, last], part.name("next"), axis=1)
    outputs = _answers(part, raw, serving)
    inputs, outputs = inputs + further[0], outputs + further[1]
    graph = helper.make_graph(part.nodes, "falaj", inputs, outputs, part.initializers)
    opsets = {item.domain: item.version for item in core.opset_import}
    opsets[ML_DOMAIN] = ML_OPSET
    used = {node.domain for node in part.nodes}
    model = helper.make_model(
        graph,
        opset_imports=[
            helper.make_opsetid(domain, version)
            for domain, version in opsets.items()
            if domain in used
        ],
        ir_version=core.ir_version,
        producer_name="falaj",
    )
    strip_notes(model)
    if serving.pairs is not None:
        noted = serving.pairs.to_bytes().decode()
        helper.set_model_props(model, {METADATA: noted})
    check_graph(model)
    _check_whole(model)
    return model


def _characters(part: GraphPart, context: int, count: int) -> str:
    """The last ``context`` of a row's characters, 0 for numbers that none of ``count`` has."""
    most = np.iinfo(np.int64).max
    limits = [
        part.constant(name, _numbers_of(value))
        for name, value in (("from", -context), ("to", most), ("along", 1))
    ]
    recent = part.node("Slice", [TOKENS, *limits], part.name("recent"))
    zero = part.constant("unknown", np.array(UNKNOWN, dtype=np.int64))
    size = part.constant("characters", np.array(count, dtype=np.int64))
    known = part.node(
        "And",
        [
            part.node("GreaterOrEqual", [recent, zero], part.name("at_least")),
            part.node("Less", [recent, size], part.name("less")),
        ],
        part.name("known"),
    )
    return part.node("Where", [known, recent, zero], part.name("numbered"))


def _remembered(
    core: onnx.GraphProto, prefix: str
) -> tuple[list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]]:
    """Name what a core takes and gives of the past as the served graph does; return both."""
    names = {
        **{each.name: each.name.removeprefix(prefix) for each in (*core.input, *core.output)},
        f"{prefix}{POSITIONS}": ASKED, f"{prefix}{OUTPUT}": LOGITS,
    }  # fmt: skip
    del names[f"{prefix}{INPUT}"]
    for node in core.node:
        for ends in (node.input, node.output):
            ends[:] = [names.get(each, each) for each in ends]
    for value in (*core.input, *core.output, *core.initializer):
        value.name = names.get(value.name, value.name)
    return [each for each in core.input if each.name in names.values()], list(core.output)


def _numbers_of(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def describe_inputs(model: onnx.ModelProto, serving: Serving) -> list[dict[str, Any]]:
    """Return the inputs as the Open Inference Protocol does: name, datatype, shape (-1: free).

    Numbers of a table have ``missing`` as well: NaN stands for one that isn't known. Characters
    have ``context``: how many are looked back on.
    """
    if serving.is_text:
        tokens = next(value for value in model.graph.input if value.name == TOKENS)
        return [{**_describe(tokens), "context": serving.shape[0]}]
    numeric = serving.preprocessing.numeric if serving.preprocessing is not None else []
    missing = {column.name for column in numeric}
    return [
        {**_describe(value), **({"missing": True} if value.name in missing else {})}
        for value in model.graph.input
    ]


def describe_outputs(model: onnx.ModelProto, serving: Serving) -> list[dict[str, Any]]:
    """Return the outputs likewise, each with its ``role``."""
    roles: tuple[Role, ...] = ("probabilities", "label", "prediction")
    by_name = {serving.output_name(role): role for role in roles}
    return [
        {**_describe(value), "role": by_name[value.name]}
        for value in model.graph.output
        if not (serving.is_text and is_kept(value.name))
    ]


def _answers(part: GraphPart, raw: str, serving: Serving) -> list[onnx.ValueInfoProto]:
    if serving.classes is None:
        prediction = serving.output_name("prediction")
        mean, scale = serving.target or (0.0, 1.0)
        factor = part.constant("target_scale", np.array([scale], dtype=np.float32))
        offset = part.constant("target_mean", np.array([mean], dtype=np.float32))
        scaled = part.node("Mul", [raw, factor], part.name("scaled"))
        part.node("Add", [scaled, offset], prediction)
        return [helper.make_tensor_value_info(prediction, TensorProto.FLOAT, [BATCH, 1])]
    probabilities, label = serving.output_name("probabilities"), serving.output_name("label")
    part.node("Softmax", [raw], probabilities, axis=-1)
    number = part.name("class") if serving.text_labels else label
    part.node("ArgMax", [raw], number, axis=1, keepdims=0)
    if serving.text_labels:
        part.node(
            "LabelEncoder",
            [number],
            label,
            domain=ML_DOMAIN,
            keys_int64s=list(range(len(serving.classes))),
            values_strings=[text.encode() for text in serving.classes],
            default_string=b"",
        )
    kind = TensorProto.STRING if serving.text_labels else TensorProto.INT64
    size = len(serving.classes)
    return [
        helper.make_tensor_value_info(probabilities, TensorProto.FLOAT, [BATCH, size]),
        helper.make_tensor_value_info(label, kind, [BATCH]),
    ]


def _describe(value: onnx.ValueInfoProto) -> dict[str, Any]:
    tensor = value.type.tensor_type
    shape = [item.dim_value if item.HasField("dim_value") else -1 for item in tensor.shape.dim]
    return {"name": value.name, "datatype": _DATATYPES[tensor.elem_type], "shape": shape}


# Static 8-bit quantisation of convolutions and matrix products, in memory only.
#
# `onnxruntime.quantization.quantize_static` writes the model to temporary files. Its parts don't
# have to: the ranges are measured here over an in-memory session, and the library's quantiser
# then inserts QuantizeLinear and DequantizeLinear pairs (QDQ) into the graph in memory, so that
# weights from an encrypted run never touch a disk as plaintext.

OPERATORS = ("Conv", "Gemm", "MatMul")
"""The only ones that 8-bit kernels speed up; the rest stays in float."""

CALIBRATION_ROWS = 512
"""Ranges of small models hardly move beyond some hundred rows."""

_BATCH = 64
_WINDOWS = 8
"""Of a text, each with values for all of its characters."""


def core_feed(rows: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Return what a core is asked about rows: of characters (N, S) each is answered."""
    if rows.dtype.kind == "f":
        return {INPUT: rows}
    return {INPUT: rows, POSITIONS: np.arange(rows.shape[1])}


def quantise(
    core: onnx.ModelProto,
    calibration: NDArray[Any],
    reduce_range: bool,
    learned: Ranges | None = None,
) -> onnx.ModelProto:
    """Return ``core`` with 8-bit weights (signed, per channel) and activations (unsigned).

    Args:
        core: the float model, from the input ``input``, with inferred shapes.
        calibration: rows of the training part as the core takes them, (rows, …).
        reduce_range: keep weights to 7 bits, for processors whose 8-bit sums saturate.
        learned: ranges of the layers, by their names, which quantisation-aware training has found.
            Default: all of them are measured on the rows.

    Raises:
        WorkloadError: nothing in the model can be quantised, or the rows give no finite range.
    """
    tensors = _activations(core)
    if not tensors:
        raise WorkloadError(f"the model has none of {', '.join(OPERATORS)} to quantise")
    ranges = measure_ranges(core, tensors, calibration) | _learned_ranges(core, learned or {})
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)  # the library advises through the root logger
    try:
        quantiser = QDQQuantizer(
            onnx.ModelProto.FromString(core.SerializeToString()),
            per_channel=True,
            reduce_range=reduce_range,
            weight_qType=QuantType.QInt8,
            activation_qType=QuantType.QUInt8,
            tensors_range=TensorsData(CalibrationMethod.MinMax, ranges),
            nodes_to_quantize=[],
            nodes_to_exclude=_between_computed(core),
            op_types_to_quantize=list(OPERATORS),
            extra_options={},
        )
        quantiser.quantize_model()
        quantiser.model.topological_sort()  # the new nodes stand at the end
    finally:
        root.setLevel(level)
    model: onnx.ModelProto = quantiser.model.model
    del model.graph.value_info[:]
    return checked_quantised(model)


def checked_quantised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a core that was changed, without notes and checked."""
    strip_notes(model)
    _check_whole(model)
    check_graph(model)
    return model


def _learned_ranges(core: onnx.ModelProto, learned: Ranges) -> dict[str, Any]:
    """Return what was learned of tensors, which a layer's weight is beside."""
    found: dict[str, Any] = {}
    for node in core.graph.node:
        if node.op_type not in OPERATORS:
            continue
        of_layer = learned.get(node.input[1].removesuffix(".weight"), {})
        for which, tensor in (("taken", node.input[0]), ("given", node.output[0])):
            if which in of_layer:
                found[tensor] = tuple(np.float32(end) for end in of_layer[which])
    return found


def measure_ranges(
    core: onnx.ModelProto, tensors: list[str], rows: NDArray[Any]
) -> dict[str, Any]:
    """Return the smallest and largest value (float32 both) of each of ``tensors`` over ``rows``.

    Raises:
        WorkloadError: there are no rows, or a value is infinite or not a number.
    """
    if len(rows) == 0:
        raise WorkloadError("there are no training rows to calibrate the quantisation with")
    session = _probe(core, tensors)
    low = {name: np.float32(np.inf) for name in tensors}
    high = {name: np.float32(-np.inf) for name in tensors}
    computed = [name for name in tensors if name != INPUT]
    at_once = _BATCH if rows.dtype.kind == "f" else _WINDOWS
    for start in range(0, len(rows), at_once):
        batch = rows[start : start + at_once]
        outputs = cast("list[NDArray[np.float32]]", session.run(computed, core_feed(batch)))
        values = dict(zip(computed, outputs, strict=True))
        values[INPUT] = batch
        for name in tensors:
            low[name] = min(low[name], values[name].min())
            high[name] = max(high[name], values[name].max())
            if not (np.isfinite(low[name]) and np.isfinite(high[name])):
                raise WorkloadError(
                    f"the model computes infinite or undefined values on training rows ({name}): "
                    "it can't be quantised; train again with a lower --learning-rate"
                )
    return {name: (low[name], high[name]) for name in tensors}


def _between_computed(core: onnx.ModelProto) -> list[str]:
    """Names of the products of a language model without a weight: those with keys and values.

    In 8 bits all of the past would be made 8 bits wide again with each token.
    """
    if not any(value.name == FILLED for value in core.graph.input):
        return []
    given = {value.name for value in core.graph.input}
    weights = {item.name for item in core.graph.initializer} - given
    return [
        node.name
        for node in core.graph.node
        if node.op_type in OPERATORS and weights.isdisjoint(node.input)
    ]


def _activations(core: onnx.ModelProto) -> list[str]:
    constants = {item.name for item in core.graph.initializer}
    left_out = set(_between_computed(core))
    touched = [
        name
        for node in core.graph.node
        if node.op_type in OPERATORS and node.name not in left_out
        for name in (*node.input, *node.output)
        if name and name not in constants
    ]
    return list(dict.fromkeys(touched))


def _probe(core: onnx.ModelProto, tensors: list[str]) -> onnxruntime.InferenceSession:
    """Open ``core`` with ``tensors`` as further outputs, unoptimised so that all of them exist."""
    probe = onnx.ModelProto.FromString(core.SerializeToString())
    known = {value.name: value for value in (*probe.graph.value_info, *probe.graph.output)}
    present = {value.name for value in (*probe.graph.output, *probe.graph.input)}
    for name in tensors:
        if name not in present:
            probe.graph.output.append(known[name])
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(
        probe.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
