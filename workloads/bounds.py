"""What numbers the workloads' options may be, each bound stated once.

Whoever calls a workload learns the bounds from a file that this module writes, and that a test
compares with it::

    python -m falaj.workloads.bounds > components/specification/workload_bounds.json
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Bound:
    """A number from ``low`` to ``high``, both included.

    Attributes:
        low: the least.
        high: the most.
        whole: whether it has to be a whole number.
    """

    low: float
    high: float
    whole: bool = True

    @property
    def description(self) -> str:
        """The bound, as in "allowed is 1 to 4,096"."""
        return f"{_plain(self.low)} to {_plain(self.high)}"

    def allows(self, value: object) -> bool:
        """Tell whether a value is a number of the kind and within the bound."""
        if isinstance(value, bool) or not isinstance(value, int if self.whole else int | float):
            return False
        return math.isfinite(value) and self.low <= value <= self.high


def _plain(value: float) -> str:
    return f"{int(value):,}" if float(value).is_integer() else repr(value)


#: What every library that draws random numbers takes, with a trial's number added to it.
_SEED = Bound(0, 2**31 - 1)

DATASET = {"seed": _SEED, "holdout": Bound(0.05, 0.5, whole=False)}
"""Of ``python -m falaj.workloads.training dataset``."""

TRAINING = {
    "epochs": Bound(1, 100_000),
    "batch_size": Bound(1, 1_000_000),
    "learning_rate": Bound(1e-9, 10, whole=False),
    "weight_decay": Bound(0, 10, whole=False),
    "patience": Bound(1, 100_000),
    "gradient_clip": Bound(0, 1_000_000, whole=False),
    "label_smoothing": Bound(0, 0.5, whole=False),
    "accumulation": Bound(1, 10_000),
    "seed": _SEED,
    "processes": Bound(1, 1_024),
    "width": Bound(1, 4_096),
    "checkpoint_every": Bound(1, 100_000),
    "threads": Bound(1, 1_024),
}
"""Of ``python -m falaj.workloads.training run``. A gradient clip of 0 doesn't clip."""

OPTIMIZATION = {
    "max_accuracy_drop": Bound(0, 100, whole=False),
    "least_accuracy": Bound(0, 1, whole=False),
    "most_rmse": Bound(0, 1e12, whole=False),
}
"""Of ``python -m falaj.workloads.optimization``: percentage points, a share, and the unit of what
is predicted."""

SERVICE = {
    "workers": Bound(1, 256),
    "threads": Bound(1, 256),
    "max_body_bytes": Bound(1_024, 2**30),
    "max_rows": Bound(1, 2**20),
    "drain_seconds": Bound(0, 600, whole=False),
}
"""Of ``service.json``."""

BATCH = {"threads": Bound(1, 256), "shards": Bound(1, 1_000)}
"""Of ``python -m falaj.workloads.batch``."""

REPAIR = {
    "sick_minutes": Bound(0, 1_440, whole=False),
    "healthy_minutes": Bound(0, 1_440, whole=False),
    "drain_minutes": Bound(0, 10_080, whole=False),
    "pass_seconds": Bound(1, 300),
    "lease_seconds": Bound(3, 300),
    "most_nodes": Bound(1, 5_000),
    "most_percent": Bound(1, 100),
}
"""Of ``python -m falaj.workloads.repair``; ``most_out`` is a number of nodes or a percentage. No
cluster of Kubernetes is made for more nodes than 5,000:
https://kubernetes.io/docs/setup/best-practices/cluster-large/"""

ROLLOUT = {
    "window_minutes": Bound(1, 10_080, whole=False),
    "deadline_hours": Bound(1, 720, whole=False),
    "least_requests": Bound(100, 1_000_000_000),
    "most_error_rise": Bound(0, 100, whole=False),
    "most_latency_rise": Bound(0, 10_000, whole=False),
    "least_likeness": Bound(0, 100, whole=False),
}
"""Of ``python -m falaj.workloads.rollout``: percentage points of requests that fail, per cent of
a time, per cent of the answers."""


def document() -> str:
    """Return all bounds as JSON, by workload and option."""
    found = {
        "dataset": DATASET,
        "training": TRAINING,
        "optimization": OPTIMIZATION,
        "service": SERVICE,
        "batch": BATCH,
        "repair": REPAIR,
        "rollout": ROLLOUT,
    }
    plain = {of: {name: asdict(each) for name, each in all_.items()} for of, all_ in found.items()}
    return json.dumps(plain, indent=1) + "\n"


if __name__ == "__main__":
    print(document(), end="")
