"""``falaj open``: what it refuses, what it prints, how it ends, and how a browser is let in."""

from __future__ import annotations

import http.client
import os
import re
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from falaj.stacks.command.__main__ import main
from falaj.stacks.command.project import StackFile
from falaj.stacks.page import serving
from falaj.stacks.page.app import Door, opened
from tests.ports import free_port
from tests.stacks.page.site import make_stack
from tests.workloads.inference import models
from tests.workloads.inference.serving import Site


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[StackFile, Site]:
    monkeypatch.setenv("FALAJ_HOME", str(tmp_path / "home"))
    stack, site = make_stack(tmp_path / "stack", "mlp")
    site.publish(models.mlp())
    site.write(port=free_port())
    return stack, site


def arguments(stack: StackFile, *more: str) -> list[str]:
    return ["open", "--stack", stack.name, "--project", str(stack.project.root), *more]


def test_nothing_is_served(
    place: tuple[StackFile, Site], capsys: pytest.CaptureFixture[str]
) -> None:
    stack, site = place
    site.config.unlink()
    assert main(arguments(stack, "--no-browser")) == 2
    assert "stack shop serves nothing; start it with:" in capsys.readouterr().err


def test_a_stack_in_a_cloud(
    place: tuple[StackFile, Site], capsys: pytest.CaptureFixture[str]
) -> None:
    stack, _ = place
    stack.path.write_text("config:\n  falaj:platform: aws\n")
    assert main(arguments(stack, "--no-browser")) == 2
    said = capsys.readouterr().err
    assert "isn't of this machine" in said
    assert "falaj status" in said


@pytest.mark.parametrize("port", ["-1", "65536", "x"])
def test_a_port_that_is_none(place: tuple[StackFile, Site], port: str) -> None:
    assert main(arguments(place[0], f"--port={port}")) == 2


def test_a_port_that_somebody_has(
    place: tuple[StackFile, Site], capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(arguments(place[0], "--no-browser", f"--port={port}")) == 2
    assert f"--port: given {port}, which can't be had" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_until_it_is_ended(
    place: tuple[StackFile, Site], number: signal.Signals
) -> None:
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "-m", "falaj.stacks.command",
         *arguments(place[0], "--no-browser", f"--port={port}")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        found = re.search(rf"http://127\.0\.0\.1:{port}(/enter\?token=[\w-]{{40,}})\n", first)
        assert found, first + (process.stderr.read() if process.stderr else "")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        connection.request("GET", found[1])
        assert connection.getresponse().status == 303
        # Only on loopback, and its command line has no secret.
        assert found[1] not in " ".join(
            Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")
        )
        # A browser keeps its connection open meanwhile.
        process.send_signal(number)
        printed, errors = process.communicate(timeout=30)
    finally:
        process.kill()
    assert process.returncode == 0, errors
    assert "the page is closed; the server goes on" in printed
    assert errors == ""


def test_a_browser_gets_a_private_file_and_not_the_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it is started with can be read by everybody on the machine."""
    door = Door(4711)
    path = opened(tmp_path, door)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert f'content="0; url={door.link}"' in path.read_text()
    shown: list[str] = []
    monkeypatch.setattr(serving.webbrowser, "open", lambda url: shown.append(url) or True)
    serving._show(path)
    assert shown == [path.as_uri()]
    assert str(door.token) not in shown[0]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems always have windows")
@pytest.mark.parametrize(
    ("variables", "has"),
    [({}, False), ({"DISPLAY": ":0"}, True), ({"WAYLAND_DISPLAY": "w"}, True)],
)
def test_without_windows_no_browser_takes_the_terminal(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], has: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert serving._has_screen() is has


def test_where_no_browser_is_the_link_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(serving.webbrowser, "open", lambda _: False)
    serving._show(tmp_path)
    assert "open the link by hand" in capsys.readouterr().out


def test_rolling_back_by_the_command_prints_what_it_did(
    place: tuple[StackFile, Site], capfd: pytest.CaptureFixture[str]
) -> None:
    stack, site = place
    site.publish(models.mlp(1), run="two")
    given: list[Any] = ["rollback", "--stack", stack.name, "--project", str(stack.project.root)]
    assert main(given) == 0
    assert "production of mlp: version 1, before: version 2" in capfd.readouterr().out
    assert main(given) == 2
    assert "no earlier one" in capfd.readouterr().err
    assert os.environ["FALAJ_HOME"]
