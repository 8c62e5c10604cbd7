"""A package opened as Triton's model repository, in memory.

::

    <target>/<model>/config.pbtxt      tensors, batching and devices
    <target>/<model>/<version>/model.onnx

https://github.com/triton-inference-server/server/blob/main/docs/user_guide/model_configuration.md
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import make_private_folder, storage_errors, write_atomic
from falaj.workloads.inference.models import model
from falaj.workloads.registry.package import Package

MODEL_FILE = "model.onnx"
ACCELERATORS = ("none", "tensorrt", "tensorrt-fp16")
_TYPES = frozenset(
    {
        "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16",
        "FP32", "FP64",
    }
)  # fmt: skip
_READ_ONLY, _READ_ONLY_FOLDER = 0o400, 0o500


@dataclass(frozen=True, slots=True)
class Running:
    """How Triton runs a model.

    Attributes:
        max_batch: most rows that it runs together.
        gpus: GPUs; 0 runs it on the CPU.
        accelerator: one of `ACCELERATORS`; TensorRT builds an engine at the start.
    """

    max_batch: int
    gpus: int
    accelerator: str = "none"


def write_repository(package: Package, target: Path, running: Running) -> Path:
    """Write the repository; only its owner can read it, and nobody write. Returns its folder.

    An older one of the same model is replaced: after a restart the same is made again.

    Raises:
        IntegrityError: the package isn't what was signed.
        InferenceError: the graph is one that isn't served.
        WorkloadError: a tensor can't be served by Triton, or the target can't be written.
    """
    config = configuration(package.model, package.version, package.manifest, running)
    content = package.read(MODEL_FILE)
    model.check(content)
    folder = target / package.model
    make_private_folder(target)
    with storage_errors(folder):
        remove_repository(folder)
    version = make_private_folder(folder / str(package.version))
    write_atomic(version / MODEL_FILE, content, _READ_ONLY)
    write_atomic(folder / "config.pbtxt", config.encode(), _READ_ONLY)
    with storage_errors(folder):
        for each in (version, folder):
            each.chmod(_READ_ONLY_FOLDER)
    return folder


def remove_repository(folder: Path) -> None:
    """Remove a model's folder, whose modes forbid it, if there is one."""
    if folder.is_dir() and not folder.is_symlink():
        for path in (folder, *folder.rglob("*")):
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o700)
        shutil.rmtree(folder)


def configuration(model: str, version: int, manifest: Mapping[str, Any], running: Running) -> str:
    """Return ``config.pbtxt`` for a package's manifest.

    Rows are batched where the first size of every tensor is free. Triton has no tensors without
    sizes beside the batch's, so one value for each row is a size of 1 that is left out for the
    model (``reshape``); an input like that keeps the model unbatched.

    Raises:
        WorkloadError: a tensor's type is none of Triton's, or ``running`` is impossible.
    """
    if running.accelerator not in ACCELERATORS:
        raise WorkloadError(
            f"unknown accelerator '{running.accelerator}'; allowed: {', '.join(ACCELERATORS)}"
        )
    inputs, outputs = manifest["inputs"], manifest["outputs"]
    batched = all(list(each["shape"])[:1] == [-1] for each in (*inputs, *outputs)) and all(
        len(each["shape"]) > 1 for each in inputs
    )
    kind = "KIND_GPU" if running.gpus else "KIND_CPU"
    parts = [
        f"name: {_text(model)}",
        'backend: "onnxruntime"',
        f"max_batch_size: {running.max_batch if batched else 0}",
        *(_tensor("input", each, batched) for each in inputs),
        *(_tensor("output", each, batched) for each in outputs),
        f"version_policy {{ specific {{ versions: [ {version} ] }} }}",
        f"instance_group [ {{ kind: {kind} count: 1 }} ]",
    ]
    if batched:
        # Without a delay: what waits when the model is free is run together.
        parts.append("dynamic_batching { }")
    if running.accelerator != "none":
        precision = "FP16" if running.accelerator == "tensorrt-fp16" else "FP32"
        parts.append(
            "optimization { execution_accelerators { gpu_execution_accelerator [ { "
            f'name: "tensorrt" parameters {{ key: "precision_mode" value: "{precision}" }} '
            "} ] } }"
        )
    return "\n".join(parts) + "\n"


def _tensor(role: str, tensor: Mapping[str, Any], batched: bool) -> str:
    name, datatype = tensor["name"], tensor["datatype"]
    if datatype == "BYTES":
        kind = "TYPE_STRING"
    elif datatype in _TYPES:
        kind = f"TYPE_{datatype}"
    else:
        raise WorkloadError(f"{role} {name!r} is {datatype}, which Triton has no type for")
    shape: Sequence[int] = list(tensor["shape"])
    sizes = list(shape)[1:] if batched else list(shape)
    reshape = ""
    if not sizes:
        sizes, reshape = [1], " reshape { shape: [ ] }"
    dims = ", ".join(str(size) for size in sizes)
    return f"{role} [ {{ name: {_text(name)} data_type: {kind} dims: [ {dims} ]{reshape} }} ]"


def _text(value: object) -> str:
    """Return a text in protobuf's text format, whose escapes JSON's ASCII form is a part of."""
    return json.dumps(str(value))
