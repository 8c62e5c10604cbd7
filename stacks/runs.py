"""What was trained on this machine: runs that ended, go on or stopped, and what came of them.

Two places know of a run. Its folder has the record, or how far it is; a change of the parameters
removes that folder with the run that is replaced. The registry keeps what was published of it,
signed, with the same figures: so runs are told of after their folder is gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from falaj.components.local.machine import is_process_running, read_pid
from falaj.stacks.errors import StackError
from falaj.wire.documents import mapping
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_json
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store
from falaj.workloads.training import record as records

#: Folders below the one that is looked into: a sweep has its trials there.
_DEPTH: Final = 3
#: Characters of a digest that people are shown, and may give.
SHORT: Final = 12
_LEAST_GIVEN: Final = 4
#: Longer numbers are the beginning of a digest, not a version.
_VERSION_DIGITS: Final = 5
#: Of the held-out figures those that a run is known by, in this order.
_HELD_OUT: Final = (
    "nats_per_character", "perplexity", "nats_per_token", "bits_per_byte", "accuracy",
    "balanced_accuracy", "macro_f1", "rmse", "mae", "r2",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A run as it is told of.

    Attributes:
        identity: the digest of its data and parameters; empty where nothing says it.
        state: ``published``, ``trained``, ``training``, ``stopped`` or ``damaged``.
        model: the name that it was published by; empty where it wasn't.
        versions: its versions under that name, the newest first.
        aliases: what stands for one of them.
        kind: ``network``, ``linear``, ``trees`` or the class of a team's own; empty while that is
            open.
        when: since when the run is done, else when it last said something; ISO 8601.
        parameters: what it was trained with.
        data: digest, rows and source of the data set, and its vocabulary of pairs of bytes.
        code: digest of the code, and of a team's own model.
        start: digest of the weights that it began with, and the run that learned them, as far as
            that is known; empty where they were drawn.
        figures: what it came to, by name; of a classification shares of 1.
        epochs: how many were done.
        history: its epochs as ``metrics.jsonl`` has them; of runs with a folder.
        folder: where it is; None where only the registry knows of it.
        error: why nothing more can be said.
    """

    identity: str
    state: str
    model: str = ""
    versions: tuple[int, ...] = ()
    aliases: tuple[str, ...] = ()
    kind: str = ""
    when: str = ""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    code: Mapping[str, Any] = field(default_factory=dict[str, Any])
    start: Mapping[str, Any] = field(default_factory=dict[str, Any])
    figures: Mapping[str, float] = field(default_factory=dict[str, float])
    epochs: int | None = None
    history: tuple[Mapping[str, Any], ...] = ()
    folder: Path | None = None
    error: str = ""

    @property
    def name(self) -> str:
        """What it is called in a line: the version if it has one, else the digest's beginning."""
        if self.versions:
            return f"{self.model}:{self.versions[0]}"
        return self.identity[:SHORT] or str(self.folder or "")

    def to_json(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "run": self.identity,
            "state": self.state,
            "model": self.model or None,
            "versions": list(self.versions),
            "aliases": list(self.aliases),
            "kind": self.kind or None,
            "when": self.when or None,
            "parameters": dict(self.parameters),
            "data": dict(self.data),
            "code": dict(self.code),
            "start": dict(self.start),
            "figures": dict(self.figures),
            "epochs": self.epochs,
            "history": [dict(each) for each in self.history],
            "folder": str(self.folder) if self.folder else None,
            "error": self.error or None,
        }


def of_site(site: Path) -> list[Run]:
    """The runs of a stack of one machine, the newest first.

    Raises:
        StackError: there are versions, and the key ring that says who signed them can't be read.
    """
    store = Store(site / "registry")
    published: list[Run] = []
    if models := store.models():
        try:
            keyring = KeyRing.open(site / "keyring")
        except WorkloadError as error:
            raise StackError(f"what is published can't be verified: {error}") from None
        published = [each for model in models for each in _of_model(store, model, keyring)]
    return merged([*published, *in_folder(site / "runs")])


def in_folder(folder: Path) -> list[Run]:
    """The runs in a folder and in those below it, as a stack, a sweep or a claim has them."""
    return [_of_folder(each) for each in _run_folders(folder, _DEPTH)]


