"""A package of a language model opened as Llama's folder, in memory, as vLLM loads it.

::

    <target>/<model>/config.json
    <target>/<model>/model.safetensors

What a package holds is a graph. Its products are followed from what is known of them, the keys and
values that each layer gives and the gate of its units, so that no name of an exporter's decides
which matrix is which. A graph of which anything isn't found is refused.

Nothing here is code, and there is no vocabulary: who runs it is asked for tokens by their numbers.
https://huggingface.co/docs/safetensors/index#format,
https://docs.vllm.ai/en/latest/models/supported_models/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, numpy_helper

from falaj.workloads.chat import template_of
from falaj.workloads.documents import is_sequence, mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import make_private_folder, storage_errors, write_atomic
from falaj.workloads.inference.models import model
from falaj.workloads.llama_form import (
    CONFIGURATION,
    EMBEDDING,
    HEAD,
    NORM,
    WEIGHTS,
    LlamaShape,
    configuration,
    of_layer,
)
from falaj.workloads.registry.package import Package
from falaj.workloads.registry.triton_layout import MODEL_FILE, remove_repository
from falaj.workloads.remembering import LOGITS, layers_of, past_names, present_of

Weights = dict[str, NDArray[np.float32]]
"""By Llama's names, each (out, in), or (numbers,) of a norm."""

_LANGUAGE: Final = "language"
_MATRIX: Final = 2
_SMALL: Final = frozenset(
    {TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4}
)
"""Types of weights that were quantised."""
_OF_A_LAYER: Final = 7
"""Its matrices."""
_AFTER: Final = 1
"""Places beyond the tokens that are looked back on: what a full window is followed by counts for
vLLM as one more, though it is never looked back on."""
_READ_ONLY, _READ_ONLY_FOLDER = 0o400, 0o500


def write_folder(package: Package, target: Path, most_tokens: int | None = None) -> Path:
    """Write the folder; only its owner can read it, and nobody write. Returns it.

    An older one of the same model is replaced: after a restart the same is made again.

    Args:
        package: of a language model.
        target: where, in memory.
        most_tokens: that a text may have in vLLM. Default: those of a whole window, and one.

    Raises:
        IntegrityError: the package isn't what was signed.
        InferenceError: the graph is one that isn't served.
        WorkloadError: the package isn't of a language model whose weights are as they were
            learned, it can't look back as far, or the target can't be written.
    """
    who = f"{package.model} version {package.version}"
    context = _context(package.manifest, who)
    if most_tokens is not None and most_tokens > context + _AFTER:
        raise WorkloadError(
            f"{who} looks back on {context} tokens, so that its texts have {context + _AFTER} in "
            f"vLLM at most, and {most_tokens} were asked for: ask for fewer, or leave it out"
        )
    content = package.read(MODEL_FILE)
    model.check(content)
    weights, shape = weights_of(content, context, who)
    del content
    folder = target / package.model
    make_private_folder(target)
    with storage_errors(folder):
        remove_repository(folder)
    make_private_folder(folder)
    template = template_of(package.manifest["dataset"])
    end = template.end if template is not None else None
    said = configuration(shape, end, is_tied=HEAD not in weights)
    said["max_position_embeddings"] = context + _AFTER
    write_atomic(folder / CONFIGURATION, json.dumps(said, indent=1).encode(), _READ_ONLY)
    with storage_errors(folder):
        with (folder / WEIGHTS).open("xb") as file:
            (folder / WEIGHTS).chmod(_READ_ONLY)
            file.writelines(_safetensors(weights))
        folder.chmod(_READ_ONLY_FOLDER)
    return folder


def _context(manifest: Mapping[str, Any], who: str) -> int:
    inputs = manifest.get("inputs")
    found = mapping(inputs[0]).get("context") if is_sequence(inputs) and inputs else None
    if manifest.get("task") != _LANGUAGE or not isinstance(found, int):
        raise WorkloadError(
            f"{who} is no language model, and vLLM runs no other: the layout 'triton' is for it"
        )
    return found


