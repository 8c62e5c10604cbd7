"""The simplest model of a table: a weighted sum of its features, learned by scikit-learn.

Logistic regression of classes and ridge regression of numbers, both with the strength of their
penalty that scikit-learn has where nothing else is said: features are standardised.
"""

from __future__ import annotations

import warnings
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from falaj.workloads.training.tensors import tensor_of

NAME: Final = "linear"
"""Of the model, in records and as a network's name."""

_PENALTY: Final = 1.0
_STEPS: Final = 1_000


class TableLinear(nn.Linear):
    """Adds up features, each times a weight.

    Args:
        features: of a row.
        outputs: the number of classes, or 1 for a regression.
    """

    def rescale(self, factor: float, shift: Tensor) -> None:
        """Multiply the outputs by ``factor`` and add ``shift`` (outputs,) to them."""
        rescale_linear(self, factor, shift)


def rescale_linear(layer: nn.Linear, factor: float, shift: Tensor | float = 0.0) -> None:
    """Multiply what a layer with a bias gives by ``factor``, and add ``shift`` to it."""
    with torch.no_grad():
        layer.weight.mul_(factor)
        layer.bias.mul_(factor).add_(shift)


def fit_linear(
    rows: tuple[Tensor, Tensor], weights: NDArray[np.float32], *, classes: int | None,
    threads: int = 1,
) -> TableLinear:  # fmt: skip
    """Learn a linear model.

    Args:
        rows: features (rows, F), and class numbers or standardised values (rows,).
        weights: of each row in the loss.
        classes: how many there are, of which some may have no row; None for a regression.
        threads: CPU threads. Default: 1.

    Returns:
        The module, in evaluation mode. A class without a row is as unlikely as the least likely
        of the others.
    """
    import threadpoolctl  # noqa: PLC0415 - only where tables are fitted

    # Half a second, for tables only.
    from sklearn.exceptions import ConvergenceWarning  # noqa: PLC0415
    from sklearn.linear_model import LogisticRegression, Ridge  # noqa: PLC0415

    features, labels = rows[0].double().numpy(), rows[1].numpy()
    made = TableLinear(features.shape[1], classes or 1)
    matrix = np.zeros((classes or 1, features.shape[1]))
    shift = np.zeros(classes or 1)
    present = np.unique(labels) if classes is not None else np.zeros(1, dtype=np.int64)
    with threadpoolctl.threadpool_limits(threads), warnings.catch_warnings():
        # Where it isn't at its end after so many steps, the figures say how good it is.
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner: Any = (
            Ridge(alpha=_PENALTY)
            if classes is None
            else LogisticRegression(C=1 / _PENALTY, max_iter=_STEPS)
        )
        if len(present) > 1 or classes is None:
            learner.fit(features, labels, sample_weight=weights)
            found = np.atleast_2d(learner.coef_)
            bias = np.atleast_1d(learner.intercept_)
            if len(present) == 2:  # of two classes it says the second's logit alone
                found = np.concatenate([-found / 2, found / 2])
                bias = np.concatenate([-bias / 2, bias / 2])
            shift[:] = bias.min()
            matrix[present], shift[present] = found, bias
    with torch.no_grad():
        made.weight.copy_(tensor_of(matrix))
        made.bias.copy_(tensor_of(shift))
    return made.eval()
