"""The same request by HTTP and by gRPC, in turns: rates, and CPU time of the server for each."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.benchmarks.bench_server import (
    CONNECTIONS,
    HERE,
    KEYS,
    ROUNDS,
    SECONDS,
    drawn_rows,
    figures_of,
    load,
)
from tests.workloads.inference import models
from tests.workloads.inference.serving import Server, Site

pytestmark = pytest.mark.benchmark_suite


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[dict[str, Server]]:
    """One with gRPC, as it is by default, and one without."""
    made: dict[str, Server] = {}
    for name in ("with", "without"):
        site = Site(tmp_path / name)
        site.write(grpc=name == "with")
        site.publish(models.mlp())
        made[name] = Server(site).serving(1)
    yield made
    for server in made.values():
        server.kill()


def load_grpc(server: Server) -> dict[str, Any]:
    """Run the load client of gRPC once; the CPU time is that of worker and gRPC process."""
    site = server.site
    rows = site.root / "rows.json"
    if not rows.exists():
        rows.write_text(json.dumps(drawn_rows()))
    command = [sys.executable, str(HERE / "grpc_load_client.py"), str(server.port)]
    command += [str(CONNECTIONS), str(SECONDS), str(rows), str(site.pki.folder / "ca.crt")]
    return figures_of([*command, site.token("predict")], server.process.pid)


def test_grpc_beside_http(servers: dict[str, Server], benchmark: BenchmarkFixture) -> None:
    def http(name: str) -> dict[str, Any]:
        server = servers[name]
        header = f"Authorization: Bearer {server.site.token('predict')}"
        return load(server.site, server.port, server.process.pid, header)

    ways = [
        ("HTTP, gRPC off", lambda: http("without")),
        ("HTTP, gRPC on and in use", lambda: http("with")),
        ("gRPC", lambda: load_grpc(servers["with"])),
    ]
    results: dict[str, list[dict[str, Any]]] = {name: [] for name, _ in ways}
    for _, way in reversed(ways):
        way()  # warm up; not counted

    def one_round() -> None:
        for name, way in ways:
            results[name].append(way())
        ways.append(ways.pop(0))

    benchmark.pedantic(one_round, rounds=ROUNDS, iterations=1)
    off = results["HTTP, gRPC off"]
    print()
    for name, runs in results.items():
        figures = {key: statistics.median(run[key] for run in runs) for key in KEYS}
        ratio = statistics.median(a["cpu"] / b["cpu"] for a, b in zip(runs, off, strict=True))
        print(
            f"{name:26}{figures['rate']:9,.0f} requests/s{figures['p50']:8.2f} ms p50"
            f"{figures['p99']:8.2f} ms p99{figures['cpu']:8.1f} us CPU{ratio:7.2f} of HTTP's"
        )
        benchmark.extra_info[name] = figures | {"ratio": ratio}
    # HTTP is the fast way, and pays nothing for the other.
    beside = benchmark.extra_info["HTTP, gRPC on and in use"]["cpu"]
    assert beside < 1.25 * benchmark.extra_info["HTTP, gRPC off"]["cpu"]
