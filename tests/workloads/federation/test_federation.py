"""A coordinator and three sites as processes: near central training, and no row crosses."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from falaj.workloads.federation.transport import Link, client_context
from tests.ports import free_port
from tests.workloads.federation.federations import (
    TOKENS,
    Authority,
    central_accuracy,
    tables,
    token_digests,
)

#: Four processes that each start torch: on a busy machine that is what takes the time.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
COMMAND = [sys.executable, "-m", "falaj.workloads.federation"]
ROUNDS = 8


@dataclass
class World:
    folder: Path
    authority: Authority
    data: dict[str, Path]
    port: int

    def coordinator(self, *more: str) -> subprocess.Popen[bytes]:
        certificate, key = self.authority.issue("coordinator")
        return self._start("coordinator", [
            "coordinator", "--dataset", str(self.data["reference"]),
            "--authority", str(self.authority.certificate), "--certificate", str(certificate),
            "--key", str(key), "--output", str(self.folder / "run"),
            "--listen", f"127.0.0.1:{self.port}", "--sites", str(token_digests(self.folder)),
            "--rounds", str(ROUNDS), "--epochs", "4", "--progress", "json", *more,
        ])  # fmt: skip

    def site(self, name: str, *more: str) -> subprocess.Popen[bytes]:
        certificate, key = self.authority.issue(name)
        token = self.folder / f"{name}.token"
        token.write_text(TOKENS[name], encoding="utf-8")
        return self._start(name, [
            "site", "--dataset", str(self.data[name]),
            "--authority", str(self.authority.certificate), "--certificate", str(certificate),
            "--key", str(key), "--token", str(token), "--progress", "json",
            "--coordinator", f"127.0.0.1:{self.port}", "--patience-seconds", "120", *more,
        ])  # fmt: skip

    def _start(self, name: str, words: list[str]) -> subprocess.Popen[bytes]:
        with self.log(name).open("a") as log:
            return subprocess.Popen([*COMMAND, *words], stdout=log, stderr=subprocess.STDOUT)

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def said(self, name: str) -> str:
        return self.log(name).read_text(encoding="utf-8") if self.log(name).exists() else ""

    def rounds(self) -> int:
        return self.said("coordinator").count('"event": "round"')

    def traffic(self) -> list[dict[str, Any]]:
        lines = (self.folder / "run/traffic.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def link(self, name: str, token: str) -> Link:
        certificate, key = self.authority.issue(name)
        context = client_context(self.authority.certificate, certificate, key)
        return Link("127.0.0.1", self.port, context, token)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, Authority(tmp_path / "pki"), tables(tmp_path), free_port())


@pytest.fixture
def started() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes: list[subprocess.Popen[bytes]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
        process.wait()


def _until(world: World, rounds: int, coordinator: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 300
    while world.rounds() < rounds:
        assert coordinator.poll() is None, world.said("coordinator")
        assert time.monotonic() < until, [world.said(name) for name in ("coordinator", *TOKENS)]
        time.sleep(0.1)


@pytest.mark.thorough
def test_three_sites_learn_together_what_one_could_not_read(
    world: World, started: list[subprocess.Popen[bytes]]
) -> None:
    """Also: the coordinator is killed on the way and goes on where it was."""
    started += [world.coordinator(), *(world.site(name) for name in TOKENS)]
    _until(world, 2, started[0])
    started[0].send_signal(signal.SIGKILL)
    started[0].wait()
    before = world.rounds()
    started.append(world.coordinator())
    assert started[-1].wait(400) == 0, world.said("coordinator")
    assert [each.wait(60) for each in started[1:4]] == [0, 0, 0]
    # A round may have been kept that it had no time to tell of.
    (again,) = re.findall(r"going on from round (\d+)", world.said("coordinator"))
    assert int(again) - before in {1, 2}

    record = json.loads((world.folder / "run/record.json").read_text(encoding="utf-8"))
    federated = record["metrics"]["held_out"]["accuracy"]
    assert record["metrics"]["held_out"]["rows"] == 90
    assert federated >= central_accuracy(world.data) - 0.03, federated
    assert record["status"] == "finished"

    largest = 4 * record["model"]["parameters"] + 20 * 1024
    updates = [each for each in world.traffic() if each.get("method") == "POST"]
    assert {each["site"] for each in updates} == set(TOKENS)
    for each in updates:
        assert each["received_kind"] == "application/vnd.falaj.tensors"
        assert each["received"] <= largest
    asked = {each["path"].rpartition("/")[2] for each in world.traffic() if each.get("method")}
    assert asked == {"task", "round", "model", "update"}
    sizes = {each["received"] for each in updates}
    assert max(sizes) - min(sizes) < 64  # the size says nothing of a site's rows


@pytest.mark.thorough
def test_a_site_that_is_killed_in_a_round_with_secure_aggregation_leaves_the_others_a_sum(
    world: World, started: list[subprocess.Popen[bytes]]
) -> None:
    """Its shares are out: masks with it come off by them, or its update is in the sum."""
    keys = world.folder / "keys.json"
    keys.write_text(json.dumps(dict.fromkeys(TOKENS, "authority")), encoding="utf-8")
    started.append(
        world.coordinator(
            "--secure-aggregation",
            "--clip",
            "5",
            "--least-sites",
            "2",
            "--rounds",
            "3",
            "--round-seconds",
            "30",
        )
    )
    hidden = ("--secure-aggregation", "--site-keys", str(keys))
    started += [world.site(name, *hidden) for name in TOKENS]
    _until(world, 1, started[0])
    until = time.monotonic() + 120
    while not any(
        each["site"] == "site-c" and each["method"] == "POST"
        and re.search(r"/rounds/1/.*/shares$", each["path"])
        for each in world.traffic() if each.get("method")
    ):  # fmt: skip
        assert time.monotonic() < until, world.said("coordinator")
        time.sleep(0.02)
    started[-1].send_signal(signal.SIGKILL)
    assert started[0].wait(300) == 0, world.said("coordinator")
    assert [each.wait(60) for each in started[1:3]] == [0, 0]
    told = [json.loads(line) for line in world.said("coordinator").splitlines()]
    sites = [each["sites"] for each in told if each["event"] == "round"]
    assert sites[0] == list(TOKENS)
    assert sites[1] in (["site-a", "site-b"], list(TOKENS))
    assert sites[2] == ["site-a", "site-b"]
    asked = {each["path"].rpartition("/")[2] for each in world.traffic() if each.get("method")}
    assert asked == {"task", "round", "model", "keys", "shares", "masked", "unmasking"}
    assert "Traceback" not in "".join(world.said(name) for name in ("coordinator", *TOKENS))


def test_strangers_wrong_tokens_and_other_things_than_tensors_are_refused(
    world: World, started: list[subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    started.append(world.coordinator())
    good = world.link("site-a", TOKENS["site-a"])
    until = time.monotonic() + 90
    while True:
        try:
            status, task = good.ask("GET", "/v1/task")
            break
        except OSError:
            assert time.monotonic() < until, world.said("coordinator")
            time.sleep(0.2)
    assert status == 200
    assert json.loads(task)["classes"] == ["benign", "malignant"]

    # Of the right authority, but no site; a site with another's token; no token.
    assert world.link("mallory", TOKENS["site-a"]).ask("GET", "/v1/task")[0] == 401
    assert world.link("site-b", TOKENS["site-a"]).ask("GET", "/v1/task")[0] == 401
    assert world.link("site-a", "").ask("GET", "/v1/round")[0] == 401
    # Another authority; no certificate; TLS 1.2.
    stranger = Authority(tmp_path / "other").issue("site-a")
    contexts = [client_context(world.authority.certificate, *stranger)]
    contexts.append(ssl.create_default_context(cafile=str(world.authority.certificate)))
    old = client_context(world.authority.certificate, *world.authority.issue("site-c"))
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    for context in (*contexts, old):
        with pytest.raises((OSError, http.client.HTTPException)):
            Link("127.0.0.1", world.port, context, TOKENS["site-a"]).ask("GET", "/v1/task")
    # Rows, however they are called.
    rows = (world.folder / "site-a.csv").read_bytes()
    assert good.ask("POST", "/v1/rounds/0/update", rows)[0] == 400
    with contextlib.suppress(OSError):  # it may hang up before it was sent all
        assert good.ask("POST", "/v1/rounds/0/update", rows * 40)[0] == 413
    assert good.ask("POST", "/v1/rounds/7/update", rows)[0] == 400
    with contextlib.suppress(OSError):  # likewise
        assert good.ask("POST", "/v1/rows", rows)[0] == 404
    _, model = good.ask("GET", "/v1/rounds/0/model")
    assert good.ask("POST", "/v1/rounds/0/update", model)[0] == 400  # no rows, no loss
    started[0].send_signal(signal.SIGTERM)
    assert started[0].wait(60) == 75
    assert "Traceback" not in world.said("coordinator")
