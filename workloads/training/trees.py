"""Gradient-boosted trees of a table: learned by scikit-learn, kept and computed as tensors.

Small tables whose columns interact are theirs; a network needs more rows for the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from falaj.workloads.training.tensors import tensor_of

MOST_ROWS: Final = 500_000
"""Beyond, the network alone is tried: it has rows enough, and trees would take minutes."""

MOST_CLASSES: Final = 20
"""Each round grows a tree for each class."""

_ROUNDS: Final = 200
_LEARNING_RATE: Final = 0.1
_LEAVES: Final = 15
_DEPTH: Final = 6
_LEAST_ROWS: Final = 20


@dataclass(frozen=True)
class Forest:
    """Trees as arrays: node 0 of each is its root, and a leaf leads to itself.

    Attributes:
        feature: which feature a node looks at, (trees, nodes).
        threshold: up to which, included, it goes left; float32 (trees, nodes).
        left: the node there, (trees, nodes).
        right: the node else, (trees, nodes).
        value: what a leaf adds; 0 for other nodes; float32 (trees, nodes).
        output: which output each tree adds to, (trees,).
        base: the outputs without any tree, float32 (outputs,).
    """

    feature: NDArray[np.int64]
    threshold: NDArray[np.float32]
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    value: NDArray[np.float32]
    output: NDArray[np.int64]
    base: NDArray[np.float32]


class TableTrees(nn.Module):
    """Adds up what the leaves say that a row falls into.

    Args:
        trees: how many there are.
        nodes: the most of a tree.
        outputs: the number of classes, or 1 for a regression.
    """

    def __init__(self, trees: int, nodes: int, outputs: int) -> None:
        super().__init__()
        shape = (trees, nodes)
        for name, kind in (
            ("feature", torch.int64), ("threshold", torch.float32), ("left", torch.int64),
            ("right", torch.int64), ("value", torch.float32),
        ):  # fmt: skip
            self.register_buffer(name, torch.zeros(shape, dtype=kind))
        self.register_buffer("output", torch.zeros(trees, dtype=torch.int64))
        self.register_buffer("base", torch.zeros(outputs, dtype=torch.float32))

    @classmethod
    def of(cls, forest: Forest) -> TableTrees:
        """Return the module of ``forest``."""
        trees, nodes = forest.feature.shape
        made = cls(trees, nodes, len(forest.base))
        made.load_state_dict({name: tensor_of(values) for name, values in vars(forest).items()})
        return made

    def forest(self) -> Forest:
        """Return what `of` was given."""
        return Forest(**{name: tensor.numpy() for name, tensor in self.state_dict().items()})

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (N, classes) or standardised values (N, 1) of features (N, F)."""
        held = {name: self.get_buffer(name) for name in self.state_dict()}
        trees = torch.arange(len(held["output"]), device=features.device)
        node = torch.zeros((len(features), len(trees)), dtype=torch.int64, device=features.device)
        for _ in range(_DEPTH):
            looked_at = features.gather(1, held["feature"][trees, node])
            goes_left = looked_at <= held["threshold"][trees, node]
            node = torch.where(goes_left, held["left"][trees, node], held["right"][trees, node])
        outputs = held["base"].repeat(len(features), 1)
        return outputs.index_add(1, held["output"], held["value"][trees, node])

    def rescale(self, factor: float, shift: Tensor) -> None:
        """Multiply the outputs by ``factor`` and add ``shift`` (outputs,) to them."""
        with torch.no_grad():
            self.get_buffer("value").mul_(factor)
            self.get_buffer("base").mul_(factor).add_(shift)


