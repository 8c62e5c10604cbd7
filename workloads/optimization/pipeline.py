"""From a finished training run to the model that is served: export, quantise, compare, decide."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import onnx
from numpy.typing import NDArray

from falaj.workloads.bounds import CHOICES, OPTIMIZATION
from falaj.workloads.engines import (
    ONNXRUNTIME,
    PRECISIONS,
    graph_named,
    graph_of,
    open_openvino,
    openvino_version,
)
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import make_private_folder, read_json, storage_errors, write_json_atomic
from falaj.workloads.optimization import card_text
from falaj.workloads.optimization.card import figures, text_figures
from falaj.workloads.optimization.comparison import (
    BITS,
    Choice,
    Decision,
    Feed,
    Gate,
    Measured,
    Metric,
    Session,
    check_bound,
    check_parity,
    compare,
    core_rows,
    decide,
    metric_of,
    needs_reduced_range,
    open_session,
    parity_of,
    score,
    versions,
    window_nats,
)
from falaj.workloads.optimization.engine_choice import (
    EngineChoice,
    Trials,
    Tried,
    check_asked,
    choose,
    graph_in,
    label,
    trials,
)
from falaj.workloads.optimization.export import (
    CALIBRATION_ROWS,
    Serving,
    assemble,
    check_model,
    describe_inputs,
    describe_outputs,
    export_module,
    quantise,
)
from falaj.workloads.optimization.four_bits import quantise_weights
from falaj.workloads.optimization.reference import outputs as outputs_reference
from falaj.workloads.optimization.remembered import Past, check_remembered, past_of, step_of
from falaj.workloads.optimization.worth import (
    Followed,
    Served,
    Worth,
    answers_of,
    check,
    judge,
)
from falaj.workloads.processor import relevant_cpu_flags
from falaj.workloads.registry.sealed import SUFFIX, artifact_path, read_artifact, write_artifact
from falaj.workloads.training.checkpoint import (
    Rows,
    Trained,
    load_rows,
    load_trained,
    weights_digest,
)
from falaj.workloads.training.language import (
    FAMILY,
    IGNORED,
    TOKENS,
    counted,
    guesses,
    tokens_a_character,
)
from falaj.workloads.training.own_model import guarded
from falaj.workloads.training.record import code_version
from falaj.workloads.training.snapshot import DESCRIPTION, digest

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
        smaller: those of quantised models.
        decision: what is served and why.
        engine: what runs it and why.
        bound_points: what a quantised model may lose.
        threads: inside an operator, while latency was measured.
        calibration_rows: rows of the training part that ranges were measured on; 0 without.
        reduced_range: whether 8-bit weights were kept to 7 bits.
        parity: the largest difference between graph and module, as a share.
        worth: what the chosen model is worth; None while it isn't judged.
        card: what else it does on held-out rows, of `card.figures`.
        outputs: how its answers on held-out rows are spread, of `reference.outputs`.
    """

    key: str
    metric: Metric
    original: Measured
    smaller: Mapping[Choice, Measured]
    decision: Decision
    engine: EngineChoice
    bound_points: float
    threads: int
    calibration_rows: int
    reduced_range: bool
    parity: float
    worth: Worth | None = None
    card: dict[str, Any] = field(default_factory=dict[str, Any])
    outputs: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def served(self) -> Measured:
        """The figures of the model that was chosen, in its engine."""
        if self.engine.measured is not None:
            return self.engine.measured
        return self.smaller.get(self.decision.accepted, self.original)

    def to_json(self) -> dict[str, Any]:
        """Return it as the plain JSON values of optimization.json, without places and files."""
        return {
            "format": FORMAT,
            "key": self.key,
            "accepted": self.decision.accepted,
            "reason": self.decision.reason,
            "metric_name": self.metric,
            "float": self.original.to_json(self.metric),
            **{
                name: self.smaller[name].to_json(self.metric) if name in self.smaller else None
                for name in BITS
            },
            "served": self.served.to_json(self.metric),
            "engine": self.engine.to_json(self.metric),
            "bound_points": self.bound_points,
            "threads": self.threads,
            "calibration": {"part": "train", "rows": self.calibration_rows},
            "reduced_range": self.reduced_range,
            "parity": self.parity,
            "worth": self.worth.to_json() if self.worth is not None else None,
            "card": self.card,
            "outputs_reference": self.outputs,
            "runtime": versions(),
            "cpu_flags": relevant_cpu_flags(),
            "code": {"version": code_version()["version"], "digest": code_digest()},
        }


