"""Sends a run's record to an MLflow tracking server, by its REST API, and again until it has it.

Or it writes it into a file that MLflow reads (`falaj.workloads.training.tracking_database`).

What is sent lies in the run's folder anyway (`falaj.workloads.training.record`), so that a server
which can't be reached costs nothing: what it lacks is sent later. `STATE` notes what it has.

Nothing of the data's rows goes there: parameters, figures of epochs and of the held-out part,
versions of environment and code, and digests.

The API: https://mlflow.org/docs/latest/api_reference/rest-api.html. It is called here and not
through MLflow's client, as that brings some forty packages into the image that sees the data and
follows redirects to hosts that nobody has judged.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import hashlib
import json
import math
import os
import re
import secrets
import ssl
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

from falaj.workloads.bounds import FORMS
from falaj.workloads.documents import mapping
from falaj.workloads.errors import WorkloadError, printable
from falaj.workloads.files import read_bytes, read_json, write_json_atomic
from falaj.workloads.hosts import is_private
from falaj.workloads.registry.keyring import check_private
from falaj.workloads.registry.sealed import SUFFIX
from falaj.workloads.training import record as records
from falaj.workloads.training.tracking_database import Database
from falaj.workloads.training.tracking_store import (
    ATTEMPT,
    CONTEXT,
    LONGEST_VALUE,
    TRAINED_ON,
    Store,
    TrackingError,
    key_of,
    text_of,
)
from falaj.workloads.watching.exchange import (
    ExchangeError,
    Peer,
    UndeliveredError,
    ask_first,
    judged_addresses,
    tls_context,
)

EXPERIMENT: Final = str(FORMS["tracking"]["experiment"].default)
"""Where runs are kept where nothing else is said."""
PARENT: Final = "mlflow.parentRunId"
"""Tag of a run that is shown below another one."""
_API: Final = "/api/2.0/mlflow/"
_SECONDS: Final = 15.0
_MOST_BYTES: Final = 1 << 20
_EVERY_SECONDS: Final = 5.0
#: Limits of one request and of what is in it:
#: https://mlflow.org/docs/latest/api_reference/rest-api.html#request-limits
_MOST_METRICS, _MOST_PARAMETERS, _MOST_TAGS = 1_000, 100, 100
_LONGEST_DIGEST: Final = 36
_SHOWN: Final = 200

RUNNING, FINISHED, FAILED, KILLED = "RUNNING", "FINISHED", "FAILED", "KILLED"


SWEEP, TRIAL = "falaj.sweep", "falaj.trial"
"""Tags of a trial's run: which sweep's it is, and its number there."""
SOURCE: Final = {"mlflow.source.name": "falaj", "mlflow.source.type": "JOB"}
"""Tags of every run."""


@dataclass(frozen=True)
class Nested:
    """That a run is shown below another one.

    Attributes:
        parent: the other one's identifier there.
        tags: of the run from its beginning on.
        at_end: tags that it gets when it ends.
    """

    parent: str
    tags: Mapping[str, Any]
    at_end: Mapping[str, Any]


@dataclass(frozen=True)
class Destination:
    """A tracking server, or a file.

    Attributes:
        url: its address; of a file, as MLflow names it.
        experiment: the name of what runs are kept under there.
        secret: file of a token, or of ``user:password``, that its owner alone can read; None: the
            server asks nobody.
        authority: PEM file of whom to trust; None: whom the machine trusts.
        allowed: hosts outside one's own networks that may be sent to, as they are in the country.
        file: where runs are kept instead of at a server.
        tags: names and values that a run gets when it is made.
    """

    url: str
    experiment: str = EXPERIMENT
    secret: Path | None = None
    authority: Path | None = None
    allowed: tuple[str, ...] = ()
    file: Path | None = None
    tags: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of_file(cls, path: Path, experiment: str = EXPERIMENT) -> Destination:
        """A file that MLflow reads; a relative path starts where one is."""
        path = path.absolute()
        return cls(f"sqlite:///{path}", experiment, file=path)

    def check(self) -> None:
        """Refuse an address that nothing may be sent to, and a file where none can be.

        Raises:
            WorkloadError: says what was given and what is allowed.
        """
        FORMS["tracking"]["experiment"].check("--tracking-experiment", self.experiment)
        if self.file is not None:
            if self.file.is_dir() or not self.file.parent.is_dir():
                raise WorkloadError(
                    f"--tracking-file is {str(self.file)!r}: allowed is a file in a folder that "
                    "is there; it is made where it isn't"
                )
            return
        try:
            parts = urlsplit(self.url)
            host, _ = parts.hostname or "", parts.port
        except ValueError as error:
            raise WorkloadError(f"--tracking is {self.url!r}: {error}") from None
        form = FORMS["tracking"]["server"]
        if not form.allows(self.url):
            raise WorkloadError(
                f"--tracking is {_without_user(self.url)!r}: allowed is {form.rule} (those go "
                f"into the file of --tracking-secret), such as {form.example}"
            )
        if not is_private(host) and host not in self.allowed:
            raise WorkloadError(
                f"--tracking is {self.url!r}: {host} is no address of one's own networks; name it "
                "with --tracking-allow if it is in the country"
            )

    @property
    def place(self) -> str:
        """The server's host and port, or the file."""
        return urlsplit(self.url).netloc if self.file is None else str(self.file)

    @property
    def shown(self) -> str:
        """The server or file for people."""
        return f"the tracking {'server' if self.file is None else 'file'} {self.place}"

    def store(self) -> Store:
        """What keeps the runs."""
        if self.file is not None:
            return Database(self.file, self.experiment)
        return Server(self)


