"""Served graphs on held-out rows, through ONNX Runtime as the server runs them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError
from falaj.workloads.optimization.export import PARITY_TOLERANCE
from falaj.workloads.optimization.gate import Metric
from falaj.workloads.optimization.runtime import Feed, open_session, run_in_batches
from falaj.workloads.optimization.served_graph import IMAGE, Serving


def metric_of(serving: Serving) -> Metric:
    """Return ``accuracy`` for classes, ``rmse`` for numbers."""
    return "rmse" if serving.classes is None else "accuracy"


def core_rows(serving: Serving, inputs: Feed) -> NDArray[np.float32]:
    """Return raw rows as the core takes them, by the training's own preprocessing."""
    if serving.preprocessing is None:
        return inputs[IMAGE]
    return serving.preprocessing.transform(inputs)


def score(model: bytes, serving: Serving, inputs: Feed, labels: NDArray[Any]) -> float:
    """Return the accuracy (0 to 1) or the root mean square error in the target's own unit.

    Args:
        model: a served graph.
        serving: how it was assembled.
        inputs: served inputs by name, raw rows.
        labels: class numbers or values, (rows,).

    Raises:
        WorkloadError: there are no rows.
    """
    if len(labels) == 0:
        raise WorkloadError("the dataset has no held-out rows to compare the models on")
    session = open_session(model)
    if serving.classes is None:
        name = serving.output_name("prediction")
        (values,) = run_in_batches(session, inputs, [name])
        difference = values.reshape(-1).astype(np.float64) - labels.astype(np.float64)
        return float(np.sqrt(np.mean(difference**2)))
    (answers,) = run_in_batches(session, inputs, [serving.output_name("label")])
    wanted = np.array(serving.classes, dtype=object)[labels] if serving.text_labels else labels
    return float(np.mean(answers == wanted))


def check_parity(model: bytes, module: torch.nn.Module, serving: Serving, inputs: Feed) -> float:
    """Compare the served float graph with the module behind the training's preprocessing.

    This covers all that was exported: preprocessing, weights and the answers' units.

    Args:
        model: the served float graph.
        module: the trained module.
        serving: how ``model`` was assembled.
        inputs: served inputs by name, raw rows.

    Returns:
        The largest absolute difference of probabilities or predictions, as a share of the
        largest absolute value (at least 1).

    Raises:
        WorkloadError: it is above `PARITY_TOLERANCE`, or not a number.
    """
    with torch.no_grad():
        raw = module(torch.from_numpy(np.ascontiguousarray(core_rows(serving, inputs))))
        if serving.classes is None:
            mean, scale = serving.target or (0.0, 1.0)
            name, wanted = serving.output_name("prediction"), raw * scale + mean
        else:
            name, wanted = serving.output_name("probabilities"), torch.softmax(raw, dim=-1)
    (given,) = run_in_batches(open_session(model), inputs, [name])
    reference = wanted.numpy()
    largest = max(1.0, float(np.abs(reference).max()))
    difference = float(np.abs(given - reference).max()) / largest
    if not difference <= PARITY_TOLERANCE:  # written so that NaN is refused too
        raise WorkloadError(
            f"the exported graph's answers differ from the trained module's by {difference:.2g} "
            f"of the largest; allowed is {PARITY_TOLERANCE:.0e}. If the run's loss diverged, "
            "train again with a lower --learning-rate"
        )
    return difference
