"""How much memory a model takes of a worker, told by its package, and for which further models of
a server there is room."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from falaj.workloads.inference.settings import Settings

_OF_WEIGHTS: Final = 5
"""Bytes that a worker takes at most for one of a graph, while it loads and runs it. Measured as
the growth of a process that checks a graph of 34 to 67 MB, opens it in ONNX Runtime 1.31 on a CPU
and runs a row: 3.0 where weights are FP32 (the graph, the parsed one, the runtime's own; 2.0 are
left once it is loaded), 3.0 with integer kernels, 4.3 where INT8 weights are unpacked to FP32, 4.7
with INT4 weights, which the runtime packs its own way, 5.0 where FP16 ones are unpacked."""
_OF_TREES: Final = 14
"""Likewise where there are ensembles of trees, whose attributes are packed integers of a byte or
two in a file and structures in memory: 13.3 measured, of 400 trees of depth 8."""
_TREES: Final = b"TreeEnsemble"
"""Begins the name of each operator that is an ensemble of trees."""
_OF_A_MODEL: Final = 2 * 2**20
"""Bytes that a model takes however small it is: its session, schema, counters and queue."""
SHARE_OF_MACHINE: Final = 0.5
"""Of the machine's memory, which further models may take where no setting says how much: while a
version is changed, the workers before and the new ones have all models each."""
_MEMORY: Final = Path("/proc/meminfo")
_GROUP: Final = Path("/sys/fs/cgroup/memory.max")


def estimate(graph: bytes) -> int:
    """Return about how many bytes a worker takes for a model, from its ONNX graph."""
    times = _OF_TREES if _TREES in graph else _OF_WEIGHTS
    return _OF_A_MODEL + times * len(graph)


def of_machine(memory: Path = _MEMORY, group: Path = _GROUP) -> int:
    """Return the bytes of memory that there are: the machine's, or its control group's if fewer.

    Sources: https://docs.kernel.org/filesystems/proc.html#meminfo and
    https://docs.kernel.org/admin-guide/cgroup-v2.html#memory-interface-files
    """
    total = next(
        1024 * int(line.split()[1])
        for line in memory.read_text().splitlines()
        if line.startswith("MemTotal:")
    )
    try:
        return min(total, int(group.read_text()))
    except (OSError, ValueError):  # no control group of version 2, or "max"
        return total


def room_of(settings: Settings) -> int:
    """Return the bytes that further models may take of each worker.

    It is the same for all workers of the same settings, so that they have the same models.
    """
    whole = settings.limits.models_memory_bytes
    if whole is None:
        whole = int(SHARE_OF_MACHINE * of_machine())
    return whole // settings.workers


def admitted(needs: Mapping[str, tuple[int | None, int | None]], room: int) -> dict[str, int]:
    """Return how many bytes each model may take, in all no more than there are.

    What serves has its room first: no newer version and no further model takes it away.

    Args:
        needs: by name, what the version that is asked for takes, and the one that serves now;
            None: there is none.
        room: bytes for all of them.
    """
    found = dict.fromkeys(needs, 0)
    for name, (_, before) in needs.items():
        if before is not None and before <= room:
            found[name] = before
            room -= before
    for name, (asked, _) in needs.items():
        more = (asked or 0) - found[name]
        if 0 < more <= room:
            found[name] += more
            room -= more
    return found
