"""Figures of a model on rows it has not been trained on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def classification(
    labels: NDArray[np.int64], predicted: NDArray[np.int64], classes: list[str]
) -> dict[str, Any]:
    """Compare class numbers.

    Args:
        labels: the truth, shape (rows,).
        predicted: the model's choice, shape (rows,).
        classes: the classes' names in the order of their numbers.

    Returns:
        ``accuracy``, ``balanced_accuracy`` (mean recall over the classes that occur),
        ``macro_f1`` (over the same), ``per_class`` {name: precision, recall, f1, support} and
        ``confusion`` (row: truth, column: prediction). A figure whose denominator is 0 is 0.
    """
    size = len(classes)
    confusion = np.zeros((size, size), dtype=np.int64)
    np.add.at(confusion, (labels, predicted), 1)
    hits = np.diag(confusion).astype(np.float64)
    support = confusion.sum(axis=1)
    recall = _ratio(hits, support)
    precision = _ratio(hits, confusion.sum(axis=0))
    f1 = _ratio(2 * precision * recall, precision + recall)
    occurs = support > 0
    per_class = {
        name: {
            "precision": float(precision[index]),
            "recall": float(recall[index]),
            "f1": float(f1[index]),
            "support": int(support[index]),
        }
        for index, name in enumerate(classes)
    }
    return {
        "rows": len(labels),
        "accuracy": float(hits.sum() / len(labels)),
        "balanced_accuracy": float(recall[occurs].mean()),
        "macro_f1": float(f1[occurs].mean()),
        "per_class": per_class,
        "confusion": confusion.tolist(),
    }


def regression(
    labels: NDArray[np.floating[Any]], predicted: NDArray[np.floating[Any]]
) -> dict[str, Any]:
    """Compare numbers in the target's own unit, both of shape (rows,).

    Returns:
        ``rmse``, ``mae``, ``r2`` (0 for a constant truth) and ``baseline_rmse``, that of always
        saying the truth's mean.
    """
    truth, guess = labels.astype(np.float64), predicted.astype(np.float64)
    squared = float(np.mean((guess - truth) ** 2))
    variance = float(np.var(truth))
    return {
        "rows": len(truth),
        "rmse": squared**0.5,
        "mae": float(np.mean(np.abs(guess - truth))),
        "r2": 1 - squared / variance if variance > 0 else 0.0,
        "baseline_rmse": variance**0.5,
    }


def _ratio(
    above: NDArray[np.floating[Any]], below: NDArray[np.generic]
) -> NDArray[np.floating[Any]]:
    bottom = below.astype(np.float64)
    return np.divide(above, bottom, out=np.zeros_like(bottom), where=bottom > 0)