def of_options(options: argparse.Namespace) -> Destination | None:
    """The tracking server or file that the command line names; None: nothing is sent.

    Raises:
        WorkloadError: it can't be one, or options of one are given without it.
    """
    experiment = options.tracking_experiment or EXPERIMENT
    if options.tracking is None:
        further = ["secret", "authority", "allow"]
        if options.tracking_file is None:
            further += ["experiment", "tag"]
        for each in further:
            if getattr(options, f"tracking_{each}"):
                raise WorkloadError(
                    f"--tracking-{each} is of a tracking server: name that as well (--tracking), "
                    "or leave it out"
                )
        if options.tracking_file is None:
            return None
        destination = Destination.of_file(options.tracking_file, experiment)
    elif options.tracking_file is not None:
        raise WorkloadError(
            "--tracking and --tracking-file are two places for the same run: name one of them"
        )
    else:
        destination = Destination(
            options.tracking, experiment, options.tracking_secret, options.tracking_authority,
            tuple(options.tracking_allow),
        )  # fmt: skip
    destination.check()
    return replace(destination, tags=tuple(_tag(each) for each in options.tracking_tag))


def _tag(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or key_of(name) != name or name.startswith("mlflow."):
        raise WorkloadError(
            f"--tracking-tag is {text!r}: allowed is NAME=VALUE, such as team=credit; the name of "
            "letters, digits, blanks and . _ / -, and not one of MLflow's own (mlflow.)"
        )
    return name, value


class Server:
    """Requests of one tracking server."""

    def __init__(self, destination: Destination) -> None:
        self._destination = destination

    def run_of(self, attempt: str, name: str, begun: int, tags: Mapping[str, Any]) -> str:
        """As `Store.run_of`."""
        experiment = self._experiment()
        found = self.call("runs/search", {
            "experiment_ids": [experiment], "max_results": 1,
            "filter": f"tags.`{ATTEMPT}` = '{attempt}'",
        })  # fmt: skip
        for run in cast("list[dict[str, Any]]", found.get("runs") or []):
            return _identifier(run.get("info"), "run_id")
        made = self.call("runs/create", {
            "experiment_id": experiment, "run_name": name, "start_time": begun,
            "tags": _pairs({ATTEMPT: attempt, **tags}),
        })  # fmt: skip
        return _identifier(mapping(made.get("run")).get("info"), "run_id")

    def log_parameters(self, run: str, parameters: Mapping[str, Any]) -> None:
        """As `Store.log_parameters`."""
        rows = [{"key": key, "value": text_of(value)} for key, value in parameters.items()]
        for part in _parts(rows, _MOST_PARAMETERS):
            self.call("runs/log-batch", {"run_id": run, "params": part})

    def log_tags(self, run: str, tags: Mapping[str, Any]) -> None:
        """As `Store.log_tags`."""
        for part in _parts(_pairs(tags), _MOST_TAGS):
            self.call("runs/log-batch", {"run_id": run, "tags": part})

    def log_figures(self, run: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """As `Store.log_figures`."""
        for part in _parts(rows, _MOST_METRICS):
            self.call("runs/log-batch", {"run_id": run, "metrics": part})

    def log_dataset(self, run: str, dataset: Mapping[str, str]) -> None:
        """As `Store.log_dataset`."""
        tags = [{"key": CONTEXT, "value": TRAINED_ON}]
        named = {"dataset": dict(dataset), "tags": tags}
        self.call("runs/log-inputs", {"run_id": run, "datasets": [named]})

    def update(self, run: str, status: str, ended: int | None) -> None:
        """As `Store.update`."""
        when = {} if ended is None else {"end_time": ended}
        self.call("runs/update", {"run_id": run, "status": status, **when})

    def _experiment(self) -> str:
        name = self._destination.experiment
        path = f"experiments/get-by-name?experiment_name={quote(name)}"
        found = self.call(path, missing="RESOURCE_DOES_NOT_EXIST")
        if not found:
            made = self.call("experiments/create", {"name": name}, "RESOURCE_ALREADY_EXISTS")
            if made:
                return _identifier(made, "experiment_id")
            found = self.call(path)
        experiment = mapping(found.get("experiment"))
        if experiment.get("lifecycle_stage") == "deleted":
            raise TrackingError(
                f"experiment {name!r} was deleted there: restore it, or name another one"
            )
        return _identifier(experiment, "experiment_id")

    def call(
        self, path: str, body: Mapping[str, Any] | None = None, missing: str = ""
    ) -> Mapping[str, Any]:
        """Ask for ``path`` of the API; with a body it is posted.

        Args:
            path: below the API's.
            body: plain JSON.
            missing: the code of a refusal that is an answer, too: {}.

        Raises:
            TrackingError: it can't be reached or trusted, or refuses.
        """
        destination = self._destination
        parts = urlsplit(destination.url)
        host, is_secure = parts.hostname or "", parts.scheme == "https"
        port = parts.port or (443 if is_secure else 80)
        headers = {"Host": parts.netloc, "Content-Type": "application/json", **self._credentials()}
        data = json.dumps(body).encode() if body is not None else None
        place = parts.path.rstrip("/") + _API + path
        try:
            context: ssl.SSLContext | None = None
            if is_secure:
                context = tls_context(destination.authority, "the tracking server's authority")
            addresses = judged_addresses(
                host, port, lambda each: is_private(each) and each not in destination.allowed
            )
            peers = [Peer(each, port, host, context, _SECONDS, _MOST_BYTES) for each in addresses]
            method = "GET" if data is None else "POST"
            status, answer, _ = ask_first(peers, method, place, headers, data)
        except (UndeliveredError, ExchangeError) as error:
            raise TrackingError(str(error)) from None
        found = _object(answer)
        if 200 <= status < 300:
            return found
        if missing and found.get("error_code") == missing:
            return {}
        reason = printable(str(found.get("message") or found.get("error_code") or ""))[:_SHOWN]
        hint = ": see the file of --tracking-secret" if status in {401, 403} else ""
        said = f" ({reason})" if reason else ""
        raise TrackingError(
            f"it answers {path.partition('?')[0]} with status {status}{said}{hint}"
        )

    def _credentials(self) -> dict[str, str]:
        path = self._destination.secret
        if path is None:
            return {}
        # Read each time: tokens are renewed while a training runs.
        try:
            if not _is_handed_over(path):
                check_private(path, "the tracking server's secret")
            secret = read_bytes(path, "the tracking server's secret").decode().strip()
        except (WorkloadError, UnicodeDecodeError) as error:
            raise TrackingError(f"{path} can't be used: {error}") from None
        if not secret or not secret.isprintable() or not secret.isascii():
            raise TrackingError(f"{path} holds no token and no user:password in ASCII")
        if ":" in secret:
            return {"Authorization": f"Basic {base64.b64encode(secret.encode()).decode()}"}
        return {"Authorization": f"Bearer {secret}"}


def sync(
    output: Path,
    destination: Destination,
    status: str | None = None,
    nested: Nested | None = None,
) -> str:
    """Send what the server doesn't have of a run; return the run's identifier there.

    Sent again, it changes nothing: an attempt finds its run by a tag, and a figure that is there
    with its step and time is not doubled.

    Args:
        output: the run's folder.
        destination: the server.
        status: what became of the run where it didn't finish. Default: it goes on.
        nested: below which run it is shown. Default: below none.

    Raises:
        TrackingError: the server didn't take all of it; what it took is noted.
        WorkloadError: files of the run can't be used.
    """
    begun = read_json(output / records.PARAMETERS, "the parameters of the run")
    record = records.finished(output)
    state = _state(output, destination)
    store = destination.store()

    def note(**found: Any) -> None:
        state.update(found)
        write_json_atomic(output / records.TRACKING, state)

    note()  # the attempt's name, before anything is made under it
    if "run" not in state:
        identity = str(begun["identity"])
        tags = {
            "falaj.identity": identity, "falaj.dataset": str(begun["dataset"]),
            **SOURCE, **dict(destination.tags),
        }  # fmt: skip
        if nested is not None:
            tags |= {PARENT: nested.parent, **nested.tags}
        name = f"{output.name}"[:LONGEST_VALUE]
        note(run=store.run_of(state["attempt"], name, state["begun"], tags))
    run: str = state["run"]
    if not state.get("parameters"):
        store.log_parameters(run, begun["parameters"])
        note(parameters=True)
    lines = [each for each in epochs(output) if each["epoch"] > state["epoch"]]
    for part in _parts(lines, max(1, _MOST_METRICS // (1 + max(map(len, lines), default=0)))):
        batch = [each for line in part for each in figures(line, state["begun"])]
        store.log_figures(run, batch)
        note(epoch=part[-1]["epoch"])
    wanted = FINISHED if record is not None else status or RUNNING
    if state["status"] == wanted:
        return run
    ended: int | None = None
    if record is not None:
        _send_record(store, run, record, output, state["begun"])
    if wanted != RUNNING:
        if nested is not None:
            store.log_tags(run, nested.at_end)
        seconds = record["timings"]["training_seconds"] if record else _seconds(output)
        ended = state["begun"] + round(1000 * seconds)
    store.update(run, wanted, ended)
    note(status=wanted)
    return run


def _send_record(
    store: Store, run: str, record: Mapping[str, Any], output: Path, begun: int
) -> None:
    """What is known of a run once it has finished."""
    dataset = record["dataset"]
    store.log_dataset(run, {
        "name": str(dataset["source"].get("name") or "dataset")[:LONGEST_VALUE],
        "digest": dataset["digest"][:_LONGEST_DIGEST],
        "source_type": "falaj", "source": json.dumps({"digest": dataset["digest"]}),
        "profile": json.dumps(dataset["rows"]),
    })  # fmt: skip
    at = begun + round(1000 * record["timings"]["training_seconds"])
    measured = dict(_flat("", {
        "held_out": record["metrics"]["held_out"], "validation": record["metrics"]["validation"],
        "timings": record["timings"], "utilisation": record["utilisation"],
        "model": {"parameters": record["model"]["parameters"]},
    }))  # fmt: skip
    metrics = [
        {"key": key, "value": _number(value), "timestamp": at, "step": record["epochs"]}
        for key, value in measured.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    store.log_figures(run, metrics)
    lineage = {each: record.get(each) for each in ("teacher", "start", "lora")}
    tags = {
        **dict(_flat("falaj.environment", record["environment"])),
        **dict(_flat("falaj.code", record["code"])),
        **dict(_flat("falaj.dataset", {k: v for k, v in dataset.items() if k != "rows"})),
        **dict(_flat("falaj", lineage)),
        "falaj.task": record["task"], "falaj.ended": record["ended"],
        "falaj.model.kept": record["model"]["choice"]["kept"],
        **_model_digest(output),
    }  # fmt: skip
    store.log_tags(run, tags)


def _model_digest(output: Path) -> dict[str, str]:
    """SHA-256 of the model's file as it lies there, sealed or plain."""
    for name in (records.MODEL, records.MODEL + SUFFIX):
        if (output / name).is_file():
            data = read_bytes(output / name, "the run's model")
            return {
                "falaj.model.file": name,
                "falaj.model.sha256": hashlib.sha256(data).hexdigest(),
            }
    return {}


def is_whole(output: Path, destination: Destination) -> bool:
    """Whether a tracking server has all of a finished run.

    Raises:
        WorkloadError: what is noted of it can't be read.
    """
    return _state(output, destination)["status"] == FINISHED


def epochs(output: Path) -> Iterator[Mapping[str, Any]]:
    """The figures of the epochs that are written whole; one may just be written.

    Raises:
        WorkloadError: the file can't be read.
    """
    path = output / records.METRICS
    if not path.is_file():
        return
    *whole, _ = read_bytes(path, "the figures of the run").split(b"\n")
    for line in whole:
        with contextlib.suppress(ValueError):
            found = mapping(json.loads(line))
            if isinstance(found.get("epoch"), int):
                yield found


@contextlib.contextmanager
def following(
    output: Path, destination: Destination | None, say: Callable[[str, str], None]
) -> Generator[None, None, None]:
    """Send what there is of a run while it trains, and the rest when it is over.

    Nothing that goes wrong with it ends the training: it is told, once while it trains and once at
    its end, and kept to be sent later.

    Args:
        output: the run's folder, in which it has begun.
        destination: the server; None: nothing is sent.
        say: gets an event and a message.
    """
    if destination is None:
        yield
        return
    ended = threading.Event()
    told = threading.Event()

    def work() -> None:
        while not ended.wait(_EVERY_SECONDS):
            if not deliver(output, destination, None if told.is_set() else say):
                told.set()

    thread = threading.Thread(target=work, name="tracking", daemon=True)
    thread.start()
    status = FAILED
    try:
        yield
        status = KILLED
    finally:
        ended.set()
        # It is in a request at most, which has an end.
        thread.join()
        deliver(output, destination, say, status, at_end=True)


def deliver(
    output: Path,
    destination: Destination,
    say: Callable[[str, str], None] | None,
    status: str | None = None,
    *,
    at_end: bool = False,
) -> bool:
    """Send what the server lacks, and tell what came of it; return whether it has all.

    Args:
        output: the run's folder.
        destination: the server.
        say: gets an event and a message; None: nobody is told.
        status: as `sync` takes it.
        at_end: whether success is told, too.
    """
    try:
        run = sync(output, destination, status)
    except (TrackingError, WorkloadError) as error:
        if say is not None:
            say(
                "untracked",
                f"{destination.shown} doesn't have all of this run: {error}; "
                "its record is kept, and sent when the run is asked for again",
            )
        return False
    if at_end and say is not None:
        say("tracked", f"run {run} of {destination.shown} has the record")
    return True


def _state(output: Path, destination: Destination) -> dict[str, Any]:
    # The parameters are written as a run begins.
    return noted(
        output,
        destination,
        lambda: round(1000 * (output / records.PARAMETERS).stat().st_mtime),
    )


def noted(output: Path, destination: Destination, begun: Callable[[], int]) -> dict[str, Any]:
    """What is noted in a folder of a server, and nothing of another one.

    Args:
        output: the folder.
        destination: the server.
        begun: when what is sent began, where nothing is noted yet; Unix time in ms.

    Raises:
        WorkloadError: what is noted can't be read.
    """
    path = output / records.TRACKING
    where = {"server": destination.url, "experiment": destination.experiment}
    found: object = read_json(path, "what was tracked") if path.is_file() else {}
    known = mapping(found)
    since = known.get("begun")
    fresh = {
        **where, "attempt": known.get("attempt") or secrets.token_hex(16),
        "begun": since if isinstance(since, int) else begun(),
        "epoch": 0, "status": "",
    }  # fmt: skip
    # A file that was removed has nothing of what it had.
    is_gone = destination.file is not None and not destination.file.exists()
    return {**fresh, **known} if where.items() <= known.items() and not is_gone else fresh


def _is_handed_over(path: Path) -> bool:
    """Whether a cluster put the file there: of root, for this process's group to read.

    The kubelet links it to what it renews: https://kubernetes.io/docs/concepts/configuration/secret
    """
    try:
        found = path.stat()
    except OSError:
        return False
    is_ours = found.st_uid == os.geteuid()
    return not is_ours and found.st_uid == 0 and not found.st_mode & 0o037


def _seconds(output: Path) -> float:
    return max((float(each.get("seconds") or 0) for each in epochs(output)), default=0.0)


def figures(line: Mapping[str, Any], begun: int) -> Iterator[dict[str, Any]]:
    """The figures of an epoch as the API takes them; ``begun``: of the run, Unix time in ms."""
    at = begun + round(1000 * float(line.get("seconds") or 0))
    for key, value in line.items():
        if key != "epoch" and isinstance(value, int | float) and not isinstance(value, bool):
            yield {
                "key": key_of(key), "value": _number(value), "timestamp": at,
                "step": line["epoch"],
            }  # fmt: skip


def _number(value: float) -> float | str:
    """A number as JSON of protocol buffers has it: https://protobuf.dev/programming-guides/json"""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _flat(above: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Leaves by their paths; of lists of more than plain values, and of each class, nothing."""
    if isinstance(value, dict):
        for key, each in cast("dict[str, Any]", value).items():
            if key not in {"per_class", "confusion"}:
                yield from _flat(f"{above}.{key}" if above else key, each)
    elif isinstance(value, list):
        values = cast("list[Any]", value)
        if values and all(isinstance(each, str | int | float) for each in values):
            yield above, " ".join(map(str, values))
        elif values:
            yield above, json.dumps(values)
    elif value is not None:
        yield above, value


def _pairs(values: Mapping[str, Any]) -> list[dict[str, str]]:
    return [{"key": key_of(key), "value": text_of(value)} for key, value in values.items()]


def _parts(rows: Sequence[Any], most: int) -> Iterator[list[Any]]:
    for first in range(0, len(rows), most):
        yield list(rows[first : first + most])


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        return mapping(json.loads(data))
    except ValueError:
        return {}


def _identifier(found: object, name: str) -> str:
    value = mapping(found).get(name)
    if not isinstance(value, str) or not value.isalnum():
        raise TrackingError(f"its answer has no {name}: is it an MLflow tracking server?")
    return value


def _without_user(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//…@", url)
