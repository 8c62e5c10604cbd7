"""Our server against others' with the same model, on one machine, in turns, by the same client.

Run by `make bench-peers`, which makes the others' environments in the cache. Ours speaks TLS 1.3,
asks for a token, checks every tensor, counts and keeps an access log; the others speak in plain
and ask nobody who they are. Triton's wheel has no backend for ONNX: its model runs in Python.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import socket
import statistics
import subprocess
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from tests.benchmarks.bench_server import ROUNDS, load
from tests.environments import environment
from tests.triton.triton_server import running
from tests.workloads.inference import models
from tests.workloads.inference.serving import Server, Site

pytestmark = pytest.mark.benchmark_suite
CONNECTIONS = 16
KEYS = ("rate", "p50", "p99")
HERE = Path(__file__).parent
START_SECONDS = 60.0


@dataclass(frozen=True)
class Peer:
    """A server that is measured.

    Attributes:
        port: of it.
        pid: of its process.
        headers: that its callers send.
        tls: whether it speaks TLS.
    """

    port: int
    pid: int
    headers: tuple[str, ...] = ()
    tls: bool = False


@contextlib.contextmanager
def litserve(folder: Path, model: bytes) -> Generator[Peer]:
    """Serve a model in LitServe."""
    path = folder / "model.onnx"
    path.write_bytes(model)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    python = environment("peers") / "bin" / "python"
    variables = os.environ | {"ORT_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1"}
    with (folder / "litserve.log").open("wb") as log:
        process = subprocess.Popen(
            [python, HERE / "litserve_server.py", path, str(port)], cwd=folder, env=variables,
            stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        until = time.monotonic() + START_SECONDS
        while not _answers(port):
            said = (folder / "litserve.log").read_text(errors="replace")
            assert process.poll() is None, said[-3000:]
            assert time.monotonic() < until, said[-3000:]
            time.sleep(0.1)
        yield Peer(port, process.pid)
    finally:
        for each in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.kill()
        process.wait()


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    return False


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[tuple[Site, dict[str, Peer]]]:
    """All servers, with the same model and one thread for it."""
    content = models.mlp()
    site = Site(tmp_path / "site")
    site.publish(content)
    with contextlib.ExitStack() as stack:
        server = Server(site).serving(1)
        stack.callback(server.kill)
        header = f"Authorization: Bearer {site.token('predict')}"
        triton = stack.enter_context(running(tmp_path / "triton", {"mlp": content}, 64))
        yield (
            site,
            {
                "falaj": Peer(server.port, server.process.pid, (header,), tls=True),
                "triton (python)": Peer(triton.port, triton.process.pid),
                "litserve": stack.enter_context(litserve(tmp_path, content)),
            },
        )


@pytest.mark.timeout(1800)
def test_ours_against_others(
    peers: tuple[Site, dict[str, Peer]], benchmark: BenchmarkFixture
) -> None:
    site, servers = peers
    runs: dict[str, list[dict[str, Any]]] = {}

    def once(peer: Peer) -> dict[str, Any]:
        return load(
            site, peer.port, peer.pid, *peer.headers, tls=peer.tls, connections=CONNECTIONS
        )

    order = list(servers)
    for name in order:
        once(servers[name])  # warm up; not counted

    def one_round() -> None:
        for name in order:
            runs.setdefault(name, []).append(once(servers[name]))
        order.reverse()

    benchmark.pedantic(one_round, rounds=ROUNDS, iterations=1)
    print(f"\n{psutil.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; "
          f"{CONNECTIONS} connections, medians of {ROUNDS} rounds")  # fmt: skip
    print(f"{'':18}{'requests/s':>11}{'p50 ms':>8}{'p99 ms':>8}{'ours is':>10}")
    ratios: dict[str, float] = {}
    for name in servers:
        figures = {key: statistics.median(run[key] for run in runs[name]) for key in KEYS}
        ratios[name] = statistics.median(
            mine["rate"] / its["rate"] for mine, its in zip(runs["falaj"], runs[name], strict=True)
        )
        print(
            f"{name:18}{figures['rate']:11,.0f}{figures['p50']:8.2f}{figures['p99']:8.2f}"
            f"{ratios[name]:9.2f}x"
        )
    benchmark.extra_info.update(ratios)
    assert ratios["litserve"] > 1
