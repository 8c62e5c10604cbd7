"""Our server against others' with the same model, on one machine, in turns, by the same client.

Run by `make bench-peers`, which makes the others' environments in the cache. Three networks, JSON,
binary tensors and gRPC, few and many connections; one worker, or instance, and one thread each.
Ours speaks TLS 1.3, asks for a token, checks every tensor, counts and keeps an access log; the
others speak in plain and ask nobody who they are. Triton's wheel has no backend for ONNX: its
model runs in Python. The bound is the bare loop of the network, without any network between.
"""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import psutil
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from falaj.workloads.inference.rpc.messages import CLASSES
from tests.peers.networks import Network, encoder, residual, tiny
from tests.peers.servers import HERE, Peer, bentoml, litserve, mlserver
from tests.triton.triton_server import running
from tests.workloads.inference.serving import Server, Site

pytestmark = pytest.mark.benchmark_suite
NETWORKS: dict[str, Callable[[], Network]] = {
    "tiny": tiny, "encoder": encoder, "residual": residual,
}  # fmt: skip
#: Of a network of milliseconds more than 32 don't wait for a thread: ours answers them with 503.
CONNECTIONS = {"tiny": (1, 16, 256), "encoder": (1, 16), "residual": (1, 16)}
FORMS = ("json", "binary", "grpc")
ROUNDS = 3
SECONDS = 2.0
OURS, BOUND = "falaj", "session.run"
#: The share of the bare loop that is aimed at where the network takes a millisecond or more.
SHARE_OF_BOUND = 0.95


@dataclass(frozen=True)
class Cell:
    """What is asked, and by how many at a time."""

    form: str
    connections: int


def messages(network: Network, form: str, peer: Peer) -> Iterator[bytes]:
    """The requests of a form, one row each; of HTTP with their heads."""
    for row in network.rows:
        shape, content = [1, *row.shape], row.tobytes()
        tensor: dict[str, Any] = {"name": "input", "datatype": network.datatype, "shape": shape}
        if form == "grpc":
            request = CLASSES["ModelInferRequest"](model_name="mlp")
            request.inputs.add(**tensor)
            request.raw_input_contents.append(content)
            yield request.SerializeToString()
            continue
        fields = ["Content-Type: application/json"]
        if form == "json":
            body = json.dumps({"inputs": [tensor | {"data": row.ravel().tolist()}]}).encode()
        else:
            tensor["parameters"] = {"binary_data_size": len(content)}
            wanted = {"name": "probabilities", "parameters": {"binary_data": True}}
            head = json.dumps({"inputs": [tensor], "outputs": [wanted]}).encode()
            fields = [
                "Content-Type: application/octet-stream",
                f"Inference-Header-Content-Length: {len(head)}",
            ]
            body = head + content
        if peer.token:
            fields.append(f"Authorization: Bearer {peer.token}")
        fields += [f"Host: localhost:{peer.port}", f"Content-Length: {len(body)}"]
        head = "".join(f"{each}\r\n" for each in ("POST /v2/models/mlp/infer HTTP/1.1", *fields))
        yield f"{head}\r\n".encode() + body


