"""A server whose requests run together: what clients of both protocols see of it."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from falaj.workloads.inference.process.worker import available
from tests.waiting import wait_for
from tests.workloads.inference import grpc_calls, models
from tests.workloads.inference.oip import loaded
from tests.workloads.inference.raw_http import Raw, head
from tests.workloads.inference.serving import Server, Site, call, row, started
from tests.workloads.inference.test_openapi import fits

Start = Callable[..., Server]
PATH = "/v2/models/mlp/infer"
WIDE = 512
"""Rows of a request that runs alone, for tens of milliseconds."""


@pytest.fixture(scope="module")
def batched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    site = Site(tmp_path_factory.mktemp("batched") / "site")
    site.write(batching=True)
    with started(site, site.publish(models.heavy())) as server:
        yield server


def observed(server: Server, path: str) -> Any:
    connection = server.connect()
    token = server.site.token("observe")
    status, found = call(connection, "GET", path, token=token)
    connection.close()
    assert status == 200
    return found


def stats(server: Server) -> dict[str, Any]:
    return observed(server, "/v2/models/mlp/stats")["model_stats"][-1]


def rows_run(found: dict[str, Any]) -> int:
    return sum(
        each["batch_size"] * each["compute_infer"]["count"]
        for each in found.get("batch_stats", [])
    )


def wide_request(token: str) -> bytes:
    """A request that keeps a thread busy."""
    tensor = {"name": "input", "datatype": "FP32", "shape": [WIDE, 64], "data": [0.5] * 64 * WIDE}
    body = json.dumps({"inputs": [tensor]}).encode()
    return head(token, len(body)) + body


def test_the_server_says_that_requests_run_together_and_how(batched: Server) -> None:
    told = observed(batched, "/v2/models/mlp/config")
    (most,) = told["dynamic_batching"]["preferred_batch_size"]
    assert 2 <= most <= 128
    reason = told["parameters"]["batching"]["string_value"]
    assert reason.startswith(f"on: up to {most} rows together; ")
    assert f"batching is {reason}" in batched.errors.read_text()
    connection = batched.connect()
    token = batched.site.token("predict")
    assert call(connection, "POST", PATH, token=token, body=row())[0] == 200
    document = call(connection, "GET", "/v2/openapi.json", token=token)[1]
    connection.close()
    for path in ("/v2/models/mlp/config", "/v2/models/mlp/stats"):
        content = document["paths"][path]["get"]["responses"]["200"]["content"]
        assert fits(document, content["application/json"]["schema"], observed(batched, path))
    asked = document["paths"][PATH]["post"]["requestBody"]["content"]["application/json"]
    for timeout, allowed in ((0, True), (50_000, True), (-1, False), ("1", False), (2**40, False)):
        body = row(parameters={"timeout": timeout})
        assert fits(document, asked["schema"], body) == allowed
    assert "batch_stats" in stats(batched)


def test_clients_of_both_protocols_are_answered_from_the_same_runs(batched: Server) -> None:
    draw = np.random.default_rng(0)
    sent = [[round(each, 4) for each in draw.standard_normal(64).tolist()] for _ in range(8)]
    served = loaded(models.heavy())
    wanted = [served.run(served.schema.read(json.dumps(row(each)).encode(), None))[0][0]
              for each in sent]  # fmt: skip
    token, before = batched.site.token(), stats(batched)

    def by_http(at: int) -> list[list[float]]:
        connection = batched.connect()
        found = [
            call(connection, "POST", PATH, token=token, body=row(sent[at], id=f"{at} {each}"))
            for each in range(10)
        ]
        connection.close()
        assert [status for status, _ in found] == [200] * 10
        assert [answer["id"] for _, answer in found] == [f"{at} {each}" for each in range(10)]
        return [answer["outputs"][0]["data"] for _, answer in found]

    def by_grpc(at: int) -> list[list[float]]:
        with grpc_calls.Client(batched, token=token) as client:
            found = [client.infer(grpc_calls.row("mlp", sent[at])) for _ in range(10)]
        return [list(each.outputs[0].contents.fp32_contents) for each in found]

    with ThreadPoolExecutor(8) as pool:
        work = [pool.submit(by_grpc if at % 4 == 0 else by_http, at) for at in range(8)]
        for each, alone in zip(work, wanted, strict=True):
            for found in each.result():
                assert np.allclose(found, alone, rtol=1e-4, atol=1e-6)
    after = stats(batched)
    assert after["inference_count"] - before["inference_count"] == 80
    assert rows_run(after) - rows_run(before) == 80
    assert after["execution_count"] - before["execution_count"] < 80
    assert after["inference_stats"]["queue"]["count"] >= 80
    text = observed(batched, "/metrics").decode()
    assert 'falaj_inference_batch_rows_count{model="mlp",version="1"}' in text


def rows_beside_one_that_hung_up(server: Server) -> int:
    """How many rows ran together of two: of a client that hung up, and of one that stayed."""
    token = server.site.token()
    body = json.dumps(row()).encode()
    # More than there are threads: what comes next waits.
    busy = [Raw(server) for _ in range(available() + 2)]
    gone, stays = Raw(server), Raw(server)
    before = rows_run(stats(server))
    for each in busy:
        each.send(wide_request(token))
    time.sleep(0.02)
    gone.send(head(token, len(body)), body)
    gone.close()
    stays.send(head(token, len(body)), body)
    assert {each.answer()[0] for each in (*busy, stays)} == {200}
    for each in (*busy, stays):
        each.close()
    return rows_run(stats(server)) - before


def test_a_client_that_hangs_up_while_it_waits_is_not_run(batched: Server) -> None:
    # On a busy machine it may come before those that are to keep the threads busy.
    tries = (rows_beside_one_that_hung_up(batched) for _ in range(5))
    assert any(rows == 1 for rows in tries)


def test_what_waits_is_answered_while_the_server_leaves(site: Site, start: Start) -> None:
    site.write(batching=True, limits={"drain_seconds": 8})
    version = site.publish(models.heavy())
    server = start(site).serving(version)
    token = site.token()
    body = json.dumps(row()).encode()
    busy = [Raw(server) for _ in range(3)]
    waiting = [Raw(server) for _ in range(12)]
    for each in busy:
        each.send(wide_request(token))
    for each in waiting:
        each.send(head(token, len(body)), body)
    time.sleep(0.05)
    server.process.terminate()
    assert [each.answer()[0] for each in (*busy, *waiting)] == [200] * 15
    for each in (*busy, *waiting):
        each.close()
    assert server.stop() == 0


def test_versions_never_meet_in_a_batch(site: Site, start: Start) -> None:
    site.write(batching=True, limits={"drain_seconds": 3})
    made = {each: models.mlp(each, sizes=(64, 2048, 2048, 10)) for each in (1, 2)}
    for each in made.values():
        site.publish(each, promote=False)
    site.store.promote("mlp", 1)
    wanted: dict[str, Any] = {}
    for version, content in made.items():
        served = loaded(content)
        asked = served.schema.read(json.dumps(row()).encode(), None)
        wanted[str(version)] = served.run(asked)[0][0]
    server = start(site).serving(1)
    token, seen, stop = site.token(), set[str](), threading.Event()

    def ask() -> int:
        connection, count = server.connect(), 0
        while not stop.is_set():
            status, answer = call(connection, "POST", PATH, token=token, body=row())
            assert status == 200, answer
            version = answer["model_version"]
            assert np.allclose(answer["outputs"][0]["data"], wanted[version], rtol=1e-4)
            seen.add(version)
            count += 1
        connection.close()
        return count

    with ThreadPoolExecutor(6) as pool:
        asking = [pool.submit(ask) for _ in range(6)]
        try:
            wait_for(lambda: "1" in seen or any(each.done() for each in asking), "version 1")
            site.store.promote("mlp", 2)
            server.serving(2)
            wait_for(lambda: "2" in seen or any(each.done() for each in asking), "version 2")
        finally:
            stop.set()
        assert min(each.result() for each in asking) > 0
    assert seen == {"1", "2"}
    assert server.stop() == 0


def test_a_model_that_is_quick_says_that_its_requests_run_one_by_one(
    site: Site, start: Start
) -> None:
    site.write(batching=True)
    version = site.publish(models.mlp())
    server = start(site).serving(version)
    told = observed(server, "/v2/models/mlp/config")
    assert "dynamic_batching" not in told
    assert told["parameters"]["batching"]["string_value"].startswith("off: a run of one row takes")
    connection = server.connect()
    assert call(connection, "POST", PATH, token=site.token(), body=row())[0] == 200
    assert "batch_stats" not in stats(server)
    assert server.stop() == 0
