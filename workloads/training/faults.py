"""Whose fault an error is: what a process that ends by it says with its exit status.

Only what is certain gets a status of its own: a broken GPU or driver, processes that have gone,
what a person gave. All else is unknown, which is a status as well: see `falaj.workloads.exits`.
PyTorch is not imported for this, so that an error before its import is judged, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterator

from falaj.workloads.errors import (
    FAULT,
    HARDWARE,
    LOST,
    REFUSED,
    STOPPED,
    CodeError,
    WorkloadError,
)
from falaj.workloads.exits import EXITS

#: Numbers of cudaError that say that a GPU, its driver or its links failed. An illegal address
#: (700), a failed assertion (710), a failed launch (719) or memory that is short (2) may be the
#: program's own doing and are none of them.
#: https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
_CUDA_FAULTS = frozenset({4, 35, 46, 100, 214, 220, 226, 714, 802, 803, 999})

#: The texts that `cudaGetErrorString` has for those numbers, for errors that come as text alone,
#: and what NCCL (`ncclGetErrorString`) says where CUDA failed below it.
#: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html
_CUDA_TEXTS = (
    "driver shutting down", "driver version is insufficient", "busy or unavailable",
    "devices unavailable", "device unavailable", "no cuda-capable device",
    "uncorrectable ecc error", "uncorrectable nvlink error", "nvlink error",
    "over nvlink or a hardware error", "hardware stack error", "system not yet initialized",
    "unsupported display driver / cuda driver combination", "cuda error: unknown error",
    "unhandled cuda error",
)  # fmt: skip

#: How the driver's own log and NVML name a GPU that is broken; some libraries pass that on.
#: https://docs.nvidia.com/deploy/xid-errors/ (79: fallen off the bus; 48, 63, 64, 94, 95: ECC),
#: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceEnumvs.html (GPU_IS_LOST)
_DRIVER_TEXTS = re.compile(
    r"\bxid\b.{0,40}\b\d{1,3}\b|fallen off the bus|gpu is lost|double[- ]bit ecc|ecc error"
)

#: What PyTorch's back ends say when others have gone: gloo's sockets ("Connection closed by
#: peer"), the store ("client socket has timed out"), NCCL's ncclRemoteError and ncclSystemError,
#: and its watchdog, which waits for a collective that never ends.
#: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/api/types.html, and
#: torch/csrc/distributed/c10d in https://github.com/pytorch/pytorch
_PEERS_GONE = ("connection", "gloo", "nccl", "peer", "socket", "timed out", "timeout")
#: NCCL was called in a way that it doesn't allow: a program's mistake, though perhaps a peer's.
_MISUSED = ("ncclinvalidusage", "ncclinvalidargument", "invalid usage", "invalid argument")

_CODES = frozenset(each.code for each in EXITS)


def status_of(program: Callable[[], int]) -> int:
    """Run a program; return its exit status, or that of the error that ended it.

    Whatever is raised, the status is one of `falaj.workloads.exits`. A refusal is told as
    ``error: …``, all else with its trace.
    """
    try:
        code = program()
    except WorkloadError as error:
        # Of several processes one speaks; a team's code may have failed in another.
        if os.environ.get("RANK", "0") == "0" or isinstance(error, CodeError):
            print(f"error: {error}", file=sys.stderr)
        return REFUSED
    except BaseException as error:
        if not isinstance(error, SystemExit | KeyboardInterrupt):
            with contextlib.suppress(Exception):  # nobody reads it any more
                traceback.print_exc()
        return code_of(error)
    return code if code in _CODES else FAULT


def code_of(error: BaseException) -> int:
    """The exit status of a process that ends by ``error``."""
    if isinstance(error, WorkloadError):
        return REFUSED
    if isinstance(error, KeyboardInterrupt):
        return STOPPED
    if isinstance(error, SystemExit):
        code = 0 if error.code is None else error.code
        return code if isinstance(code, int) and code in _CODES else FAULT
    chain = list(_chain(error))
    if any(is_hardware_fault(each) for each in chain):
        return HARDWARE
    if _several() and any(is_connection_loss(each) for each in chain):
        return LOST
    return FAULT


def is_hardware_fault(error: BaseException) -> bool:
    """Return whether ``error`` says that a GPU or its driver failed, not that memory was short."""
    if not _is_of_machine(error):
        return False
    # What PyTorch got from the driver, where it says so (`torch.AcceleratorError`).
    number = getattr(error, "error_code", None)
    known = isinstance(number, int) and number in _CUDA_FAULTS
    if known and "AcceleratorError" in _classes(error):
        return True
    text = _text(error)
    return any(hint in text for hint in _CUDA_TEXTS) or bool(_DRIVER_TEXTS.search(text))


def is_connection_loss(error: BaseException) -> bool:
    """Return whether ``error`` says that another process has gone."""
    if not _is_of_machine(error):
        return False
    classes, text = _classes(error), _text(error)
    if classes & {"DistNetworkError", "DistStoreError", "RendezvousError"}:
        return True
    if any(hint in text for hint in _MISUSED):
        return False
    return "DistError" in classes or any(hint in text for hint in _PEERS_GONE)


def _is_of_machine(error: BaseException) -> bool:
    """Whether a library of the machine's may have raised it: PyTorch's are all RuntimeErrors."""
    return isinstance(error, RuntimeError) or "NVMLError" in _classes(error)


def _classes(error: BaseException) -> set[str]:
    return {each.__name__ for each in type(error).__mro__}


def _text(error: BaseException) -> str:
    try:
        return str(error).lower()
    except Exception:
        return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, and what it was raised from: libraries wrap each other's."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _several() -> bool:
    """Whether this process is one of several of a run."""
    size = os.environ.get("WORLD_SIZE", "1")
    return size.isdecimal() and int(size) > 1
