"""Statistics of the training part, kept for drift detection on the served model."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_BINS = 10
_CATEGORIES = 100


def of_numbers(values: NDArray[np.floating[Any]]) -> dict[str, Any]:
    """Describe numbers: moments, range, deciles and the share of rows in each decile bin.

    Args:
        values: the training rows' values, any shape, NaN where missing.

    Returns:
        count, missing, mean, standard_deviation (population), minimum, maximum, edges (inner
        bin edges, ascending and distinct) and shares (one more than edges, sum 1).
    """
    flat = values.reshape(-1).astype(np.float64)
    present = flat[~np.isnan(flat)]
    if len(present) == 0:
        return {"kind": "numeric", "count": 0, "missing": len(flat)}
    edges = np.unique(np.quantile(present, np.linspace(0, 1, _BINS + 1)[1:-1]))
    bins = np.searchsorted(edges, present, side="right")
    shares = np.bincount(bins, minlength=len(edges) + 1) / len(present)
    return {
        "kind": "numeric",
        "count": len(present),
        "missing": len(flat) - len(present),
        "mean": float(present.mean()),
        "standard_deviation": float(present.std()),
        "minimum": float(present.min()),
        "maximum": float(present.max()),
        "edges": edges.tolist(),
        "shares": shares.tolist(),
    }


def of_texts(values: NDArray[Any]) -> dict[str, Any]:
    """Describe texts: the counts of the most frequent ones, the rest and the missing together.

    Args:
        values: the training rows' texts, shape (rows,), "" where missing.
    """
    missing = int((values == "").sum())
    names, counts = np.unique(values[values != ""].astype(str), return_counts=True)
    order = np.lexsort((names, -counts))[:_CATEGORIES]
    frequent = {str(names[index]): int(counts[index]) for index in order}
    return {
        "kind": "text",
        "count": len(values) - missing,
        "missing": missing,
        "distinct": len(names),
        "categories": frequent,
        "others": int(counts.sum()) - sum(frequent.values()),
    }


def of_classes(labels: NDArray[np.int64], classes: list[str]) -> dict[str, Any]:
    """Return how many rows of each class there are."""
    counts = np.bincount(labels, minlength=len(classes))
    return {"kind": "classes", "counts": dict(zip(classes, counts.tolist(), strict=True))}
