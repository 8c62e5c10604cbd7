"""The coordinator: keeps and serves the rounds, and leaves a finished run as training does."""

from __future__ import annotations

import json
import math
import re
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from falaj.workloads.errors import LOST, STOPPED, WorkloadError
from falaj.workloads.federation import updates
from falaj.workloads.federation.floor import asked, decode_refusal
from falaj.workloads.federation.plan import Plan, Task, task_of
from falaj.workloads.federation.secure.identities import IdentityError
from falaj.workloads.federation.secure.messages import STAGES
from falaj.workloads.federation.site import labels_of
from falaj.workloads.federation.transport import MEDIA_TYPE, HttpsServer, caller
from falaj.workloads.federation.updates import Update
from falaj.workloads.files import write_json_atomic
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.sealed import artifact_path
from falaj.workloads.training import checkpoint, launcher
from falaj.workloads.training import record as records
from falaj.workloads.training.batches import PreparedData, features, prepare
from falaj.workloads.training.finishing import Setting, evaluate, finish, report_finished
from falaj.workloads.training.loop import Position, predict, row_losses
from falaj.workloads.training.options import Parameters, Requested
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.snapshot import Dataset, digest, make_folder
from falaj.workloads.training.stopping import StopRequest
from falaj.workloads.training.tensors import seed

# The rounds of a federation: which model is out, who answered, and what becomes of it.

STATE = "federation"


class LateError(WorkloadError):
    """An update for a round that isn't open, or a second one of the same site."""


@dataclass(frozen=True)
class Rules:
    """When a round is over, and what protects a site.

    Attributes:
        sites: names of all sites.
        least: fewest that must answer.
        seconds: how long a round waits for the others once that many did.
        noise: standard deviation of the noise in the mean, in units of ``clip / sites``; 0: none.
            With secure aggregation the sites add it.
    """

    sites: frozenset[str]
    least: int
    seconds: float
    noise: float


@dataclass(frozen=True)
class Refusal:
    """A site's word that it takes no part in a round.

    Attributes:
        number: of the round.
        site: whose.
        reasons: as the site says them.
    """

    number: int
    site: str
    reasons: list[str]


