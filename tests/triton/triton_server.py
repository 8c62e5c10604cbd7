"""A real Triton on this machine: the server of NVIDIA's wheel, with models that run in Python.

The wheel (`requirements/triton.in`) has the server and its backend for Python, and none for ONNX:
so the backend runs ONNX Runtime. What is compared is the protocol, not speed. The backend's stub
is linked to the system's interpreter, and looks for its libraries by the `python3` on the PATH.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import subprocess
import time
from collections.abc import Generator, Mapping
from pathlib import Path

from falaj.engine.controlplane.bringup import free_ports
from falaj.workloads.registry.triton_layout import Running, configuration
from tests.environments import environment
from tests.workloads.inference import models

PYTHON = Path("/usr/bin/python3.11")
"""The interpreter whose library the wheel's stub asks for."""
START_SECONDS = 60.0

BACKEND = """
import os
import numpy as np
import onnxruntime
import triton_python_backend_utils as utils


class TritonPythonModel:
    def initialize(self, args):
        folder = os.path.join(args["model_repository"], args["model_version"])
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(
            os.path.join(folder, "model.onnx"), options, providers=["CPUExecutionProvider"]
        )

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        feed = {}
        for each in self.session.get_inputs():
            values = utils.get_input_tensor_by_name(request, each.name).as_numpy()
            if values.dtype == object:
                values = np.array([text.decode() for text in values.ravel()], object).reshape(
                    values.shape
                )
            feed[each.name] = values
        names = [each.name for each in self.session.get_outputs()]
        wanted = set(request.requested_output_names())
        found = []
        for name, values in zip(names, self.session.run(names, feed)):
            values = np.asarray(values)
            if values.dtype == object:
                values = np.array([text.encode() for text in values.ravel()], object).reshape(
                    values.shape
                )
            if name in wanted:
                found.append(utils.Tensor(name, values))
        return utils.InferenceResponse(found)
"""


def home() -> Path:
    """The folder of the server's environment.

    Raises:
        RuntimeError: the interpreter that the wheel is made for isn't here.
    """
    if not PYTHON.exists():
        raise RuntimeError(
            f"the wheel of Triton's server needs {PYTHON}, which isn't here: install the system's "
            "python3.11 with its library (Debian 12: python3.11, libpython3.11)"
        )
    return environment("triton", python=PYTHON, finish=_place_stub)


def _place_stub(folder: Path) -> None:
    """Beside the backend's library, where it looks for its stub."""
    wheel = server_of(folder)
    stub = wheel / "python_backend_stubs" / "3.11" / "triton_python_backend_stub"
    shutil.copy(stub, wheel / "backends" / "python")


def server_of(folder: Path) -> Path:
    """The server's folder in an environment."""
    return folder / "lib" / "python3.11" / "site-packages" / "pytriton" / "tritonserver"


def write_repository(target: Path, contents: Mapping[str, bytes], max_batch: int) -> None:
    """Write models as the side-car of the GPU tier does, but for the backend that runs them."""
    for name, content in contents.items():
        made = configuration(name, 1, models.fields(content), Running(max_batch, 0))
        usual = 'backend: "onnxruntime"'
        assert usual in made
        version = target / name / "1"
        version.mkdir(parents=True)
        (target / name / "config.pbtxt").write_text(made.replace(usual, 'backend: "python"'))
        (version / "model.onnx").write_bytes(content)
        (version / "model.py").write_text(BACKEND)


class Triton:
    """A server that runs.

    Attributes:
        process: of it.
        port: of HTTP.
        grpc_port: of gRPC.
    """

    def __init__(self, process: subprocess.Popen[bytes], port: int, grpc_port: int) -> None:
        self.process = process
        self.port = port
        self.grpc_port = grpc_port

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)

    def is_ready(self) -> bool:
        """Tell whether it serves all of its models."""
        with contextlib.closing(self.connect()) as connection, contextlib.suppress(OSError):
            connection.request("GET", "/v2/health/ready")
            return connection.getresponse().status == 200
        return False


@contextlib.contextmanager
def running(folder: Path, contents: Mapping[str, bytes], max_batch: int) -> Generator[Triton]:
    """Serve models until the block ends, as a pod of the GPU tier is told to."""
    installed = home()
    wheel = server_of(installed)
    write_repository(folder / "models", contents, max_batch)
    port, grpc_port = free_ports(2)
    variables = {
        "PATH": f"{installed / 'bin'}:/usr/bin:/bin", "HOME": str(folder),
        "LD_LIBRARY_PATH": str(wheel.parents[1] / "nvidia_pytriton.libs"),
        # Its own libraries report nothing; ONNX Runtime's would.
        "ORT_DISABLE_TELEMETRY": "1",
    }  # fmt: skip
    with (folder / "triton.log").open("wb") as log:
        process = subprocess.Popen(
            [wheel / "bin" / "tritonserver", f"--model-repository={folder / 'models'}",
             f"--backend-directory={wheel / 'backends'}", "--model-control-mode=explicit",
             *(f"--load-model={name}" for name in contents),
             "--http-address=127.0.0.1", f"--http-port={port}",
             "--grpc-address=127.0.0.1", f"--grpc-port={grpc_port}",
             "--allow-metrics=false", "--http-thread-count=2"],
            env=variables, stdout=log, stderr=subprocess.STDOUT, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
    served = Triton(process, port, grpc_port)
    try:
        until = time.monotonic() + START_SECONDS
        while not served.is_ready():
            said = (folder / "triton.log").read_text(errors="replace")
            assert process.poll() is None, said[-3000:]
            assert time.monotonic() < until, said[-3000:]
            time.sleep(0.1)
        yield served
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
