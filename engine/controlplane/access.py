"""Ask the API server whether it is ready, before any client library is loaded."""

from __future__ import annotations

import http.client
import socket
import ssl
from pathlib import Path

from falaj.engine.controlplane.certificates import Pair
from falaj.engine.controlplane.commands import LOOPBACK

_QUESTION_SECONDS = 5.0


def answers(port: int, path: str, authority: Path, pair: Pair) -> bool:
    """Whether `https://127.0.0.1:port/path` answers 200 to the client `pair`."""
    context = ssl.create_default_context(cafile=str(authority))
    context.load_cert_chain(pair.certificate, pair.key)
    return _is_ok(
        http.client.HTTPSConnection(LOOPBACK, port, timeout=_QUESTION_SECONDS, context=context),
        path,
    )


def answers_plainly(port: int, path: str) -> bool:
    """Whether `http://127.0.0.1:port/path` answers 200: controllers' probes know no TLS."""
    return _is_ok(http.client.HTTPConnection(LOOPBACK, port, timeout=_QUESTION_SECONDS), path)


def listens(port: int) -> bool:
    """Whether somebody takes connections at the loopback port."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=_QUESTION_SECONDS).close()
    except OSError:
        return False
    return True


def _is_ok(connection: http.client.HTTPConnection, path: str) -> bool:
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
