"""The end of a run: evaluation on the held-out part, the model's file, the record."""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from falaj.workloads.files import write_json_atomic
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import checkpoint, evaluation, hardware, models
from falaj.workloads.training import record as records
from falaj.workloads.training.loop import Position, predict
from falaj.workloads.training.materials import Materials, features
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.snapshot import Dataset


@dataclass(frozen=True)
class Setting:
    """What a run is given.

    Attributes:
        dataset: the rows.
        parameters: the resolved parameters.
        output: the run's folder.
        keyring: seals the run's files; None leaves them plain.
        identity: names the run by its data and parameters.
        resume: whether a checkpoint in the folder is to be continued; the leader's counts.
        metrics: address and port that figures for Prometheus are served on; None: nowhere.
    """

    dataset: Dataset
    parameters: Parameters
    output: Path
    keyring: KeyRing | None
    identity: str
    resume: bool
    metrics: str | None = None


def finish(
    setting: Setting,
    materials: Materials,
    module: nn.Module,
    position: Position,
    utilisation: dict[str, Any],
) -> dict[str, Any]:
    """Evaluate ``module``, write the model and then the record, and return the record.

    Raises:
        StorageFullError: no space; the checkpoint is still there, so running again ends the run.
    """
    dataset = setting.dataset
    state = {
        "format": records.MODEL_FORMAT,
        "identity": setting.identity,
        "architecture": json.dumps(materials.architecture.to_json()),
        "state": {name: tensor.cpu() for name, tensor in module.state_dict().items()},
    }
    context = records.context_of(setting.identity, records.MODEL)
    checkpoint.save(setting.output / records.MODEL, state, setting.keyring, context)
    recipe = materials.preprocessing
    named = ("digest", "content_digest", "split_digest", "rows", "seed", "source")
    record = {
        "format": records.FORMAT,
        "status": "finished",
        "identity": setting.identity,
        "family": dataset.family,
        "task": dataset.task,
        "classes": dataset.classes,
        "target": materials.target_scale,
        "target_name": dataset.description["target"],
        "preprocessing": recipe.to_json() if recipe is not None else None,
        "parameters": setting.parameters.to_json(),
        "dataset": {key: dataset.description[key] for key in named},
        "model": {
            "architecture": materials.architecture.to_json(),
            "parameters": models.parameter_count(module),
        },
        "metrics": {
            "held_out": evaluate(dataset, materials, module),
            "validation": {"loss": position.best_loss, "epoch": position.best_epoch + 1},
        },
        "epochs": position.epoch,
        "ended": position.ended,
        "timings": {"training_seconds": round(position.seconds, 3)},
        "utilisation": utilisation,
        "environment": hardware.describe(setting.parameters.device),
        "code": records.code_version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    write_json_atomic(setting.output / records.RECORD, record)
    return record


def evaluate(dataset: Dataset, materials: Materials, module: nn.Module) -> dict[str, Any]:
    """Return the figures of ``module`` on the held-out part, in the target's own unit."""
    device = next(module.parameters()).device
    inputs = features(dataset, "held_out", materials.preprocessing).to(device)
    outputs = predict(module.eval(), inputs).cpu()
    labels = dataset.labels[dataset.rows("held_out")]
    if dataset.classes is not None:
        return evaluation.classification(labels, outputs.argmax(1).numpy(), dataset.classes)
    scale = materials.target_scale or {"mean": 0.0, "scale": 1.0}
    values = outputs.squeeze(1).double().numpy() * scale["scale"] + scale["mean"]
    return evaluation.regression(labels, values)


def report_finished(record: dict[str, Any], output: Path, progress: Progress) -> None:
    """Emit the last event of a run that is done."""
    figure = records.headline(record)
    name = figure["metric_name"]
    shown = f"{100 * figure[name]:.2f} %" if name == "accuracy" else f"{figure[name]:.4g}"
    progress.emit(
        "finished",
        f"held-out {name} {shown} after {record['epochs']} epochs; record in {output}",
        epoch=record["epochs"], epochs=record["parameters"]["epochs"], seconds_left=0,
        path=str(output), **figure,
    )  # fmt: skip
