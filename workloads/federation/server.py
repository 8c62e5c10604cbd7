"""The coordinator's HTTPS: TLS 1.3, a certificate and a token of each site, a line per request."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import ssl
import threading
import time
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from falaj.workloads.errors import WorkloadError
from falaj.workloads.federation import updates
from falaj.workloads.federation.plan import Task
from falaj.workloads.federation.rounds import LateError, Rounds

TRAFFIC = "traffic.jsonl"
_MODEL = re.compile(r"^/v1/rounds/(\d{1,6})/model$")
_UPDATE = re.compile(r"^/v1/rounds/(\d{1,6})/update$")
_IDLE_SECONDS = 60


def server_context(authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3, nothing older, and no caller without a certificate of the authority.

    Raises:
        WorkloadError: a file is missing or broken.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    try:
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise WorkloadError(
            f"can't use {authority}, {certificate} and {key} for TLS: {error}"
        ) from error
    return context


class Server(ThreadingHTTPServer):
    """Serves a federation's rounds to its sites.

    Args:
        place: address and port to listen on.
        context: see `server_context`.
        task: what the sites learn.
        rounds: the state.
        tokens: SHA-256 (hex) of each site's token, by the common name of its certificate.
        traffic: file that gets a line for each request: who, what, how many bytes, which status.
    """

    daemon_threads = True

    def __init__(
        self,
        place: tuple[str, int],
        context: ssl.SSLContext,
        task: Task,
        rounds: Rounds,
        *,
        tokens: Mapping[str, str],
        traffic: Path,
    ) -> None:
        super().__init__(place, _Handler)
        self.rounds, self.tokens = rounds, tokens
        self.task = task.to_bytes()
        self._traffic, self._writing = traffic, threading.Lock()
        # The handshake is the handler's, in its own thread: a caller that says nothing must not
        # keep the others waiting.
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )

    def note(self, **line: Any) -> None:
        """Write a line about a request."""
        text = json.dumps({"time": round(time.time(), 3), **line})
        with self._writing, self._traffic.open("a", encoding="utf-8") as stream:
            stream.write(text + "\n")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A caller that breaks off or can't do TLS: one line, no trace."""
        self.note(site=None, address=str(client_address[0]), status=0, received=0, sent=0)


class _Handler(BaseHTTPRequestHandler):
    """One connection; it is closed after one request."""

    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _IDLE_SECONDS
    server_version, sys_version = "falaj", ""

    def do_GET(self) -> None:
        """The task, the number of the round, or its model."""
        if (site := self._site()) is None:
            return
        number = self.server.rounds.open()
        if self.path == "/v1/task":
            self._answer(site, HTTPStatus.OK, self.server.task, "application/json")
        elif number is None:
            self._answer(site, HTTPStatus.GONE, b"all rounds are done")
        elif self.path == "/v1/round":
            state = {"round": number, "answered": self.server.rounds.answered(site)}
            self._answer(site, HTTPStatus.OK, json.dumps(state).encode(), "application/json")
        elif found := _MODEL.match(self.path):
            try:
                body = self.server.rounds.message(int(found[1]))
            except LateError as error:
                self._answer(site, HTTPStatus.CONFLICT, str(error).encode())
            else:
                self._answer(site, HTTPStatus.OK, body, updates.MEDIA_TYPE)
        else:
            self._answer(site, HTTPStatus.NOT_FOUND, b"no such thing")

    def do_POST(self) -> None:
        """A site's update."""
        if (site := self._site()) is None:
            return
        found = _UPDATE.match(self.path)
        length = self.headers.get("Content-Length", "")
        most = updates.largest(self.server.rounds.model)
        if not found:
            self._answer(site, HTTPStatus.NOT_FOUND, b"no such thing")
        elif self.headers.get("Content-Type") != updates.MEDIA_TYPE:
            self._answer(site, HTTPStatus.UNSUPPORTED_MEDIA_TYPE, updates.MEDIA_TYPE.encode())
        elif not length.isdecimal() or int(length) > most:
            text = f"an update has at most {most} bytes and says how many"
            self._answer(site, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text.encode())
        else:
            body = self.rfile.read(int(length))
            try:
                self.server.rounds.answer(int(found[1]), site, body)
            except LateError as error:
                self._answer(site, HTTPStatus.CONFLICT, str(error).encode(), received=len(body))
            except updates.MessageError as error:
                self._answer(site, HTTPStatus.BAD_REQUEST, str(error).encode(), received=len(body))
            else:
                self._answer(site, HTTPStatus.OK, b"taken", received=len(body))

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing on stderr: `Server.note` has it."""

    def _site(self) -> str | None:
        """Who calls: certificate and token must be of the same site. None: refused."""
        certificate: Any = self.connection.getpeercert()  # pyright: ignore[reportAttributeAccessIssue]
        subject = dict(pair for part in certificate.get("subject", ()) for pair in part)
        site = str(subject.get("commonName", ""))
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        shown = hashlib.sha256(token.strip().encode()).hexdigest()
        known = self.server.tokens.get(site)
        if known is None or scheme != "Bearer" or not hmac.compare_digest(known, shown):
            self._answer(site, HTTPStatus.UNAUTHORIZED, b"no site with this certificate and token")
            return None
        return site

    def _answer(
        self,
        site: str,
        status: HTTPStatus,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        *,
        received: int = 0,
    ) -> None:
        self.server.note(
            site=site, method=self.command, path=self.path[:100], status=int(status), kind=kind,
            received_kind=self.headers.get("Content-Type"), received=received, sent=len(body),
        )  # fmt: skip
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
