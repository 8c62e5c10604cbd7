"""What this machine computes with: device, precision, CPU features, deterministic settings."""

from __future__ import annotations

import os
import platform
import random
import resource
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from falaj.workloads.errors import WorkloadError
from falaj.workloads.processor import CPUINFO, cpu_flags
from falaj.workloads.training import tensors

_BFLOAT16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16"}  # x86, x86, Arm


def gpus() -> int:
    """Return how many GPUs can be used."""
    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def precisions(device: str) -> tuple[str, ...]:
    """Return what ``cpu`` or ``cuda`` computes in by itself."""
    if device == "cuda":
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
        return ("float32", "bfloat16") if has_bfloat16 else ("float32", "float16")
    return ("float32", "bfloat16") if cpu_flags() & _BFLOAT16_FLAGS else ("float32",)


def resolve_device(requested: str, processes: int) -> str:
    """Return ``cpu`` or ``cuda``; ``auto`` takes GPUs where there is one for each process.

    Raises:
        WorkloadError: ``cuda`` was asked for and there are too few GPUs.
    """
    found = gpus()
    if requested == "cuda" and found < processes:
        raise WorkloadError(
            f"--device cuda with --processes {processes}: this machine offers {found} usable "
            "GPUs, and each process needs one; use --device cpu or fewer processes"
        )
    if requested == "auto":
        return "cuda" if found >= processes else "cpu"
    return requested


def resolve_precision(requested: str, device: str) -> str:
    """Return the precision of the matrix products.

    ``auto`` is bfloat16 on GPUs that have it, float16 on others, and float32 on CPUs: at these
    sizes a step costs more in conversions than bfloat16 saves (the digits took 2.4 times as long
    on a CPU with avx512_bf16).

    Raises:
        WorkloadError: the hardware doesn't compute in the precision that was asked for.
    """
    if device == "cuda":
        has_bfloat16 = torch.cuda.is_bf16_supported(including_emulation=False)
        if requested == "auto":
            return "bfloat16" if has_bfloat16 else "float16"
        if requested == "bfloat16" and not has_bfloat16:
            raise WorkloadError("--precision bfloat16: this GPU has none; use float16 or auto")
        return requested
    if requested == "float16":
        raise WorkloadError("--precision float16 needs a GPU; on a CPU use float32 or auto")
    if requested == "bfloat16" and not cpu_flags() & _BFLOAT16_FLAGS:
        raise WorkloadError(
            "--precision bfloat16: this CPU has none of the features "
            f"{', '.join(sorted(_BFLOAT16_FLAGS))}; use float32 or auto"
        )
    return "float32" if requested == "auto" else requested


def require_locked_memory(environ: Mapping[str, str]) -> None:
    """Refuse a machine whose network between GPUs would fail for want of locked memory.

    InfiniBand and EFA register memory, which locks it (ibv_reg_mr(3)). What an ordinary user may
    lock is set by the container runtime, as Kubernetes has no field for it, and CAP_IPC_LOCK does
    nothing for one who isn't root. NCCL fails late, by "Cannot allocate memory".

    Raises:
        WorkloadError: ``FALAJ_FABRIC`` names such a network, and less may be locked than the
            machine has memory.
    """
    fabric = environ.get("FALAJ_FABRIC")
    if not fabric:
        return
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if hard == resource.RLIM_INFINITY or hard >= memory:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (hard, hard))
        return
    raise WorkloadError(
        f"the network between the machines is {fabric}, which needs locked memory without a "
        f"limit; this machine allows {hard} bytes (RLIMIT_MEMLOCK). Set LimitMEMLOCK=infinity in "
        "the unit of its container runtime, restart that, and start the job again; or take the "
        "job's fabric away, which is slower"
    )


def make_deterministic(seed: int, threads: int) -> None:
    """Seed every generator and choose deterministic algorithms.

    The same seed, data, versions, hardware and number of threads then give the same bits.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.set_num_threads(threads)
    # `use_deterministic_algorithms` does the same, but loads PyTorch's compiler to tell it too,
    # which takes a second. Where a team's own model loads it, it reads the variable.
    os.environ["TORCHINDUCTOR_DETERMINISTIC"] = "1"
    torch.set_deterministic_debug_mode("error")
    torch.backends.cudnn.benchmark = False
    random.seed(seed)
    np.random.seed(seed % 2**32)
    tensors.seed(seed)


def describe(device: str) -> dict[str, Any]:
    """Return what the run's record says about the machine and the versions."""
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cpu_flags": sorted(
            flag for flag in cpu_flags() if flag.startswith(("avx", "amx", "bf16", "sve"))
        ),
        "gpus": names if device == "cuda" else [],
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
    }


def _processor() -> str:
    try:
        text = CPUINFO.read_text(encoding="ascii", errors="replace")
    except OSError:
        return platform.processor() or platform.machine()
    names = (line for line in text.splitlines() if line.startswith("model name"))
    return next(names, ":" + platform.machine()).split(":", 1)[1].strip()
