"""What a model does on held-out rows, beyond one figure: for the card of its package."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.training.language import perplexity
from falaj.workloads.vocabulary import Vocabulary

MOST_CLASSES: Final = 20
"""Of more, no confusion matrix and no calibration by class is shown."""

_BINS: Final = 10
_QUANTILES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)


def figures(
    answers: NDArray[Any], labels: NDArray[Any], classes: list[str] | None
) -> dict[str, Any]:
    """Describe a model's answers.

    Args:
        answers: probabilities (rows, classes), or predictions (rows, 1) in the target's unit.
        labels: class numbers or values, (rows,).
        classes: the classes' names; None for a regression.

    Returns:
        ``rows``. Of a regression ``r2`` and ``residuals`` (prediction less truth: mean and
        quantiles). Of a classification ``auc`` (None where a class is missing among the rows),
        ``calibration_error`` and, of up to `MOST_CLASSES` classes, ``confusion`` (row: truth,
        column: prediction) and ``calibration`` (mean probability and share of each class).
    """
    if classes is None:
        return _numbers(answers.reshape(-1).astype(np.float64), labels.astype(np.float64))
    described: dict[str, Any] = {
        "rows": len(labels),
        "auc": _area(answers, labels),
        "calibration_error": _calibration_error(answers, labels),
    }
    if len(classes) > MOST_CLASSES:
        return described
    confusion = np.zeros((len(classes), len(classes)), dtype=np.int64)
    np.add.at(confusion, (labels, answers.argmax(axis=1)), 1)
    shares = np.bincount(labels, minlength=len(classes)) / len(labels)
    means = answers.astype(np.float64).mean(axis=0)
    return {
        **described,
        "confusion": confusion.tolist(),
        "calibration": {
            name: {"mean_probability": float(mean), "share": float(share)}
            for name, mean, share in zip(classes, means, shares, strict=True)
        },
    }


def text_figures(nats: float, windows: int, vocabulary: Vocabulary | None) -> dict[str, Any]:
    """Describe a language model.

    Args:
        nats: of a character, of held-out windows.
        windows: their number.
        vocabulary: the model's.

    Returns:
        ``rows``, ``perplexity`` of a character, how many tokens are in the ``vocabulary``, the
        unknown one left out, and what these are called: their ``unit``.
    """
    assert vocabulary is not None  # noqa: S101 - it is a language model
    known = vocabulary.size - (vocabulary.unknown is not None)
    return {
        "rows": windows, "perplexity": perplexity(nats), "vocabulary": known,
        "unit": vocabulary.unit,
    }  # fmt: skip


def _numbers(predicted: NDArray[np.float64], truth: NDArray[np.float64]) -> dict[str, Any]:
    residuals = predicted - truth
    variance = float(truth.var())
    return {
        "rows": len(truth),
        "r2": 1 - float(np.mean(residuals**2)) / variance if variance > 0 else 0.0,
        "residuals": {
            "mean": float(residuals.mean()),
            "quantiles": {
                f"{share:g}": float(value)
                for share, value in zip(
                    _QUANTILES, np.quantile(residuals, _QUANTILES), strict=True
                )
            },
        },
    }


def _area(answers: NDArray[Any], labels: NDArray[Any]) -> float | None:
    """The area under the curve, of each class against the rest, averaged (Hanley, McNeil 1982)."""
    areas: list[float] = []
    for number in range(answers.shape[1]):
        own = labels == number
        if own.all() or not own.any():
            return None
        # Ranks, ties averaged: the share of pairs that are in the right order.
        _, place, count = np.unique(
            answers[:, number].astype(np.float64), return_inverse=True, return_counts=True
        )
        ranks = (np.cumsum(count) - (count - 1) / 2)[place]
        positive = int(own.sum())
        above = float(ranks[own].sum()) - positive * (positive + 1) / 2
        areas.append(above / (positive * (len(labels) - positive)))
    return float(np.mean(areas))


def calibration_bins(
    answers: NDArray[Any], labels: NDArray[Any]
) -> list[tuple[float, float, int]]:
    """Return of ten bins of as many rows: mean probability of the chosen class, hits, and rows.

    Args:
        answers: probabilities (rows, classes).
        labels: class numbers, (rows,).
    """
    stated = answers.max(axis=1).astype(np.float64)
    hits = (answers.argmax(axis=1) == labels).astype(np.float64)
    order = np.argsort(stated, kind="stable")
    return [
        (float(stated[part].mean()), float(hits[part].mean()), len(part))
        for part in np.array_split(order, min(_BINS, len(labels)))
    ]


def _calibration_error(answers: NDArray[Any], labels: NDArray[Any]) -> float:
    """How far stated probabilities of the chosen class are from hits, by ten equal-count bins.

    Expected calibration error of Guo, Pleiss, Sun, Weinberger, 2017, with bins of as many rows:
    https://arxiv.org/abs/1706.04599
    """
    bins = calibration_bins(answers, labels)
    return sum(abs(stated - hits) * rows for stated, hits, rows in bins) / len(labels)
