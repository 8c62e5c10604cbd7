"""Whether a port is free, and who holds it."""

from __future__ import annotations

import contextlib
import errno
import socket
import time

import psutil

from falaj.components.local.machine.errors import LocalError


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there.

    Raises:
        LocalError: the address is not one of this machine, or the port needs more rights.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As servers do: connections of an earlier server that linger don't count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise LocalError(
                f"nothing can listen on {host}:{port}: {error.strerror}; choose an address of "
                "this machine and a port from 1024 to 65535"
            ) from None
    return True


def holder(port: int) -> str:
    """Who listens on a port, in words; only processes of this user can be named."""
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            listens = connection.status == psutil.CONN_LISTEN
            if listens and connection.laddr and connection.laddr.port == port and connection.pid:
                with contextlib.suppress(psutil.Error):
                    return f"{psutil.Process(connection.pid).name()} (process {connection.pid})"
    return "another program"


def require_free(host: str, port: int) -> None:
    """Refuse a port that is held.

    Raises:
        LocalError: it is held; the message says by whom as far as that can be seen.
    """
    if not is_free(host, port):
        raise LocalError(
            f"port {port} on {host} is in use by {holder(port)}; end it, or choose another port: "
            "pulumi config set --path falaj:service.port PORT"
        )


def wait_until_free(host: str, port: int, limit_s: float) -> None:
    """Wait until a port is free.

    Raises:
        LocalError: it is still held after `limit_s` seconds.
    """
    deadline = time.monotonic() + limit_s
    while not is_free(host, port):
        if time.monotonic() > deadline:
            raise LocalError(f"port {port} on {host} is still held by {holder(port)}")
        time.sleep(0.1)