_CHOSEN: Final = {"judged": "judged", "calibrated": "calibration"}
"""What the card has of a run's choice, where there is that, and what it is called there."""


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
    served = optimization["served"][name]
    own, teacher = training["model"]["architecture"].get("own"), training.get("teacher")
    choice = training["model"]["choice"]
    start = training.get("start")
    return {
        "family": training["family"],
        "task": training["task"],
        # Names of tokens are numbers: there is nothing to say of them.
        "classes": training["classes"] if "vocabulary" not in training["dataset"] else None,
        "inputs": optimization["inputs"],
        "outputs": optimization["outputs"],
        "statistics": {
            **description["statistics"], "outputs": optimization["outputs_reference"],
        },
        "dataset": {
            **training["dataset"],
            "target": description["target"],
            "features": description["features"],
            "excluded": description["excluded"],
        },
        "code": {**training["code"], "optimization_digest": optimization["code"]["digest"]},
        "parameters": training["parameters"],
        "metrics": {
            **training["metrics"],
            "served": {"metric_name": name, name: served},
            "worth": optimization["worth"],
            "card": {
                **optimization["card"],
                "model": choice["kept"],
                **{to: choice[of] for to, of in _CHOSEN.items() if of in choice},
                "class": own["name"] if own else None,
                "code": own["code"] if own else None,
                "trained": training["created"],
                "machine": training["environment"]["processor"],
                **_of_gpus(training),
            },
        },
        "lineage": {
            "run": training["identity"],
            "dataset": training["dataset"]["digest"],
            **({"model": own["name"], "code": own["code"]} if own else {}),
            **(
                {"teacher": teacher["digest"], "teacher_run": teacher["run"]} if teacher else {}
            ),
            **({"start": start["digest"]} if start else {}),
            **({"lora": training["lora"]} if "lora" in training else {}),
            **({"start_run": start["run"]} if start and "run" in start else {}),
        },
        "quantisation": {
            key: optimization[key]
            for key in (
                "accepted", "reason", "metric_name", "float", *BITS, "engine", "bound_points",
                "threads", "calibration", "reduced_range", "runtime", "cpu_flags",
            )
        },
        "data_class": data_class,
    }  # fmt: skip


def _of_gpus(training: dict[str, Any]) -> dict[str, Any]:
    """How busy the machine's GPUs were while the run trained on them, and what was wrong."""
    if training["parameters"]["device"] != "cuda":
        return {}
    found = training["utilisation"].get("by_gpu", [])
    return {
        "gpus": [{k: each[k] for k in ("idle_share", "anomalies") if k in each} for each in found]
    }


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
        read_artifact(output / card_text.FILE, keyring, context_of(run, card_text.FILE))
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
    """Write models and card, then the fields, then the record: with it, the rest is complete.

    What an earlier optimisation left in ``output`` goes first, so that no record ever stands
    beside files that it doesn't describe.

    Raises:
        StorageFullError: there is no space; nothing half written stays.
        WorkloadError: the folder can't be written.
    """
    make_private_folder(output)
    with storage_errors(output):
        for name in (RECORD, FIELDS, card_text.FILE, *models):
            (output / name).unlink(missing_ok=True)
            (output / (name + SUFFIX)).unlink(missing_ok=True)
    for name, data in models.items():
        write_artifact(output / name, data, keyring, context_of(run, name))
    write_artifact(
        output / card_text.FILE, card_text.page(fields).encode(), keyring,
        context_of(run, card_text.FILE),
    )  # fmt: skip
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


_CHOICES = CHOICES["optimization"]

_PROBED: Final = 3
"""Rows that a model has to answer in another engine before it is measured."""
_PARITY_ROWS: Final = 256
"""That a model in another engine is compared with the trained module on."""

MOST_WINDOWS: Final = 1_000
"""Of a text's held-out windows, that a language model is judged on, spread evenly: on as many the
nats of a character vary by a hundredth."""


