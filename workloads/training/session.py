"""One training run in one process, from the snapshot to the record; resumes where it stopped."""

from __future__ import annotations

import copy
import math
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from falaj.workloads.errors import STOPPED, CodeError, WorkloadError
from falaj.workloads.registry.sealed import write_artifact
from falaj.workloads.training import (
    checkpoint,
    compiling,
    distributed,
    hardware,
    loop,
    lora,
    models,
    own_model,
    parts,
    pruning,
    quantisation,
)
from falaj.workloads.training import record as records
from falaj.workloads.training.batches import PreparedData, prepare
from falaj.workloads.training.choice import choose
from falaj.workloads.training.decoder import Decoder
from falaj.workloads.training.distillation import Distillation
from falaj.workloads.training.distributed import Team
from falaj.workloads.training.finishing import (
    Setting,
    evaluate,
    finish,
    report_finished,
    rows_asked,
)
from falaj.workloads.training.folds import Stopped
from falaj.workloads.training.layout import Grid, layout
from falaj.workloads.training.loop import (
    Optimisation,
    Position,
    copied,
    mixed,
    module_losses,
    predict,
    row_losses,
)
from falaj.workloads.training.options import Parameters
from falaj.workloads.training.own_code import ARCHIVE, OwnCode, OwnModel, unpack
from falaj.workloads.training.own_model import own_loss
from falaj.workloads.training.parts import Writer
from falaj.workloads.training.progress import (
    Exporter,
    Progress,
    Telemetry,
    duration,
    finite_or_none,
)
from falaj.workloads.training.row_shares import RowShare
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.streamed import StreamedBatches
from falaj.workloads.training.tensors import numbers_of, own_randomness

if TYPE_CHECKING:
    from falaj.workloads.training.divided import DividedOptimisation


_LONGER = 4
"""Times as long that is measured at most where rows are read ahead."""
_EXPORTED_ROWS = 3
"""Other than the two that a model is exported with: one that counts on those is found out."""


