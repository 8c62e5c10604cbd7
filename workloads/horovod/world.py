"""Which process is which: the variables that Horovod reads in place of MPI.

Names and meanings are those that Horovod's own launcher sets (horovod/runner/gloo_run.py) and
its Gloo controller reads (horovod/common/gloo/gloo_context.cc), of Horovod 0.28.
"""

from __future__ import annotations

import fcntl
import ipaddress
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from falaj.workloads.errors import WorkloadError

MOST_PROCESSES = 256
"""Every process connects to each other one, and asks the rendezvous twice for each: 163,000
requests for 256, of which it answers some 1,600 a second on one core."""
TIMEOUT_SECONDS = 300
"""Of connecting and of each collective, unless ``HOROVOD_GLOO_TIMEOUT_SECONDS`` says otherwise.
Horovod's own 30 are less than the first import of a framework may take on a cold disk."""

#: Numbers of Linux: include/uapi/linux/sockios.h
_ADDRESS, _NETMASK = 0x8915, 0x891B


@dataclass(frozen=True)
class World:
    """The processes of a job: as many on each of its machines.

    Attributes:
        nodes: machines.
        processes: on each machine.
        index: of this machine, from 0.
    """

    nodes: int
    processes: int
    index: int

    def __post_init__(self) -> None:
        if min(self.nodes, self.processes) < 1 or not 0 <= self.index < self.nodes:
            raise WorkloadError(
                f"machine {self.index} of {self.nodes} with {self.processes} process(es): allowed "
                "are whole numbers from 1, and machines count from 0"
            )
        if self.nodes * self.processes > MOST_PROCESSES:
            raise WorkloadError(
                f"{self.nodes} x {self.processes} = {self.nodes * self.processes} processes: "
                f"allowed are {MOST_PROCESSES} altogether, since each talks to every other one"
            )

    def environment(self, local: int) -> Mapping[str, str]:
        """Variables of one of this machine's processes.

        Args:
            local: its number on this machine, from 0.
        """
        return {
            "HOROVOD_RANK": str(self.index * self.processes + local),
            "HOROVOD_SIZE": str(self.nodes * self.processes),
            "HOROVOD_LOCAL_RANK": str(local),
            "HOROVOD_LOCAL_SIZE": str(self.processes),
            "HOROVOD_CROSS_RANK": str(self.index),
            "HOROVOD_CROSS_SIZE": str(self.nodes),
            # Those with the same name are on one machine; it becomes part of a URL.
            "HOROVOD_HOSTNAME": f"node-{self.index}",
        }


def meeting(address: str, port: int, interface: str) -> Mapping[str, str]:
    """Variables that all processes of a machine have: how and where they meet.

    Args:
        address: IPv4 address of the rendezvous. A name would be looked up for every request.
        port: of the rendezvous.
        interface: of this machine, which the others reach.
    """
    return {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_GLOO_IFACE": interface,
    }


def interface_of(address: str) -> str:
    """Name of this machine's interface that has an IPv4 address, or whose network it is in.

    Raises:
        WorkloadError: it is no IPv4 address, or no interface's.
    """
    try:
        wanted = ipaddress.IPv4Address(address)
    except ValueError:
        raise WorkloadError(
            f"--address is {address!r}: allowed is an IPv4 address of this machine, since "
            "Horovod's client of the rendezvous speaks no IPv6"
        ) from None
    around = ""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                own = fcntl.ioctl(asked.fileno(), _ADDRESS, request)[20:24]
                mask = fcntl.ioctl(asked.fileno(), _NETMASK, request)[20:24]
            except OSError:  # it has none
                continue
            if ipaddress.IPv4Address(own) == wanted:
                return name
            network = f"{ipaddress.IPv4Address(own)}/{ipaddress.IPv4Address(mask)}"
            if wanted in ipaddress.IPv4Network(network, strict=False):
                around = around or name
    if not around:
        raise WorkloadError(f"--address is {address!r}, which no interface of this machine has")
    return around
