"""What the processor can compute with: its vector and matrix extensions, as Linux names them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

CPUINFO: Final = Path("/proc/cpuinfo")

VNNI: Final = frozenset({"avx512_vnni", "avx_vnni"})
_RELEVANT: Final = (
    frozenset({"avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8"})
    | {"amx_bf16", "asimddp", "i8mm", "bf16", "sve"}
    | VNNI
)


def cpu_flags() -> set[str]:
    """Return the CPU's feature flags as Linux names them; empty where that is unknown."""
    try:
        lines = CPUINFO.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return set()
    named = (line for line in lines if line.startswith(("flags", "Features")))
    return set(next(named, ":").split(":", 1)[1].split())


def relevant_cpu_flags() -> list[str]:
    """Return the processor's vector and matrix extensions that matter here, sorted.

    Empty where the system doesn't tell.
    """
    return sorted(_RELEVANT & cpu_flags())


def cores() -> int:
    """Return the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
