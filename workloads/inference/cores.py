"""How many cores this process may use: a container sees all of its node's."""

from __future__ import annotations

import math
import os
from pathlib import Path

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available(quota: Path = _QUOTA) -> int:
    """Return the cores of the process's own set, or of its control group's quota if fewer.

    Threads beyond the quota are stopped together, in the middle of a run:
    https://docs.kernel.org/admin-guide/cgroup-v2.html#cpu-interface-files
    """
    cores = len(os.sched_getaffinity(0))
    try:
        limit, period = quota.read_text().split()
        return max(1, min(cores, math.floor(int(limit) / int(period))))
    except (OSError, ValueError):  # no control group of version 2, or "max"
        return cores
