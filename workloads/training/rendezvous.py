"""How the machines of a run find each other: the variables that torchrun and Trainer set.

``torchrun`` reads ``PET_*`` variables in place of its options, and Kubeflow Trainer sets them in
its pods, so a run on several machines is started by the same command line as one on a single
machine, with these in its environment:

* ``PET_NNODES``: machines, as ``4`` or, for a run that may grow and shrink, ``2:8``;
* ``PET_RDZV_ENDPOINT`` (``host:port``), or ``PET_MASTER_ADDR`` and ``PET_MASTER_PORT``;
* ``PET_NODE_RANK``: 0 on the machine that hosts the rendezvous;
* ``PET_RDZV_ID``: a name of this attempt; ``PET_LOCAL_ADDR``: this machine's own address;
* ``PET_NPROC_PER_NODE``: processes on each machine, instead of ``--processes``;
* ``PET_MAX_RESTARTS``: how often processes are started again without leaving the machine;
* ``PET_RDZV_CONF``: timeouts, as ``key=seconds,…``.

Source: https://docs.pytorch.org/docs/stable/elastic/run.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from falaj.workloads.errors import WorkloadError

PORT = 29400
"""torchrun's default port of the rendezvous."""

TIMEOUTS: Mapping[str, int] = {
    "timeout": 600,
    "last_call_timeout": 5,
    "keep_alive_interval": 2,
    "keep_alive_max_attempt": 3,
}
"""Seconds. torchrun's own last call (30) and keep-alive (3 x 5) take 46 s to go on without a lost
machine, these take 12 s: measured with two machines and one killed. ``timeout`` is for the fewest
machines to come together: their images may have to be pulled."""

_NODES = re.compile(r"^(\d{1,5})(?::(\d{1,5}))?$")
_ENDPOINT = re.compile(r"^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_.-]+)(?::(\d{1,5}))?$")


@dataclass(frozen=True)
class Rendezvous:
    """Where and for how many machines.

    Attributes:
        least: the fewest machines that train.
        most: the most.
        processes: on each machine.
        endpoint: ``host:port`` of the store that the machine of rank 0 hosts.
        identity: names this attempt.
        hosts: whether this machine hosts the store; None leaves it to a look-up of names.
        address: of this machine, as the others reach it; None: by its host name.
        restarts: how often its processes are started again before the machine gives up.
        timeouts: seconds, as `TIMEOUTS`.
    """

    least: int
    most: int
    processes: int
    endpoint: str
    identity: str
    hosts: bool | None = None
    address: str | None = None
    restarts: int = 0
    timeouts: Mapping[str, int] = field(default_factory=lambda: TIMEOUTS)

    @property
    def elastic(self) -> bool:
        """Whether the run goes on with fewer or more machines."""
        return self.least != self.most


def from_environment(environ: Mapping[str, str], processes: int) -> Rendezvous | None:
    """Return what ``environ`` says, or None where the run has this machine alone.

    Args:
        environ: the process's environment.
        processes: on each machine, unless ``PET_NPROC_PER_NODE`` says otherwise.

    Raises:
        WorkloadError: a variable can't be understood, or one is missing.
    """
    nodes = environ.get("PET_NNODES", "").strip()
    if not nodes:
        return None
    found = _NODES.match(nodes)
    least, most = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 1 <= least <= most:
        raise WorkloadError(
            f"PET_NNODES is {nodes!r}: allowed is a number of machines as 4, or the fewest and "
            "the most as 2:8"
        )
    rank = _whole(environ, "PET_NODE_RANK", 0)
    if most == 1:
        return None
    return Rendezvous(
        least,
        most,
        _processes(environ, processes),
        _endpoint(environ),
        environ.get("PET_RDZV_ID", "").strip() or "training",
        None if rank is None else rank == 0,
        environ.get("PET_LOCAL_ADDR", "").strip() or None,
        _whole(environ, "PET_MAX_RESTARTS", 0) or 0,
        _timeouts(environ.get("PET_RDZV_CONF", "")),
    )


def _processes(environ: Mapping[str, str], processes: int) -> int:
    if environ.get("PET_NPROC_PER_NODE", "").strip() in ("", "auto", "gpu", "cpu"):
        return processes
    return _whole(environ, "PET_NPROC_PER_NODE", 1) or processes


def _endpoint(environ: Mapping[str, str]) -> str:
    given = environ.get("PET_RDZV_ENDPOINT", "").strip()
    if not given and (host := environ.get("PET_MASTER_ADDR", "").strip()):
        given = f"{host}:{environ.get('PET_MASTER_PORT', '').strip() or PORT}"
    if not given:
        raise WorkloadError(
            "PET_NNODES asks for several machines, but neither PET_RDZV_ENDPOINT nor "
            "PET_MASTER_ADDR says where they meet; set PET_RDZV_ENDPOINT to host:port of the "
            "machine with PET_NODE_RANK 0"
        )
    found = _ENDPOINT.match(given)
    port = int(found[2] or PORT) if found else 0
    if not found or not 1 <= port <= 65535:
        raise WorkloadError(
            f"the rendezvous endpoint is {given!r}: allowed is host:port, with a port from 1 to "
            "65535 (PET_RDZV_ENDPOINT, or PET_MASTER_ADDR and PET_MASTER_PORT)"
        )
    return f"{found[1]}:{port}"


def _timeouts(text: str) -> Mapping[str, int]:
    values = dict(TIMEOUTS)
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, seconds = part.partition("=")
        if name.strip() not in TIMEOUTS or not seconds.strip().isdecimal():
            raise WorkloadError(
                f"PET_RDZV_CONF holds {part!r}: allowed are {', '.join(TIMEOUTS)}, each with "
                "whole seconds, as last_call_timeout=5,keep_alive_interval=2"
            )
        values[name.strip()] = int(seconds)
    return values


def _whole(environ: Mapping[str, str], name: str, least: int) -> int | None:
    text = environ.get(name, "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise WorkloadError(f"{name} is {text!r}: allowed is a whole number from {least}")
    return int(text)
