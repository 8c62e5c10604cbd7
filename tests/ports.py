"""Ports for servers of tests."""

from __future__ import annotations

from engine.ports import free_ports


def free_port() -> int:
    """A TCP port of the loopback that nobody holds, another one at each call."""
    return free_ports(1)[0]
