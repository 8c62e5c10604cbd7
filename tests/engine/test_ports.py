"""Ports of the loopback for servers that are started a moment later."""

from __future__ import annotations

import itertools
import socket
import subprocess
import sys

import pytest

from falaj.engine.controlplane import bringup
from falaj.engine.errors import EngineError


def test_each_call_gives_others_that_can_be_bound() -> None:
    found = [port for _ in range(5) for port in bringup.free_ports(8)]
    assert len(set(found)) == 40
    for port in found:
        socket.create_server(("127.0.0.1", port)).close()
        assert port < 32_768


def test_a_port_that_somebody_has_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    first = bringup.free_ports(1)[0]
    with socket.create_server(("127.0.0.1", first)):
        monkeypatch.setattr(bringup, "_places", itertools.count(first - bringup._FIRST))  # pyright: ignore[reportPrivateUsage]
        assert first not in bringup.free_ports(3)


def test_too_many_are_refused_with_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bringup, "_LAST", bringup._FIRST + 2)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(
        EngineError, match=r"3 free ports are needed at 127\.0\.0\.1, and from 10000"
    ):
        bringup.free_ports(3)


def test_processes_that_start_together_look_at_different_places() -> None:
    program = "from falaj.engine.controlplane.bringup import free_ports; print(*free_ports(20))"
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    printed = [each.communicate(timeout=60)[0].split() for each in started]
    found = [port for each in printed for port in each]
    assert len(found) == len(set(found)) == 80
