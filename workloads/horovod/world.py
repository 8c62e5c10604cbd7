"""Which process is which: the variables that Horovod reads in place of MPI.

Names and meanings are those that Horovod's own launcher sets (horovod/runner/gloo_run.py) and
its Gloo controller reads (horovod/common/gloo/gloo_context.cc), of Horovod 0.28.
"""

from __future__ import annotations

import fcntl
import http.client
import ipaddress
import json
import socket
import struct
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from falaj.workloads.bounds import GANG
from falaj.workloads.errors import WorkloadError

MOST_PROCESSES = GANG["most_horovod_processes"]
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


# What the launchers of a job's machines tell each other: who is there, and how each ended.
#
# A process that loses a peer ends with a trace and status 1, like one with a fault of its own.
# Only what became of the others, or their silence, tells whether starting again can help.

BEAT_SECONDS = 2.0
"""How often a machine speaks."""


class Machines:
    """The table that the machine of index 0 keeps."""

    def __init__(self, nodes: int, attempt: str) -> None:
        self._nodes = nodes
        self._attempt = attempt
        self._heard: dict[int, float] = {}
        self._ended: dict[int, int] = {}
        self._lock = threading.Lock()

    def tell(
        self, index: int, attempt: str, ended: int | None, now: float
    ) -> dict[str, Any] | None:
        """Note what a machine says, and return what is known of all.

        Args:
            index: the machine.
            attempt: which start of the job it belongs to.
            ended: status of its processes, or that it is about to stop them; None: they run.
            now: seconds of a clock that never goes back.

        Returns:
            None for a machine that isn't of this job's attempt. Else ``present``: how many have
            come; ``ended``: the status of each that has ended, by index; ``ages``: seconds since
            each other one was heard.
        """
        if attempt != self._attempt or index >= self._nodes:
            return None
        with self._lock:
            self._heard[index] = now
            if ended is not None:
                self._ended.setdefault(index, ended)
            ages = {
                str(each): now - heard
                for each, heard in self._heard.items()
                if each not in self._ended
            }
            over = {str(each): status for each, status in self._ended.items()}
            return {"present": len(self._heard), "ended": over, "ages": ages}


@dataclass(frozen=True)
class State:
    """What is known of the machines, as seen from one of them.

    Attributes:
        present: how many have come.
        ended: status of each machine that has ended, by index.
        heard: when each machine that hasn't ended was last heard, by index; the host's own clock
            is left out of it.
    """

    present: int
    ended: dict[int, int]
    heard: dict[int, float]


class Contact:
    """Speaks for a machine, from a thread of its own."""

    def __init__(self, index: int, attempt: str) -> None:
        self._index = index
        self._attempt = attempt
        self._ended: int | None = None
        self._peer: tuple[str, int] | None = None
        self._turn = threading.Condition()
        self._closed = False
        self.state = State(0, {}, {})
        self.reached = 0.0
        """When the host last answered."""

    def reach(self, host: str, port: int) -> None:
        """Speak to the host at this address from now on.

        Raises:
            OSError: it isn't there yet.
        """
        self._peer = (host, port)
        self._speak()
        threading.Thread(target=self._beat, name="machines", daemon=True).start()

    def end(self, status: int) -> None:
        """Tell, as soon as can be, how this machine's processes ended; the first word counts."""
        with self._turn:
            if self._ended is None:
                self._ended = status
                self._turn.notify()

    def close(self) -> None:
        """Tell once more what hasn't been told, and be silent."""
        with self._turn:
            self._closed = True
            self._turn.notify()
        if self._peer and self._ended is not None:
            try:
                self._speak()
            except OSError:
                return  # the host has gone before: nobody asks any more

    def failures(self) -> dict[int, int]:
        """Statuses of the other machines that have failed, by index."""
        ended = self.state.ended.items()
        return {index: status for index, status in ended if status and index != self._index}

    def silence(self, now: float) -> float:
        """Seconds for which the machine has been silent that has been for longest."""
        heard = [when for index, when in self.state.heard.items() if index != self._index]
        return now - min([self.reached, *heard])

    def _beat(self) -> None:
        while True:
            with self._turn:
                sent = self._ended
                self._turn.wait_for(
                    lambda sent=sent: self._closed or self._ended != sent, BEAT_SECONDS
                )
                if self._closed:
                    return
            try:
                self._speak()
            except OSError:
                continue  # what matters is for how long

    def _speak(self) -> None:
        if self._peer is None:
            raise ConnectionError("it isn't known where the host is")
        message = json.dumps({"attempt": self._attempt, "ended": self._ended})
        connection = http.client.HTTPConnection(self._peer[0], self._peer[1], timeout=5)
        try:
            connection.request("POST", f"/machines/{self._index}", message)
            answer = connection.getresponse()
            answered = json.loads(answer.read()) if answer.status == 200 else None
        except (http.client.HTTPException, ValueError) as error:
            raise ConnectionError(str(error)) from None
        finally:
            connection.close()
        if answered is None:
            raise ConnectionError(f"it is another attempt's ({answer.status})")
        now = time.monotonic()
        heard = {int(index): now - age for index, age in answered["ages"].items()}
        ended = {int(index): int(status) for index, status in answered["ended"].items()}
        self.state, self.reached = State(int(answered["present"]), ended, heard), now
