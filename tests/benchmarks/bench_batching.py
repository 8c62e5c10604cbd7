"""A model of about a millisecond whose requests run together, against the same one by one.

Both servers stand side by side and are asked in turns; a figure is the median over rounds, and a
ratio that of the two runs of one round. Most of the model's time goes into reading weights from
memory, which one run does once for all of its rows.
"""

from __future__ import annotations

import os
import ssl
import statistics
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.workloads.engines import openvino_precisions
from tests.benchmarks.bench_server import ROUNDS, load
from tests.workloads.inference import models
from tests.workloads.inference.serving import Server, Site, call
from tests.workloads.inference.test_engine_by_rows import measured

pytestmark = pytest.mark.benchmark_suite
CONNECTIONS = (1, 16, 64)
KEYS = ("rate", "p50", "p99", "cpu")
GAIN_AT_64 = 1.5
STAYS_AT_64 = 0.85
"""What is chosen may be ONNX Runtime itself, whose two runs differ on a busy machine."""


def served(root: Path, *, batching: bool, precisions: tuple[str, ...] = ()) -> Server:
    """A server of the model, whose package admits these precisions of OpenVINO."""
    site = Site(root)
    site.write(batching=batching)
    content = models.mlp(sizes=(64, 1792, 1792, 1792, 10))
    site.publish(content, fields=measured(content, *precisions))
    return Server(site).serving(1)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, Server]]:
    """Serve the same model with batching and without."""
    found: dict[str, Server] = {}
    try:
        for name in ("one by one", "together"):
            root = tmp_path / name.replace(" ", "-")
            found[name] = served(root, batching=name == "together")
        yield found
    finally:
        for server in found.values():
            server.kill()


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[dict[str, Server]]:
    """Serve the same model with batching in ONNX Runtime, and in what is fastest here."""
    found: dict[str, Server] = {}
    try:
        found["onnxruntime"] = served(tmp_path / "one", batching=True)
        precisions = openvino_precisions()
        found["the fastest"] = served(tmp_path / "all", batching=True, precisions=precisions)
        yield found
    finally:
        for server in found.values():
            server.kill()


def configured(server: Server) -> dict[str, Any]:
    context: ssl.SSLContext = server.site.pki.client_context()
    connection = HTTPSConnection("localhost", server.port, context=context, timeout=30)
    token = server.site.token("observe")
    return call(connection, "GET", "/v2/models/mlp/config", token=token)[1]


def compared(servers: dict[str, Server], benchmark: BenchmarkFixture) -> dict[int, float]:
    """Ask two servers in turns, print their figures; return the second's rate by connections."""
    runs: dict[tuple[str, int], list[dict[str, Any]]] = {}

    def once(name: str, connections: int) -> dict[str, Any]:
        server = servers[name]
        header = f"Authorization: Bearer {server.site.token('predict')}"
        return load(server.site, server.port, server.process.pid, header, connections=connections)

    order = list(servers)
    for name in order:
        once(name, 1)  # warm up; not counted

    def one_round() -> None:
        for connections in CONNECTIONS:
            for name in order:
                runs.setdefault((name, connections), []).append(once(name, connections))
        order.reverse()

    benchmark.pedantic(one_round, rounds=ROUNDS, iterations=1)
    first, second = servers
    print(f"\n{psutil.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; one worker")
    for name, server in servers.items():
        told = configured(server)["parameters"]
        print(f"{name}: {[each['string_value'] for each in told.values()]}")
    print(f"{'':28}{'requests/s':>11}{'p50 ms':>8}{'p99 ms':>8}{'CPU us':>8}{'rate ratio':>11}")
    ratios: dict[int, float] = {}
    for connections in CONNECTIONS:
        before, after = (runs[name, connections] for name in servers)
        ratios[connections] = statistics.median(
            b["rate"] / a["rate"] for a, b in zip(before, after, strict=True)
        )
        for name in (first, second):
            figures = {
                key: statistics.median(run[key] for run in runs[name, connections]) for key in KEYS
            }
            print(
                f"{connections:3} connections, {name:12}{figures['rate']:11,.0f}"
                f"{figures['p50']:8.2f}{figures['p99']:8.2f}{figures['cpu']:8.0f}"
                + (f"{ratios[connections]:11.2f}" if name == second else "")
            )
    benchmark.extra_info.update({str(key): value for key, value in ratios.items()})
    return ratios


def test_together_against_one_by_one(
    servers: dict[str, Server], benchmark: BenchmarkFixture
) -> None:
    assert compared(servers, benchmark)[64] > GAIN_AT_64


def test_batches_in_the_fastest_engine(
    engines: dict[str, Server], benchmark: BenchmarkFixture
) -> None:
    assert compared(engines, benchmark)[64] > STAYS_AT_64
