"""The language host by itself: called as the engine calls it, stopped in every way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import grpc
import psutil
import pytest
from google.protobuf import empty_pb2
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import (
    engine_pb2,
    engine_pb2_grpc,
    language_pb2,
    language_pb2_grpc,
    resource_pb2,
    resource_pb2_grpc,
)

from tests.engine.conftest import write_program

HOST = [sys.executable, "-P", "-m", "falaj.engine.languagehost", "127.0.0.1:1"]
SECONDS = 30


class Host:
    """A running host and a client of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.monitor = ""
        self.process = subprocess.Popen(
            HOST,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # as the engine does
        )
        assert self.process.stdout is not None
        self.channel = grpc.insecure_channel(f"127.0.0.1:{int(self.process.stdout.readline())}")
        self.client = language_pb2_grpc.LanguageRuntimeStub(self.channel)

    def info(self, **options: str) -> language_pb2.ProgramInfo:
        struct = Struct()
        struct.update({"virtualenv": sys.prefix, **options})
        folder = str(self.folder)
        return language_pb2.ProgramInfo(
            root_directory=folder, program_directory=folder, entry_point=".", options=struct
        )

    def write(self, text: str) -> None:
        write_program(self.folder, text)

    def plugin(self, text: str) -> grpc.CallIterator[language_pb2.RunPluginResponse]:
        self.write(text)
        env = [f"{name}={value}" for name, value in os.environ.items()]
        request = language_pb2.RunPluginRequest(
            info=self.info(), pwd=str(self.folder), kind="resource", args=["a b"], env=env
        )
        return self.client.RunPlugin(request)

    def close(self) -> None:
        self.channel.close()
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=SECONDS)


@pytest.fixture
def host(tmp_path: Path) -> Generator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()


def number_in(path: Path) -> int:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        if path.exists() and (text := path.read_text()):
            return int(text)
        time.sleep(0.02)
    raise AssertionError(f"{path} was never written")


