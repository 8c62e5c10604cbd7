"""Others' servers on this machine, each with one model and one thread for it, in plain."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import time
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import psutil

from falaj.engine.controlplane.bringup import free_ports
from tests.environments import environment

HERE = Path(__file__).parent
START_SECONDS = 90.0
#: None of them is to report its use, nor its libraries.
QUIET = {"ORT_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "BENTOML_DO_NOT_TRACK": "True"}


@dataclass(frozen=True)
class Peer:
    """A server that is measured.

    Attributes:
        port: of HTTP.
        grpc_port: of gRPC; 0: it has none.
        binary: whether it takes the protocol's binary tensors over HTTP.
        token: that its callers send.
        authority: file of the authority whose certificate it has; empty: it speaks in plain.
    """

    port: int
    grpc_port: int = 0
    binary: bool = False
    token: str = ""
    authority: str = ""


@contextlib.contextmanager
def _running(
    folder: Path, command: list[str | Path], port: int, path: str, **variables: str
) -> Generator[None]:
    log_file = folder / "server.log"
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=os.environ | QUIET | variables, stdout=log,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
    try:
        until = time.monotonic() + START_SECONDS
        while not _answers(port, path):
            said = log_file.read_text(errors="replace")
            assert process.poll() is None, said[-3000:]
            assert time.monotonic() < until, said[-3000:]
            time.sleep(0.1)
        yield
    finally:
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        for each in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                each.kill()
        process.kill()
        process.wait()


def _answers(port: int, path: str) -> bool:
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", path)
        return connection.getresponse().status == 200
    return False


@contextlib.contextmanager
def litserve(folder: Path, model: Path) -> Generator[Peer]:
    """Serve a model in LitServe: JSON alone."""
    (port,) = free_ports(1)
    python = environment("peers-litserve") / "bin" / "python"
    command = [python, HERE / "litserve_server.py", model, str(port)]
    with _running(folder, command, port, "/health"):
        yield Peer(port)


@contextlib.contextmanager
def bentoml(folder: Path, model: Path) -> Generator[Peer]:
    """Serve a model in BentoML: JSON alone."""
    (port,) = free_ports(1)
    installed = environment("peers-bentoml")
    command = [
        installed / "bin" / "bentoml", "serve", "bentoml_service:Model", "--working-dir", HERE,
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    path = f"{installed / 'bin'}:{os.environ['PATH']}"
    home = str(folder / "home")
    with _running(
        folder, command, port, "/readyz", MODEL=str(model), PATH=path, BENTOML_HOME=home,
        PYTHONDONTWRITEBYTECODE="1",
    ):  # fmt: skip
        yield Peer(port)


@contextlib.contextmanager
def mlserver(folder: Path, model: Path) -> Generator[Peer]:
    """Serve a model in MLServer, in its own process: JSON and gRPC."""
    port, grpc_port, metrics_port = free_ports(3)
    installed = environment("peers-mlserver")
    settings = {
        "host": "127.0.0.1", "http_port": port, "grpc_port": grpc_port,
        "metrics_port": metrics_port, "parallel_workers": 0, "debug": False,
    }  # fmt: skip
    (folder / "settings.json").write_text(json.dumps(settings))
    served = {
        "name": "mlp", "implementation": "mlserver_runtime.Onnx",
        "parameters": {"uri": str(model)},
    }  # fmt: skip
    (folder / "model-settings.json").write_text(json.dumps(served))
    command: list[str | Path] = [installed / "bin" / "mlserver", "start", folder]
    with _running(
        folder, command, port, "/v2/health/ready", PYTHONPATH=str(HERE), HOME=str(folder),
        PYTHONDONTWRITEBYTECODE="1",
    ):  # fmt: skip
        yield Peer(port, grpc_port)
