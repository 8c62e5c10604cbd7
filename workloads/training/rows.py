"""The rows of a dataset snapshot as a served model gets them; needs no PyTorch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from falaj.workloads.training.snapshot import Part, open_dataset

if TYPE_CHECKING:
    from falaj.workloads.registry.keyring import KeyRing


@dataclass(frozen=True)
class Rows:
    """Rows as the served model gets them.

    Attributes:
        inputs: by name. Images: float32 (N, 1, 8, 8), pixels 0 to 16. Tables: one (N, 1) array
            per column, float32 with NaN where missing or str objects with "" where missing.
        labels: int64 class numbers, or float32 values, (N,).
    """

    inputs: dict[str, NDArray[Any]]
    labels: NDArray[Any]


def load_rows(dataset_dir: Path, keyring: KeyRing | None, part: Part) -> Rows:
    """Read one part of a dataset snapshot as served inputs.

    Raises:
        WorkloadError: as `snapshot.open_dataset`.
    """
    dataset = open_dataset(dataset_dir, keyring)
    rows = dataset.rows(part)
    inputs: dict[str, NDArray[Any]] = {}
    for name, values in dataset.inputs.items():
        chosen = values[rows]
        if chosen.dtype != object:
            chosen = chosen.astype(np.float32)
        inputs[name] = chosen if chosen.ndim > 1 else chosen[:, None]
    labels = dataset.labels[rows]
    return Rows(inputs, labels.astype(np.int64 if dataset.classes is not None else np.float32))