@dataclass(frozen=True)
class Request:
    """What to optimise and how.

    Attributes:
        run: folder of a finished training run.
        dataset: folder of the snapshot that it was trained on.
        output: folder for the models and the record.
        keyring: keys that run and dataset are sealed with, and the models will be.
        bound_points: percentage points of accuracy (per cent of RMSE) that fewer bits may cost.
        quantise: ``auto`` tries 8 bits, and of a language model 4; ``int8`` or ``int4`` that
            alone, which need not be faster; ``never`` keeps float.
        engine: ``auto`` measures OpenVINO, too, where it is installed; else which one it is.
        threads: inside an operator, while latency is measured.
        data_class: of the data that the model was made from.
        gate: what the model has to be worth, in figures of one's own.
        accept: ``better`` refuses a model that is no better than guessing, or worse than
            ``served``; ``any`` lets it through.
        served: the version that serves; None where there is none.
    """

    run: Path
    dataset: Path
    output: Path
    keyring: KeyRing | None = None
    bound_points: float = OPTIMIZATION["max_accuracy_drop"].usual
    quantise: str = _CHOICES["quantise"].default
    engine: str = _CHOICES["engine"].default
    threads: int = 1
    data_class: str = _CHOICES["data_class"].default
    gate: Gate = field(default_factory=Gate)
    accept: str = _CHOICES["accept"].default
    served: Served | None = None


def optimise(request: Request, report: Callable[[str], None]) -> dict[str, Any]:
    """Do what ``request`` asks, or return what was done before with the same.

    Args:
        request: what to optimise and how.
        report: told each step in words.

    Returns:
        The content of optimization.json and the paths of all files.

    Raises:
        WorkloadError: run or dataset are missing, unfinished, damaged or don't belong together,
            an option is out of range, an engine that isn't installed is asked for, the model
            doesn't pass the gate or isn't worth serving, or the output can't be written. What
            doesn't pass isn't written.
    """
    # A team's own model is run by its own code: to export it, and to compare.
    with guarded():
        return _optimise(request, report)


def _optimise(request: Request, report: Callable[[str], None]) -> dict[str, Any]:
    _check_options(request)
    description = _description(request.dataset)
    trained = load_trained(request.run, request.keyring)
    _check_together(trained, description, request)
    held_out = load_rows(request.dataset, request.keyring, "held_out")
    if trained.family == FAMILY:
        held_out = held_out.spread(MOST_WINDOWS)
    run = trained.record["identity"]
    key = _key(request, trained)
    existing = finished(request.output, key, run, request.keyring)
    if existing is not None:
        metric = existing["metric_name"]
        request.gate.check(metric, existing["served"][metric])
        check(existing["worth"]["refusals"], request.accept, description["excluded"])
        report(f"done before with the same inputs: {existing['reason']}")
        return {**existing, **paths(request.output, request.keyring)}

    @cache
    def train() -> Rows:
        return load_rows(request.dataset, request.keyring, "train")

    serving = serving_of(trained, held_out)
    report("exporting to ONNX")
    core = export_module(trained.exported, serving.shape)
    served = assemble(core, serving)
    original = served.SerializeToString()
    parity = check_parity(original, trained.module, serving, held_out.inputs)
    candidate = _candidate(core, served, serving, held_out)
    _check_remembered(candidate, candidate, serving, held_out, None)
    outcome, chosen = _compare(
        request, trained, serving, candidate, held_out, train=train, report=report
    )
    outcome = replace(outcome, key=key, parity=parity)
    request.gate.check(outcome.metric, outcome.served.score)
    described = describe_outputs(served, serving)
    answers = answers_of(chosen.session or chosen.served, described, held_out.inputs)
    followed = None
    if chosen.nats is not None:
        share = _tokens_a_character(serving, held_out)
        followed = Followed(chosen.nats, _guessed(serving, train(), held_out), share)
    worth = judge(answers, held_out, description, request.served, followed)
    check(worth.refusals, request.accept, description["excluded"])
    for line in (*worth.refusals, *worth.notes):
        report(line)
    labels, classes = held_out.labels, trained.classes
    if serving.is_text:
        # What characters are asked for in service isn't known: nothing to compare them with.
        card, spread = text_figures(outcome.served.score, len(labels), trained.vocabulary), {}
    else:
        card = figures(answers, labels, classes)
        spread = outputs_reference(answers, labels, classes)
    outcome = replace(outcome, worth=worth, card=card, outputs=spread)
    models = {MODEL: chosen.served, FLOAT_MODEL: original}
    record = {
        **outcome.to_json(),
        "inputs": describe_inputs(served, serving),
        "outputs": described,
        "files": {
            name: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
            for name, data in models.items()
        },
    }
    fields = manifest_fields(record, trained.record, description, request.data_class)
    write(request.output, models, record, fields, run=run, keyring=request.keyring)
    report(outcome.decision.reason)
    if outcome.engine.reason != outcome.decision.reason:
        report(outcome.engine.reason)
    return {**record, **paths(request.output, request.keyring)}