def gone(pid: int) -> bool:
    deadline = time.monotonic() + SECONDS
    while psutil.pid_exists(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not psutil.pid_exists(pid)


WAIT = """
import os, pathlib, signal, sys, time
def leave(*_):
    pathlib.Path("left").write_text("1")
    sys.exit(0)
signal.signal(signal.SIGTERM, leave)
pathlib.Path("pid").write_text(str(os.getpid()))
# At once: `print` writes the end of the line by itself, into a pipe whose reader the test may have
# killed by then, and would raise before the signal comes.
os.write(1, b"ready\\n")
time.sleep(600)
"""

STUBBORN = """
import os, pathlib, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("child").write_text(str(child.pid))
pathlib.Path("pid").write_text(str(os.getpid()))
time.sleep(600)
"""


def test_a_plugin_hands_on_output_and_exit_code(host: Host) -> None:
    answers = list(
        host.plugin("import sys\nprint(sys.argv[1])\nprint('oh', file=sys.stderr)\nsys.exit(7)\n")
    )
    assert b"".join(answer.stdout for answer in answers) == b"a b\n"
    assert b"".join(answer.stderr for answer in answers) == b"oh\n"
    assert answers[-1].exitcode == 7


def test_a_plugin_ended_by_a_signal_has_the_shells_exit_code(host: Host) -> None:
    answers = list(host.plugin("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n"))
    assert answers[-1].exitcode == 128 + signal.SIGKILL


def test_something_left_in_the_background_does_not_hold_the_plugin(host: Host) -> None:
    answers = list(
        host.plugin(
            "import pathlib, subprocess, sys\n"
            "run = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
            "child = subprocess.Popen(run, start_new_session=True)\n"
            "pathlib.Path('child').write_text(str(child.pid))\n"
        )
    )
    child = number_in(host.folder / "child")
    assert answers[-1].exitcode == 0
    assert psutil.pid_exists(child)  # its own session: it was meant to stay
    os.kill(child, signal.SIGKILL)


def test_bad_options_are_an_answer_and_not_a_trace(host: Host) -> None:
    request = language_pb2.RunRequest(info=host.info(virtualenv="nowhere"), pwd=str(host.folder))
    answer = host.client.Run(request)
    assert "nowhere" in answer.error
    assert not answer.bail
    with pytest.raises(grpc.RpcError) as raised:
        list(host.client.RunPlugin(language_pb2.RunPluginRequest(info=host.info(toolchain="x"))))
    assert "must be one of pip, uv, poetry" in raised.value.details()


def test_cancelling_the_call_stops_the_plugin_in_order(host: Host) -> None:
    call = host.plugin(WAIT)
    assert next(call).stdout.startswith(b"ready")
    pid = number_in(host.folder / "pid")
    call.cancel()
    assert gone(pid)
    assert (host.folder / "left").exists()
    assert host.client.GetPluginInfo(empty_pb2.Empty()).version


class Monitor(resource_pb2_grpc.ResourceMonitorServicer, engine_pb2_grpc.EngineServicer):
    """As much of an engine as an empty program needs; keeps the errors that are logged."""

    def __init__(self) -> None:
        self.errors: list[str] = []

    def SupportsFeature(self, request, context):  # noqa: N802
        return resource_pb2.SupportsFeatureResponse(hasSupport=False)

    def RegisterResource(self, request, context):  # noqa: N802
        return resource_pb2.RegisterResourceResponse(urn=f"urn:pulumi:dev::p::{request.type}::s")

    def RegisterResourceOutputs(self, request, context):  # noqa: N802
        return empty_pb2.Empty()

    def Log(self, request, context):  # noqa: N802
        if request.severity == engine_pb2.ERROR:
            self.errors.append(request.message)
        return empty_pb2.Empty()


@pytest.fixture
def monitor(host: Host) -> Generator[Monitor]:
    made = Monitor()
    server = grpc.server(ThreadPoolExecutor(4))
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(made, server)
    engine_pb2_grpc.add_EngineServicer_to_server(made, server)
    host.monitor = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    host.client.Handshake(language_pb2.LanguageHandshakeRequest(engine_address=host.monitor))
    yield made
    server.stop(None).wait()


def run_program(host: Host, text: str) -> grpc.Future[language_pb2.RunResponse]:
    host.write(text)
    request = language_pb2.RunRequest(
        info=host.info(),
        pwd=str(host.folder),
        project="p",
        stack="dev",
        parallel=4,
        monitor_address=host.monitor,
    )
    return host.client.Run.future(request)


ENDS = {
    # program: (bail, error of the answer, error logged)
    "": (False, "", ""),
    "raise SystemExit(0)": (False, "", ""),
    "raise SystemExit(5)": (False, "the program ended with exit code 5", ""),
    "import sys; sys.stderr.write('told'); sys.exit(5)": (True, "", ""),
    "raise SystemExit('told')": (True, "", "told"),
    "import pulumi; raise pulumi.RunError('told')": (True, "", "told"),
    "1 / 0": (True, "", "ZeroDivisionError"),
    "import nothing_like_it": (True, "", "No module named 'nothing_like_it'"),
    "def (:": (True, "", "SyntaxError"),
    "import os; os.kill(os.getpid(), 9)": (False, "ended with exit code 137", ""),
}


def test_every_end_of_a_program_is_reported_once(host: Host, monitor: Monitor) -> None:
    for text, (bail, error, logged) in ENDS.items():
        monitor.errors.clear()
        answer = run_program(host, text).result(timeout=SECONDS)
        assert answer.bail == bail, text
        assert error in answer.error, text
        assert bool(answer.error) == bool(error), text
        assert len(monitor.errors) == bool(logged), text
        assert logged in "".join(monitor.errors), text


#: One resource after the other, so that their outputs are there at as many times.
CHAIN = """
import asyncio, pathlib, pulumi
wait, waits = asyncio.wait, pathlib.Path("waits")
def counted(*arguments, **options):
    with waits.open("a") as file:
        file.write("w")
    return wait(*arguments, **options)
waits.touch()
asyncio.wait = counted
parent = None
for number in range(20):
    options = pulumi.ResourceOptions(parent=parent)
    parent = pulumi.ComponentResource("p:index:Part", f"p{number}", None, options)
"""


def test_a_program_is_waited_for_by_its_calls_and_not_by_each_output(
    host: Host, monitor: Monitor
) -> None:
    answer = run_program(host, CHAIN).result(timeout=SECONDS)
    assert (answer.bail, answer.error, monitor.errors) == (False, "", [])
    assert len((host.folder / "waits").read_text()) <= 2


def test_cancel_stops_the_program_and_reports_nothing_more(host: Host, monitor: Monitor) -> None:
    call = run_program(host, WAIT)
    pid = number_in(host.folder / "pid")
    host.client.Cancel(empty_pb2.Empty())
    answer = call.result(timeout=SECONDS)
    assert (answer.bail, answer.error) == (True, "")
    assert gone(pid)
    assert monitor.errors == []


def test_cancelling_the_call_stops_the_program(host: Host, monitor: Monitor) -> None:
    call = run_program(host, WAIT)
    pid = number_in(host.folder / "pid")
    call.cancel()
    assert gone(pid)
    assert (host.folder / "left").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_host_and_children_quietly(host: Host, number: signal.Signals) -> None:
    call = host.plugin(WAIT)
    next(call)
    pid = number_in(host.folder / "pid")
    os.killpg(host.process.pid, number)  # the engine signals the whole group
    output, errors = host.process.communicate(timeout=SECONDS)
    assert (host.process.returncode, output, errors) == (0, "", "")
    assert gone(pid)
    assert (host.folder / "left").exists()


def test_children_that_ignore_the_request_are_killed_with_theirs(host: Host) -> None:
    call = host.plugin(STUBBORN)  # kept: a call that nobody holds is cancelled
    pid, child = number_in(host.folder / "pid"), number_in(host.folder / "child")
    host.process.terminate()
    host.process.communicate(timeout=SECONDS)
    assert gone(pid)
    assert gone(child)
    # It ends with the host, or with the program's death a moment before.
    with suppress(grpc.RpcError):
        list(call)


def test_the_end_of_the_engine_ends_everything(host: Host) -> None:
    call = host.plugin(WAIT)
    next(call)
    pid = number_in(host.folder / "pid")
    assert host.process.stdin is not None
    host.process.stdin.close()  # what the host sees when the engine was killed
    host.process.stdin = None
    output, errors = host.process.communicate(timeout=SECONDS)
    assert (host.process.returncode, output, errors) == (0, "", "")
    assert gone(pid)
    assert (host.folder / "left").exists()


def test_a_host_with_another_standard_input_notices_its_parents_end(tmp_path: Path) -> None:
    starter = (
        "import subprocess, sys, time\n"
        f"host = subprocess.Popen({HOST!r}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)\n"
        "host.stdout.readline()\n"
        "print(host.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", starter], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate(timeout=SECONDS)
    assert gone(pid)


def test_a_killed_host_takes_its_children_along(host: Host) -> None:
    call = host.plugin(WAIT)
    next(call)
    pid = number_in(host.folder / "pid")
    host.process.kill()
    assert gone(pid)
    assert (host.folder / "left").exists()


def test_the_packages_of_the_program_are_listed(host: Host) -> None:
    def names(transitive: bool) -> set[str]:
        request = language_pb2.GetProgramDependenciesRequest(
            info=host.info(), transitiveDependencies=transitive
        )
        answer = host.client.GetProgramDependencies(request)
        return {dependency.name for dependency in answer.dependencies}

    assert {"pulumi", "grpcio"} <= names(True)
    assert "grpcio" not in names(False)


def test_required_plugins_come_from_the_installed_sdks(host: Host, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = next(venv.glob("lib/python*/site-packages"))
    for name, content in (
        ("pulumi-lake", '{"resource": true, "name": "lake", "version": "2.1.0", "server": "u"}'),
        ("pulumi-tools", '{"resource": false}'),
    ):
        module = site / name.replace("-", "_")
        module.mkdir()
        (module / "__init__.py").touch()
        (module / "pulumi-plugin.json").write_text(content)
        info = site / f"{module.name}-2.1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Name: {name}\nVersion: 2.1.0\nRequires-Dist: pulumi>=3\n")
    request = language_pb2.GetRequiredPackagesRequest(info=host.info(virtualenv=str(venv)))
    (package,) = host.client.GetRequiredPackages(request).packages
    assert (package.name, package.kind, package.version, package.server) == (
        "lake",
        "resource",
        "2.1.0",
        "u",
    )


def test_installation_shows_what_it_does_and_fails_with_a_reason(host: Host) -> None:
    (host.folder / "requirements.txt").write_text("falaj-no-such-package\n")
    # An environment without pip: the step must fail, quickly and without a network.
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", host.folder / "made"], check=True
    )
    answers = host.client.InstallDependencies(
        language_pb2.InstallDependenciesRequest(
            info=host.info(virtualenv="made"), directory=str(host.folder)
        )
    )
    shown: list[bytes] = []
    with pytest.raises(grpc.RpcError) as raised:
        shown.extend(answer.stderr for answer in answers)
    assert b"No module named pip" in b"".join(shown)
    assert "-m pip install" in raised.value.details()
    assert "failed with exit code 1" in raised.value.details()