def _safetensors(weights: Weights) -> Iterator[bytes]:
    """The file: the header's length, the header, and the numbers one after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, each in weights.items():
        end = begin + each.nbytes
        header[name] = {"dtype": "F32", "shape": list(each.shape), "data_offsets": [begin, end]}
        begin = end
    said = json.dumps(header, separators=(",", ":")).encode()
    said += b" " * (-len(said) % 8)
    yield len(said).to_bytes(8, "little")
    yield said
    for each in weights.values():
        yield np.ascontiguousarray(each, dtype="<f4").tobytes()


@dataclass(frozen=True, eq=False)
class _Product:
    """A product with a matrix that was learned."""

    given: str
    weight: NDArray[np.float32]
    """(in, out), as it stands in the graph."""
    found: str


class _Graph:
    """A graph, and what its tensors come from and go to."""

    def __init__(self, content: bytes) -> None:
        graph = onnx.ModelProto.FromString(content).graph
        self.nodes: list[NodeProto] = list(graph.node)
        self.inputs = [each.name for each in graph.input]
        self.learned = {
            each.name: each for each in graph.initializer if each.data_type == TensorProto.FLOAT
        }
        self.has_bytes = any(
            each.data_type in _SMALL and len(each.dims) >= _MATRIX for each in graph.initializer
        )
        self._makers = {name: node for node in self.nodes for name in node.output}
        self._takers: dict[str, list[NodeProto]] = {}
        for node in self.nodes:
            for name in node.input:
                self._takers.setdefault(name, []).append(node)

    def numbers(self, name: str, dimensions: int) -> NDArray[np.float32] | None:
        """What was learned by a name; None: nothing of so many dimensions was."""
        found = self.learned.get(name)
        if found is None or len(found.dims) != dimensions:
            return None
        return np.asarray(numpy_helper.to_array(found), dtype=np.float32)

    def products(self) -> list[_Product]:
        """All with a matrix that was learned, in the order of the graph."""
        found: list[_Product] = []
        for node in self.nodes:
            if node.op_type == "MatMul":
                weight = self.numbers(node.input[1], _MATRIX)
                if weight is not None:
                    found.append(_Product(node.input[0], weight, node.output[0]))
        return found

    def tables(self) -> list[NDArray[np.float32]]:
        """Matrices that rows are taken out of."""
        found = [
            self.numbers(node.input[0], _MATRIX) for node in self.nodes if node.op_type == "Gather"
        ]
        return [each for each in found if each is not None]

    def goes_to(self, name: str, operator: str) -> bool:
        """Whether an operator of this type takes a tensor."""
        return any(node.op_type == operator for node in self._takers.get(name, []))

    def origins(self, name: str, among: set[str]) -> set[str]:
        """Those of some tensors that one comes from, and nothing that these come from."""
        found: set[str] = set()
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            if each in among:
                found.add(each)
            elif each in self._makers:
                waiting += self._makers[each].input
        return found

    def scale(self, name: str) -> NDArray[np.float32] | None:
        """What a norm that gives a tensor was taught; None: it is no norm's."""
        node = self._makers.get(name)
        if node is None or node.op_type != "Mul":
            return None
        found = [self.numbers(each, 1) for each in node.input]
        return next((each for each in found if each is not None), None)


def weights_of(content: bytes, context: int, who: str) -> tuple[Weights, LlamaShape]:
    """Return what a decoder's graph was taught, by Llama's names, and how large it is.

    Args:
        content: of the graph.
        context: tokens that are looked back on.
        who: the model and the version, for errors.

    Raises:
        WorkloadError: the weights aren't those of a decoder, as they were learned.
    """
    graph = _Graph(content)
    if graph.has_bytes:
        raise WorkloadError(
            f"the weights of {who} have 8 or 4 bits each, in ONNX Runtime's form, which vLLM "
            "doesn't read: publish a version with quantise 'never' "
            "(falaj:optimization.quantise, or "
            "--quantise never of falaj.workloads.optimization), and serve that one"
        )
    layers = layers_of(graph.inputs)
    products = graph.products()
    if not layers or len(products) != layers * _OF_A_LAYER + 1:
        raise _unknown(who, "its graph isn't that of a decoder that is told the past")
    by_output = {each.found: each for each in products}
    weights: Weights = {}
    for number in range(layers):
        own = products[number * _OF_A_LAYER : (number + 1) * _OF_A_LAYER]
        weights |= _layer(graph, number, own, by_output, who)
    head = products[-1]
    norm = graph.scale(head.given)
    if head.found != LOGITS or norm is None:
        raise _unknown(who, f"'{LOGITS}' aren't its last product")
    tokens = next((each for each in graph.tables() if each.shape == head.weight.T.shape), None)
    if tokens is None:
        raise _unknown(who, "it has no matrix of tokens")
    weights = {EMBEDDING: tokens, **weights, NORM: norm}
    if not np.array_equal(tokens, head.weight.T):
        weights[HEAD] = head.weight.T
    return weights, _shape(graph, context, weights, layers, who)


