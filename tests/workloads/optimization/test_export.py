"""Exported graphs against the torch modules they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.comparison import check_parity, core_rows, open_session
from falaj.workloads.optimization.export import (
    Serving,
    assemble,
    describe_inputs,
    describe_outputs,
    export_module,
)
from falaj.workloads.optimization.pipeline import serving_of
from falaj.workloads.training.checkpoint import load_rows, load_trained
from falaj.workloads.training.models import (
    Architecture,
    CategoricalColumn,
    NumericColumn,
    TablePreprocessing,
    build,
)


def network() -> nn.Module:
    torch.manual_seed(1)
    return build(Architecture("images", (1, 8, 8), 3, 4, 16.0)).eval().requires_grad_(False)


IMAGES = Serving("images", None, (1, 8, 8), ["a", "b", "c"], text_labels=False, target=None)


@pytest.fixture(scope="module")
def core() -> onnx.ModelProto:
    return export_module(network(), (1, 8, 8))


def pixels(rows: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    random = np.random.default_rng(rows)
    return random.integers(0, 17, (rows, 1, 8, 8)).astype(np.float32)


@pytest.mark.parametrize("rows", [1, 2, 7, 300])
def test_any_number_of_rows_gives_the_modules_answers(core: onnx.ModelProto, rows: int) -> None:
    model = assemble(core, IMAGES).SerializeToString()
    assert check_parity(model, network(), IMAGES, {"image": pixels(rows)}) < 1e-5


def test_probabilities_sum_to_one_and_the_label_is_the_largest(core: onnx.ModelProto) -> None:
    session = open_session(assemble(core, IMAGES).SerializeToString())
    probabilities, label = session.run(["probabilities", "label"], {"image": pixels(20)})
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert label.tolist() == probabilities.argmax(axis=1).tolist()
    assert label.shape == (20,)


def test_other_weights_are_noticed(core: onnx.ModelProto) -> None:
    changed = onnx.ModelProto.FromString(core.SerializeToString())
    largest = max(changed.graph.initializer, key=lambda item: item.ByteSize())
    values = onnx.numpy_helper.to_array(largest) * 1.5
    largest.CopyFrom(onnx.numpy_helper.from_array(values, largest.name))
    model = assemble(changed, IMAGES).SerializeToString()
    with pytest.raises(WorkloadError, match="differ from the trained module's"):
        check_parity(model, network(), IMAGES, {"image": pixels(20)})


def test_a_module_that_diverged_is_noticed(core: onnx.ModelProto) -> None:
    module = network()
    for parameter in module.parameters():
        parameter.fill_(float("nan"))
    model = assemble(core, IMAGES).SerializeToString()
    with pytest.raises(WorkloadError, match="lower --learning-rate"):
        check_parity(model, module, IMAGES, {"image": pixels(4)})


class Undecided(nn.Module):
    """Goes another way for other values, which no graph of this kind can."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if float(x.sum()) > 0 else -x


def test_a_module_that_cannot_be_exported_is_a_clear_error() -> None:
    with pytest.raises(WorkloadError, match="can't be exported to ONNX"):
        export_module(Undecided(), (2,))


def test_the_graph_tells_nothing_of_this_machine(core: onnx.ModelProto) -> None:
    data = assemble(core, IMAGES).SerializeToString()
    assert b".py" not in data
    assert b"/home" not in data
    assert b"torch" not in data


def test_inputs_and_outputs_are_described_as_the_protocol_does(core: onnx.ModelProto) -> None:
    model = assemble(core, IMAGES)
    assert describe_inputs(model, IMAGES) == [
        {"name": "image", "datatype": "FP32", "shape": [-1, 1, 8, 8]}
    ]
    assert describe_outputs(model, IMAGES) == [
        {"name": "probabilities", "datatype": "FP32", "shape": [-1, 3], "role": "probabilities"},
        {"name": "label", "datatype": "INT64", "shape": [-1], "role": "label"},
    ]


RECIPE = TablePreprocessing(
    [NumericColumn("prediction", 1.0, 2.0, 3.0)],
    [CategoricalColumn("label", ["gold"]), CategoricalColumn("falaj/core/input", ["دبي"])],
)


@pytest.fixture(scope="module")
def table_core() -> onnx.ModelProto:
    return export_module(table_network(2), (RECIPE.width,))


def table_network(outputs: int) -> nn.Module:
    torch.manual_seed(1)
    module = build(Architecture("table", (RECIPE.width,), outputs, 4))
    return module.eval().requires_grad_(False)


ROWS = {
    "prediction": np.array([[np.nan], [4.0], [-1.0]], dtype=np.float32),
    "label": np.array([["gold"], [""], ["new"]], dtype=object),
    "falaj/core/input": np.array([["دبي"], ["دبي"], [""]], dtype=object),
}


def test_columns_called_like_outputs_or_inner_names_do_no_harm(
    table_core: onnx.ModelProto,
) -> None:
    serving = Serving(
        "table", RECIPE, (RECIPE.width,), ["no", "نعم"], text_labels=True, target=None
    )
    model = assemble(table_core, serving)
    outputs = {item["role"]: item["name"] for item in describe_outputs(model, serving)}
    assert outputs == {"probabilities": "probabilities", "label": "predicted_label"}
    data = model.SerializeToString()
    assert check_parity(data, table_network(2), serving, ROWS) < 1e-5
    (labels,) = open_session(data).run(["predicted_label"], ROWS)
    assert set(labels.tolist()) <= {"no", "نعم"}


def test_a_regression_answers_in_real_units() -> None:
    module = table_network(1)
    serving = Serving(
        "table", RECIPE, (RECIPE.width,), None, text_labels=False, target=(1000.0, 50.0)
    )
    model = assemble(export_module(module, (RECIPE.width,)), serving)
    (given,) = open_session(model.SerializeToString()).run(["predicted_prediction"], ROWS)
    with torch.no_grad():
        wanted = module(torch.from_numpy(core_rows(serving, ROWS))).numpy() * 50 + 1000
    np.testing.assert_allclose(given, wanted, rtol=1e-6)
    assert given.shape == (3, 1)


def test_a_trained_tables_graph_takes_raw_rows(customers: Any) -> None:
    trained = load_trained(customers.path, None)
    rows = load_rows(customers.dataset, None, "held_out")
    serving = serving_of(trained, rows)
    model = assemble(export_module(trained.module, serving.shape), serving)
    inputs = describe_inputs(model, serving)
    assert {(item["datatype"], item.get("missing")) for item in inputs} == {
        ("FP32", True), ("BYTES", None),
    }  # fmt: skip
    data = model.SerializeToString()
    assert check_parity(data, trained.module, serving, rows.inputs) < 1e-5
