"""The server's HTTPS: TLS 1.3, a certificate and a token of each worker, limits for all of them.

A caller who can't show both is refused before a byte of a body is read. A worker has one request
at a time, so many a second, and a few connections; strangers have seconds to prove who they are.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from falaj.workloads.federation.transport import MEDIA_TYPE, HttpsServer, caller
from falaj.workloads.parameter_server import frames
from falaj.workloads.parameter_server.assignment import Assignment
from falaj.workloads.parameter_server.weights import (
    EARLIER,
    STALE,
    TOO_OFTEN,
    Allowance,
    TrainingEnded,
    UpdateRefused,
    Weights,
)

ASSIGNMENT: Final = "/v1/assignment"
WEIGHTS: Final = "/v1/weights"
UPDATE: Final = "/v1/update"
_NEWER: Final = re.compile(r"^/v1/weights\?version=(\d{1,15})&life=([0-9a-f]{32})$")
_IDLE_SECONDS: Final = 300
_PROVE_SECONDS: Final = 10
_REQUEST_SECONDS: Final = 600
_CONNECTIONS: Final = 4
_STRANGERS: Final = 32


class Listener(HttpsServer):
    """Serves a model to its workers, and takes their updates.

    Args:
        place: address and port to listen on.
        context: see `transport.server_context`.
        assignment: what the workers do.
        weights: the model.
        tokens: SHA-256 (hex) of each worker's token, by the common name of its certificate.
        requests_per_second: that a worker may send.
    """

    request_queue_size = 64

    def __init__(
        self,
        place: tuple[str, int],
        context: ssl.SSLContext,
        assignment: Assignment,
        weights: Weights,
        *,
        tokens: Mapping[str, str],
        requests_per_second: int,
    ) -> None:
        super().__init__(place, context, _Handler)
        self.weights, self.tokens = weights, tokens
        self.assignments = {
            name: assignment.of_part(part).to_bytes() for part, name in enumerate(sorted(tokens))
        }
        self.allowances = {name: Allowance(requests_per_second) for name in tokens}
        self.strangers: Counter[str] = Counter()
        self._guard = threading.Lock()
        self._until: dict[socket.socket, float] = {}
        self._owner: dict[socket.socket, str] = {}

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take no more connections than workers can have, and a few of strangers."""
        del client_address
        with self._guard:
            if len(self._until) >= _CONNECTIONS * len(self.tokens) + _STRANGERS:
                self.strangers["too many connections"] += 1
                return False
            self._until[request] = time.monotonic() + _PROVE_SECONDS
        return True

    def allow(self, connection: socket.socket, seconds: float | None) -> None:
        """Let a connection live so long from now on; None: until it is idle."""
        with self._guard:
            if connection in self._until:
                bound = _IDLE_SECONDS if seconds is None else seconds
                self._until[connection] = time.monotonic() + bound

    def own(self, connection: socket.socket, worker: str) -> bool:
        """Note whose a connection is; whether it may have one more."""
        with self._guard:
            self._owner[connection] = worker
            return sum(each == worker for each in self._owner.values()) <= _CONNECTIONS

    def service_actions(self) -> None:
        """Close connections whose time is over, however busy they keep it."""
        with self._guard:
            over = [each for each, until in self._until.items() if time.monotonic() > until]
        for each in over:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that is closed."""
        with self._guard:
            self._until.pop(request, None)
            self._owner.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that breaks off or can't do TLS: it is counted."""
        del request, client_address
        with self._guard:
            self.strangers["no TLS that is taken, or broken off"] += 1


class _Handler(BaseHTTPRequestHandler):
    """One connection, with any number of requests one after another."""

    server: Listener  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _IDLE_SECONDS
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "falaj", ""
    disable_nagle_algorithm = True
    wbufsize = -1  # a head and its body leave together

    def setup(self) -> None:
        """Do the handshake before a word of HTTP is read."""
        self.request.settimeout(_PROVE_SECONDS)
        self.request.do_handshake()
        super().setup()

    def do_GET(self) -> None:
        """A worker's assignment, or the newest weights."""
        worker = self._begun()
        if worker is None:
            return
        try:
            newer = _NEWER.match(self.path)
            if self.path == ASSIGNMENT:
                self._answer(HTTPStatus.OK, self.server.assignments[worker], "application/json")
            elif self.path == WEIGHTS or newer:
                version, life = (int(newer[1]), newer[2]) if newer else (0, "")
                data = self.server.weights.message(worker, version, life)
                if data is None:
                    self._answer(HTTPStatus.NOT_MODIFIED, b"")
                else:
                    self._answer(HTTPStatus.OK, data, MEDIA_TYPE)
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"no such thing")
        except TrainingEnded as ended:
            self._answer(HTTPStatus.GONE, str(ended).encode())
        finally:
            self._ended(worker)

    def do_POST(self) -> None:
        """A worker's update."""
        worker = self._begun()
        if worker is None:
            return
        try:
            self._take(worker)
        except UpdateRefused as refused:
            again = refused.reason in {STALE, EARLIER}
            status = HTTPStatus.CONFLICT if again else HTTPStatus.UNPROCESSABLE_ENTITY
            self._answer(status, f"{refused.reason}: {refused}".encode())
        except TrainingEnded as ended:
            self._answer(HTTPStatus.GONE, str(ended).encode())
        finally:
            self._ended(worker)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr: `Ledger` has what is worth knowing."""

    def _take(self, worker: str) -> None:
        weights = self.server.weights
        most = frames.largest(weights.layout, weights.updates)
        length = self.headers.get("Content-Length", "")
        if self.path != UPDATE:
            self._refuse(HTTPStatus.NOT_FOUND, "no such thing")
        elif self.headers.get("Content-Type") != MEDIA_TYPE:
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, MEDIA_TYPE)
        elif not length.isdecimal() or len(length) > 15 or int(length) > most:
            text = f"an update has at most {most} bytes and says how many"
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
        else:
            body = self.rfile.read(int(length))
            if len(body) != int(length):
                self.close_connection = True
                return
            version = weights.take(worker, body)
            self._answer(
                HTTPStatus.OK, json.dumps({"version": version}).encode(), "application/json"
            )

    def _begun(self) -> str | None:
        """Who calls, whose request begins. None: it was answered already."""
        worker = caller(self.connection, self.headers, self.server.tokens)
        if worker is None:
            with self.server.weights.changed:
                self.server.strangers["not on the list, or with another's token"] += 1
            self._refuse(HTTPStatus.UNAUTHORIZED, "no worker with this certificate and token")
            return None
        allowance = self.server.allowances[worker]
        if not self.server.own(self.connection, worker) or not allowance.begin():
            self.server.weights.refused(worker, TOO_OFTEN, "")
            self._refuse(HTTPStatus.TOO_MANY_REQUESTS, "more than one worker may ask: wait")
            return None
        self.server.allow(self.connection, _REQUEST_SECONDS)
        return worker

    def _ended(self, worker: str) -> None:
        self.server.allowances[worker].end()
        self.server.allow(self.connection, None)

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """Answer, read nothing more of this connection, and close it."""
        self.close_connection = True
        self._answer(status, text.encode())

    def _answer(
        self, status: HTTPStatus, body: bytes, kind: str = "text/plain; charset=utf-8"
    ) -> None:
        self.send_response(status)
        if status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()