def _layer(
    graph: _Graph,
    number: int,
    products: Sequence[_Product],
    by_output: Mapping[str, _Product],
    who: str,
) -> Weights:
    """What one layer was taught."""
    of_keys, of_values = (
        graph.origins(present_of(name), set(by_output))
        for name in past_names(number + 1)[2 * number :]
    )
    if len(of_keys) != 1 or len(of_values) != 1:
        raise _unknown(who, f"keys or values of its layer {number} come from no one matrix")
    parts = {
        "attention.keys": by_output[of_keys.pop()], "attention.values": by_output[of_values.pop()]
    }  # fmt: skip
    seen = parts["attention.keys"].given
    left = [each for each in products if each not in parts.values()]
    gates = [each for each in left if graph.goes_to(each.found, "Sigmoid")]
    asking = [each for each in left if each.given == seen]
    if len(gates) == len(asking) == 1 and parts["attention.values"].given == seen:
        (gate,), (questions,) = gates, asking
        ups = [each for each in left if each.given == gate.given and each is not gate]
        others = [each for each in left if each.given not in (seen, gate.given)]
        before, between = graph.scale(seen), graph.scale(gate.given)
        # The units are fed with what comes from attention, and give what they don't come from.
        fed = graph.origins(gate.given, {each.found for each in others})
        outs = [each for each in others if each.found in fed]
        downs = [each for each in others if each.found not in fed]
        if len(ups) == len(outs) == len(downs) == 1 and before is not None and between is not None:
            parts |= {
                "attention.questions": questions, "attention.out": outs[0], "units.gate": gate,
                "units.up": ups[0], "units.down": downs[0],
            }  # fmt: skip
            return {
                **{of_layer(number, part): each.weight.T for part, each in parts.items()},
                of_layer(number, "before"): before,
                of_layer(number, "between"): between,
            }
    raise _unknown(who, f"its layer {number} isn't a decoder's")


def _shape(graph: _Graph, context: int, weights: Weights, layers: int, who: str) -> LlamaShape:
    """How large the model is, once every matrix has the size that follows from the others."""
    tokens, width = weights[EMBEDDING].shape
    units = weights[of_layer(0, "units.gate")].shape[0]
    past = graph.learned.get(past_names(1)[0])
    if past is None or len(past.dims) != 4:
        raise _unknown(who, "its past has no default")
    shared, size = past.dims[1], past.dims[3]
    wanted = {
        "before": (width,), "between": (width,), "attention.questions": (width, width),
        "attention.keys": (shared * size, width), "attention.values": (shared * size, width),
        "attention.out": (width, width), "units.gate": (units, width), "units.up": (units, width),
        "units.down": (width, units),
    }  # fmt: skip
    for number in range(layers):
        for part, sizes in wanted.items():
            found = weights[of_layer(number, part)].shape
            if found != sizes:
                raise _unknown(
                    who, f"'{part}' of its layer {number} has the sizes {found}, not {sizes}"
                )
    return LlamaShape(
        tokens=tokens, width=width, units=units, layers=layers, heads=width // size,
        key_value_heads=shared, context=context,
    )  # fmt: skip


def _unknown(who: str, reason: str) -> WorkloadError:
    return WorkloadError(
        f"{who} can't be opened for vLLM: {reason}. Train or optimise it again, and serve the new "
        "version"
    )