def merged(runs: Iterable[Run]) -> list[Run]:
    """One of each run, the newest first; what its folder says is added to what was published."""
    by_identity: dict[str, Run] = {}
    others: list[Run] = []
    for run in runs:
        known = by_identity.get(run.identity) if run.identity else None
        if not run.identity or run.error:
            others.append(run)
        elif known is None:
            by_identity[run.identity] = run
        elif run.versions:
            # The same run once more under another number: what was published last counts.
            newest, older = (run, known) if run.versions > known.versions else (known, run)
            by_identity[run.identity] = replace(
                newest,
                versions=newest.versions + older.versions,
                aliases=newest.aliases + older.aliases,
            )
        else:
            by_identity[run.identity] = replace(
                known, history=run.history, folder=run.folder, when=run.when or known.when,
                figures={**known.figures, **run.figures}, epochs=run.epochs,
                # It is done again where its record was lost.
                state=known.state if run.state == "trained" else run.state,
            )  # fmt: skip
    return sorted([*by_identity.values(), *others], key=lambda each: each.when, reverse=True)


def find(runs: Sequence[Run], given: str) -> Run:
    """The run that somebody names.

    Args:
        runs: all there are.
        given: a version (``3``, ``digits:3``), an alias (``@production``,
            ``digits@production``), or the beginning of the run's digest.

    Raises:
        StackError: none is it, or several are.
    """
    model, mark, rest = _parted(given)
    if mark == "@":
        found = [each for each in runs if rest in each.aliases and model in ("", each.model)]
    elif mark == ":" or (given.isdecimal() and len(given) <= _VERSION_DIGITS):
        number = int(rest or given) if (rest or given).isdecimal() else -1
        found = [each for each in runs if number in each.versions and model in ("", each.model)]
    else:
        found = [
            each
            for each in runs
            if len(given) >= _LEAST_GIVEN and each.identity.startswith(given.lower())
        ]
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(f"{each.name} (run {each.identity[:SHORT]})" for each in found)
        raise StackError(f"RUN: given {given!r}, which are several: {names}")
    there = ", ".join(
        f"{each.name} (run {each.identity[:SHORT]})" if each.versions else each.name
        for each in runs
    )
    raise StackError(
        f"RUN: given {given!r}, which is none; allowed: a version, as 3 or NAME:3; an alias, as "
        f"@production; the first {_LEAST_GIVEN} or more characters of a run\n"
        f"  there are: {there or 'none'}"
    )


def _parted(given: str) -> tuple[str, str, str]:
    for mark in ("@", ":"):
        if mark in given:
            return given.partition(mark)
    return "", "", ""


def differences(
    runs: Sequence[Run], of: Callable[[Run], Mapping[str, Any]]
) -> tuple[dict[str, tuple[Any, ...]], list[str]]:
    """What differs between runs, by name a value for each (None: it has none); and what doesn't.

    Args:
        runs: two or more.
        of: what is compared.
    """
    tables = [of(run) for run in runs]
    names = dict.fromkeys(name for table in tables for name in table)
    values = {name: tuple(table.get(name) for table in tables) for name in names}
    differ = {
        name: found for name, found in values.items() if any(each != found[0] for each in found)
    }
    return differ, [name for name in values if name not in differ]


# -- the registry ---------------------------------------------------------------------------------


def _of_model(store: Store, model: str, keyring: KeyRing) -> Iterator[Run]:
    aliases = store.aliases(model)
    trusted = keyring.verify_key()
    for number in store.versions(model):
        pointing = tuple(name for name, each in aliases.items() if each.version == number)
        run = Run("", "damaged", model, (number,), pointing)
        try:
            fields = store.load(model, number, keyring, trusted).manifest
        except WorkloadError as error:
            yield replace(run, error=str(error))
            continue
        yield _of_manifest(run, fields)


def _of_manifest(run: Run, manifest: Mapping[str, Any]) -> Run:
    metrics = mapping(manifest.get("metrics"))
    card, lineage = mapping(metrics.get("card")), mapping(manifest.get("lineage"))
    figures = _figures(metrics)
    served = mapping(metrics.get("served"))
    name = str(served.get("metric_name"))
    if (value := _numbers(served).get(name)) is not None:
        figures[f"served_{name}"] = value
    quantisation = mapping(manifest.get("quantisation"))
    of_served = _numbers(mapping(quantisation.get(str(quantisation.get("accepted")))))
    for measured in ("size_bytes", "latency_us"):
        if measured in of_served:
            figures[f"served_{measured}"] = of_served[measured]
    return replace(
        run,
        identity=str(lineage.get("run", "")),
        state="published",
        kind=str(card.get("class") or card.get("model") or ""),
        when=str(card.get("trained") or manifest.get("created", "")),
        parameters=mapping(manifest.get("parameters")),
        data=_data(mapping(manifest.get("dataset"))),
        code=_code(mapping(manifest.get("code")), card.get("code")),
        start=_start({"digest": lineage.get("start"), "run": lineage.get("start_run")}),
        figures=figures,
    )


