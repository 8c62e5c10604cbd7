"""The network of a control plane with real machines: namespaces, addresses and routes.

The control plane has a network namespace of its own, and each machine another one. A bridge in the
first joins them; a pair of virtual interfaces leads from it to this computer, for whoever uses the
cluster. Nothing else leads out: no route, no translation of addresses. Pods have addresses of
their machine's range, to which every machine and the control plane have a route.

By the commands of iproute2: https://man7.org/linux/man-pages/man8/ip-netns.8.html
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from falaj.engine import uplinks
from falaj.engine.errors import EngineError

PREFIX: Final = "falaj-"
"""Beginning of the namespaces' names."""
NAMESPACES: Final = Path("/run/netns")
MACHINES: Final = ipaddress.ip_network("172.31.0.0/24")
"""Addresses of machines, within the control plane's namespace: others don't see them."""
PODS: Final = ipaddress.ip_network("10.244.0.0/16")
"""Ranges of pods, one of 256 addresses for each machine."""
_UPLINK: Final = "uplink"
_BRIDGE: Final = "machines"
_SECONDS: Final = 60


@dataclass(frozen=True)
class Network:
    """The names and addresses of one control plane."""

    key: str
    """Distinguishes it from others of this computer: six characters."""
    uplink: str
    """The range between this computer and the control plane."""

    @property
    def namespace(self) -> str:
        """The control plane's."""
        return f"{PREFIX}{self.key}"

    @property
    def outer(self) -> str:
        """This computer's address in the uplink."""
        return str(ipaddress.ip_network(self.uplink)[1])

    @property
    def inner(self) -> str:
        """The control plane's address, for whoever uses the cluster from this computer."""
        return str(ipaddress.ip_network(self.uplink)[2])

    @property
    def gateway(self) -> str:
        """The control plane's address, for machines and pods."""
        return str(MACHINES[1])

    def machine_namespace(self, number: int) -> str:
        """Of the machine of that number, from 1."""
        return f"{self.namespace}-{number}"

    @staticmethod
    def address(number: int) -> str:
        """The machine's address."""
        return str(MACHINES[10 + number])

    @staticmethod
    def pods(number: int) -> str:
        """The range of the machine's pods."""
        return str(list(PODS.subnets(new_prefix=24))[number])

    def make(self) -> None:
        """Make the control plane's namespace, its bridge and its uplink.

        Raises:
            EngineError: a command failed.
        """
        size = ipaddress.ip_network(self.uplink).prefixlen
        own, peer = f"{uplinks.INTERFACE}{self.key}", _UPLINK
        _ip(["netns", "add", self.namespace])
        _ip(["link", "add", own, "type", "veth", "peer", "name", peer, "netns", self.namespace])
        _ip(["addr", "add", f"{self.outer}/{size}", "dev", own])
        _ip(["link", "set", own, "up"])
        for command in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{self.inner}/{size}", "dev", peer],
            ["link", "set", peer, "up"],
            ["link", "add", _BRIDGE, "type", "bridge"],
            ["addr", "add", f"{self.gateway}/{MACHINES.prefixlen}", "dev", _BRIDGE],
            ["link", "set", _BRIDGE, "up"],
        ):
            _ip(command, self.namespace)

    def add_machine(self, number: int, others: Sequence[int]) -> None:
        """Make a machine's namespace, and routes to its pods and to those of others.

        Raises:
            EngineError: a command failed.
        """
        own, port = self.machine_namespace(number), f"machine-{number}"
        _ip(["netns", "add", own])
        _ip(["link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", own],
            self.namespace)  # fmt: skip
        _ip(["link", "set", port, "master", _BRIDGE, "up"], self.namespace)
        for command in (
            ["link", "set", "lo", "up"],
            ["addr", "add", f"{self.address(number)}/{MACHINES.prefixlen}", "dev", "eth0"],
            ["link", "set", "eth0", "up"],
            ["route", "add", "default", "via", self.gateway],
        ):
            _ip(command, own)
        _ip(["route", "replace", self.pods(number), "via", self.address(number)], self.namespace)
        for other in others:
            _ip(["route", "replace", self.pods(other), "via", self.address(other)], own)

    def remove_machine(self, number: int) -> None:
        """Remove a machine's namespace; what is left of its network goes with it."""
        _ip(["netns", "del", self.machine_namespace(number)], missing_ok=True)

    def remove(self) -> None:
        """Remove every namespace; interfaces go with theirs."""
        # The one to this computer now: its namespace stays until the last process in it ended.
        _ip(["link", "del", _UPLINK], self.namespace, missing_ok=True)
        for path in sorted(NAMESPACES.glob(f"{self.namespace}*"), reverse=True):
            _ip(["netns", "del", path.name], missing_ok=True)


def new_network() -> Network:
    """Names and addresses that nobody on this computer has.

    Raises:
        EngineError: all ranges of uplinks are taken.
    """
    taken = [ipaddress.ip_network(each) for each in _routes()]
    for candidate in uplinks.RANGE.subnets(new_prefix=30):
        if not any(candidate.overlaps(each) for each in taken if each.version == 4):
            return Network(secrets.token_hex(3), str(candidate))
    raise EngineError(f"no range of {uplinks.RANGE} is free: end other clusters of this computer")


def _routes() -> list[str]:
    answer: list[dict[str, Any]] = json.loads(_ip(["-json", "route", "show", "table", "all"]))
    return [each["dst"] for each in answer if each["dst"][0].isdigit()]


def _ip(command: Sequence[str], namespace: str = "", *, missing_ok: bool = False) -> str:
    inside = ["-n", namespace] if namespace else []
    done = subprocess.run(
        ["ip", *inside, *command], capture_output=True, text=True, check=False, timeout=_SECONDS
    )
    if done.returncode and not missing_ok:
        raise EngineError(f"`ip {' '.join([*inside, *command])}` failed: {done.stderr.strip()}")
    return done.stdout