class Load:
    """Puts a cell's load on a server.

    Args:
        folder: where what is sent lies.
        network: that is asked.
        servers: all, by their names.
    """

    def __init__(self, folder: Path, network: Network, servers: dict[str, Peer]) -> None:
        self._folder, self._servers = folder, servers
        self._sent: dict[tuple[str, str], list[str]] = {}
        for name, peer in servers.items():
            for form in forms_of(peer):
                files = self._sent.setdefault((name, form), [])
                for number, each in enumerate(messages(network, form, peer)):
                    file = folder / f"{name}-{form}-{number}"
                    file.write_bytes(each)
                    files.append(str(file))

    def once(self, name: str, cell: Cell) -> dict[str, Any]:
        """One run of the client: its figures."""
        peer = self._servers[name]
        by_grpc = cell.form == "grpc"
        specification = {
            "grpc": by_grpc, "port": peer.grpc_port if by_grpc else peer.port,
            "requests": self._sent[name, cell.form], "connections": cell.connections,
            "authority": peer.authority, "seconds": SECONDS,
            "metadata": [["authorization", f"Bearer {peer.token}"]] if peer.token else [],
        }  # fmt: skip
        file = self._folder / "specification.json"
        file.write_text(json.dumps(specification))
        done = subprocess.run(
            [sys.executable, HERE / "cell_client.py", file],
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        figures = dict[str, Any](json.loads(done.stdout))
        assert not figures["failures"], (name, cell, figures["failures"])
        assert figures["p50"] is not None, (name, cell, "nothing was answered")
        return figures


def forms_of(peer: Peer) -> list[str]:
    """What a server speaks."""
    spoken = {"json": True, "binary": peer.binary, "grpc": bool(peer.grpc_port)}
    return [form for form in FORMS if spoken[form]]


def bare(network: Network) -> dict[str, Any]:
    """The network alone, over and over, with one thread."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(network.content, options, ["CPUExecutionProvider"])
    rows = [network.rows[each : each + 1] for each in range(len(network.rows))]
    times: list[float] = []
    end = time.perf_counter() + SECONDS / 2
    while (start := time.perf_counter()) < end:
        session.run(["probabilities"], {"input": rows[len(times) % len(rows)]})
        times.append(time.perf_counter() - start)
    p50, p99 = np.quantile(times, [0.5, 0.99]) * 1e3
    return {"rate": len(times) / sum(times), "p50": float(p50), "p99": float(p99)}


@contextlib.contextmanager
def serving(folder: Path, network: Network) -> Generator[dict[str, Peer]]:
    """All servers, with the same model."""
    model = folder / "model.onnx"
    model.write_bytes(network.content)
    site = Site(folder / "site")
    site.publish(network.content)
    site.write(grpc=True)
    authority = str(site.pki.folder / "ca.crt")
    with contextlib.ExitStack() as stack:
        server = Server(site).serving(1)
        stack.callback(server.kill)
        triton = stack.enter_context(running(folder / "triton", {"mlp": network.content}, 64))
        peers = {
            OURS: Peer(
                server.port, server.port, binary=True, token=site.token("predict"),
                authority=authority,
            ),
            "triton (python)": Peer(triton.port, triton.grpc_port, binary=True),
        }  # fmt: skip
        for other in (mlserver, litserve, bentoml):
            own = folder / other.__name__
            own.mkdir()
            peers[other.__name__] = stack.enter_context(other(own, model))
        yield peers


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", list(NETWORKS))
def test_ours_against_others(tmp_path: Path, benchmark: BenchmarkFixture, name: str) -> None:
    network = NETWORKS[name]()
    runs: dict[tuple[Cell, str], list[dict[str, Any]]] = {}
    with serving(tmp_path, network) as servers:
        load = Load(tmp_path, network, servers)
        tried = [
            (Cell(form, each), [other for other in servers if form in forms_of(servers[other])])
            for form in FORMS
            for each in CONNECTIONS[name]
        ]

        def one_round() -> None:
            for cell, names in tried:
                runs.setdefault((cell, BOUND), []).append(bare(network))
                for each in names:
                    runs.setdefault((cell, each), []).append(load.once(each, cell))
                names.reverse()

        benchmark.pedantic(one_round, rounds=ROUNDS, iterations=1)
    print(f"\n{name}: {psutil.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}; medians of "
          f"{ROUNDS} rounds of {SECONDS:g} s")  # fmt: skip
    print(f"{'':8}{'connections':>12} {'':18}{'answers/s':>11}{'p50 ms':>9}{'p99 ms':>9}"
          f"{'ours is':>10}")  # fmt: skip
    behind: list[str] = []
    for cell, names in tried:
        for each in (BOUND, OURS, *(other for other in names if other != OURS)):
            found = runs[cell, each]
            rate, p50, p99 = (
                statistics.median(run[key] for run in found) for key in ("rate", "p50", "p99")
            )
            ratio = statistics.median(
                mine["rate"] / its["rate"]
                for mine, its in zip(runs[cell, OURS], found, strict=True)
            )
            print(f"{cell.form:8}{cell.connections:12} {each:18}{rate:11,.0f}{p50:9.2f}{p99:9.2f}"
                  f"{ratio:9.2f}x")  # fmt: skip
            benchmark.extra_info[f"{cell.form}/{cell.connections}/{each}"] = ratio
            slow = statistics.median(run["p50"] for run in runs[cell, BOUND]) >= 1
            if ratio < (SHARE_OF_BOUND if slow else 0) and each == BOUND:
                behind.append(f"{cell.form}, {cell.connections}: {ratio:.2f} of {BOUND}")
            if ratio < 1 and not slow and each not in (BOUND, OURS):
                behind.append(f"{cell.form}, {cell.connections}: {ratio:.2f} of {each}")
    print("behind what is aimed at: " + ("; ".join(behind) or "nowhere"))
