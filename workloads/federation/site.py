"""A site: trains the round's model on its own rows and sends what changed."""

from __future__ import annotations

import http.client
import json
import math
import ssl
import time
from collections.abc import Mapping

import torch
from torch import Tensor

from falaj.workloads.errors import LOST, STOPPED, WorkloadError
from falaj.workloads.federation import updates
from falaj.workloads.federation.plan import Task, check_fit
from falaj.workloads.federation.transport import Link
from falaj.workloads.training import optimisers
from falaj.workloads.training.batches import Augmentation, Batches, features
from falaj.workloads.training.loop import row_losses
from falaj.workloads.training.options import default_threads
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.tensors import backward, step_by, tensor_of

_PAUSE_SECONDS = 0.5
_MOST_TASK_BYTES = 64 * 1024 * 1024


def take_part(link: Link, dataset: Dataset, stop: StopRequest, progress: Progress) -> int:
    """Train in each round until the coordinator is done.

    Returns:
        0 done, 74 the coordinator was lost for too long, 75 stopped.

    Raises:
        WorkloadError: the coordinator refuses this site, or its task isn't for these rows.
    """
    reached = time.monotonic()
    task: Task | None = None
    sent = 0
    while not stop.asked():
        try:
            if task is None:
                status, body = link.ask("GET", "/v1/task")
                task = Task.from_bytes(_accepted(status, body))
                check_fit(task, dataset)
                torch.set_num_threads(default_threads(1, task.plan.batch_size))
            number, data = _round(link, task)
            reached = time.monotonic()
            if number is None:
                progress.emit("finished", "all rounds of the federation are done", updates=sent)
                return 0
            if data is None:
                time.sleep(_PAUSE_SECONDS)
                continue
            message = learn(task, dataset, number, data)
            status, body = link.ask("POST", f"/v1/rounds/{number}/update", message)
            if status == http.client.CONFLICT:  # the round ended without this site
                continue
            _accepted(status, body)
            sent += 1
            progress.emit("round", f"round {number + 1}/{task.plan.rounds} sent", round=number)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                raise WorkloadError(f"{link.host} isn't the coordinator: {error}") from error
            if time.monotonic() - reached > link.patience_seconds:
                progress.emit("lost", f"the coordinator can't be reached: {error}")
                return LOST
            time.sleep(_PAUSE_SECONDS)
    return STOPPED


def learn(task: Task, dataset: Dataset, number: int, data: bytes) -> bytes:
    """Train a round's model on this site's rows.

    Args:
        task: what is learned.
        dataset: this site's rows.
        number: of the round.
        data: the model as the coordinator sent it.

    Returns:
        The update: what changed, clipped, with the number of rows and the loss.
    """
    plan = task.plan
    module = task.build()
    before, _ = updates.decode(data, module.state_dict())
    module.load_state_dict(before)
    inputs = features(dataset, "train", task.preprocessing)
    labels = labels_of(dataset, task.target_scale)
    recipe = task.preprocessing
    batches = Batches(
        inputs, labels, torch.ones(len(labels)).numpy(),
        batch_size=plan.batch_size, accumulation=1,
        augmentation=Augmentation(recipe.blocks() if recipe else None),
        seed=plan.seed, rank=0, processes=1,
    )  # fmt: skip
    optimiser = optimisers.AdamW(module.parameters(), lr=plan.learning_rate, weight_decay=0.02)
    loss = math.nan
    for epoch in range(number * plan.epochs, (number + 1) * plan.epochs):
        order, total = batches.order(epoch), 0.0
        for step in range(batches.steps):
            optimiser.zero_grad(set_to_none=True)
            for share in batches.shares(order, epoch, step):
                losses = row_losses(module(share.inputs), share.labels, task.task, 0.0)
                part = (losses * share.weights).sum()
                backward(part)
                total += float(part.detach())
            step_by(optimiser)
        loss = total / batches.steps
    after = module.state_dict()
    change = {name: after[name].float() - before[name] for name in before}
    rows = 0 if plan.equal else len(labels)
    return updates.encode(updates.clipped(change, plan.clip), rows=rows, loss=loss)


def _round(link: Link, task: Task) -> tuple[int | None, bytes | None]:
    """Number and model of the round under way.

    No model where this site has answered, or the round ended meanwhile; no number when all are
    done.
    """
    status, body = link.ask("GET", "/v1/round")
    if status == http.client.GONE:
        return None, None
    try:
        state = json.loads(_accepted(status, body))
        number, answered = int(state["round"]), bool(state["answered"])
    except (KeyError, TypeError, ValueError) as error:
        raise WorkloadError(f"the coordinator's round can't be read: {error}") from error
    if not 0 <= number < task.plan.rounds:
        raise WorkloadError(f"the coordinator is in round {number} of {task.plan.rounds}")
    if answered:
        return number, None
    status, body = link.ask("GET", f"/v1/rounds/{number}/model")
    if status in (http.client.CONFLICT, http.client.GONE):
        return number, None
    return number, _accepted(status, body)


def _accepted(status: int, body: bytes) -> bytes:
    if status == http.client.OK and len(body) <= _MOST_TASK_BYTES:
        return body
    raise WorkloadError(f"the coordinator refused: {status} {body[:500].decode(errors='replace')}")


def labels_of(dataset: Dataset, scale: Mapping[str, float] | None) -> Tensor:
    """Labels of the rows for training (N,): classes, or numbers on the other side's ``scale``."""
    labels = dataset.labels[dataset.rows("train")]
    if scale is None:
        return tensor_of(labels.astype("int64"))
    scaled = (labels - scale["mean"]) / scale["scale"]
    return tensor_of(scaled.astype("float32"))
