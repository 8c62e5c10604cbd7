"""TrainingRun: one training of a model, named by the digest of everything that decides it."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Final

from falaj.components.catalogue.own_models import OWN_MODEL
from falaj.components.local import machine
from falaj.components.local.arguments.training_run import MODEL, TrackingArgs, TrainingRunArgs
from falaj.components.local.machine import InvalidInput, InvalidInputsError, LocalError
from falaj.components.local.provider import workloads
from falaj.components.local.provider.beginnings import weights_sha256
from falaj.components.local.provider.fields import flag, optional, text, whole
from falaj.components.local.provider.handler import Change, Context, Handler, Site
from falaj.components.specification.parallel import PARTS, division_of
from falaj.components.specification.property_names import camel
from falaj.wire.documents import is_mapping, mapping
from falaj.wire.values import UNKNOWN, Values, has_unknown

#: Hyperparameters and the options of ``falaj.workloads.training run`` that they become.
_OPTIONS: Final[Mapping[str, str]] = {
    "epochs": "epochs",
    "batchSize": "batch-size",
    "learningRate": "learning-rate",
    "weightDecay": "weight-decay",
    "patience": "patience",
    "gradientClip": "gradient-clip",
    "width": "width",
    "layers": "layers",
    "heads": "heads",
    "keyValueHeads": "key-value-heads",
    "seed": "seed",
    "processes": "processes",
    "precision": "precision",
    "threads": "threads",
    "compression": "compression",
    "distilTemperature": "distil-temperature",
    "distilWeight": "distil-weight",
    "prune": "prune",
    "loraRank": "lora-rank",
    "loraAlpha": "lora-alpha",
    "loraMatrices": "lora-matrices",
}
_CLASS_ALONE: Final = sorted(OWN_MODEL - {"model"})

_IN_PLACE: Final = (*PARTS, "recompute", "compile")
"""Options of a run that change nothing but rounding: an interrupted run goes on divided otherwise,
and a finished one stays."""


class TrainingRunHandler(Handler):
    """Trains in a process group of its own, showing its progress; unchanged inputs do no work."""

    type_name: ClassVar[str] = "TrainingRun"
    summary: ClassVar[str] = "A training run; without a hyperparameter its family's default holds."
    arguments: ClassVar[type] = TrainingRunArgs
    filled: ClassVar[Mapping[str, str]] = {
        "codeSha256": "Digest of that code, so that changed code is a change.",
        "teacherSha256": "Digest of that run's record, so that another one is a change.",
        "startSha256": "Digest of what says these weights, so that others are a change.",
    }
    outputs: ClassVar[Mapping[str, str]] = {
        "path": "Folder of the run.",
        "digest": "Digest that names the run: dataset, code and hyperparameters.",
        "metricName": "accuracy; rmse for regression; nats_per_character for a text.",
        "score": "The metric on held-out rows.",
        "epochsRun": "Epochs that were run.",
        "seconds": "How long it trained.",
    }

    def check(self, given: Values, old: Values) -> Values:
        """A model of one's own and its code must be there; the code's digest becomes an input."""
        checked = super().check(given, old)
        _check_division(checked)
        usual = ("compression", "prune", "quantisationAware", "loraMatrices", "tune")
        for key in (*_IN_PLACE, *usual):
            # Said or not, it is the same: a run that was made before there was a choice stays.
            if checked[key] == self.table[key].default:
                del checked[key]
        _check_smaller(checked)
        _check_begun(checked)
        model, code = checked.get("model"), checked.get("code")
        if not checked.keys() & OWN_MODEL:
            return checked
        if model in MODEL.words:
            reason = f"is of a model of one's own, and {model} is Falaj's; leave it out"
            if problems := [InvalidInput(key, reason) for key in _CLASS_ALONE if key in checked]:
                raise InvalidInputsError(problems)
            return checked
        for key in ("model", "code"):
            if key not in checked:
                reason = "missing; a model of one's own needs 'model' (its class) and 'code'"
                raise InvalidInputsError([InvalidInput(key, reason)])
        if has_unknown({key: checked.get(key) for key in OWN_MODEL}):
            checked["codeSha256"] = UNKNOWN
            return checked
        arguments = [
            "code", *workloads.options({"model": str(model), "code": str(code)}),
            *workloads.own_options(checked.get("options")),
        ]  # fmt: skip
        try:
            found = workloads.run(
                Context("check"), workloads.TRAINING, arguments, what="the check of the code"
            )
        except LocalError as error:
            raise InvalidInputsError([InvalidInput("code", str(error))]) from error
        checked["codeSha256"] = str(found["digest"])
        return checked

    def drift(self, state: Values) -> dict[str, Change]:
        """A run whose record someone has removed is done again."""
        if (Path(text(state, "path")) / "record.json").is_file():
            where = next((key for key in ("tracking", "trackingFile") if key in state), None)
            if where is not None and _is_untracked(state, state):
                return {where: Change()}
            return {}
        return {"path": Change(replaces=True, is_input=False)}

    def preview(self, inputs: Values, state: Values | None) -> Values:
        """The folder is known when the dataset is."""
        expected = super().preview(inputs, state)
        if state is not None:
            expected.update(self.outputs_of(state))
        elif not has_unknown(inputs):
            digest = run_digest(inputs)
            expected["digest"] = digest
            expected["path"] = str(self.site_of(inputs).runs / digest[:16])
        return expected

    def create(self, context: Context, inputs: Values) -> tuple[str, Values]:
        """Train, or go on from the checkpoint of an interrupted run."""
        site, digest = self.site_of(inputs), run_digest(inputs)
        machine.make_folder(site.runs)
        folder = site.runs / digest[:16]
        pid_file = site.runs / f"{digest[:16]}.pid"
        _end_earlier(context, folder, pid_file)
        values = {option: optional(inputs, key) for key, option in _OPTIONS.items()}
        values["model"], values["code"] = optional(inputs, "model"), optional(inputs, "code")
        values["code-digest"] = optional(inputs, "codeSha256")
        values["checkpoint-every"] = optional(inputs, "checkpointEvery")
        values["accumulation"] = optional(inputs, "accumulation")
        values["read-ahead"] = optional(inputs, "readAhead")
        tuned = _tuned(inputs, site)
        if tuned and values["processes"] == 1:
            values["processes"] = None  # where it is given, it isn't measured
        values |= {option: optional(inputs, option) for option in _IN_PLACE}
        values |= {option: optional(inputs, option) for option in ("keyring", "teacher", "start")}
        arguments = [
            "run", "--dataset", text(inputs, "dataset"), "--output", str(folder),
            *workloads.options(values), *workloads.own_options(inputs.get("options")),
            *(["--quantisation-aware"] if flag(inputs, "quantisationAware") else []),
            "--adopt", str(site.runs),
            "--progress", "json",
        ]  # fmt: skip
        arguments += [*tuned, *_tracking(inputs)]
        progress = _Progress(context)
        workloads.run(
            context,
            workloads.TRAINING,
            arguments,
            what="the training",
            on_line=progress.show,
            pid_file=pid_file,
        )
        record = machine.read_json(folder / "record.json")
        if record is None:
            raise LocalError(
                "the training ended without a record: a model of one's own must not end the "
                f"program; see what its code calls (os._exit), or remove {folder}"
            )
        return digest[:16], {**inputs, "path": str(folder), "digest": digest, **_outputs(record)}

    def read(self, resource_id: str, state: Values) -> Values | None:
        """Gone when the record is."""
        record = machine.read_json(Path(text(state, "path")) / "record.json")
        return None if record is None else {**state, **_outputs(record)}

    def update(self, context: Context, resource_id: str, state: Values, inputs: Values) -> Values:
        """Nothing that can change in place trains again; where runs are kept gets what it lacks.

        Raises:
            LocalError: it didn't take it.
        """
        del resource_id
        if (words := _tracking(inputs)) and _is_untracked(state, inputs):
            found = workloads.run(
                context,
                workloads.TRAINING,
                ["track", "--run", text(state, "path"), *words, "--json"],
                what="the tracking",
            )
            context.say(f"run {found['run']} of {found['server']} has the record")
        return {**inputs, **self.outputs_of(state)}

    def delete(self, context: Context, resource_id: str, state: Values) -> None:
        """End what may still train, and remove the run, unless it is retained."""
        folder = Path(text(state, "path"))
        pid_file = folder.with_name(f"{folder.name}.pid")
        _end_earlier(context, folder, pid_file)
        if not flag(state, "retain"):
            machine.remove_tree(folder)


def _tuned(inputs: Values, site: Site) -> list[str]:
    """Options that have settings measured first, where that is asked for."""
    return ["--tune", "--measured", str(site.measured)] if flag(inputs, "tune") else []


def _tracking(inputs: Values) -> list[str]:
    names = TrackingArgs.__annotations__
    return workloads.tracking_options({each: inputs.get(camel(each)) for each in names})


def _is_untracked(state: Values, inputs: Values) -> bool:
    """Whether the tracking server lacks something of a finished run, as is noted beside it, or the
    tracking file isn't there any more."""
    noted = machine.read_json(Path(text(state, "path")) / "tracking.json") or {}
    file = optional(inputs, "trackingFile")
    if file is not None and not Path(str(file)).exists():
        return True
    place = f"sqlite:///{file}" if file is not None else optional(inputs, "tracking")
    experiment = optional(inputs, "trackingExperiment")
    return (
        noted.get("status") != "FINISHED"
        or noted.get("server") != place
        or (experiment is not None and noted.get("experiment") != experiment)
    )


