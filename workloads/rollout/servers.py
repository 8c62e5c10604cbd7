"""The servers of a service, all behind one name of DNS, and how who observes them reaches each."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from falaj.workloads.errors import WorkloadError


def address_of(given: str) -> tuple[str, int]:
    """The host and the port that ``--servers`` names.

    Raises:
        WorkloadError: it is no HOST:PORT.
    """
    host, colon, port = given.rpartition(":")
    if not (colon and host and port.isdecimal() and 0 < int(port) < 1 << 16):
        raise WorkloadError(f"--servers: given {given!r}; allowed: HOST:PORT")
    return host, int(port)


def addresses_of(host: str, port: int) -> list[str]:
    """The addresses behind a name, each once.

    Raises:
        OSError, UnicodeError: it has none.
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return sorted({str(each[4][0]) for each in found})


def observing(authority: Path, certificate: Path, private_key: Path) -> ssl.SSLContext:
    """What connections are made with: TLS 1.3, by the certificate that may observe.

    Raises:
        OSError, ssl.SSLError: a file can't be used.
    """
    context = ssl.create_default_context(cafile=authority)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, private_key)
    return context
