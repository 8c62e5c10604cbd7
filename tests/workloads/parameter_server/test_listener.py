"""The server and workers in one process, over real TLS: strangers, nuisances, floods, mistakes."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import socket
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation.transport import Line, Link, client_context
from falaj.workloads.parameter_server import command, frames, weights
from falaj.workloads.parameter_server.assignment import Assignment
from falaj.workloads.parameter_server.frames import Coding, Layout
from falaj.workloads.parameter_server.worker import Learner, Machine, Worker
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained
from falaj.workloads.training.options import Requested
from falaj.workloads.training.progress import Progress
from falaj.workloads.training.snapshot import open_dataset
from falaj.workloads.training.stopping import StopRequest
from tests.ports import free_port
from tests.workloads.federation.federations import TOKENS, Authority, tables, token_digests

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
MACHINE = Machine("cpu", "float32", 1)
NAMES = tuple(TOKENS)


@dataclass
class Place:
    """A server in a thread, and what its workers need."""

    folder: Path
    authority: Authority
    port: int
    codes: list[int] = field(default_factory=list[int])
    stop: StopRequest = field(default_factory=StopRequest)
    thread: threading.Thread | None = None

    def serve(self, dataset: Path, *more: str) -> None:
        certificate, key = self.authority.issue("server")
        words = [
            "server", "--dataset", str(dataset), "--authority", str(self.authority.certificate),
            "--certificate", str(certificate), "--key", str(key), "--progress", "json",
            "--output", str(self.folder / "run"), "--workers", str(token_digests(self.folder)),
            "--listen", f"127.0.0.1:{self.port}", *more,
        ]  # fmt: skip
        options = command.build_parser().parse_args(words)
        self.thread = threading.Thread(
            target=lambda: self.codes.append(command.serve(options, self.stop))
        )
        self.thread.start()

    def link(self, name: str, token: str, patience: float = 60) -> Link:
        certificate, key = self.authority.issue(name)
        context = client_context(self.authority.certificate, certificate, key)
        return Link("127.0.0.1", self.port, context, token, patience)

    def worker(self, name: str, dataset: Path, patience: float = 60) -> Worker:
        progress = Progress("json", True, lambda: None)
        link = self.link(name, TOKENS[name], patience)
        return Worker(link, open_dataset(dataset, None), MACHINE, StopRequest(), progress)

    def listens(self) -> None:
        """Wait until the server takes connections, or has ended."""
        for _ in range(600):
            with contextlib.suppress(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            if self.codes:
                return
            threading.Event().wait(0.1)
        raise AssertionError("the server doesn't listen")

    def line(self, name: str) -> Line:
        """A worker's connection, once the server listens."""
        line = Line(self.link(name, TOKENS[name]))
        for _ in range(600):
            with contextlib.suppress(ConnectionRefusedError):
                if line.ask("GET", "/v1/assignment")[0] == 200:
                    return line
            threading.Event().wait(0.1)
        raise AssertionError("the server doesn't listen")

    def work(self, rows: dict[str, Path]) -> dict[str, Any]:
        """Have workers take part to the end; the record.

        They begin once the server listens: one that waits to try again may miss all updates.
        """
        self.listens()
        threads = [
            threading.Thread(target=self.worker(name, each).run) for name, each in rows.items()
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join(200)
        self.ended()
        assert self.codes == [0]
        return json.loads((self.folder / "run/record.json").read_text(encoding="utf-8"))

    def end(self) -> None:
        """Ask the server to stop, and wait for it."""
        self.stop.ask("SIGTERM was received")
        self.ended()

    def ended(self) -> None:
        if self.thread is not None:
            self.thread.join(200)
            assert not self.thread.is_alive()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path, Authority(tmp_path / "pki"), free_port())
    before = torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()
    yield made
    made.end()
    torch.set_num_threads(before[0])
    torch.use_deterministic_algorithms(before[1])


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = datasets.build(datasets.Source("digits"))
    return datasets.write(made, tmp_path_factory.mktemp("digits"), None)