def _check_division(checked: Values) -> None:
    """Refuse numbers of processes that don't go together, as far as they are known.

    Raises:
        InvalidInputsError: they don't.
    """
    if has_unknown(
        {key: checked.get(key) for key in (*PARTS, "processes", "compression", "compile")}
    ):
        return
    division, processes = division_of(checked), whole({"processes": 1, **checked}, "processes")
    found = {
        "processes": division.refuse_processes(processes),
        "compression": division.refuse_compression(text(checked, "compression"), processes),
        "compile": division.refuse_compile(text(checked, "compile")),
    }
    if flag(checked, "tune") and division.processes > 1:
        found["tune"] = (
            "measures models that each process has whole, and here one is divided; leave one of "
            "both out"
        )
    errors = [InvalidInput(key, reason) for key, reason in found.items() if reason is not None]
    if errors:
        raise InvalidInputsError(errors)


def _check_smaller(checked: Values) -> None:
    """Refuse what makes a network smaller where there is none of Falaj's that is whole.

    The digest of a teacher's record becomes an input.

    Raises:
        InvalidInputsError: the options don't go together, or the teacher is no finished run.
    """
    errors = [
        InvalidInput(key, "is of a teacher's answers, and 'teacher' is missing; leave it out")
        for key in ("distilTemperature", "distilWeight")
        if key in checked and "teacher" not in checked
    ]
    for key in ("teacher", "prune", "quantisationAware"):
        if key not in checked:
            continue
        if "code" in checked:
            errors.append(InvalidInput(key, "is of Falaj's own networks; leave it out"))
        elif any(part in checked for part in PARTS):
            reason = "is of networks that each process has whole, and here one is divided"
            errors.append(InvalidInput(key, f"{reason}; leave one of both out"))
    if errors:
        raise InvalidInputsError(errors)
    if "teacher" not in checked:
        return
    if has_unknown({"teacher": checked["teacher"]}):
        checked["teacherSha256"] = UNKNOWN
        return
    record = Path(text(checked, "teacher")) / "record.json"
    try:
        checked["teacherSha256"] = hashlib.sha256(record.read_bytes()).hexdigest()
    except OSError as error:
        reason = f"given {checked['teacher']}, which holds no finished run: {error.strerror}"
        raise InvalidInputsError([InvalidInput("teacher", reason)]) from error