def serving_of(trained: Trained, rows: Rows) -> Serving:
    """Return what is to stand around ``trained``'s core; ``rows`` show the shape of images."""
    table = trained.preprocessing
    shape = next(iter(rows.inputs.values())).shape[1:] if table is None else (table.width,)
    target = None
    if trained.target is not None:
        target = (float(trained.target["mean"]), float(trained.target["scale"]))
    # The number of a digit is the digit: no text is needed for it.
    numbers = [str(number) for number in range(len(trained.classes or ()))]
    is_numbered = table is None and trained.classes == numbers
    return Serving(
        family=trained.family,
        preprocessing=table,
        shape=tuple(int(size) for size in shape),
        classes=trained.classes,
        text_labels=trained.classes is not None and not is_numbered,
        target=target,
        pairs=trained.pairs,
    )


@dataclass(frozen=True)
class _Candidate:
    """A model that may be served: its core, and the same with inputs and answers around it."""

    core: onnx.ModelProto
    served: bytes
    nats: NDArray[np.float64] | None
    """Of a language model: those of a character, by held-out window; only the core answers all."""
    past: Past | None = None
    """Likewise: what it can be told of the tokens before."""
    session: Session | None = None
    """Where another engine than ONNX Runtime runs it."""


def _candidate(
    core: onnx.ModelProto, served: onnx.ModelProto, serving: Serving, held_out: Rows
) -> _Candidate:
    nats = past = None
    if serving.is_text:
        nats = _nats(core.SerializeToString(), serving, held_out)
        past = past_of(served)
    return _Candidate(core, served.SerializeToString(), nats, past)


def _check_remembered(
    candidate: _Candidate,
    original: _Candidate,
    serving: Serving,
    held_out: Rows,
    bound_points: float | None,
) -> None:
    """Refuse a language model that loses more than is allowed where it is told the past.

    Raises:
        WorkloadError: it does, or fails.
    """
    if candidate.past is None or original.nats is None:
        return
    check_remembered(
        candidate.session or open_session(candidate.served), candidate.past,
        held_out.inputs[TOKENS], _wanted(held_out), whole=original.nats,
        size=len(serving.classes or ()), tokens_a_character=_tokens_a_character(serving, held_out),
        bound_points=bound_points,
    )  # fmt: skip


def _in_openvino(
    tried: Trials,
    candidates: Mapping[Choice, _Candidate],
    serving: Serving,
    held_out: Rows,
    bound_points: float,
) -> dict[str, _Candidate]:
    """The same models there, by precision; one that can't be told the past is left out."""
    made: dict[str, _Candidate] = {}
    for precision, session in list(tried.sessions.items()):
        same = candidates[graph_named(precision)]
        nats = None
        if serving.is_text:
            graph = graph_of(same.core.SerializeToString())
            whole = open_openvino(graph, precision, threads=1)
            nats = _nats(whole, serving, held_out)
        there = replace(same, session=session, nats=nats)
        try:
            _check_remembered(there, candidates["float"], serving, held_out, bound_points)
        except WorkloadError as error:
            del tried.sessions[precision]
            tried.left_out[precision] = str(error)
            continue
        made[precision] = there
    return made


def _nats(core: bytes | Session, serving: Serving, rows: Rows) -> NDArray[np.float64]:
    """The nats of a character, by window."""
    size = len(serving.classes or ())
    nats = window_nats(core, rows.inputs[TOKENS], _wanted(rows), size)
    return nats * _tokens_a_character(serving, rows)


def _tokens_a_character(serving: Serving, rows: Rows) -> float:
    """Nats of a token times it are those of a character, in the mean of the rows."""
    if serving.pairs is None:
        return 1.0
    return tokens_a_character(serving.pairs, _wanted(rows))


