"""Graphs of our own small networks of tables and pictures, written layer by layer.

PyTorch's exporter writes the same graphs of them, operator by operator. But it loads PyTorch's
compiler, which takes two seconds where such a graph takes milliseconds. What isn't known here,
such as a layer of another class, is left to it.
"""

from __future__ import annotations

from typing import Any, Final, cast

import numpy as np
import onnx
from onnx import TensorProto, helper
from torch import Tensor, nn

from falaj.workloads.optimization.graph_part import GraphPart
from falaj.workloads.training.linear import TableLinear
from falaj.workloads.training.models import ConvolutionalNetwork, TableNetwork
from falaj.workloads.training.tensors import modules_of

_LAYERS: Final = (nn.Linear, nn.Conv2d, nn.ReLU, nn.MaxPool2d, nn.Flatten)


def graph_of(
    module: nn.Module, shape: tuple[int, ...], source: str, output: str, batch: str
) -> onnx.GraphProto | None:
    """Write the graph of a module, or None where it isn't one of those that are known.

    Args:
        module: in evaluation mode.
        shape: one row's shape.
        source: name of the input, float32 (N, *shape).
        output: name of the output, float32 (N, outputs).
        batch: name of the free first axis.

    Returns:
        A graph whose weights have the names of the module's parameters.
    """
    inner = [layer for path, layer in modules_of(module) if path]
    if any(type(layer) not in (*_LAYERS, nn.Sequential) for layer in inner):
        return None
    part = GraphPart("")
    if type(module) is TableLinear:
        last: nn.Module = module
        _layer(part, module, "", source, output)
    elif type(module) is TableNetwork:
        last = module.straight
        deep = _row(part, module.deep, "deep", source, "deep")
        part.node("Add", [deep, _layer(part, last, "straight.", source, "straight")], output)
    elif type(module) is ConvolutionalNetwork:
        last = module.layers[-1]
        scale = part.constant("scale", np.array(module.scale, np.float32))
        _row(part, module.layers, "layers", part.node("Mul", [source, scale], "scaled"), output)
    else:
        return None
    given = cast("nn.Linear", last).out_features
    return helper.make_graph(
        part.nodes,
        "layers",
        [helper.make_tensor_value_info(source, TensorProto.FLOAT, [batch, *shape])],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, [batch, given])],
        part.initializers,
    )


def _row(part: GraphPart, layers: nn.Sequential, path: str, source: str, output: str) -> str:
    """Add layers of which each takes what the one before gives; return ``output``."""
    last = len(layers) - 1
    for place, layer in enumerate(layers):
        name = output if place == last else f"{path}.{place}"
        source = _layer(part, layer, f"{path}.{place}.", source, name)
    return source


def _layer(part: GraphPart, layer: nn.Module, path: str, source: str, output: str) -> str:
    """Add a layer, whose parameters' names begin with ``path``; return ``output``."""
    taken = [source]
    for name in ("weight", "bias"):
        values: Tensor | None = getattr(layer, name, None)
        if values is not None:
            taken.append(part.constant(f"{path}{name}", values.detach().cpu().numpy()))
    if isinstance(layer, nn.Flatten):
        # So many numbers as there are, for any number of rows.
        taken.append(part.constant(f"{path}shape", np.array([0, -1])))
    operator, attributes = _operator(layer)
    return part.node(operator, taken, output, **attributes)


def _operator(layer: nn.Module) -> tuple[str, dict[str, Any]]:
    """The standard's operator of a layer, and its attributes that aren't the usual ones."""
    match layer:
        case nn.Linear():
            return "Gemm", {"transB": 1}
        case nn.Conv2d():
            return "Conv", {
                "kernel_shape": layer.kernel_size, "strides": layer.stride,
                "pads": [*cast("tuple[int, int]", layer.padding)] * 2,
                "dilations": layer.dilation, "group": layer.groups,
            }  # fmt: skip
        case nn.MaxPool2d():
            side, stride = cast("int", layer.kernel_size), cast("int", layer.stride)
            return "MaxPool", {"kernel_shape": [side] * 2, "strides": [stride] * 2}
        case nn.Flatten():
            return "Reshape", {}
        case _:
            return "Relu", {}