def _check_begun(checked: Values) -> None:
    """Refuse low ranks without weights that they are added to, or in a divided model.

    The digest of the weights becomes an input.

    Raises:
        InvalidInputsError: the options don't go together, or there are no weights.
    """
    errors = [
        InvalidInput(key, f"is of low ranks, and '{needed}' is missing; leave it out")
        for key, needed in (
            ("loraRank", "start"), ("loraAlpha", "loraRank"), ("loraMatrices", "loraRank"),
        )
        if key in checked and needed not in checked
    ]  # fmt: skip
    if "loraRank" in checked and any(part in checked for part in PARTS):
        reason = "is of networks that each process has whole, and here one is divided"
        errors.append(InvalidInput("loraRank", f"{reason}; leave one of both out"))
    if errors:
        raise InvalidInputsError(errors)
    if "start" in checked:
        checked["startSha256"] = (
            UNKNOWN
            if has_unknown({"start": checked["start"]})
            else weights_sha256(Path(text(checked, "start")), "start")
        )


def run_digest(inputs: Values) -> str:
    """SHA-256 of the digests of dataset and code, and every hyperparameter that was given."""
    keys = (
        "datasetDigest", *_OPTIONS, "model", "codeSha256", "options", "teacherSha256",
        "quantisationAware", "startSha256",
    )  # fmt: skip
    decisive = {key: inputs[key] for key in keys if inputs.get(key) is not None}
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


