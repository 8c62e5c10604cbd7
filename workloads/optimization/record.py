"""What an optimisation leaves behind: the models, its record, and the registry's fields."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import make_private_folder, read_json, storage_errors, write_json_atomic
from falaj.workloads.optimization.gate import Decision, Measured, Metric
from falaj.workloads.optimization.runtime import relevant_cpu_flags, versions
from falaj.workloads.registry.sealed import SUFFIX, artifact_path, read_artifact, write_artifact
from falaj.workloads.training.record import code_version

if TYPE_CHECKING:
    from falaj.workloads.registry.keyring import KeyRing

FORMAT = "falaj.optimization/1"
RECORD = "optimization.json"
FIELDS = "fields.json"
MODEL = "model.onnx"
FLOAT_MODEL = "model.float.onnx"


def context_of(run: str, name: str) -> bytes:
    """Return the role that a sealed file is bound to.

    Args:
        run: the identity of the training run.
        name: `MODEL` or `FLOAT_MODEL`.
    """
    return f"optimization:{run}:{name}".encode()


def code_digest() -> str:
    """Return the SHA-256 over the code of this package."""
    state = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        content = path.read_bytes()
        state.update(f"{path.name} {len(content)}\n".encode() + content)
    return state.hexdigest()


@dataclass(frozen=True)
class Outcome:
    """Everything that was found out.

    Attributes:
        key: the digest of what went in.
        metric: what the scores are.
        original: the float model's figures.
        quantised: the 8-bit model's; None if there is none.
        decision: what is served and why.
        bound_points: what the 8-bit model may lose.
        threads: inside an operator, while latency was measured.
        calibration_rows: rows of the training part that ranges were measured on; 0 without.
        reduced_range: whether 8-bit weights were kept to 7 bits.
        parity: the largest difference between graph and module, as a share.
    """

    key: str
    metric: Metric
    original: Measured
    quantised: Measured | None
    decision: Decision
    bound_points: float
    threads: int
    calibration_rows: int
    reduced_range: bool
    parity: float

    def to_json(self) -> dict[str, Any]:
        """Return it as the plain JSON values of optimization.json, without places and files."""
        return {
            "format": FORMAT,
            "key": self.key,
            "accepted": self.decision.accepted,
            "reason": self.decision.reason,
            "metric_name": self.metric,
            "float": self._figures(self.original),
            "int8": self._figures(self.quantised) if self.quantised is not None else None,
            "bound_points": self.bound_points,
            "threads": self.threads,
            "calibration": {"part": "train", "rows": self.calibration_rows},
            "reduced_range": self.reduced_range,
            "parity": self.parity,
            "runtime": versions(),
            "cpu_flags": relevant_cpu_flags(),
            "code": {"version": code_version()["version"], "digest": code_digest()},
        }

    def _figures(self, measured: Measured) -> dict[str, float | int]:
        return {
            self.metric: measured.score,
            "size_bytes": measured.size_bytes,
            "latency_us": round(measured.latency_us, 3),
        }


def manifest_fields(
    optimization: dict[str, Any],
    training: dict[str, Any],
    description: dict[str, Any],
    data_class: str,
) -> dict[str, Any]:
    """Return what the registry puts into the manifest of the package.

    Args:
        optimization: the content of optimization.json.
        training: the content of the run's record.json.
        description: the content of dataset.json.
        data_class: of the data that the model was made from.
    """
    name: str = optimization["metric_name"]
    served = optimization[optimization["accepted"]][name]
    return {
        "family": training["family"],
        "task": training["task"],
        "classes": training["classes"],
        "inputs": optimization["inputs"],
        "outputs": optimization["outputs"],
        "statistics": description["statistics"],
        "dataset": {
            **training["dataset"],
            "target": description["target"],
            "features": description["features"],
            "excluded": description["excluded"],
        },
        "code": {**training["code"], "optimization_digest": optimization["code"]["digest"]},
        "parameters": training["parameters"],
        "metrics": {**training["metrics"], "served": {"metric_name": name, name: served}},
        "lineage": {"run": training["identity"], "dataset": training["dataset"]["digest"]},
        "quantisation": {
            key: optimization[key]
            for key in (
                "accepted", "reason", "metric_name", "float", "int8", "bound_points", "threads",
                "calibration", "reduced_range", "runtime", "cpu_flags",
            )
        },
        "data_class": data_class,
    }  # fmt: skip


def finished(output: Path, key: str, run: str, keyring: KeyRing | None) -> dict[str, Any] | None:
    """Return the record in ``output`` if it was made from the same and its files are whole.

    Args:
        output: the folder of the optimisation.
        key: the digest of what would go in now.
        run: the identity of the training run.
        keyring: the keys that the models are sealed with; None for plain ones.
    """
    try:
        record = read_json(output / RECORD, "optimisation's record")
        read_json(output / FIELDS, "package's fields")
        if record.get("key") != key:
            return None
        for name in (MODEL, FLOAT_MODEL):
            data = read_artifact(output / name, keyring, context_of(run, name))
            if hashlib.sha256(data).hexdigest() != record["files"][name]["sha256"]:
                return None
    except (WorkloadError, KeyError, TypeError, AttributeError):  # damaged: made again
        return None
    return record


def write(
    output: Path,
    models: dict[str, bytes],
    record: dict[str, Any],
    fields: dict[str, Any],
    *,
    run: str,
    keyring: KeyRing | None,
) -> None:
    """Write the models, then the fields, then the record: with it, the rest is complete.

    What an earlier optimisation left in ``output`` goes first, so that no record ever stands
    beside files that it doesn't describe.

    Raises:
        StorageFullError: there is no space; nothing half written stays.
        WorkloadError: the folder can't be written.
    """
    make_private_folder(output)
    with storage_errors(output):
        for name in (RECORD, FIELDS, *models):
            (output / name).unlink(missing_ok=True)
            (output / (name + SUFFIX)).unlink(missing_ok=True)
    for name, data in models.items():
        write_artifact(output / name, data, keyring, context_of(run, name))
    write_json_atomic(output / FIELDS, fields)
    write_json_atomic(output / RECORD, record)


def paths(output: Path, keyring: KeyRing | None) -> dict[str, str]:
    """Return where the files of an optimisation lie, by role."""
    return {
        "path": str(output),
        "model": str(artifact_path(output / MODEL, keyring)),
        "float_model": str(artifact_path(output / FLOAT_MODEL, keyring)),
        "fields": str(output / FIELDS),
        "record": str(output / RECORD),
    }