# -- folders --------------------------------------------------------------------------------------


def _run_folders(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / records.PARAMETERS).is_file():
        yield folder
        return
    if depth == 0 or not folder.is_dir():
        return
    for each in sorted(folder.iterdir()):
        if each.is_dir() and not each.is_symlink():
            yield from _run_folders(each, depth - 1)


def _of_folder(folder: Path) -> Run:
    run = Run("", "damaged", folder=folder)
    try:
        asked = mapping(read_json(folder / records.PARAMETERS, "the parameters of the run"))
        record = mapping(records.finished(folder))
        history = _history(folder / records.METRICS)
    except WorkloadError as error:
        return replace(run, error=str(error))
    run = replace(
        run,
        identity=str(asked.get("identity", "")),
        parameters=mapping(asked.get("parameters")),
        history=tuple(history),
    )
    if record:
        return _of_record(run, record)
    # The trainer's process is written beside the folder, as `TrainingRun` starts it.
    running = is_process_running(read_pid(folder.with_name(f"{folder.name}.pid")), (str(folder),))
    own = mapping(asked.get("parameters")).get("code")
    last: Mapping[str, Any] = history[-1] if history else {}
    return replace(
        run,
        state="training" if running else "stopped",
        kind=str(run.parameters.get("model", "")) if own else "",
        when=_modified(folder),
        data={"digest": str(asked.get("dataset", ""))},
        figures={
            name: value for name, value in _numbers(last).items() if name.startswith("validation_")
        },
        epochs=int(last.get("epoch", 0)),
    )


def _of_record(run: Run, record: Mapping[str, Any]) -> Run:
    model = mapping(record.get("model"))
    own = mapping(mapping(model.get("architecture")).get("own"))
    kept = mapping(model.get("choice")).get("kept", "")
    metrics, timings = mapping(record.get("metrics")), mapping(record.get("timings"))
    figures = _figures(metrics)
    if (seconds := _numbers(timings).get("training_seconds")) is not None:
        figures["training_seconds"] = seconds
    epochs = record.get("epochs")
    return replace(
        run,
        state="trained",
        kind=str(own.get("name") or kept),
        when=str(record.get("created", "")),
        parameters=mapping(record.get("parameters")),
        data=_data(mapping(record.get("dataset"))),
        code=_code(mapping(record.get("code")), own.get("code")),
        start=_start(mapping(record.get("start"))),
        figures=figures,
        epochs=epochs if isinstance(epochs, int) else None,
    )


def _history(path: Path) -> list[Mapping[str, Any]]:
    """The epochs of a run; the last line may be half written."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found: dict[int, Mapping[str, Any]] = {}
    for line in lines:
        try:
            epoch = mapping(json.loads(line))
        except ValueError:
            continue
        # What was done after the last checkpoint is done and told again after a resume.
        if isinstance(number := epoch.get("epoch"), int):
            found[number] = epoch
    return [found[number] for number in sorted(found)]


def _modified(folder: Path) -> str:
    latest = max((each.stat().st_mtime for each in folder.iterdir()), default=0.0)
    return datetime.fromtimestamp(latest, UTC).isoformat(timespec="seconds")


def _figures(metrics: Mapping[str, Any]) -> dict[str, float]:
    held_out, validation = (
        _numbers(mapping(metrics.get(part))) for part in ("held_out", "validation")
    )
    found = {name: held_out[name] for name in _HELD_OUT if name in held_out}
    if "loss" in validation:
        found["validation_loss"] = validation["loss"]
    return found


def _numbers(table: Mapping[str, Any]) -> dict[str, float]:
    """The entries that are numbers."""
    return {name: float(each) for name, each in table.items() if isinstance(each, int | float)}


def _data(dataset: Mapping[str, Any]) -> dict[str, Any]:
    known = ("digest", "rows", "source", "vocabulary")
    return {name: dataset[name] for name in known if name in dataset}


def _start(given: Mapping[str, Any]) -> dict[str, Any]:
    return {name: given[name] for name in ("digest", "run") if given.get(name)}


def _code(code: Mapping[str, Any], own: Any) -> dict[str, Any]:
    found = {name: code[name] for name in ("version", "digest") if name in code}
    return {**found, "own": own} if own else found