class Rounds:
    """The state of a federation, which threads share; kept on disk after each round.

    Args:
        task: what is learned.
        rules: when a round is over.
        folder: of the run.
        keyring: seals the state; None leaves it plain.
    """

    def __init__(self, task: Task, rules: Rules, folder: Path, keyring: KeyRing | None) -> None:
        self._task, self._rules = task, rules
        self._path, self._keyring = folder / STATE, keyring
        self._changed = threading.Condition()
        self._answers: dict[str, Update] = {}
        self._refused: dict[str, int] = {}
        self._untold: list[Refusal] = []
        seed(task.plan.seed)
        module = task.build()
        self._model = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        self._context = f"federation:{digest(task.to_bytes().decode())}".encode()
        self.number: int = 0
        self.resumed = artifact_path(self._path, keyring).exists()
        if self.resumed:
            self._restore()
        self._message = updates.encode(self._model)

    @property
    def model(self) -> Mapping[str, Tensor]:
        """The model of the round under way."""
        return self._model

    def open(self) -> int | None:
        """Number of the round under way; None when all are done."""
        with self._changed:
            return self.number if self.number < self._task.plan.rounds else None

    def state(self, site: str) -> dict[str, Any]:
        """How the round under way stands for a site: whether its update is here, which one sent to
        a coordinator that died is not."""
        with self._changed:
            return {
                "round": self.number, "answered": site in self._answers, **self._asked_of(site),
            }  # fmt: skip

    def tell(self, number: int, session: str, stage: str, site: str) -> bytes:
        """What a site needs for a stage of secure aggregation.

        Raises:
            LateError: it isn't that round, session or stage that is under way.
            MessageError: there is nothing for this site.
        """
        raise LateError(f"round {number} has no session {session}: updates are seen here")

    def take(self, number: int, session: str, stage: str, site: str, data: bytes) -> None:
        """What a site sends at a stage of secure aggregation.

        Raises:
            LateError: as `tell`.
            MessageError: it isn't what the stage needs.
        """
        raise LateError(f"round {number} has no session {session}: updates are seen here")

    def most_bytes(self) -> int:
        """Of what a site sends."""
        return updates.largest(self._model)

    def advance(self, *, timed_out: bool) -> bool:
        """Go on to the round's next stage, if it has stages; whether there was one.

        Args:
            timed_out: whether the fewest sites are enough.
        """
        return False

    def message(self, number: int) -> bytes:
        """The model that a round starts with.

        Raises:
            LateError: that round isn't open.
        """
        with self._changed:
            if number != self.number:
                raise LateError(f"round {number} isn't open: {self.number} is")
            return self._message

    def answer(self, number: int, site: str, data: bytes) -> None:
        """Take a site's update.

        Raises:
            MessageError: it isn't the model's tensors.
            LateError: the round is over, or the site has answered.
        """
        tensors, numbers = updates.decode(data, self._model)
        rows, loss = updates.numbers_of(numbers)
        if not self._task.plan.equal and rows == 0:
            raise updates.MessageError("an update without rows can't be counted by them")
        # A site can't weigh more than the rules let it, whatever it sends.
        tensors = updates.clipped(tensors, self._task.plan.clip)
        update = Update(tensors, 0 if self._task.plan.equal else rows, loss)
        with self._changed:
            if number != self.number:
                raise LateError(f"round {number} isn't open: {self.number} is")
            if site in self._answers:
                raise LateError(f"{site} has answered in round {number}")
            self._answers[site] = update
            self._changed.notify_all()

    def refuse(self, number: int, site: str, data: bytes) -> None:
        """Take a site's word that it refuses the round, and why.

        Raises:
            MessageError: it is no refusal.
            LateError: the round is over, or the site has answered.
        """
        reasons = decode_refusal(data)
        with self._changed:
            if number != self.number:
                raise LateError(f"round {number} isn't open: {self.number} is")
            if site in self._answers:
                raise LateError(f"{site} has answered in round {number}")
            if self._refused.get(site) != number:
                self._refused[site] = number
                self._untold.append(Refusal(number, site, reasons))
                self._changed.notify_all()

    def refusals(self) -> list[Refusal]:
        """Those that came since this was asked last."""
        with self._changed:
            found, self._untold = self._untold, []
            return found

    def refusing(self) -> list[str]:
        """Sites that refuse the round under way and sent no update since."""
        with self._changed:
            return sorted(self._refusing())

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; whether the round under way can be closed."""
        until = time.monotonic() + seconds
        with self._changed:
            while not self._complete():
                left = until - time.monotonic()
                if left <= 0 or not self._changed.wait(left):
                    break
            return self._complete()

    def close(self, *, timed_out: bool = False) -> dict[str, Any] | None:
        """Average what was sent and open the next round.

        Args:
            timed_out: whether the fewest sites are enough.

        Returns:
            Round, sites and mean loss (None where the sites don't tell it); None where too few
            have answered.
        """
        with self._changed:
            enough = self._complete() or (timed_out and len(self._answers) >= self._rules.least)
            if not enough:
                return None
            sites = sorted(self._answers)
            answers = [self._answers[site] for site in sites]
            change = updates.mean(answers)
            if self._rules.noise > 0:
                deviation = self._rules.noise * self._task.plan.clip / len(answers)
                # From the system's entropy: whoever knew the seed could take the noise out.
                generator = torch.Generator()
                generator.seed()
                change = updates.noised(change, deviation, generator)
            self._answers = {}
            self._apply(change)
            loss = sum(each.loss for each in answers) / len(answers)
            return {"round": self.number, "sites": sites, "loss": loss}

    def _apply(self, change: Mapping[str, Tensor]) -> None:
        """Change the model and open the next round."""
        self._model = {
            name: tensor + change[name].to(tensor.dtype) for name, tensor in self._model.items()
        }
        self.number += 1
        self._message = updates.encode(self._model)
        self._save(self.number)

    def _complete(self) -> bool:
        """Nobody needs to be waited for: who refuses the round doesn't answer it."""
        waited = self._rules.sites - self._answers.keys() - self._refusing()
        return not waited and len(self._answers) >= self._rules.least

    def _refusing(self) -> set[str]:
        found = {site for site, number in self._refused.items() if number == self.number}
        return found - self._answers.keys()

    def _asked_of(self, site: str) -> dict[str, Any]:
        """What the round asks for, and whether this site refuses it."""
        asks = asked(self._task.plan, self._rules.noise, self._rules.least)
        return {"refused": site in self._refusing(), "asks": asks}

    def _save(self, number: int) -> None:
        """Keep the model, with the round that the federation goes on with."""
        state = {"number": number, "model": self._model}
        checkpoint.save(self._path, state, self._keyring, self._context)

    def _restore(self) -> None:
        """Go on after the last round that was closed; a changed task is another federation.

        Raises:
            WorkloadError: the state is of another task, damaged, or sealed with other keys.
        """
        state = checkpoint.load(self._path, self._keyring, self._context)
        if {n: t.shape for n, t in state["model"].items()} != {
            n: t.shape for n, t in self._model.items()
        }:
            raise WorkloadError(
                f"{self._path} is of a federation with another model: choose another --output"
            )
        self.number, self._model = int(state["number"]), dict(state["model"])


# The coordinator's HTTPS: TLS 1.3, a certificate and a token of each site, a line per request.

TRAFFIC = "traffic.jsonl"
_MODEL = re.compile(r"^/v1/rounds/(\d{1,6})/model$")
_UPDATE = re.compile(r"^/v1/rounds/(\d{1,6})/update$")
_REFUSAL = re.compile(r"^/v1/rounds/(\d{1,6})/refusal$")
_STAGE = re.compile(rf"^/v1/rounds/(\d{{1,6}})/([0-9a-f]{{32}})/({'|'.join(STAGES)})$")
_IDLE_SECONDS = 60


class Server(HttpsServer):
    """Serves a federation's rounds to its sites.

    Args:
        place: address and port to listen on.
        context: see `transport.server_context`.
        task: what the sites learn.
        rounds: the state.
        tokens: SHA-256 (hex) of each site's token, by the common name of its certificate.
        traffic: file that gets a line for each request: who, what, how many bytes, which status.
    """

    def __init__(
        self,
        place: tuple[str, int],
        context: ssl.SSLContext,
        task: Task,
        rounds: Rounds,
        *,
        tokens: Mapping[str, str],
        traffic: Path,
    ) -> None:
        super().__init__(place, context, _Handler)
        self.rounds, self.tokens = rounds, tokens
        self.task = task.to_bytes()
        self._traffic, self._writing = traffic, threading.Lock()

    def note(self, **line: Any) -> None:
        """Write a line about a request."""
        text = json.dumps({"time": round(time.time(), 3), **line})
        with self._writing, self._traffic.open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that breaks off or can't do TLS: one line, no trace."""
        self.note(site=None, address=str(client_address[0]), status=0, received=0, sent=0)


class _Handler(BaseHTTPRequestHandler):
    """One connection; it is closed after one request."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _IDLE_SECONDS
    server_version, sys_version = "falaj", ""

    def do_GET(self) -> None:
        """The task, the number of the round, or its model."""
        if (site := self._site()) is None:
            return
        number = self.server.rounds.open()
        if self.path == "/v1/task":
            self._answer(site, HTTPStatus.OK, self.server.task, "application/json")
        elif number is None:
            self._answer(site, HTTPStatus.GONE, b"all rounds are done")
        elif self.path == "/v1/round":
            state = json.dumps(self.server.rounds.state(site)).encode()
            self._answer(site, HTTPStatus.OK, state, "application/json")
        elif found := _MODEL.match(self.path):
            try:
                body = self.server.rounds.message(int(found[1]))
            except LateError as error:
                self._answer(site, HTTPStatus.CONFLICT, str(error).encode())
            else:
                self._answer(site, HTTPStatus.OK, body, MEDIA_TYPE)
        elif found := _STAGE.match(self.path):
            try:
                body = self.server.rounds.tell(int(found[1]), found[2], found[3], site)
            except (LateError, updates.MessageError) as error:
                self._answer(site, HTTPStatus.CONFLICT, str(error).encode())
            else:
                self._answer(site, HTTPStatus.OK, body, MEDIA_TYPE)
        else:
            self._answer(site, HTTPStatus.NOT_FOUND, b"no such thing")

    def do_POST(self) -> None:
        """A site's update or refusal, or what it sends at a stage of secure aggregation."""
        if (site := self._site()) is None:
            return
        found = _UPDATE.match(self.path)
        staged, refusal = _STAGE.match(self.path), _REFUSAL.match(self.path)
        length = self.headers.get("Content-Length", "")
        most = self.server.rounds.most_bytes()
        if not found and not staged and not refusal:
            self._answer(site, HTTPStatus.NOT_FOUND, b"no such thing")
        elif self.headers.get("Content-Type") != MEDIA_TYPE:
            self._answer(site, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, MEDIA_TYPE.encode())
        elif not length.isdecimal() or int(length) > most:
            text = f"what is sent now has at most {most} bytes and says how many"
            self._answer(site, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text.encode())
        else:
            body = self.rfile.read(int(length))
            try:
                if staged:
                    at = (int(staged[1]), staged[2], staged[3])
                    self.server.rounds.take(*at, site, body)
                elif refusal:
                    self.server.rounds.refuse(int(refusal[1]), site, body)
                elif found:
                    self.server.rounds.answer(int(found[1]), site, body)
            except LateError as error:
                self._answer(site, HTTPStatus.CONFLICT, str(error).encode(), received=len(body))
            except (updates.MessageError, IdentityError) as error:
                self._answer(site, HTTPStatus.BAD_REQUEST, str(error).encode(), received=len(body))
            else:
                self._answer(site, HTTPStatus.OK, b"taken", received=len(body))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr: `Server.note` has it."""

    def _site(self) -> str | None:
        """Who calls: certificate and token must be of the same site. None: refused."""
        site = caller(self.connection, self.headers, self.server.tokens)
        if site is None:
            self._answer("", HTTPStatus.UNAUTHORIZED, b"no site with this certificate and token")
        return site

    def _answer(
        self,
        site: str,
        status: HTTPStatus,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        *,
        received: int = 0,
    ) -> None:
        self.server.note(
            site=site, method=self.command, path=self.path[:100], status=int(status), kind=kind,
            received_kind=self.headers.get("Content-Type"), received=received, sent=len(body),
        )  # fmt: skip
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


PRIVACY = "privacy.json"
DELTA = 1e-5
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class Federation:
    """All that a coordinator needs.

    Attributes:
        task: what is learned.
        dataset: the reference rows, on which the model is judged.
        prepared: the reference rows as tensors.
        parameters: of a run on the reference rows, for its record.
        rules: when a round is over.
        output: folder of the run.
        keyring: seals model and state; None leaves them plain.
        patience: how many times a round may pass its time with too few sites.
        rounds: makes the state; with secure aggregation another than `Rounds`.
    """

    task: Task
    dataset: Dataset
    prepared: PreparedData
    parameters: Parameters
    rules: Rules
    output: Path
    keyring: KeyRing | None
    patience: int
    rounds: Callable[[Task, Rules, Path, KeyRing | None], Rounds] = Rounds

    @property
    def identity(self) -> str:
        """Names the federation by its reference rows, its task, and the noise of its rounds.

        With other noise from some round on, `privacy.json` would claim what wasn't given.
        """
        named: dict[str, object] = {
            "federation": self.task.to_bytes().decode(), "rows": self.dataset.digest,
        }  # fmt: skip
        if self.rules.noise > 0:
            named["noise"] = self.rules.noise
        return digest(named)


def federation(
    dataset: Dataset,
    plan: Plan,
    rules: Rules,
    *,
    output: Path,
    keyring: KeyRing | None,
    patience: int,
    rounds: Callable[[Task, Rules, Path, KeyRing | None], Rounds] = Rounds,
) -> Federation:
    """Set a federation up from reference rows and a plan."""
    requested = Requested(
        epochs=plan.rounds * plan.epochs, batch_size=plan.batch_size, seed=plan.seed,
        learning_rate=plan.learning_rate, device="cpu", precision="float32",
    )  # fmt: skip
    parameters = launcher.resolve(requested, dataset)
    prepared = prepare(dataset, parameters)
    task = task_of(dataset, prepared, plan)
    return Federation(
        task, dataset, prepared, parameters, rules, output, keyring, patience, rounds
    )


def run(
    it: Federation,
    serve: Callable[[Task, Rounds, Path], Server],
    stop: StopRequest,
    progress: Progress,
) -> int:
    """Serve until all rounds are done.

    Args:
        it: the federation.
        serve: makes the server, which this starts and ends.
        stop: ends it after the current round's state, which is on disk.
        progress: tells the person.

    Returns:
        0 done, 74 too few sites came, 75 stopped: run it again to go on.
    """
    make_folder(it.output)
    records.check_folder(it.output, it.identity)
    done = records.finished(it.output)
    if done is not None:
        report_finished(done, it.output, progress)
        return 0
    described = {"identity": it.identity, "federation": json.loads(it.task.to_bytes())}
    write_json_atomic(it.output / records.PARAMETERS, described)
    rounds = it.rounds(it.task, it.rules, it.output, it.keyring)
    server = serve(it.task, rounds, it.output / TRAFFIC)
    thread = threading.Thread(target=server.serve_forever, name="federation", daemon=True)
    thread.start()
    host, port = server.server_address[:2]
    what = "going on from" if rounds.resumed else "starting at"
    progress.emit(
        "start", f"{what} round {rounds.number + 1}, listening on {host}:{port}",
        round=rounds.number, port=port,
    )  # fmt: skip
    started = time.monotonic()
    try:
        position = _all_rounds(it, rounds, stop, progress)
        if isinstance(position, int):
            return position
        position.seconds = time.monotonic() - started
        _leave(it, rounds, position, progress)
        stop_at = time.monotonic() + _LAST_WORD_SECONDS
        while time.monotonic() < stop_at and not stop.asked():
            time.sleep(_POLL_SECONDS)  # sites ask once more and are told that it is done
    finally:
        server.shutdown()
        server.server_close()
    return 0


#: A site asks for the round twice a second.
_LAST_WORD_SECONDS = 3.0


def _all_rounds(
    it: Federation, rounds: Rounds, stop: StopRequest, progress: Progress
) -> Position | int:
    position, misses = Position(), 0
    began = time.monotonic()
    while rounds.open() is not None:
        if stop.asked():
            progress.emit("stopped", f"stopped in round {rounds.number + 1}: {stop.reason}")
            return STOPPED
        ready = rounds.wait(_POLL_SECONDS)
        _tell_refusals(it, rounds, progress)
        timed_out = time.monotonic() - began > it.rules.seconds
        if (ready or timed_out) and rounds.advance(timed_out=timed_out):
            began = time.monotonic()  # a stage has a round's time of its own
            continue
        closed = rounds.close(timed_out=timed_out) if ready or timed_out else None
        if closed is None:
            if timed_out:
                misses, began = misses + 1, time.monotonic()
                text = f"round {rounds.number + 1}: fewer than {it.rules.least} site(s) answered"
                if refusing := rounds.refusing():
                    text += f"; {', '.join(refusing)} refused it"
                progress.emit("waiting", text, missed=misses)
                if misses > it.patience:
                    return LOST
            continue
        misses, began = 0, time.monotonic()
        _judge(it, rounds, position, closed, progress)
    _tell_refusals(it, rounds, progress)
    if not position.history and not rounds.resumed:
        progress.emit("lost", "no round came to a sum: the model has learned nothing")
        return LOST
    position.epoch = it.task.plan.rounds
    position.ended = "all rounds are done"
    return position


def _tell_refusals(it: Federation, rounds: Rounds, progress: Progress) -> None:
    for each in rounds.refusals():
        progress.emit(
            "refused",
            f"round {each.number + 1}/{it.task.plan.rounds}: {each.site} refuses it: "
            f"{'; '.join(each.reasons)}",
            round=each.number, site=each.site, reasons=each.reasons,
        )  # fmt: skip


def _module(it: Federation, rounds: Rounds) -> Any:
    module = it.task.build()
    module.load_state_dict(dict(rounds.model))
    return module.eval()


def _judge(
    it: Federation, rounds: Rounds, position: Position, closed: dict[str, Any], progress: Progress
) -> None:
    module = _module(it, rounds)
    figures = evaluate(it.dataset, it.prepared, module)
    if closed["loss"] is None:
        closed = {**closed, "loss": _reference_loss(it, module)}
    name = records.FIRST[it.dataset.task]
    value = float(figures[name])
    if not math.isfinite(closed["loss"]):
        raise WorkloadError("the sites' loss is no longer a number: use a lower --learning-rate")
    if closed["loss"] < position.best_loss:
        position.best_loss, position.best_epoch = closed["loss"], closed["round"] - 1
    position.history.append({**closed, name: value})
    progress.emit(
        "round",
        f"round {closed['round']}/{it.task.plan.rounds}: {len(closed['sites'])} site(s), loss "
        f"{closed['loss']:.4f}, reference {name} {value:.4g}",
        **closed, metric_name=name, **{name: value},
    )  # fmt: skip


def _reference_loss(it: Federation, module: nn.Module) -> float:
    """Mean loss of the reference rows, in the place of one that the sites don't tell."""
    inputs = features(it.dataset, "train", it.task.preprocessing)
    labels = labels_of(it.dataset, it.task.target_scale)
    outputs = predict(module, inputs)
    return float(row_losses(outputs, labels, it.task.task, 0.0).mean())


def _leave(it: Federation, rounds: Rounds, position: Position, progress: Progress) -> None:
    setting = Setting(it.dataset, it.parameters, it.output, it.keyring, it.identity, False)
    grid = it.task.plan.grid
    spent = updates.privacy_spent(it.task.plan.rounds, it.rules.noise, DELTA)
    privacy = {
        "protects": "each site as a whole", "clip": it.task.plan.clip, "noise": it.rules.noise,
        "rounds": it.task.plan.rounds, "delta": DELTA, "epsilon": spent,
        "noise_added_by": None if not it.rules.noise else "sites" if grid else "coordinator",
        "secure_aggregation": grid and {
            "sites": grid.sites, "threshold": grid.threshold, "site_deviation": grid.deviation,
        },
    }  # fmt: skip
    write_json_atomic(it.output / PRIVACY, privacy)
    record = finish(setting, it.prepared, _module(it, rounds), position, {})
    report_finished(record, it.output, progress)