class Session:
    """Trains until done or asked to stop.

    Args:
        setting: data, parameters and places.
        team: the processes of the run.
        stop: says when to stop early.
        progress: tells the person.
    """

    def __init__(
        self, setting: Setting, team: Team, stop: StopRequest, progress: Progress
    ) -> None:
        self._setting, self._team, self._stop, self._progress = setting, team, stop, progress
        parameters = setting.parameters
        hardware.make_deterministic(parameters.seed, parameters.threads)
        start = setting.start
        self._built_of = self._code()
        code, own = self._built_of, parameters.own
        self._prepared = prepare(
            setting.dataset, parameters,
            recipe=start.preprocessing if start is not None else None,
            scale=start.target if start is not None else None,
            raw_numbers=bool(code and own and own_model.takes_raw_numbers(code, own)),
        )  # fmt: skip
        module = models.build(self._prepared.architecture, self._built_of)
        if start is not None:
            self._check_same("--start", start.digest)
            start.fill(module)
        self._adapted: dict[str, Any] | None = None
        if parameters.lora_rank:
            lora.add(module, parameters)
            self._adapted = lora.to_json(module, parameters)
        if parameters.quantisation_aware:
            quantisation.prepare(module)
        divided = layout(parameters)
        self._grid = Grid(divided, team) if divided.is_divided else None
        self._share = RowShare.of_process(divided, self._grid, team)
        # What a normalisation counts is the leader's, unless all have to take part.
        counts = module.state_dict().keys() - {name for name, _ in module.named_parameters()}
        self._judges_with_others = team.processes > 1 and (self._grid is not None or not counts)
        inputs, labels = (tensor.to(team.device) for tensor in self._prepared.fit)
        self._validation = tuple(tensor.to(team.device) for tensor in self._prepared.validation)
        self._batches = self._share.batches(
            setting.dataset, self._prepared, (inputs, labels), parameters, team.device
        )
        self._unsteady = frozenset[str]()
        if parameters.own is not None:
            self._unsteady = self._try_out(module.to(team.device), parameters.own, inputs, labels)
        # Layers that only running them makes are there from here on.
        self._count = self._learned(module)
        # What is exported as training begins: whole, where it will be divided.
        is_exported = parameters.own is not None and team.leads and not setting.resume
        self._begun = copy.deepcopy(module).cpu().eval() if is_exported else None
        if isinstance(module, Decoder) and parameters.recompute == "layers":
            module.recompute()
        self._compilation = compiling.with_place(compiling.choose(parameters))
        sample = None if parameters.own is None else inputs[: self._batches.least_rows]
        self._optimisation = self._learner(module, parameters, sample)
        self._writer = Writer(setting.output, setting.keyring, setting.identity, team)
        self._position = Position()
        self._kept_digest = ""
        self._telemetry = Telemetry()
        self._exporter: Exporter | None = None
        self._started = 0.0
        self._from_checkpoint = 0.0

    def _learned(self, module: nn.Module) -> int:
        """How many numbers are learned."""
        if self._adapted:
            return self._adapted["parameters"]
        if self._setting.parameters.own is not None:
            return sum(each.numel() for each in module.parameters() if each.requires_grad)
        return models.parameter_count(module)

    def _learner(
        self, module: nn.Module, parameters: Parameters, sample: Tensor | None
    ) -> Optimisation | DividedOptimisation:
        task, outputs = self._setting.dataset.task, self._prepared.architecture.outputs
        if self._grid is None:
            return Optimisation(
                module, self._batches, parameters, self._team, task,
                distillation=self._distillation(), unsteady=self._unsteady,
                compilation=self._compilation,
            )  # fmt: skip
        # Only here: it takes a second to import.
        from falaj.workloads.training.divided import DividedOptimisation  # noqa: PLC0415

        return DividedOptimisation(
            module, self._batches, parameters, self._grid, task=task, outputs=outputs,
            compilation=self._compilation, sample=sample,
        )  # fmt: skip

    def _distillation(self) -> Distillation | None:
        """What mixes a teacher's answers into the loss; all processes need the same teacher."""
        teacher, parameters = self._setting.teacher, self._setting.parameters
        if teacher is None:
            return None
        self._check_same("--teacher", teacher.digest)
        return Distillation(
            teacher.trained.module, self._team.device, self._setting.dataset.task,
            temperature=parameters.distil_temperature, weight=parameters.distil_weight,
        )  # fmt: skip

    def _check_same(self, option: str, digest: str) -> None:
        """Refuse another run in one process than in the others."""
        team = self._team
        if team.processes > 1 and team.any(team.share(digest.encode()) != digest.encode()):
            raise WorkloadError(
                f"{option} is another run in one of the processes: name a folder that all "
                "machines share"
            )

    def _code(self) -> OwnCode | None:
        """A team's own code: in every process the leader's, which goes with the run."""
        setting, team = self._setting, self._team
        if setting.code is None:
            return None
        archive = setting.code.archive()
        if team.leads:
            context = records.context_of(setting.identity, ARCHIVE)
            write_artifact(setting.output / ARCHIVE, archive, setting.keyring, context)
        if team.processes == 1:
            return setting.code
        # The folder's content may have changed since the other processes began.
        shared = team.share(archive)
        digest = team.share(setting.code.digest.encode())
        return unpack(shared or b"", (digest or b"").decode(), setting.output / ARCHIVE)

    def _try_out(
        self, module: nn.Module, own: OwnModel, inputs: Tensor, labels: Tensor
    ) -> frozenset[str]:
        """Refuse a team's own model that can't learn or be judged, before it trains.

        Returns:
            As `own_model.try_out`.
        """
        parameters, task = self._setting.parameters, self._setting.dataset.task
        if parameters.label_smoothing and own_loss(module) is not None:
            raise WorkloadError(
                f"--label-smoothing {parameters.label_smoothing:g}: {own.name} has a loss of its "
                "own, which decides that; leave it out"
            )
        rows = self._batches.least_rows
        return own_model.try_out(
            module, own, (inputs[:rows], labels[:rows]), self._prepared.architecture.outputs,
            losses=lambda tried, given, wanted: module_losses(
                tried, given, wanted, task, parameters.label_smoothing
            ),
            optimizer=lambda tried: own_model.own_optimizer(
                tried, parameters.learning_rate, parameters.weight_decay
            ),
            precision=mixed(parameters.precision, self._team.device.type),
            several=self._team.processes > 1,
        )  # fmt: skip

    def try_export(self) -> None:
        """Refuse a team's own model that can't be served later: it is exported as it begins.

        Raises:
            WorkloadError: ONNX can't express it, or computes something else.
        """
        # Loaded for these alone: it takes a second.
        from falaj.workloads.optimization.comparison import check_core  # noqa: PLC0415
        from falaj.workloads.optimization.export import export_module  # noqa: PLC0415

        module, self._begun = self._begun, None
        if module is None:
            raise AssertionError("it is asked for once, where a model of a team's own begins")
        with own_randomness():
            served = models.exported_of(module, self._setting.parameters.own)
            core = export_module(served, self._prepared.architecture.shape)
            check_core(core.SerializeToString(), module, self._prepared.fit[0][:_EXPORTED_ROWS])

    def run(self) -> int:
        """Train, evaluate, write; return 0, or 75 when asked to stop."""
        self._started = time.monotonic()
        self._announce(resumed=self._restore())
        self._telemetry.start()
        if self._setting.metrics is not None and distributed.is_first_of_machine():
            self._exporter = Exporter(self._setting.metrics, self._telemetry.latest)
        try:
            while self._position.ended is None:
                if not self._epoch():
                    return self._stopped()
        finally:
            self._batches.close()
            utilisation = self._telemetry.stop()
            if self._exporter is not None:
                self._exporter.close()
        self._writer.finish()
        module = self._optimisation.best_module(self._fresh)
        is_whole = True
        if self._team.leads:
            self._position.seconds = self._seconds()
            is_whole = self._keep(module, utilisation)
        # The others wait for the leader. The last epoch's checkpoint has all that was learned.
        if self._team.any(not is_whole):
            return self._say_stopped("while models were compared")
        return 0

    def _keep(self, module: nn.Module, utilisation: dict[str, Any]) -> bool:
        """Choose what is kept, and write model and record; return False when asked to stop."""
        setting, parameters = self._setting, self._setting.parameters
        ranges = quantisation.take_ranges(module) if parameters.quantisation_aware else None
        if parameters.lora_rank:
            lora.merge(module)
        try:
            found = choose(
                setting.dataset, self._smaller(module), module, parameters,
                is_stopped=self._stop.asked, device=self._team.device,
            )  # fmt: skip
        except Stopped:
            return False
        record = finish(
            setting, found.prepared, found.module, self._position, utilisation,
            chosen=found.figures, lineage=self._lineage(), ranges=ranges,
        )  # fmt: skip
        report_finished(record, setting.output, self._progress)
        return True

    def _lineage(self) -> dict[str, Any]:
        """What the record says of whether it was compiled, and of what was measured before.

        And of the weights that it began with, and of what is added to those.
        """
        setting = self._setting
        measured: dict[str, Any] = {"compile": self._compilation.to_json()}
        if setting.tuning is not None:
            measured["tuning"] = setting.tuning
        if setting.start is None:
            return measured
        module = self._fresh()
        setting.start.fill(module)
        found = evaluate(
            setting.dataset, self._prepared, module.to(self._team.device),
            rows_at_a_time=rows_asked(setting.parameters),
        )  # fmt: skip
        name = records.FIRST[setting.dataset.task]
        start = {**setting.start.to_json(), "before": {name: found[name]}}
        lora_of = {"lora": self._adapted} if self._adapted else {}
        return {**measured, "start": start, **lora_of}

    def _smaller(self, module: nn.Module) -> PreparedData:
        """Take out of the network what was held at 0; return the data with what it is then."""
        share = self._setting.parameters.prune
        if not share:
            return self._prepared
        pruning.cut(module, pruning.kept_units(module, share))
        architecture = replace(
            self._prepared.architecture, widths=pruning.widths_of(module)
        )  # fmt: skip
        return replace(self._prepared, architecture=architecture)

    def _fresh(self) -> nn.Module:
        """A module with weights of no account."""
        with own_randomness():
            return models.build(self._prepared.architecture, self._built_of)

    def _epoch(self) -> bool:
        """Go through the rest of the current epoch; return False when asked to stop."""
        position, parameters = self._position, self._setting.parameters
        order = self._batches.order(position.epoch)
        loss = torch.tensor(position.loss, dtype=torch.float64, device=self._team.device)
        norm = torch.tensor(position.gradient_norm, dtype=torch.float64, device=self._team.device)
        self._optimisation.pace.begin_epoch()
        if isinstance(self._optimisation, Optimisation):
            self._optimisation.begin_epoch(position.epoch)
        while position.step < self._batches.steps:
            is_asked, is_writing = self._team.any_of((self._stop.asked(), self._writer.is_writing))
            if self._writer.is_begun and not is_writing:
                self._writer.finish()
            if is_asked:
                position.loss, position.gradient_norm = float(loss), float(norm)
                return False
            step_loss, step_norm = self._step(order)
            loss += step_loss
            norm += step_norm
            position.step += 1
            every = parameters.checkpoint_steps
            if every and position.step % every == 0 and position.step < self._batches.steps:
                position.loss, position.gradient_norm = float(loss), float(norm)
                self._checkpoint()
        self._close_epoch(float(loss), float(norm))
        last = position.ended is not None
        if last or position.epoch % parameters.checkpoint_every == 0:
            self._checkpoint()
        return True

    def _step(self, order: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Learn from the batch that is next; return its loss, of all processes, and its norm."""
        position = self._position
        loss, norm = self._optimisation.step(order, position.epoch, position.step)
        loss = self._team.sum(loss)
        if self._optimisation.has_diverged(loss, norm):
            place = f"{self._place}, step {position.step + 1} of {self._batches.steps}"
            reason = self._optimisation.watch.step(place, loss=float(loss))
            # The first process speaks for all, and one that knows the layer for itself.
            found = self._optimisation.watch.has_found
            raise CodeError(reason) if found else WorkloadError(reason)
        return loss, norm

    def measure(self, seconds: float, *, warm: int) -> tuple[float, float]:
        """Learn from the first batches, as `run` does, and keep nothing; all processes must.

        Args:
            seconds: that steps are timed for; one step at least.
            warm: steps before that; where they take longer than ``seconds``, they are timed.

        Returns:
            Rows a second, and the share of the time in which this process waited for rows. Steps
            count by their median, which what else the machine does now and then doesn't change; on
            a GPU, which goes on while the next one is prepared, and where rows are read
            meanwhile, whose waits come seldom, by their mean.
        """
        is_on_gpu = self._team.device.type == "cuda"
        least, longest = 1, seconds
        if isinstance(self._batches, StreamedBatches):
            # What was read ahead at the begin has to be used up.
            least, longest = 2 * self._batches.ahead, _LONGER * seconds
        if isinstance(self._optimisation, Optimisation):
            self._optimisation.begin_epoch(0)
        self._optimisation.pace.begin_epoch()
        first = self._timed(most=warm, least=1, seconds=seconds, longest=seconds)
        if is_on_gpu:
            torch.cuda.synchronize()
        begin, end = self._batches.bounds(0)
        if len(first) < warm:
            # A single step takes longer than what its beginning costs more than others.
            share = self._optimisation.pace.end_epoch()["rows_share"]
            return (end - begin) * len(first) / sum(first), share
        self._optimisation.pace.begin_epoch()
        begun = time.perf_counter()
        timed = self._timed(most=None, least=least, seconds=seconds, longest=longest)
        if is_on_gpu:
            torch.cuda.synchronize()
        mean = (time.perf_counter() - begun) / len(timed)
        is_mean = is_on_gpu or isinstance(self._batches, StreamedBatches)
        of_step = mean if is_mean else statistics.median(timed)
        self._batches.close()
        return (end - begin) / of_step, self._optimisation.pace.end_epoch()["rows_share"]

    def _timed(
        self, *, most: int | None, least: int, seconds: float, longest: float
    ) -> list[float]:
        """Do steps until so many seconds are over; return how long each took.

        ``longest`` instead, as long as there were fewer than ``least``.
        """
        position, found = self._position, list[float]()
        begun = last = time.perf_counter()
        while len(found) != most:
            order = self._batches.order(position.epoch)
            while len(found) != most and position.step < self._batches.steps:
                self._step(order)
                position.step += 1
                last, before = time.perf_counter(), last
                found.append(last - before)
                limit = seconds if len(found) >= least else longest
                if self._team.any(last - begun > limit):
                    return found
            if position.step == self._batches.steps:
                position.epoch, position.step = position.epoch + 1, 0
        return found

    @property
    def _place(self) -> str:
        return f"epoch {self._position.epoch + 1}"

    def _turn(self, epoch: int) -> None:
        """Begin to make the network smaller, at once where it learns nothing more."""
        if isinstance(self._optimisation, Optimisation):
            self._optimisation.turn()
        self._position.skipped += epoch - self._position.epoch
        self._position.epoch = epoch

    def _close_epoch(self, loss: float, norm: float) -> None:
        position, parameters = self._position, self._setting.parameters
        pace = self._optimisation.pace.end_epoch()
        judges = self._team.leads or self._judges_with_others
        judged = self._validate() if judges else {"loss": 0.0}
        validation_loss = self._team.from_leader(judged["loss"])
        if not math.isfinite(loss) or not math.isfinite(validation_loss):
            raise WorkloadError(
                self._optimisation.watch.epoch(
                    self._place, "the loss of the rows that it is validated with"
                )
            )
        # One that is still made smaller is no match for what it will be.
        is_changing = self._optimisation.turns <= position.epoch <= self._optimisation.settles
        if validation_loss < position.best_loss or is_changing:
            position.best_loss, position.best_epoch = validation_loss, position.epoch
            self._optimisation.keep_best()
        line = {
            "epoch": position.epoch + 1,
            "steps": (position.epoch + 1) * self._batches.steps,
            "loss": loss / self._batches.steps,
            # float16 meets infinite gradients while it looks for its scale.
            "gradient_norm": finite_or_none(norm / self._batches.steps),
            "learning_rate": self._optimisation.learning_rate,
            **{f"validation_{name}": value for name, value in judged.items()},
        }
        position.epoch, position.step = position.epoch + 1, 0
        position.loss = position.gradient_norm = 0.0
        is_stale = position.epoch - 1 - position.best_epoch >= parameters.patience
        turns = self._optimisation.turns
        if position.epoch >= parameters.epochs:
            position.ended = "all epochs are done"
        elif position.epoch == turns or (is_stale and position.epoch < turns):
            self._turn(turns)
        elif is_stale:
            position.ended = f"no lower validation loss in {parameters.patience} epochs"
        position.history.append({**line, "seconds": round(self._seconds(), 3), **pace})
        if self._exporter is not None:
            self._exporter.epoch(position.history[-1])
        straggler = self._optimisation.pace.straggler()
        if self._team.leads:
            self._report_epoch(line)
            if straggler is not None:
                self._progress.emit(
                    "straggler", str(straggler),
                    epoch=position.epoch, process=straggler.rank, machine=straggler.machine,
                    step_seconds=straggler.seconds, usual_seconds=straggler.usual,
                    share_lost=straggler.lost,
                )  # fmt: skip

    def _report_epoch(self, line: dict[str, Any]) -> None:
        position, epochs = self._position, self._setting.parameters.epochs
        usage = {**position.history[-1], **self._telemetry.latest()}
        records.add_metrics(self._setting.output, usage)
        left = self._seconds() / position.epoch * (epochs - position.epoch)
        name = records.FIRST[self._setting.dataset.task]
        value = line[f"validation_{name}"]
        shown = f"{100 * value:.1f} %" if name == "accuracy" else f"{value:.4g}"
        self._progress.emit(
            "epoch",
            f"epoch {position.epoch}/{epochs}: loss {line['loss']:.4f}, validation {name} "
            f"{shown}, about {duration(left)} left",
            epoch=position.epoch, epochs=epochs, loss=line["loss"], metric_name=name,
            seconds_left=round(left, 1), **{name: value},
        )  # fmt: skip

    def _validate(self) -> dict[str, float]:
        """Return the averaged weights' loss and first figure on the validation rows.

        Where others take part, each judges some of them.
        """
        inputs, labels, weights = self._validation
        counts = torch.ones(len(weights), device=weights.device)
        if self._judges_with_others:
            inputs, labels, weights, counts = self._share.of(inputs, labels, weights, counts)
        losses, figures, named = self._judged(inputs, labels)
        sums = torch.stack([
            (losses * weights * counts).sum().double(),
            (weights * counts).sum().double(),
            *((each * counts).sum().double() for each in figures),
            counts.sum().double(),
        ])  # fmt: skip
        loss, weight, *found, count = numbers_of(
            self._team.sum(sums) if self._judges_with_others else sums
        )
        shares = {name: each / count for name, each in zip(named, found, strict=True)}
        if "rmse" in shares:
            scale = (self._prepared.target_scale or {"scale": 1.0})["scale"]
            shares["rmse"] = shares["rmse"] ** 0.5 * scale
        return {"loss": loss / weight, **shares}

    def _judged(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, list[Tensor], list[str]]:
        """Each row's loss, and the figures of it that means are taken of, with their names."""
        task, parameters = self._setting.dataset.task, self._setting.parameters
        with self._optimisation.averaged() as answers:
            if task == records.LANGUAGE:
                nats, hits = loop.follow_rows(
                    answers, inputs, labels, self._prepared.architecture.outputs
                )
                shown = nats * self._prepared.tokens_a_character
                return nats, [shown, hits], [records.FIRST[task], "accuracy"]
            outputs = predict(answers, inputs, rows_asked(parameters)).float()
            # A loss of a model's own may be of its weights as well: of the averaged ones.
            judge = answers if isinstance(answers, nn.Module) else self._optimisation.module
            losses = module_losses(judge, outputs, labels, task, parameters.label_smoothing)
        if task == "classification":
            return losses, [outputs.argmax(1) == labels], ["accuracy"]
        return losses, [row_losses(outputs, labels, task, 0.0)], ["rmse"]

    def _restore(self) -> bool:
        """Go on from the leader's checkpoint, if it has a usable one; return whether it had.

        A damaged checkpoint costs time only: a run is deterministic, so starting afresh ends in
        the same model. Hence it is reported, not refused.
        """
        path = self._setting.output / records.CHECKPOINT
        state = self._read(path) if self._team.leads and self._setting.resume else None
        if self._team.processes > 1:
            shared = self._team.share(None if state is None else checkpoint.encode(state))
            state = None if shared is None else checkpoint.decode(shared, path)
        if state is None or not self._take_over(state["optimisation"], path):
            return False
        self._position = Position(**state["position"])
        checkpoint.restore_random_state(state["random"])
        self._from_checkpoint = self._position.seconds
        return True

    def _take_over(self, state: dict[str, Any], path: Path) -> bool:
        """Go on from the weights of a checkpoint, whole or in parts; return whether it could."""
        if isinstance(self._optimisation, Optimisation):
            self._optimisation.restore(state)
            return True
        pieces, reason = None, ""
        common = state if parts.PARTS in state else parts.common_of_whole(state)
        try:
            source = parts.Whole(state) if common is not state else self._parts(state)
            pieces = self._optimisation.read(source)
        except WorkloadError as error:
            reason = f"{error}"
        # Each process reads files of its own.
        if self._team.any(pieces is None) or pieces is None:
            reason = reason or "another process can't read its part of the checkpoint"
            place = f"{path.parent} has to be a folder that all machines share"
            self._progress.emit(
                "start", f"{reason} ({place}); starting from the beginning instead"
            )
            return False
        self._optimisation.restore(pieces, common)
        return True

    def _parts(self, state: dict[str, Any]) -> parts.Parts:
        setting = self._setting
        return parts.Parts(
            setting.output, setting.keyring, setting.identity, state[parts.PARTS], self._team.rank
        )

    def _read(self, path: Path) -> dict[str, Any] | None:
        setting = self._setting
        context = records.context_of(setting.identity, records.CHECKPOINT)
        try:
            state = checkpoint.load(path, setting.keyring, context)
            is_own = setting.parameters.own is not None
            if state.get("base", "" if is_own else self._base) != self._base:
                what = "the frozen weights that the model's code reads" if is_own else "--start"
                raise WorkloadError(f"{path} holds what is added to other weights ({what})")
            found = state["optimisation"]
            if parts.PARTS in found and isinstance(self._optimisation, Optimisation):
                state["optimisation"] = parts.whole_of_parts(
                    self._parts(found), found, self._optimisation.optimised
                )
        except WorkloadError as error:
            self._progress.emit("start", f"{error}; starting from the beginning instead")
            return None
        return state

    def _checkpoint(self) -> None:
        self._position.seconds = self._seconds()
        if not isinstance(self._optimisation, Optimisation):
            self._begin_parts(self._optimisation)
            return
        if not self._team.leads:
            return
        setting = self._setting
        state: dict[str, Any] = {"optimisation": self._optimisation.state(), **self._moment()}
        if self._base:
            state["base"] = self._base
        context = records.context_of(setting.identity, records.CHECKPOINT)
        checkpoint.save(setting.output / records.CHECKPOINT, state, setting.keyring, context)

    @property
    def _base(self) -> str:
        """Digest of the weights that a checkpoint doesn't hold; empty: it holds all."""
        parameters = self._setting.parameters
        if isinstance(self._optimisation, Optimisation) and parameters.own is not None:
            kept = self._optimisation.kept
            if kept and not self._kept_digest:
                self._kept_digest = checkpoint.numbers_digest(copied(dict(kept)))
            return self._kept_digest
        return parameters.start if parameters.lora_rank else ""

    def _moment(self) -> dict[str, Any]:
        """What of a checkpoint is neither weights nor of the optimiser."""
        position = {**vars(self._position), "history": list(self._position.history)}
        return {"position": position, "random": checkpoint.random_state()}

    def _begin_parts(self, optimisation: DividedOptimisation) -> None:
        """Begin a checkpoint whose parts are written while training goes on."""
        self._writer.finish()
        optimisation.begin_checkpoint(self._writer, self._moment())

    def _announce(self, resumed: bool) -> None:
        if not self._team.leads:
            return
        setting, position = self._setting, self._position
        records.rewrite_metrics(setting.output, position.history)
        where = f"{self._team.processes} process(es) on {self._team.device.type}"
        if self._grid is not None:
            where += f" ({self._grid.layout})"
        if self._compilation.used:
            where += ", compiled"
        if resumed:
            message = f"going on from epoch {position.epoch}, step {position.step}"
        else:
            rows = setting.dataset.description["rows"]["train"]
            message = f"training {self._count:,} parameters on {rows:,} rows, {where}"
        self._progress.emit(
            "resume" if resumed else "start", message,
            epoch=position.epoch, epochs=setting.parameters.epochs,
        )  # fmt: skip

    def _stopped(self) -> int:
        self._checkpoint()
        self._writer.finish()
        self._team.wait()
        return self._say_stopped(f"in epoch {self._position.epoch + 1}")

    def _say_stopped(self, place: str) -> int:
        reason = self._stop.reason or "another process stopped"
        self._progress.emit(
            "stopped",
            f"stopped {place}: {reason}; run again to go on from here",
            epoch=self._position.epoch, epochs=self._setting.parameters.epochs,
        )  # fmt: skip
        return STOPPED

    def _seconds(self) -> float:
        return self._from_checkpoint + time.monotonic() - self._started
