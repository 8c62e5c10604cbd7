"""What a run is given, and what it leaves: the model, what it is worth, and the record."""

from __future__ import annotations

import datetime
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from falaj.workloads.bounds import IMAGE_NETWORKS
from falaj.workloads.files import write_json_atomic
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import (
    checkpoint,
    hardware,
    language,
    linear,
    loop,
    models,
    quantisation,
)
from falaj.workloads.training import record as records
from falaj.workloads.training.batches import PreparedData, features, windows
from falaj.workloads.training.distillation import Teacher
from falaj.workloads.training.language import guess_nats, perplexity, tokens_a_character
from falaj.workloads.training.loop import PREDICTED_ROWS, Position, predict
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.own_code import OwnCode
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.start import Start


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
        code: of a team's own model; None: the model is one of ours.
        teacher: whose answers are learned; None: nobody's.
        start: the weights that it begins with; None: they are drawn.
        tuning: what was measured before it began; None: nothing was.
    """

    dataset: Dataset
    parameters: Parameters
    output: Path
    keyring: KeyRing | None
    identity: str
    resume: bool
    metrics: str | None = None
    code: OwnCode | None = None
    teacher: Teacher | None = None
    start: Start | None = None
    tuning: dict[str, Any] | None = None


def finish(
    setting: Setting,
    prepared: PreparedData,
    module: nn.Module,
    position: Position,
    utilisation: dict[str, Any],
    *,
    chosen: dict[str, Any] | None = None,
    lineage: dict[str, Any] | None = None,
    ranges: quantisation.Ranges | None = None,
) -> dict[str, Any]:
    """Evaluate ``module``, write the model and then the record, and return the record.

    Args:
        setting: what the run was given.
        prepared: the rows, with the architecture of ``module``.
        module: the model that is kept.
        position: how far training came.
        utilisation: of the hardware.
        chosen: why it is kept, of `choice.choose`. Default: nothing else was tried.
        lineage: what else the record says of how the model came to be.
        ranges: of what its layers take and give, which 8 bits are to have. Default: not learned.

    Raises:
        StorageFullError: no space; the checkpoint is still there, so running again ends the run.
    """
    dataset = setting.dataset
    state = {
        "format": records.MODEL_FORMAT,
        "identity": setting.identity,
        "architecture": json.dumps(prepared.architecture.to_json()),
        "state": {name: tensor.cpu() for name, tensor in module.state_dict().items()},
    }
    if ranges is not None:
        state["ranges"] = quantisation.to_state(ranges)
    if dataset.pairs is not None:
        state["vocabulary"] = dataset.pairs.to_bytes().decode()
    context = records.context_of(setting.identity, records.MODEL)
    checkpoint.save(setting.output / records.MODEL, state, setting.keyring, context)
    recipe = prepared.preprocessing
    named = ("digest", "content_digest", "split_digest", "rows", "seed", "source")
    record = {
        "format": records.FORMAT,
        "status": "finished",
        "identity": setting.identity,
        "family": dataset.family,
        "task": dataset.task,
        "classes": dataset.classes,
        "target": prepared.target_scale,
        "target_name": dataset.description["target"],
        "preprocessing": recipe.to_json() if recipe is not None else None,
        "parameters": setting.parameters.to_json(),
        **({"teacher": setting.teacher.to_json()} if setting.teacher is not None else {}),
        "dataset": {
            **{key: dataset.description[key] for key in named},
            **({"vocabulary": dataset.pairs.described} if dataset.pairs is not None else {}),
            **({"chat": template.to_json()} if (template := dataset.template) else {}),
        },
        "model": {
            "architecture": prepared.architecture.to_json(),
            "parameters": models.parameter_count(module),
            "choice": chosen or {"kept": "network"},
        },
        "metrics": {
            "held_out": evaluate(
                dataset, prepared, module, rows_at_a_time=rows_asked(setting.parameters)
            ),
            "validation": {"loss": position.best_loss, "epoch": position.best_epoch + 1},
        },
        "epochs": position.epoch - position.skipped,
        "ended": position.ended,
        "timings": {
            "training_seconds": round(position.seconds, 3),
            **_rows_share(position.history),
        },
        "utilisation": utilisation,
        "environment": hardware.describe(setting.parameters.device),
        "code": records.code_version(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **(lineage or {}),
    }
    write_json_atomic(setting.output / records.RECORD, record)
    return record


def _rows_share(history: list[dict[str, Any]]) -> dict[str, float]:
    """The share of all epochs' time in which the first process waited for rows.

    A parameter server, whose workers have the rows, doesn't know it.
    """
    before = waited = 0.0
    for line in history:
        if "rows_share" not in line:
            return {}
        waited += line["rows_share"] * (line["seconds"] - before)
        before = line["seconds"]
    return {"rows_share": round(waited / before, 4) if before > 0 else 0.0}


def evaluate(
    dataset: Dataset,
    prepared: PreparedData,
    module: nn.Module,
    *,
    rows_at_a_time: int = PREDICTED_ROWS,
) -> dict[str, Any]:
    """Return the figures of ``module`` on the held-out part, in the target's own unit."""
    device = next(iter(module.state_dict().values())).device
    if dataset.family == language.FAMILY:
        tokens, targets = windows(dataset, "held_out")
        nats, hits = loop.follow(
            module.eval(), tokens.to(device), targets.to(device), prepared.architecture.outputs
        )
        return _of_text(dataset, targets.numpy(), prepared.fit[1].numpy(), nats, hits)
    inputs = features(dataset, "held_out", prepared.preprocessing).to(device)
    outputs = predict(module.eval(), inputs, rows_at_a_time).cpu()
    labels = dataset.labels[dataset.rows("held_out")]
    if dataset.classes is not None:
        return loop.classification(labels, outputs.argmax(1).numpy(), dataset.classes)
    scale = prepared.target_scale or {"mean": 0.0, "scale": 1.0}
    values = outputs.squeeze(1).double().numpy() * scale["scale"] + scale["mean"]
    return loop.regression(labels, values)