@pytest.mark.parametrize("mode", ["asynchronous", "local"])
def test_workers_make_a_finished_run_with_its_lineage(
    mode: str, place: Place, digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = ["--local-steps", "5", "--compression", "top", "--top", "0.1", "--weights", "bfloat16"]
    place.serve(digits, "--mode", mode, "--epochs", "8", *(more if mode == "local" else []))
    record = place.work(dict.fromkeys(NAMES[:2], digits))
    kept = record["parameter_server"]
    assert record["epochs"] == 8
    assert record["metrics"]["held_out"]["accuracy"] > (0.5 if mode == "local" else 0.8)
    assert set(kept["workers"]) == set(NAMES[:2])
    updates = sum(each["updates"] for each in kept["workers"].values())
    assert sum(kept["staleness"].values()) == updates
    assert max(int(each) for each in kept["staleness"]) <= kept["staleness_bound"]
    sent = sum(each["received"] for each in kept["workers"].values()) / updates
    plain = 4 * record["model"]["parameters"]
    assert (sent < plain / 5) if mode == "local" else (plain < sent < plain + 1_500)
    assert load_trained(place.folder / "run", None).task == "classification"
    events = [json.loads(each) for each in capsys.readouterr().out.splitlines()]
    told = [each for each in events if each["event"] == "epoch"]
    assert told[-1]["workers"] == 2
    assert {"version", "updates", "mean_staleness", "versions_per_second"} <= set(told[-1])


def test_rows_of_ones_own_stay_and_a_loss_that_is_reached_ends_it(place: Place) -> None:
    data = tables(place.folder)
    place.serve(data["reference"], "--rows", "own", "--target-loss", "0.35", "--gather", "2")
    record = place.work({name: data[name] for name in NAMES})
    assert record["ended"] == "a validation loss of 0.35 is reached"
    assert record["metrics"]["held_out"]["accuracy"] > 0.8
    assert record["parameter_server"]["rows"] == "own"


@pytest.mark.parametrize("mode", ["asynchronous", "local"])
def test_what_a_light_network_counts_reaches_the_server_as_the_worker_has_it(
    mode: str, digits: Path
) -> None:
    words = ["server", "--output", "o", "--workers", "w", "--model", "mobilenet", "--width", "4"]
    for name in ("dataset", "authority", "certificate", "key"):
        words += [f"--{name}", "x"]
    words += ["--mode", mode, "--local-steps", "3"] if mode == "local" else []
    options = command.build_parser().parse_args(words)
    command.checked(options)
    dataset = open_dataset(digits, None)
    requested = Requested(model="mobilenet", width=4, device="cpu", precision="float32")
    it = command.training_of(options, requested, dataset, 1)
    held = weights.Weights(
        it.assignment.build(), it.parameters, it.terms, it.assignment.updates, Coding()
    )
    before = torch.are_deterministic_algorithms_enabled()
    learner = Learner(it.assignment, dataset, MACHINE)
    torch.use_deterministic_algorithms(before)
    data = held.message("a", 0, "") or b""
    fields, model = frames.decode(data, frames.WEIGHTS, held.layout, Coding())
    update, told = learner.learn(model, 0, 100, lambda: False) or ({}, {})
    head = {"base": 0, "life": fields["life"], "id": "a" * 32, **told}
    held.take("a", frames.encode(frames.UPDATE, head, update, held.layout, Coding()))
    ours, theirs = held.module.state_dict(), learner.counted()
    assert len(theirs) > 10
    assert all(
        torch.allclose(ours[name], each, rtol=1e-4, atol=1e-5) for name, each in theirs.items()
    )


def test_strangers_nuisances_and_what_is_no_update_are_refused_and_the_server_goes_on(
    place: Place, digits: Path, tmp_path: Path
) -> None:
    place.serve(digits, "--epochs", "1", "--requests-per-second", "20")
    good = place.line("site-a")
    assignment = Assignment.from_bytes(good.ask("GET", "/v1/assignment")[1])
    layout = Layout.of(assignment.build())
    _, body = good.ask("GET", "/v1/weights")
    fields, model = frames.decode(body, frames.WEIGHTS, layout, Coding())
    newer = f"/v1/weights?version={fields['version']}&life={fields['life']}"
    assert good.ask("GET", newer)[0] == 304

    # Of the right authority, but not on the list; a worker with another's token; none.
    for name, token in (("mallory", "m" * 40), ("site-b", TOKENS["site-a"]), ("site-c", "")):
        assert place.link(name, token).ask("GET", "/v1/assignment")[0] == 401
    # Another authority; no certificate; TLS 1.2.
    stranger = Authority(tmp_path / "other").issue("site-a")
    contexts = [client_context(place.authority.certificate, *stranger)]
    contexts.append(ssl.create_default_context(cafile=str(place.authority.certificate)))
    old = client_context(place.authority.certificate, *place.authority.issue("site-c"))
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    for context in (*contexts, old):
        with pytest.raises((OSError, http.client.HTTPException)):
            Link("127.0.0.1", place.port, context, TOKENS["site-a"]).ask("GET", "/v1/weights")

    # What is no update, or none that can be taken.
    head = {
        "base": fields["version"], "life": fields["life"], "id": secrets.token_hex(16),
        "batches": 1, "rows": 64, "loss": 1.0,
    }  # fmt: skip
    name = layout.entries[0].name
    bad = {**model, name: torch.full_like(model[name], float("nan"))}
    huge = {key: each * 1e6 for key, each in model.items()}
    for update, changes, said in (
        (bad, {}, f"not finite: {name}"), (huge, {}, "exploding"),
        (model, {"base": fields["version"] + 5}, "damaged"),
    ):  # fmt: skip
        data = frames.encode(frames.UPDATE, {**head, **changes}, update, layout, Coding())
        status, body = good.ask("POST", "/v1/update", data)
        assert (status, said in body.decode()) == (422, True), body
    stale = frames.encode(frames.UPDATE, {**head, "life": "0" * 32}, model, layout, Coding())
    assert good.ask("POST", "/v1/update", stale)[0] == 409
    assert good.ask("POST", "/v1/update", b"x" * 500)[0] == 422
    with contextlib.suppress(OSError, http.client.HTTPException):  # it may hang up before
        assert good.ask("POST", "/v1/update", bytes(2 * len(stale)))[0] == 413
    assert place.link("site-c", TOKENS["site-c"]).ask("POST", "/v1/rows", b"1,2")[0] == 404

    # A flood: most of it is told to wait. And callers who say nothing.
    flood = Line(place.link("site-b", TOKENS["site-b"]))
    answers = [flood.ask("GET", newer)[0] for _ in range(80)]
    assert 1 <= answers.count(304) < 80
    assert answers.count(429) >= 10
    silent = [socket.create_connection(("127.0.0.1", place.port)) for _ in range(20)]

    kept = place.work({"site-c": digits})["parameter_server"]
    for each in silent:
        each.close()
    refused = kept["workers"]["site-a"]["refused"]
    assert refused == {
        weights.NOT_FINITE: 1, weights.EXPLODING: 1, weights.DAMAGED: 2, weights.EARLIER: 1,
    }  # fmt: skip
    assert kept["workers"]["site-b"]["refused"][weights.TOO_OFTEN] >= 10
    assert kept["strangers"]["not on the list, or with another's token"] == 3
    assert kept["strangers"]["no TLS that is taken, or broken off"] >= 3


def test_a_worker_that_can_not_take_part_says_why(
    place: Place, digits: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also: a server that is asked to stop keeps a checkpoint, and does without a damaged one."""
    lost = place.worker("site-c", digits, patience=1)
    assert lost.run() == 74
    data = tables(place.folder)
    place.serve(digits)
    place.line("site-a").close()
    with pytest.raises(WorkloadError, match="give all workers the same snapshot"):
        place.worker("site-a", data["site-a"]).run()
    link = place.link("mallory", "m" * 40)
    nobody = Worker(
        link, open_dataset(digits, None), MACHINE, StopRequest(), Progress("json", False, print)
    )
    with pytest.raises(WorkloadError, match="no worker with this certificate and token"):
        nobody.run()
    place.end()
    assert place.codes == [75]
    (place.folder / "run/checkpoint").write_bytes(b"something else")
    place.stop = StopRequest()
    place.serve(digits)
    place.line("site-a").close()
    place.end()
    assert "starting from the beginning instead" in capsys.readouterr().out


def test_a_worker_with_another_authoritys_certificate_is_told_at_once(
    place: Place, digits: Path, tmp_path: Path
) -> None:
    place.serve(digits)
    place.line("site-a").close()
    certificate, key = Authority(tmp_path / "other").issue("site-a")
    context = client_context(place.authority.certificate, certificate, key)
    link = Link("127.0.0.1", place.port, context, TOKENS["site-a"])
    worker = Worker(
        link, open_dataset(digits, None), MACHINE, StopRequest(), Progress("json", False, print)
    )
    with pytest.raises(WorkloadError, match="doesn't take this worker's certificate"):
        worker.run()
