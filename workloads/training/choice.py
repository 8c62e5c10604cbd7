"""Which model of a table is kept, and how its probabilities are made to fit the rows.

Both are judged, and the kept one is calibrated, on the validation rows, which neither learned
from. The held-out rows are not looked at.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from falaj.workloads.training import trees
from falaj.workloads.training.batches import PreparedData
from falaj.workloads.training.loop import predict
from falaj.workloads.training.models import TableNetwork
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.tensors import backward, numbers_of
from falaj.workloads.training.trees import TableTrees

#: How far from 1 and 0 scale (its logarithm) and shifts lie beforehand: few rows move them little.
_SCALE_DEVIATION: Final = 0.5
_SHIFT_DEVIATION: Final = 1.0
_STEPS: Final = 100


def choose(
    prepared: PreparedData, network: nn.Module, parameters: Parameters
) -> tuple[PreparedData, nn.Module, dict[str, Any]]:
    """Return data, model and figures of what is kept; models other than tables' stay as they are.

    Args:
        prepared: the rows.
        network: trained; it is calibrated in its place.
        parameters: the run's.

    Returns:
        ``prepared`` with the architecture of what is kept; the module, on the CPU; and
        ``kept`` (``network``, ``trees``, the name of a light network of images, or ``own`` of a
        team's own); of a table's each one's
        ``loss`` on the validation rows before the calibration, ``factor`` and ``shift`` of the
        calibration.
    """
    if parameters.own is not None:
        return prepared, network, {"kept": "own"}
    if not isinstance(network, TableNetwork):
        return prepared, network, {"kept": prepared.architecture.network or "network"}
    kept: TableNetwork | TableTrees = network.cpu().eval()
    is_classified = prepared.target_scale is None
    features, labels, _ = (tensor.cpu() for tensor in prepared.validation)
    losses = {"network": _loss(predict(kept, features), labels, is_classified)}
    classes = prepared.architecture.outputs if is_classified else None
    small = len(prepared.fit_weights) <= trees.MOST_ROWS and (classes or 1) <= trees.MOST_CLASSES
    if parameters.model == "auto" and small:
        fit = (prepared.fit[0].cpu(), prepared.fit[1].cpu())
        forest, losses["trees"] = trees.grow(
            fit, prepared.fit_weights, (features, labels), classes=classes,
            seed=parameters.seed, threads=parameters.threads,
        )  # fmt: skip
        if losses["trees"] < losses["network"]:
            kept = TableTrees.of(forest).eval()
            count, nodes = forest.feature.shape
            architecture = replace(prepared.architecture, trees=count, nodes=nodes)
            prepared = replace(prepared, architecture=architecture)
    figures: dict[str, Any] = {
        "kept": "trees" if isinstance(kept, TableTrees) else "network",
        "loss": losses,
    }
    if is_classified:
        factor, shift = calibration(predict(kept, features), labels)
        kept.rescale(factor, shift)
        figures |= {"factor": factor, "shift": numbers_of(shift)}
    return prepared, kept, figures


def calibration(logits: Tensor, labels: Tensor) -> tuple[float, Tensor]:
    """Return the factor and the shifts (classes,) with which logits fit the rows best.

    Temperature scaling with a bias (vector scaling of one temperature; Guo, Pleiss, Sun,
    Weinberger, 2017, https://arxiv.org/abs/1706.04599), held near "no change" by normal priors.

    Args:
        logits: of rows that weren't learned from, (rows, classes).
        labels: their classes, (rows,).
    """
    given = logits.detach().double()
    logarithm = torch.zeros((), dtype=torch.float64, requires_grad=True)
    shift = torch.zeros(given.shape[1], dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [logarithm, shift], max_iter=_STEPS, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        optimiser.zero_grad()
        total = functional.cross_entropy(logarithm.exp() * given + shift, labels, reduction="sum")
        total = total + (logarithm / _SCALE_DEVIATION) ** 2 / 2
        total = total + ((shift / _SHIFT_DEVIATION) ** 2).sum() / 2
        backward(total)
        return total

    cast("Any", optimiser).step(loss)
    return float(logarithm.detach().exp()), shift.detach().float()


def _loss(outputs: Tensor, labels: Tensor, is_classified: bool) -> float:
    if is_classified:
        return float(functional.cross_entropy(outputs, labels))
    return float(functional.mse_loss(outputs.squeeze(1), labels))
