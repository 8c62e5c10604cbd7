"""Graphs that are written layer by layer against those that PyTorch's exporter writes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from falaj.workloads.optimization.comparison import open_session
from falaj.workloads.optimization.export import INPUT, OUTPUT, export_module
from falaj.workloads.optimization.layers import graph_of
from falaj.workloads.training.linear import NAME
from falaj.workloads.training.models import Architecture, build
from falaj.workloads.training.pruning import narrow

LINEAR = Architecture("table", (5,), 3, 8, network=NAME)
NETWORK = Architecture("table", (5,), 3, 8)
NUMBER = Architecture("table", (1,), 1, 4)
PICTURES = Architecture("images", (3, 9, 12), 4, 5, largest=255.0)
KNOWN = (LINEAR, NETWORK, NUMBER, PICTURES)


def made(architecture: Architecture) -> nn.Module:
    """A module of which no number is 0: the exporter leaves a bias of zeros out."""
    torch.manual_seed(3)
    module = build(architecture).eval().requires_grad_(False)
    for parameter in module.parameters():
        parameter.copy_(torch.randn(parameter.shape))
    return module


def answers(
    core: onnx.ModelProto, rows: np.ndarray[tuple[int, ...], np.dtype[np.float32]]
) -> object:
    return open_session(core.SerializeToString()).run([OUTPUT], {INPUT: rows})[0]


@pytest.mark.parametrize("architecture", KNOWN, ids=["linear", "network", "number", "pictures"])
def test_it_is_what_the_exporter_writes(architecture: Architecture) -> None:
    module, shape = made(architecture), architecture.shape
    written = export_module(module, shape)
    # In something else, the module isn't known.
    assert graph_of(nn.Sequential(module), shape, INPUT, OUTPUT, "batch") is None
    exported = export_module(nn.Sequential(module), shape)
    operators = [[node.op_type for node in core.graph.node] for core in (written, exported)]
    assert operators[0] == operators[1]
    assert [written.opset_import, written.ir_version] == [
        exported.opset_import,
        exported.ir_version,
    ]
    assert written.graph.input == exported.graph.input
    assert written.graph.output == exported.graph.output
    weights = {each.name: onnx.numpy_helper.to_array(each) for each in written.graph.initializer}
    for name, parameter in module.state_dict().items():
        np.testing.assert_array_equal(weights[name], parameter.numpy())
    for count in (1, 2, 33):
        rows = np.random.default_rng(count).normal(size=(count, *shape)).astype(np.float32)
        np.testing.assert_array_equal(answers(written, rows), answers(exported, rows))


@given(
    st.integers(1, 4), st.integers(6, 15), st.integers(6, 15), st.integers(2, 5),
    st.integers(1, 6),
)  # fmt: skip
def test_pictures_of_any_size_are_answered_as_the_module_does(
    channels: int, height: int, width: int, classes: int, units: int
) -> None:
    shape = (channels, height, width)
    module = made(Architecture("images", shape, classes, units, largest=16.0))
    rows = np.random.default_rng(units).normal(size=(3, *shape)).astype(np.float32)
    wanted = module(torch.from_numpy(rows)).numpy()
    found = answers(export_module(module, shape), rows)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * max(1, np.abs(wanted).max()))


def test_units_that_were_taken_out_are_missing() -> None:
    module = made(NETWORK)
    narrow(module, (3, 2))
    rows = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    core = export_module(module, (5,))
    shapes = {each.name: tuple(each.dims) for each in core.graph.initializer}
    assert (shapes["deep.0.weight"], shapes["deep.2.weight"]) == ((3, 5), (2, 3))
    np.testing.assert_allclose(answers(core, rows), module(torch.from_numpy(rows)), rtol=1e-4)


class Doubled(nn.Linear):
    """A layer that computes something else than the class that it is of."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def test_a_layer_of_another_class_is_left_to_the_exporter() -> None:
    module = made(NETWORK)
    module.get_submodule("deep")[2] = Doubled(8, 8)  # pyright: ignore[reportIndexIssue]
    assert graph_of(module, (5,), INPUT, OUTPUT, "batch") is None
    rows = np.random.default_rng(1).normal(size=(4, 5)).astype(np.float32)
    wanted = module(torch.from_numpy(rows)).detach()
    np.testing.assert_allclose(answers(export_module(module, (5,)), rows), wanted, rtol=1e-4)