def _wanted(rows: Rows) -> NDArray[np.int64]:
    assert rows.wanted is not None  # noqa: S101 - they are of a text
    return rows.wanted


def _guessed(serving: Serving, train: Rows, held_out: Rows) -> NDArray[np.float64]:
    """The nats of a character, by held-out window, of who knows how frequent each token is."""
    wanted = _wanted(held_out)
    # Of conversations: how frequent each is in answers.
    learned = train.inputs[TOKENS] if (wanted != IGNORED).all() else _wanted(train)
    guessed = guesses(learned, wanted).sum(axis=1) / counted(wanted)
    return guessed * _tokens_a_character(serving, held_out)


def _compare(
    request: Request,
    trained: Trained,
    serving: Serving,
    original: _Candidate,
    held_out: Rows,
    *,
    train: Callable[[], Rows],
    report: Callable[[str], None],
) -> tuple[Outcome, _Candidate]:
    """Make quantised models, measure all, decide; the outcome still lacks key and parity."""
    metric = metric_of(serving)
    made = _quantised(request, trained, serving, original, held_out, train=train, report=report)
    candidates: dict[Choice, _Candidate] = {"float": original, **made.candidates}
    few = {name: values[:_PROBED] for name, values in held_out.inputs.items()}
    graphs: dict[Choice, bytes] = {name: each.served for name, each in candidates.items()}
    tried = trials(request.engine, graphs, few, threads=request.threads)
    elsewhere = _in_openvino(tried, candidates, serving, held_out, request.bound_points)
    everything = candidates | {label(name): each for name, each in elsewhere.items()}
    report("measuring " + " and ".join(everything) + " on held-out rows")
    measured = _measure(everything, serving, held_out, request.threads)
    usual: dict[Choice, Measured] = {name: measured[name] for name in candidates}
    smaller: dict[Choice, Measured] = {name: usual[name] for name in made.candidates}
    decision = decide(
        metric, usual["float"], smaller, request.bound_points, refused=made.refused,
        asked=request.quantise,
    )  # fmt: skip
    if request.quantise in BITS:  # it is that graph alone that may be packaged
        tried.left_out.update({
            name: f"not asked for (--quantise {request.quantise})"
            for name in PRECISIONS
            if graph_named(name) != request.quantise and name in tried.sessions
        })  # fmt: skip
    some = held_out.spread(_PARITY_ROWS).inputs
    choice = choose(
        request.engine,
        metric,
        usual,
        decision,
        tried={
            name: Tried(measured[label(name)], parity_of(session, trained.module, serving, some))
            for name, session in tried.sessions.items()
        },
        left_out=tried.left_out,
        bound_points=request.bound_points,
    )
    decision = graph_in(choice, decision)
    outcome = Outcome(
        key="",
        metric=metric,
        original=usual["float"],
        smaller=smaller,
        decision=decision,
        engine=choice,
        bound_points=request.bound_points,
        threads=request.threads,
        calibration_rows=made.calibration_rows,
        reduced_range=made.reduced_range,
        parity=0.0,
    )
    return outcome, elsewhere.get(choice.engine.precision) or candidates[decision.accepted]


@dataclass(frozen=True)
class _Quantised:
    """The quantised models that there are, and why there aren't others."""

    candidates: dict[Choice, _Candidate]
    refused: dict[Choice, str]
    calibration_rows: int = 0
    reduced_range: bool = False
    """Of the 8-bit one's weights."""


