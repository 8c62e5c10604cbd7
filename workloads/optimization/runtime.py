"""Sessions of ONNX Runtime as the server opens them, and what this machine can compute with."""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray

from falaj.workloads.errors import WorkloadError
from falaj.workloads.training.hardware import cpu_flags

Feed = dict[str, NDArray[Any]]

_VNNI = frozenset({"avx512_vnni", "avx_vnni"})
_RELEVANT = frozenset(
    {"avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"}
    | {"asimddp", "i8mm", "bf16", "sve"}
    | _VNNI
)


def open_session(model: bytes, threads: int = 1) -> onnxruntime.InferenceSession:
    """Open ``model`` from memory on the CPU, with ``threads`` threads inside an operator.

    Raises:
        WorkloadError: ONNX Runtime can't load it.
    """
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    # Errors come back as exceptions; warnings about graph rewriting are of no use to a person.
    options.log_severity_level = 3
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime raises a dozen unrelated classes
        raise WorkloadError(f"ONNX Runtime cannot load the model: {error}") from error


def run_in_batches(
    session: onnxruntime.InferenceSession, feed: Feed, names: list[str], batch: int = 256
) -> list[NDArray[Any]]:
    """Return the outputs ``names`` for all rows of ``feed``, computed ``batch`` rows at a time."""
    rows = len(next(iter(feed.values())))
    parts = [
        session.run(names, {key: values[start : start + batch] for key, values in feed.items()})
        for start in range(0, rows, batch)
    ]
    return [np.concatenate(part) for part in zip(*parts, strict=True)]


def relevant_cpu_flags() -> list[str]:
    """Return the processor's vector and matrix extensions that matter here, sorted.

    Empty where the system doesn't tell.
    """
    return sorted(_RELEVANT & cpu_flags())


def needs_reduced_range(flags: list[str], machine: str | None = None) -> bool:
    """Tell whether 8-bit weights would overflow: x86-64 without VNNI adds pairs in 16 bits.

    There, weights are kept to 7 bits
    (https://onnxruntime.ai/docs/performance/model-optimizations/quantization.html).

    Args:
        flags: the processor's, from `relevant_cpu_flags`.
        machine: the architecture's name; None asks the system.
    """
    x86 = (machine or platform.machine()).lower() in {"x86_64", "amd64"}
    return x86 and not _VNNI & set(flags)


def versions() -> dict[str, str]:
    """Return the versions of the libraries that made and measured the model."""
    return {
        "onnxruntime": onnxruntime.__version__,
        "onnx": onnx.__version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