def _of_text(
    dataset: Dataset, targets: NDArray[Any], learned: NDArray[Any], nats: float, hits: float
) -> dict[str, Any]:
    """The figures of nats and hits of a token; all but the accuracy are of characters."""
    vocabulary = dataset.vocabulary
    assert vocabulary is not None  # noqa: S101 - it is a text
    share, rows = tokens_a_character(vocabulary, targets), len(targets)
    targets = targets[targets != language.IGNORED]
    found = {
        "rows": rows,
        "characters": round(targets.size / share),
        records.FIRST[dataset.task]: nats * share,
        "perplexity": perplexity(nats * share),
        "accuracy": hits,
        "baseline_nats": guess_nats(learned, targets) * share,
    }
    if dataset.pairs is not None:
        sizes = np.array([len(each) for each in dataset.pairs.contents])[targets]
        found |= {
            "tokens": targets.size,
            "nats_per_token": nats,
            "bits_per_byte": nats * targets.size / math.log(2) / int(sizes.sum()),
        }
    return found


def rows_asked(parameters: Parameters) -> int:
    """Return of how many rows a model is asked at once: a large one, as it learns."""
    return parameters.batch_size if parameters.may_normalise else PREDICTED_ROWS


_KEPT = {
    "network": "the network",
    linear.NAME: "a linear model, as what it was compared with did no better",
    "trees": "trees, which did better than the network",
    "own": "your own model",
    **{name: name for name in IMAGE_NETWORKS},
}


def report_finished(record: dict[str, Any], output: Path, progress: Progress) -> None:
    """Emit the last event of a run that is done."""
    figure = records.headline(record)
    name = figure["metric_name"]
    shown = records.figure(name, figure[name])
    progress.emit(
        "finished",
        f"held-out {name} {shown} of {_KEPT[record['model']['choice']['kept']]} after "
        f"{record['epochs']} epochs; record in {output}",
        epoch=record["epochs"], epochs=record["parameters"]["epochs"], seconds_left=0,
        path=str(output), **figure,
    )  # fmt: skip
