"""The listening socket: bound by the master, inherited by every worker.

All workers accept from the one socket, so a connection that waits in its queue is never lost
when a worker goes (it would be with one SO_REUSEPORT socket per worker).
"""

from __future__ import annotations

import errno
import socket
import time

from falaj.workloads.inference.errors import InferenceError

BACKLOG = 1024
RETRY_SECONDS = 5.0
"""How long the workers of a killed master may keep the port."""


def listen(host: str, port: int, *, patient: bool = False) -> socket.socket:
    """Bind and listen; port 0 takes any free one.

    Args:
        host: name or address; the first that it resolves to is used.
        port: TCP port.
        patient: try for RETRY_SECONDS when the port is taken.

    Raises:
        InferenceError: the address is unknown, or another program holds the port.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise InferenceError(f"the host '{host}' is unknown: {error.strerror}") from error
    deadline = time.monotonic() + (RETRY_SECONDS if patient else 0)
    while True:
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE and time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise _explained(host, port, error) from error
        listener.setblocking(False)
        return listener


def _explained(host: str, port: int, error: OSError) -> InferenceError:
    if error.errno == errno.EADDRINUSE:
        return InferenceError(
            f"port {port} on {host} is in use by another program; stop it, or choose another port"
        )
    if error.errno == errno.EACCES:
        return InferenceError(f"port {port} needs rights that this user lacks; use one over 1023")
    return InferenceError(f"can't listen on {host} port {port}: {error.strerror}")
