"""Ports for servers of tests."""

from __future__ import annotations

from falaj.engine.controlplane.bringup import free_ports


def free_port() -> int:
    """A TCP port of the loopback that nobody holds, another one at each call."""
    return free_ports(1)[0]