class _Progress:
    """Turns the trainer's events into passing statuses, and now and then a line that stays."""

    _LINE_EVERY_S: ClassVar[float] = 10.0
    _STATUS_EVERY_S: ClassVar[float] = 1.0
    _SHARES: ClassVar[int] = 4

    def __init__(self, context: Context) -> None:
        self._context = context
        self._reported_at = self._shown = time.monotonic()
        self._share = 0

    def show(self, line: str) -> None:
        """Show one line of the trainer's output."""
        try:
            event: Any = json.loads(line)
        except ValueError:
            return
        if not is_mapping(event) or not isinstance(event.get("message"), str):
            return
        message: str = event["message"]
        kind = event.get("event")
        if kind == "stopped" or (kind == "epoch" and not self._is_worth_a_line(event)):
            # Where there is no terminal the engine prints each status: at most one a second.
            if kind == "stopped" or time.monotonic() - self._shown >= self._STATUS_EVERY_S:
                self._shown = time.monotonic()
                self._context.status(message)
            return
        self._reported_at = time.monotonic()
        self._context.say(message)

    def _is_worth_a_line(self, event: Mapping[str, Any]) -> bool:
        # Output that is not a terminal shows no passing status: it gets a line at each quarter,
        # and at least one in ten seconds.
        share = int(self._SHARES * int(event["epoch"]) / max(int(event["epochs"]), 1))
        new_share = share > self._share
        self._share = max(share, self._share)
        return new_share or time.monotonic() - self._reported_at >= self._LINE_EVERY_S


def _end_earlier(context: Context, folder: Path, pid_file: Path) -> None:
    """End a trainer that a killed deployment has left; it writes a checkpoint first."""
    words = (workloads.TRAINING, str(folder))
    pid = machine.read_pid(pid_file)
    if machine.is_process_running(pid, words) and pid is not None:
        context.status("waiting for the training of an interrupted deployment to write its state")
        machine.end_process(pid, words, patience_s=120, group=True)
    pid_file.unlink(missing_ok=True)


def _outputs(record: Mapping[str, Any]) -> Values:
    held_out: Mapping[str, Any] = mapping(mapping(record.get("metrics")).get("held_out"))
    # A text has an accuracy, too.
    names = ("nats_per_character", "accuracy")
    metric = next((name for name in names if name in held_out), "rmse")
    epochs = record.get("epochs")
    timings: Mapping[str, Any] = record.get("timings") or {}
    return {
        "metricName": metric,
        "score": held_out.get(metric),
        "epochsRun": epochs if isinstance(epochs, int) else None,
        "seconds": timings.get("training_seconds"),
    }
