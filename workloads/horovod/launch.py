"""One machine's part of a Horovod job: meets the others, runs its processes, says how it ended."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import FrameType

from falaj.workloads.bounds import CAUSE_FIRST_SECONDS, MARGIN_SECONDS
from falaj.workloads.errors import FAULT, HARDWARE, LOST, PROGRAM, REFUSED, STOPPED, WorkloadError
from falaj.workloads.horovod.store import Rendezvous
from falaj.workloads.horovod.world import (
    BEAT_SECONDS,
    TIMEOUT_SECONDS,
    Contact,
    Machines,
    World,
    interface_of,
    meeting,
)

# This machine's processes: started, told to stop, ended, and never left over.


class Processes:
    """The processes of one program, each with its own environment."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._terminate_at = float("inf")
        self._kill_at = float("inf")

    def start(self, program: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        """Start one process for each environment.

        Raises:
            WorkloadError: the program can't be run.
        """
        for environ in environments:
            try:
                # Each leads a group of its own, by which what it started can be ended with it.
                child = subprocess.Popen(list(program), env=environ, start_new_session=True)
            except OSError as error:
                self.kill()
                raise WorkloadError(
                    f"can't run {program[0]!r}: {error.strerror or error}; allowed is a program "
                    "of the image, by its path or found on its PATH"
                ) from None
            self._children.append(child)

    def ended(self) -> list[int]:
        """Status of each process that has ended; negative: the signal that ended it."""
        self._adopted()
        codes = [child.poll() for child in self._children]
        return [code for code in codes if code is not None]

    @property
    def running(self) -> bool:
        """Whether any still runs."""
        return len(self.ended()) < len(self._children)

    def leave(self, terminate: float, kill: float) -> None:
        """Ask all to stop, then end them; an earlier date that was set before holds.

        Args:
            terminate: seconds until each gets SIGTERM.
            kill: seconds after that until its group gets SIGKILL.
        """
        now = time.monotonic()
        self._terminate_at = min(self._terminate_at, now + terminate)
        self._kill_at = min(self._kill_at, now + terminate + kill)

    def enforce(self) -> None:
        """Send the signals that are due."""
        now = time.monotonic()
        if now >= self._kill_at:
            self.kill()
        elif now >= self._terminate_at:
            self._terminate_at = float("inf")
            for child in self._children:
                # The process alone, as the kubelet does: it may need its helpers for a checkpoint.
                if child.poll() is None:
                    child.terminate()

    def kill(self) -> None:
        """End all at once, with what they have started."""
        for child in self._children:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()

    def _adopted(self) -> None:
        """Bury processes that others left behind: a container's first process inherits them."""
        own = {child.pid for child in self._children}
        with contextlib.suppress(ChildProcessError):
            while True:
                found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if found is None or found.si_pid in own:
                    return  # own ones are asked for by their number
                os.waitpid(found.si_pid, os.WNOHANG)


_POLL_SECONDS = 0.05
_PEER_SECONDS = 5.0
"""That processes have to notice the loss of one of them and end by themselves: Horovod's own."""
_SILENT_SECONDS = 15.0
"""After which a silent machine explains why processes have failed."""
_SETTLE_SECONDS = 2.0
"""That processes which ended with 1 wait for one that tells more: a process lets go of its peers
before it has ended itself, and they may be gone first."""
_FRESH_SECONDS = _SETTLE_SECONDS + 1
"""That a machine is given to notice how its own processes have ended."""
_TELL_SECONDS = _FRESH_SECONDS + 2 * BEAT_SECONDS + 1
"""That the machine which serves the rendezvous, having failed, waits until the others know."""
_LOST_SECONDS = 60.0
"""After which a silent machine ends processes that haven't noticed: a collective on a GPU waits
for a lost peer without end."""


@dataclass(frozen=True)
class Plan:
    """What to run where.

    Attributes:
        world: the processes.
        host: name or IPv4 address of the machine of index 0, as the others reach it.
        port: of the rendezvous.
        address: IPv4 address of this machine.
        attempt: which start of the job this is: machines of another are turned away.
        grace: seconds from SIGTERM until whoever sent it kills.
        patience: seconds that machines wait for each other at the start.
    """

    world: World
    host: str
    port: int
    address: str
    attempt: str
    grace: int
    patience: int


class _Stop:
    """Whether this machine was asked to leave."""

    def __init__(self) -> None:
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.asked = True


def run(plan: Plan, program: Sequence[str]) -> int:
    """Run a program in this machine's processes, once all machines are there.

    Returns:
        0; the program's own 1, 2 or 71; 74 if other processes or machines were lost, or never
        came; 75 after a request to stop. See `falaj.workloads.errors`.

    Raises:
        WorkloadError: the address isn't this machine's, its port is taken, or the program can't
            be run.
    """
    interface = os.environ.get("HOROVOD_GLOO_IFACE") or interface_of(plan.address)
    stop = _Stop()
    contact = Contact(plan.world.index, plan.attempt)
    with contextlib.ExitStack() as stack:
        host = plan.host
        if plan.world.index == 0:
            machines = Machines(plan.world.nodes, plan.attempt)
            stack.enter_context(Rendezvous(plan.address, plan.port, machines))
            host = plan.address
        stack.callback(contact.close)
        address = _gather(plan, host, contact, stop)
        if address is None:
            return STOPPED if stop.asked else LOST
        shared = {"HOROVOD_GLOO_TIMEOUT_SECONDS": str(TIMEOUT_SECONDS), **os.environ}
        shared.update(meeting(address, plan.port, interface))
        processes = Processes()
        stack.callback(processes.kill)
        try:
            processes.start(
                program,
                [
                    {**shared, **plan.world.environment(local)}
                    for local in range(plan.world.processes)
                ],
            )
            return _watch(plan, processes, contact, stop)
        except WorkloadError:
            contact.end(FAULT)
            raise


def _gather(plan: Plan, host: str, contact: Contact, stop: _Stop) -> str | None:
    """Wait for all machines; return the address of the first, None if there is no use in it.

    Processes start together: Horovod gives up on a rendezvous that isn't there within a second.
    """
    until = time.monotonic() + plan.patience
    address, reason = "", "nothing answered"
    while not stop.asked and time.monotonic() < until:
        try:
            if not address:
                found = socket.getaddrinfo(host, plan.port, socket.AF_INET, socket.SOCK_STREAM)
                contact.reach(str(found[0][4][0]), plan.port)
                address = str(found[0][4][0])
        except OSError as error:
            reason = str(error)
        if contact.state.present == plan.world.nodes:
            return address
        if address and (contact.failures() or contact.silence(time.monotonic()) > _LOST_SECONDS):
            reason = "one of them has gone again"
            break
        time.sleep(4 * _POLL_SECONDS)
    if not stop.asked:
        came = contact.state.present
        missing = f"{came} of {plan.world.nodes} machines came" if came else reason
        _say(f"the machines did not meet at {host}:{plan.port} ({missing})")
    return None


def _watch(plan: Plan, processes: Processes, contact: Contact, stop: _Stop) -> int:
    """Wait for the processes' end, or bring it about; return this machine's status."""
    grace = max(1, plan.grace - MARGIN_SECONDS)
    status: int | None = None
    settled = float("inf")
    asked = deserted = False
    while processes.running:
        bad = [code for code in processes.ended() if code]
        if bad:
            settled = min(settled, time.monotonic() + _SETTLE_SECONDS)
        known = bad and (cause(bad) != FAULT or time.monotonic() >= settled)
        if status is None and known:
            status = cause(bad)
            contact.end(status)
            # Of a program that agreed to stop, one process may still write the checkpoint.
            processes.leave(grace if status == STOPPED else _PEER_SECONDS, _PEER_SECONDS)
        if stop.asked and not asked:
            asked = True
            status = status or STOPPED
            contact.end(status)
            processes.leave(0, grace)
        if not deserted and _deserted(plan, contact):
            deserted = True
            others = set(contact.failures().values())
            if not others:
                status = status or LOST
                contact.end(status)
            stopped = others == {STOPPED}
            processes.leave(grace if stopped else 2 * _PEER_SECONDS, _PEER_SECONDS)
        processes.enforce()
        time.sleep(_POLL_SECONDS)
    codes = [code for code in processes.ended() if code]
    if not codes:
        contact.end(0)
        _stay(plan, contact, stop)
        return 0
    if status is None:
        status = STOPPED if stop.asked else cause(codes)
        contact.end(status)
    status = _explained(plan, status, contact, stop)
    if plan.world.index == 0 and plan.world.nodes > 1:
        _sleep(_TELL_SECONDS, stop)
    return status


def cause(codes: Sequence[int]) -> int:
    """The status of a machine from those of the processes that failed first, as far as is known.

    A process that lost a peer ends with 1, so whatever else there is explains it: a signal from
    outside, most often for want of memory (SIGABRT and SIGTERM look like a program's own fault).
    """
    for code in (REFUSED, HARDWARE, STOPPED):
        if code in codes:
            return code
    signals = {-code for code in codes if code < 0} - {signal.SIGABRT, signal.SIGTERM}
    return FAULT if FAULT in codes and not signals else LOST


def _deserted(plan: Plan, contact: Contact) -> bool:
    """Whether another machine has failed or is silent, though processes here may not notice."""
    if plan.world.nodes == 1:
        return False
    return bool(contact.failures()) or contact.silence(time.monotonic()) > _LOST_SECONDS


def _explained(plan: Plan, status: int, contact: Contact, stop: _Stop) -> int:
    """The status, or 74 if the fault was another machine's; then that one is let go first."""
    if plan.world.nodes == 1 or status not in (FAULT, LOST):
        return status
    since = time.monotonic()
    while not stop.asked:
        others = contact.failures()
        if others and (status == LOST or set(others.values()) - PROGRAM):
            statuses = ", ".join(f"{index} with {code}" for index, code in sorted(others.items()))
            _say(f"other machines have ended: {statuses}")
            break
        if contact.silence(time.monotonic()) > _SILENT_SECONDS:
            _say("another machine of the job was lost")
            break
        if contact.silence(since + _FRESH_SECONDS) < 0:
            return status  # the others are well, or have failed as this one
        time.sleep(_POLL_SECONDS)
    _sleep(since + CAUSE_FIRST_SECONDS - time.monotonic(), stop)
    return LOST


def _sleep(seconds: float, stop: _Stop) -> None:
    until = time.monotonic() + seconds
    while not stop.asked and time.monotonic() < until:
        time.sleep(_POLL_SECONDS)


def _stay(plan: Plan, contact: Contact, stop: _Stop) -> None:
    """Serve the rendezvous until nobody needs it."""
    if plan.world.index:
        return
    while not stop.asked:
        others = contact.state.heard.keys() - {0}
        if not others or contact.silence(time.monotonic()) > _LOST_SECONDS:
            return
        time.sleep(4 * _POLL_SECONDS)


def _say(message: str) -> None:
    print(f"horovod launcher: {message}", file=sys.stderr, flush=True)