def grow(
    fit: tuple[Tensor, Tensor], weights: NDArray[np.float32],
    validation: tuple[Tensor, Tensor], *, classes: int | None, seed: int, threads: int = 1,
) -> tuple[Forest, float]:  # fmt: skip
    """Learn trees from ``fit``, as many rounds of them as ``validation`` says.

    Args:
        fit: features (rows, F), and class numbers or standardised values (rows,).
        weights: of each row in the loss.
        validation: the like of rows that aren't learned from.
        classes: how many there are; None for a regression.
        seed: fixes the outcome.
        threads: CPU threads. Default: 1.

    Returns:
        The trees, and their log loss or squared error on the validation rows.
    """
    import threadpoolctl  # noqa: PLC0415 - only where trees are fitted

    # Half a second, for tables only.
    from sklearn.ensemble import (  # noqa: PLC0415
        HistGradientBoostingClassifier,
        HistGradientBoostingRegressor,
    )

    options: dict[str, Any] = {
        "max_iter": _ROUNDS, "learning_rate": _LEARNING_RATE, "max_leaf_nodes": _LEAVES,
        "max_depth": _DEPTH, "min_samples_leaf": min(_LEAST_ROWS, max(2, len(weights) // 20)),
        "l2_regularization": 1.0, "early_stopping": False, "random_state": seed,
    }  # fmt: skip
    features, labels = fit[0].numpy(), fit[1].numpy()
    unseen, truth = validation[0].numpy(), validation[1].numpy()
    made = HistGradientBoostingRegressor if classes is None else HistGradientBoostingClassifier
    # More threads than free cores wait for one another at each of thousands of small steps.
    with threadpoolctl.threadpool_limits(threads, user_api="openmp"):
        learner = cast("Any", made(**options)).fit(features, labels, sample_weight=weights)
        losses = _losses(learner, unseen, truth, classes)
    rounds = int(np.argmin(losses)) + 1
    return _forest(learner, rounds, classes), losses[rounds - 1]


def _losses(
    learner: Any, unseen: NDArray[Any], truth: NDArray[Any], classes: int | None
) -> list[float]:
    """The loss on rows that weren't learned from, after each round."""
    if classes is None:
        return [
            float(cast("NDArray[Any]", (each - truth) ** 2).mean())
            for each in learner.staged_predict(unseen)
        ]
    chances, rows = learner.staged_predict_proba(unseen), np.arange(len(truth))
    return [float(-np.log(np.maximum(each[rows, truth], 1e-7)).mean()) for each in chances]


def _forest(learner: Any, rounds: int, classes: int | None) -> Forest:
    """The trees of scikit-learn's first ``rounds``, as arrays."""
    grown = learner._predictors[:rounds]
    raw = np.asarray(learner._baseline_prediction, dtype=np.float32).reshape(-1)
    # Of two classes it computes the second's output alone.
    places = [1] if classes == 2 else list(range(len(raw)))
    base = np.zeros(classes or 1, dtype=np.float32)
    base[places] = raw
    trees = [
        (place, predictor.nodes)
        for each in grown
        for place, predictor in zip(places, each, strict=True)
    ]
    shape = (len(trees), max(len(nodes) for _, nodes in trees))
    feature, itself = np.zeros(shape, dtype=np.int64), np.tile(np.arange(shape[1]), (shape[0], 1))
    left, right = itself.copy(), itself.copy()
    threshold, value = np.zeros(shape, dtype=np.float32), np.zeros(shape, dtype=np.float32)
    for index, (_, nodes) in enumerate(trees):
        size, leaf = len(nodes), nodes["is_leaf"].astype(bool)
        inner = np.flatnonzero(~leaf)
        feature[index, inner] = nodes["feature_idx"][inner]
        threshold[index, inner] = _rounded_down(nodes["num_threshold"][inner])
        left[index, inner], right[index, inner] = nodes["left"][inner], nodes["right"][inner]
        value[index, :size] = np.where(leaf, nodes["value"], 0)
    output = np.array([place for place, _ in trees], dtype=np.int64)
    return Forest(feature, threshold, left, right, value, output, base)


def _rounded_down(thresholds: NDArray[np.float64]) -> NDArray[np.float32]:
    """The largest 32-bit float that isn't above: 32-bit features then go the same way."""
    rounded = thresholds.astype(np.float32)
    above = rounded.astype(np.float64) > thresholds
    return np.where(above, np.nextafter(rounded, np.float32(-np.inf)), rounded)
