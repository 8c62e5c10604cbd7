"""A site: trains the round's model on its own rows and sends what changed."""

from __future__ import annotations

import http.client
import math
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from falaj.workloads.errors import LOST, REFUSED, STOPPED, WorkloadError
from falaj.workloads.federation import updates
from falaj.workloads.federation.floor import Floor, encode_refusal
from falaj.workloads.federation.plan import Task, check_fit
from falaj.workloads.federation.secure.member import Member, SecureSite, join
from falaj.workloads.federation.states import State, accepted, read_model, read_state
from falaj.workloads.federation.transport import Link
from falaj.workloads.federation.updates import Update
from falaj.workloads.training import optimisers
from falaj.workloads.training.batches import Augmentation, Batches, features
from falaj.workloads.training.loop import row_losses
from falaj.workloads.training.options import default_threads
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.snapshot import Dataset
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.tensors import backward, step_by, tensor_of

_PAUSE_SECONDS = 0.5


def take_part(
    link: Link,
    dataset: Dataset,
    stop: StopRequest,
    progress: Progress,
    member: Member | None = None,
    *,
    floor: Floor | None = None,
) -> int:
    """Train in each round until the coordinator is done.

    Args:
        link: to the coordinator.
        dataset: this site's rows.
        stop: ends it after the request under way.
        progress: tells the person.
        member: who this site is to the others, where it takes part in secure aggregation alone.
        floor: the least privacy that it takes; None: whatever the coordinator asks for.

    Returns:
        0 done, 2 it refused each round, 74 the coordinator was lost for too long, 75 stopped.

    Raises:
        WorkloadError: the coordinator refuses this site, its task isn't for these rows, it asks
            for what a site doesn't tell, or each round of its plan would be refused.
    """
    reached = time.monotonic()
    joined: _Joined | None = None
    sent = 0
    while not stop.asked():
        try:
            if joined is None:
                joined = _join(link, dataset, member, floor or Floor(), progress)
            rounds = joined.task.plan.rounds
            state = read_state(link, rounds)
            reached = time.monotonic()
            if state is None:
                if joined.refused and not sent:
                    text = "all rounds of the federation are done, and this site took part in none"
                    progress.emit("refused", text, refused=len(joined.refused))
                    return REFUSED
                progress.emit("finished", "all rounds of the federation are done", updates=sent)
                return 0
            if not state.answered and joined.refuses(link, state, progress):
                time.sleep(_PAUSE_SECONDS)
            elif joined.answer(link, state):
                sent += 1
                text = f"round {state.number + 1}/{rounds} sent"
                progress.emit("round", text, round=state.number)
            else:
                time.sleep(joined.pause_seconds)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                raise WorkloadError(f"{link.host} isn't the coordinator: {error}") from error
            if time.monotonic() - reached > link.patience_seconds:
                progress.emit("lost", f"the coordinator can't be reached: {error}")
                return LOST
            time.sleep(_PAUSE_SECONDS)
    return STOPPED


@dataclass(frozen=True)
class _Joined:
    """A site that knows its task.

    Attributes:
        task: what is learned.
        dataset: this site's rows.
        hidden: its side of secure aggregation; None where updates are seen.
        floor: the least privacy that this site takes.
        refused: rounds that it refused, with the reasons that a person was told.
    """

    task: Task
    dataset: Dataset
    hidden: SecureSite | None
    floor: Floor
    refused: dict[int, list[str]] = field(default_factory=dict[int, list[str]])

    @property
    def pause_seconds(self) -> float:
        """Until the coordinator is asked again."""
        return _PAUSE_SECONDS if self.hidden is None else self.hidden.pause_seconds

    def refuses(self, link: Link, state: State, progress: Progress) -> bool:
        """Whether the round asks for less privacy than this site takes, which both sides are told.

        What is asked is judged before each message: a round that was taken and then asks for less
        gets nothing more of this site, and one that asks for enough later is taken."""
        reasons = self.floor.refuses(self.task.plan, state.asks)
        if not reasons:
            return False
        if self.refused.get(state.number) != reasons:
            self.refused[state.number] = reasons
            which = f"round {state.number + 1}/{self.task.plan.rounds}"
            text = f"{which} refused: {'; '.join(reasons)}"
            progress.emit("refused", text, round=state.number, reasons=reasons)
        if not state.refused:
            _tell_refusal(link, state.number, reasons)
        return True

    def answer(self, link: Link, state: State) -> bool:
        """Send what the round waits for; whether an update of this site is now with the
        coordinator."""
        if self.hidden is not None:
            return self.hidden.answer(link, state)
        if state.answered:
            return False
        data = read_model(link, state.number)
        if data is None:
            return False
        message = learn(self.task, self.dataset, state.number, data)
        status, body = link.ask("POST", f"/v1/rounds/{state.number}/update", message)
        if status == http.client.CONFLICT:  # the round ended without this site
            return False
        accepted(status, body)
        return True


def _tell_refusal(link: Link, number: int, reasons: list[str]) -> None:
    """Tell the coordinator; one that knows of no refusals waits in vain, as for a lost site."""
    link.ask("POST", f"/v1/rounds/{number}/refusal", encode_refusal(reasons))


def _join(
    link: Link, dataset: Dataset, member: Member | None, floor: Floor, progress: Progress
) -> _Joined:
    status, body = link.ask("GET", "/v1/task")
    task = Task.from_bytes(accepted(status, body))
    if reasons := floor.refuses_plan(task.plan):
        state = read_state(link, task.plan.rounds)
        if state is not None:
            _tell_refusal(link, state.number, reasons)
        raise WorkloadError(
            f"the coordinator's task asks for less privacy than this site takes: "
            f"{'; '.join(reasons)}; nothing was computed of its rows"
        )
    check_fit(task, dataset)
    hidden = join(task.plan, member, body, lambda number, data: train(task, dataset, number, data))
    if told := "; ".join(filter(None, [hidden.told if hidden else "", floor.told])):
        progress.emit("joined", told)
    torch.set_num_threads(default_threads(1, task.plan.batch_size))
    return _Joined(task, dataset, hidden, floor)


def learn(task: Task, dataset: Dataset, number: int, data: bytes) -> bytes:
    """The update of a round as it is sent where it is seen; see `train`."""
    found = train(task, dataset, number, data)
    rows = 0 if task.plan.equal else found.rows
    return updates.encode(found.tensors, rows=rows, loss=found.loss)


def train(task: Task, dataset: Dataset, number: int, data: bytes) -> Update:
    """Train a round's model on this site's rows.

    Args:
        task: what is learned.
        dataset: this site's rows.
        number: of the round.
        data: the model as the coordinator sent it.

    Returns:
        What changed, clipped, with the number of rows and the loss.
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
    return Update(updates.clipped(change, plan.clip), len(labels), loss)


def labels_of(dataset: Dataset, scale: Mapping[str, float] | None) -> Tensor:
    """Labels of the rows for training (N,): classes, or numbers on the other side's ``scale``."""
    labels = dataset.labels[dataset.rows("train")]
    if scale is None:
        return tensor_of(labels.astype("int64"))
    scaled = (labels - scale["mean"]) / scale["scale"]
    return tensor_of(scaled.astype("float32"))
