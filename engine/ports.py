"""Ports of the loopback for servers that are started a moment later."""

from __future__ import annotations

import itertools
import os
import socket
from contextlib import ExitStack

from falaj.engine.errors import EngineError

_LOOPBACK = "127.0.0.1"
_FIRST, _LAST = 10_000, 32_000
"""Below the ports that systems give to connections by themselves (Linux: from 32,768)."""
_APART = 7_919
"""Between the places at which processes of neighbouring numbers begin to look."""
_places = itertools.count(os.getpid() * _APART)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at, each time others.

    Processes that look at the same time look at different places, and connections have ports of
    another range: what was free now still is when a server wants it some seconds later.

    Raises:
        EngineError: there are not so many.
    """
    ports: list[int] = []
    with ExitStack() as held:
        for place in itertools.islice(_places, _LAST - _FIRST):
            port = _FIRST + place % (_LAST - _FIRST)
            listener = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            try:
                listener.bind((_LOOPBACK, port))
            except OSError:
                listener.close()
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise EngineError(
        f"{count} free ports are needed at {_LOOPBACK}, and from {_FIRST} to {_LAST - 1} only "
        f"{len(ports)} are: end what listens there"
    )
