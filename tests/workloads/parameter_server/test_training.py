"""A server and three workers as processes: unequal, killed, restarted; rows of their own."""

from __future__ import annotations

import contextlib
import hashlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.training import dataset as datasets
from falaj.workloads.training.checkpoint import load_trained
from tests.ports import free_port
from tests.workloads.federation.federations import Authority, tables

#: Processes that each start torch: on a busy machine that is what takes the time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
COMMAND = [sys.executable, "-m", "falaj.workloads.parameter_server"]
TOKENS = {f"worker-{letter}": letter * 40 for letter in "abc"}


@dataclass
class World:
    folder: Path
    authority: Authority
    port: int
    started: dict[str, subprocess.Popen[bytes]] = field(
        default_factory=dict[str, subprocess.Popen[bytes]]
    )

    def server(self, dataset: Path, *more: str) -> subprocess.Popen[bytes]:
        path = self.folder / "workers.json"
        shown = {name: hashlib.sha256(each.encode()).hexdigest() for name, each in TOKENS.items()}
        path.write_text(json.dumps(shown), encoding="utf-8")
        return self._start("server", dataset, [
            "server", "--output", str(self.folder / "run"), "--workers", str(path),
            "--listen", f"127.0.0.1:{self.port}", *more,
        ])  # fmt: skip

    def worker(self, name: str, dataset: Path, *more: str) -> subprocess.Popen[bytes]:
        token = self.folder / f"{name}.token"
        token.write_text(TOKENS[name], encoding="utf-8")
        return self._start(name, dataset, [
            "worker", "--server", f"127.0.0.1:{self.port}", "--token", str(token),
            "--threads", "1", *more,
        ])  # fmt: skip

    def _start(self, name: str, dataset: Path, words: list[str]) -> subprocess.Popen[bytes]:
        certificate, key = self.authority.issue(name)
        common = [
            "--dataset", str(dataset), "--authority", str(self.authority.certificate),
            "--certificate", str(certificate), "--key", str(key), "--progress", "json",
        ]  # fmt: skip
        with self.log(name).open("a") as log:
            process = subprocess.Popen(
                [*COMMAND, *words, *common], stdout=log, stderr=subprocess.STDOUT
            )
        self.started[f"{name}-{len(self.started)}"] = process
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def said(self, name: str) -> str:
        return self.log(name).read_text(encoding="utf-8") if self.log(name).exists() else ""

    def events(self, name: str, kind: str) -> list[dict[str, Any]]:
        lines = [json.loads(each) for each in self.said(name).splitlines() if each[:1] == "{"]
        return [each for each in lines if each["event"] == kind]

    def until(self, name: str, kind: str, count: int = 1) -> None:
        end = time.monotonic() + 240
        while len(self.events(name, kind)) < count:
            assert time.monotonic() < end, [self.said(each) for each in ("server", *TOKENS)]
            time.sleep(0.05)

    def kept(self) -> int | None:
        """When the server's checkpoint was written; None where there is none."""
        path = self.folder / "run/checkpoint.sealed"
        return path.stat().st_mtime_ns if path.exists() else None

    def record(self) -> dict[str, Any]:
        return json.loads((self.folder / "run/record.json").read_text(encoding="utf-8"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path, Authority(tmp_path / "pki"), free_port())
    yield made
    for process in made.started.values():
        if process.poll() is None:
            process.kill()
        process.wait()


@contextlib.contextmanager
def half_as_fast(process: subprocess.Popen[bytes]) -> Generator[None]:
    """Stop a process half of the time, as a machine of half the speed would be."""
    over = threading.Event()

    def hold() -> None:
        while not over.wait(0.05) and process.poll() is None:
            process.send_signal(signal.SIGSTOP)
            over.wait(0.05)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.mark.thorough
def test_unequal_workers_one_killed_and_a_killed_server_learn_what_one_process_would(
    world: World,
) -> None:
    """The digits, sealed; one worker half as fast, one killed and back, the server killed once.

    A training in one process reaches 98 to 99 % on the held-out digits with as many epochs.
    """
    ring = KeyRing.create(world.folder / "ring")
    rows = datasets.write(datasets.build(datasets.Source("digits")), world.folder / "rows", ring)
    keys = ["--keyring", str(world.folder / "ring")]
    serving = [*keys, "--epochs", "60", "--checkpoint-seconds", "1", "--staleness", "8"]
    server = world.server(rows, *serving)
    workers = {name: world.worker(name, rows, *keys) for name in TOKENS}
    with half_as_fast(workers["worker-b"]):
        world.until("server", "epoch", 3)
        workers["worker-c"].send_signal(signal.SIGKILL)
        workers["worker-c"].wait()
        before = len(world.events("server", "epoch"))
        world.until("server", "epoch", before + 2)  # the others go on without it
        workers["worker-c"] = world.worker("worker-c", rows, *keys)
        kept = world.kept()  # the first may have been written before any worker came
        while world.kept() == kept:
            assert server.poll() is None, world.said("server")
            time.sleep(0.01)
        server.send_signal(signal.SIGKILL)
        server.wait()
        server = world.server(rows, *serving)
        assert server.wait(300) == 0, world.said("server")
    assert [each.wait(60) for each in workers.values()] == [0, 0, 0], world.said("worker-a")
    [resumed] = world.events("server", "resume")
    assert resumed["version"] > 0
    record = world.record()
    assert record["status"] == "finished"
    assert record["metrics"]["held_out"]["accuracy"] >= 0.96
    kept = record["parameter_server"]
    assert max(int(each) for each in kept["staleness"]) <= 8
    assert set(kept["workers"]) == set(TOKENS)
    assert sum(each["batches"] for each in kept["workers"].values()) >= kept["total"]
    trained = load_trained(world.folder / "run", ring)
    assert trained.task == "classification"
    assert not list((world.folder / "run").glob("*.pt*"))
    for name in ("server", *TOKENS):
        assert "Traceback" not in world.said(name), world.said(name)


@pytest.mark.thorough
def test_changes_of_own_steps_and_rows_and_the_largest_numbers_alone_make_a_model(
    world: World,
) -> None:
    """Three workers, each with rows of its own that stay there, send a fraction of the bytes."""
    data = tables(world.folder)
    server = world.server(
        data["reference"], "--rows", "own", "--mode", "local", "--local-steps", "8",
        "--compression", "top", "--top", "0.1", "--weights", "bfloat16", "--steps", "480",
        "--batch-size", "16",
    )  # fmt: skip
    own = zip(TOKENS, ("site-a", "site-b", "site-c"), strict=True)
    workers = [world.worker(name, data[site]) for name, site in own]
    assert server.wait(300) == 0, world.said("server")
    assert [each.wait(60) for each in workers] == [0, 0, 0], world.said("worker-a")
    record = world.record()
    assert record["metrics"]["held_out"]["accuracy"] >= 0.9
    kept = record["parameter_server"]
    updates = sum(each["updates"] for each in kept["workers"].values())
    assert kept["gather"] == 3
    plain = 4 * record["model"]["parameters"]
    sent = sum(each["received"] for each in kept["workers"].values()) / updates
    assert sent < plain / 4
    assert len(world.events("worker-a", "finished")) == 1
