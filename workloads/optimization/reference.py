"""How a model answers on held-out rows: by that a server tells whether its answers drift.

Held-out rows, not training rows: on what a model has learned from it is surer than on what it will
be asked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.optimization.card import calibration_bins
from falaj.workloads.optimization.worth import losses_of, value_of
from falaj.workloads.training.dataset import of_classes, of_numbers


def outputs(
    answers: NDArray[Any], labels: NDArray[Any], classes: list[str] | None
) -> dict[str, Any]:
    """Describe a model's answers.

    Args:
        answers: probabilities (rows, classes), or predictions (rows, 1) in the target's unit.
        labels: class numbers or values, (rows,).
        classes: the classes' names; None for a regression.

    Returns:
        Of a regression what `of_numbers` says of the predictions, and ``rmse``. Of a
        classification the ``counts`` of chosen classes, the ``confidence`` (probability of the
        chosen class), ``log_loss``, and ``calibration``: of ten bins of as many rows the mean
        confidence, the share that was right, and the rows.
    """
    losses = losses_of(answers, labels)
    if classes is None:
        predicted = answers.reshape(-1).astype(np.float64)
        return {**of_numbers(predicted), "rmse": value_of("rmse", losses["rmse"])}
    return {
        **of_classes(answers.argmax(axis=1).astype(np.int64), classes),
        "confidence": of_numbers(answers.max(axis=1).astype(np.float64)),
        "log_loss": value_of("log_loss", losses["log_loss"]),
        "calibration": [list(each) for each in calibration_bins(answers, labels)],
    }