def _quantised(
    request: Request,
    trained: Trained,
    serving: Serving,
    original: _Candidate,
    held_out: Rows,
    *,
    train: Callable[[], Rows],
    report: Callable[[str], None],
) -> _Quantised:
    """Make the quantised models that ``request`` has tried."""
    if request.quantise == "never":
        refused: Choice = "int8"
        return _Quantised({}, {refused: "8 bits were not asked for (--quantise never)"})
    calibration_rows = 0
    reduced = needs_reduced_range(relevant_cpu_flags())

    def eight_bits() -> onnx.ModelProto:
        nonlocal calibration_rows
        learned = "with the ranges that were learned"
        how = learned if trained.ranges else "calibrated on training rows"
        report(f"quantising to 8 bits, {how}")
        rows = core_rows(serving, train().spread(CALIBRATION_ROWS).inputs)
        calibration_rows = len(rows)
        return quantise(original.core, rows, reduced, trained.ranges)

    def four_bits() -> onnx.ModelProto:
        report("quantising weights to 4 bits")
        return quantise_weights(original.core)

    ways: dict[Choice, Callable[[], onnx.ModelProto]] = {"int8": eight_bits, "int4": four_bits}
    wanted = ("int8", "int4") if serving.is_text else ("int8",)
    made = _Quantised({}, {})
    for name, way in ways.items():
        if name not in (wanted if request.quantise == "auto" else (request.quantise,)):
            continue
        try:
            small = way()
            candidate = _candidate(small, assemble(small, serving), serving, held_out)
            _check_remembered(candidate, original, serving, held_out, request.bound_points)
            made.candidates[name] = candidate
        except WorkloadError as error:
            made.refused[name] = f"{BITS[name]}: {error}"
    is_reduced = reduced and "int8" in made.candidates
    return replace(made, calibration_rows=calibration_rows, reduced_range=is_reduced)


def _measure(
    candidates: Mapping[str, _Candidate], serving: Serving, held_out: Rows, threads: int
) -> dict[str, Measured]:
    one: Feed = {name: values[:1] for name, values in held_out.inputs.items()}
    sessions: dict[str, Session] = {
        name: each.session or open_session(each.served, threads)
        for name, each in candidates.items()
    }
    times = compare(
        {name: _asked(session, candidates[name].past, one) for name, session in sessions.items()}
    )
    for each in candidates.values():
        check_model(each.served)
    return {
        name: Measured(
            score=_score(each, serving, held_out),
            size_bytes=len(each.served),
            latency_us=times[name].median_us,
        )
        for name, each in candidates.items()
    }


def _asked(session: Session, past: Past | None, one: Feed) -> Callable[[], object]:
    """What is timed: a row, or of a text the last character of one."""
    if past is not None:
        return step_of(session, past, one[TOKENS])
    return lambda: session.run(None, one)


def _score(candidate: _Candidate, serving: Serving, held_out: Rows) -> float:
    """By the figure of training: of a text all of its characters."""
    if candidate.nats is not None:
        return float(candidate.nats.mean())
    return score(candidate.session or candidate.served, serving, held_out.inputs, held_out.labels)


def _check_options(request: Request) -> None:
    check_bound(request.bound_points)
    request.gate.check_options()
    for name, choice in _CHOICES.items():
        choice.check("--" + name.replace("_", "-"), getattr(request, name))
    OPTIMIZATION["threads"].check("--threads", request.threads)
    check_asked(request.engine)


def _description(dataset: Path) -> dict[str, Any]:
    value: object = read_json(dataset / DESCRIPTION, "the dataset's description")
    if not isinstance(value, dict):
        raise WorkloadError(f"{dataset / DESCRIPTION} is damaged: make the dataset again")
    return cast("dict[str, Any]", value)


def _check_together(trained: Trained, description: dict[str, Any], request: Request) -> None:
    wanted, given = trained.record["dataset"]["digest"], description.get("digest")
    if wanted != given:
        raise WorkloadError(
            f"{request.run} was trained on the dataset {str(wanted)[:16]}, but {request.dataset} "
            f"is {str(given)[:16]}: the comparison would mix training and held-out rows. "
            "Name the run's own dataset (--dataset)"
        )
    if request.quantise == "int4" and trained.family != FAMILY:
        raise WorkloadError(
            "--quantise int4: 4 bits are for language models, and the run's family is "
            f"{trained.family!r}; take auto, int8 or never"
        )


def _key(request: Request, trained: Trained) -> str:
    """Return the digest of everything that the outcome depends on, this machine included."""
    return digest(
        {
            "run": trained.record,
            "weights": weights_digest(trained.module),
            "ranges": trained.ranges,
            "bound_points": request.bound_points,
            "quantise": request.quantise,
            "engine": request.engine,
            "openvino": None if request.engine == ONNXRUNTIME else openvino_version(),
            "threads": request.threads,
            "data_class": request.data_class,
            "served": None if request.served is None else request.served.package.digest,
            "runtime": versions(),
            "cpu_flags": relevant_cpu_flags(),
            "code": code_digest(),
        }
    )
