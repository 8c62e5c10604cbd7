"""How a model answers on held-out rows: by that a server tells whether its answers drift.

Held-out rows, not training rows: on what a model has learned from it is surer than on what it will
be asked.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.training.dataset import of_classes, of_numbers

_BINS: Final = 10


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
    if classes is None:
        predicted = answers.reshape(-1).astype(np.float64)
        error = float(np.sqrt(np.mean((predicted - labels.astype(np.float64)) ** 2)))
        return {**of_numbers(predicted), "rmse": error}
    chosen = answers.argmax(axis=1).astype(np.int64)
    confidence = answers.max(axis=1).astype(np.float64)
    of_truth = answers[np.arange(len(labels)), labels].astype(np.float64)
    right = (chosen == labels).astype(np.float64)
    order = np.argsort(confidence, kind="stable")
    return {
        **of_classes(chosen, classes),
        "confidence": of_numbers(confidence),
        "log_loss": float(-np.log(np.maximum(of_truth, 1e-7)).mean()),
        "calibration": [
            [float(confidence[part].mean()), float(right[part].mean()), len(part)]
            for part in np.array_split(order, min(_BINS, len(labels)))
        ],
    }
