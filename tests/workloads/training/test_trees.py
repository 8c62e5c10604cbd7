"""Trees beside the network, and probabilities that fit the rows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.nn import functional

from falaj.workloads.optimization.comparison import open_session
from falaj.workloads.optimization.export import check_model, export_module
from falaj.workloads.training import trees
from falaj.workloads.training.choice import calibration
from falaj.workloads.training.models import Architecture, TableNetwork, build
from falaj.workloads.training.trees import TableTrees


def meeting(rows: int, classes: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Classes that follow from two columns together, and from neither alone."""
    random = np.random.default_rng(seed)
    features = random.normal(size=(rows, 4)).astype(np.float32)
    quadrant = (features[:, 0] > 0).astype(int) + 2 * (features[:, 1] > 0)
    labels = np.where(np.isin(quadrant, (0, 3)), 0, 1) if classes == 2 else quadrant % classes
    return torch.from_numpy(features), torch.from_numpy(labels.astype(np.int64))


def grown(classes: int | None, rows: int = 600) -> tuple[TableTrees, torch.Tensor, torch.Tensor]:
    fit, unseen = meeting(rows, classes or 2), meeting(200, classes or 2, 2)
    if classes is None:
        fit, unseen = ((f, label.float() * 3 - 1) for f, label in (fit, unseen))
    weights: NDArray[np.float32] = np.ones(rows, dtype=np.float32)
    forest, loss = trees.grow(fit, weights, unseen, classes=classes, seed=0)
    module = TableTrees.of(forest)
    outputs = module(unseen[0])
    again = (
        functional.mse_loss(outputs.squeeze(1), unseen[1])
        if classes is None
        else functional.cross_entropy(outputs, unseen[1])
    )
    # The module computes what scikit-learn measured.
    assert float(again) == pytest.approx(loss, abs=1e-4)
    return module, *unseen


@pytest.mark.parametrize("classes", [2, 3, 4, None])
def test_the_graph_computes_what_the_module_does(classes: int | None) -> None:
    module, features, _ = grown(classes)
    module.rescale(0.8, torch.arange(1.0, len(module.forest().base) + 1))
    core = export_module(module, (4,))
    check_model(core.SerializeToString())
    (given,) = open_session(core.SerializeToString()).run(None, {"input": features.numpy()})
    np.testing.assert_allclose(given, module(features).numpy(), atol=1e-5)


def test_columns_that_meet_are_learned() -> None:
    module, features, labels = grown(2)
    assert float((module(features).argmax(1) == labels).float().mean()) > 0.95


def test_trees_are_kept_as_tensors() -> None:
    module, features, _ = grown(3)
    forest = module.forest()
    architecture = Architecture("table", (4,), 3, 64, trees=len(forest.output),
                                nodes=forest.feature.shape[1])  # fmt: skip
    again = build(Architecture.from_json(architecture.to_json()))
    again.load_state_dict(module.state_dict())
    assert torch.equal(again(features), module(features))


def test_few_rows_are_enough_to_grow() -> None:
    module, features, _ = grown(2, rows=24)
    assert module(features).isfinite().all()


@pytest.mark.parametrize("kind", ["network", "trees"])
def test_rescaling_changes_the_outputs_alone(kind: str) -> None:
    module, features, _ = grown(3)
    if kind == "network":
        module = TableNetwork(Architecture("table", (4,), 3, 8))
        with torch.no_grad():
            module.straight.weight.normal_()
    before, shift = module(features), torch.tensor([1.0, -2.0, 0.5])
    module.rescale(0.5, shift)
    torch.testing.assert_close(module(features), before * 0.5 + shift, atol=1e-5, rtol=1e-5)


def test_calibration_makes_the_mean_the_share() -> None:
    """Of a rare class that is said four times too often, as weights in the loss make it."""
    random = np.random.default_rng(5)
    score = torch.from_numpy(random.normal(size=20_000))
    truth = torch.sigmoid(2 * score - 5)
    labels = (torch.from_numpy(random.random(20_000)) < truth).long()
    logits = torch.stack([torch.zeros(20_000), 3 * (2 * score - 5) + 6], dim=1)
    factor, shift = calibration(logits[:10_000], labels[:10_000])
    fitted = torch.softmax(factor * logits[10_000:] + shift, dim=1)[:, 1]
    assert float(torch.softmax(logits, dim=1)[:, 1].mean()) > 0.06
    assert float(fitted.mean()) == pytest.approx(float(labels[10_000:].float().mean()), abs=0.006)
    assert factor == pytest.approx(1 / 3, abs=0.05)


def test_few_rows_hardly_change_probabilities() -> None:
    factor, shift = calibration(torch.tensor([[0.0, 2.0], [2.0, 0.0]]), torch.tensor([1, 0]))
    assert factor == pytest.approx(1, abs=0.2)
    assert shift.abs().max() < 0.1
