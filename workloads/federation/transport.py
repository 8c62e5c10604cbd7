"""Mutual TLS 1.3 between those who learn together: contexts, callers, requests.

Each side shows a certificate of one authority, and who calls shows a token of its own as well, of
which the other side knows the digest alone.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from falaj.workloads.documents import is_dictionary
from falaj.workloads.errors import WorkloadError
from falaj.workloads.files import read_bytes, read_json

MEDIA_TYPE = "application/vnd.falaj.tensors"
_DIGEST = re.compile(r"^[0-9a-f]{64}$")
_PLACE = re.compile(r"^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):(\d{1,5})$")
_REQUEST_SECONDS = 120.0
_MOST_ANSWER_BYTES = 1 << 33
_LEAST_TOKEN = 32


@dataclass(frozen=True)
class Link:
    """How a caller reaches the other side.

    Attributes:
        host: name that the other side's certificate has.
        port: where it listens.
        context: TLS 1.3 with the caller's certificate and the authority.
        token: the caller's secret.
        patience_seconds: how long the other side may be out of reach.
    """

    host: str
    port: int
    context: ssl.SSLContext
    token: str
    patience_seconds: float = 600.0

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """One request; the status and the body of the answer.

        Raises:
            OSError, http.client.HTTPException: the other side can't be reached.
        """
        connection = self.connection()
        try:
            return self.over(connection, method, path, body)
        finally:
            connection.close()

    def connection(self) -> http.client.HTTPSConnection:
        """A connection that isn't open yet."""
        return http.client.HTTPSConnection(
            self.host, self.port, timeout=_REQUEST_SECONDS, context=self.context
        )

    def over(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
    ) -> tuple[int, bytes]:
        """As `ask`, over a connection that is left open."""
        headers = {"Authorization": f"Bearer {self.token}"}
        if body is not None:
            headers["Content-Type"] = MEDIA_TYPE
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        data = answer.read(_MOST_ANSWER_BYTES)
        return answer.status, data


class Line:
    """A `Link` whose connection is kept between requests, and opened anew once it broke.

    Args:
        link: how the other side is reached.
    """

    def __init__(self, link: Link) -> None:
        self.link = link
        self._connection: http.client.HTTPSConnection | None = None

    def ask(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """As `Link.ask`; after an error the next request opens a connection."""
        connection = self._connection or self.link.connection()
        self._connection = None
        try:
            found = self.link.over(connection, method, path, body)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return found

    def close(self) -> None:
        """Close the connection, if one is open."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def client_context(authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3, nothing older; both sides prove who they are.

    Raises:
        WorkloadError: a file is missing or broken.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _loaded(context, authority, certificate, key)


def server_context(authority: Path, certificate: Path, key: Path) -> ssl.SSLContext:
    """TLS 1.3, nothing older, and no caller without a certificate of the authority.

    Raises:
        WorkloadError: a file is missing or broken.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    return _loaded(context, authority, certificate, key)


def _loaded(
    context: ssl.SSLContext, authority: Path, certificate: Path, key: Path
) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    try:
        context.load_verify_locations(authority)
        context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise WorkloadError(
            f"can't use {authority}, {certificate} and {key} for TLS: {error}"
        ) from error
    return context


class HttpsServer(ThreadingHTTPServer):
    """Serves each connection in a thread of its own, which does the handshake first.

    So a caller that says nothing doesn't keep the others waiting.

    Args:
        place: address and port to listen on.
        context: see `server_context`.
        handler: of connections; does the handshake before it reads.
    """

    daemon_threads = True

    def __init__(
        self,
        place: tuple[str, int],
        context: ssl.SSLContext,
        handler: type[BaseHTTPRequestHandler],
    ) -> None:
        super().__init__(place, handler)
        self.socket = context.wrap_socket(
            self.socket, server_side=True, do_handshake_on_connect=False
        )


def caller(connection: Any, headers: Message, tokens: Mapping[str, str]) -> str | None:
    """Who calls: certificate and token must be of the same name. None: nobody that is known.

    Args:
        connection: of TLS, after its handshake.
        headers: of the request.
        tokens: SHA-256 (hex) of each caller's token, by the common name of its certificate.
    """
    subject = dict(pair for part in connection.getpeercert().get("subject", ()) for pair in part)
    name = str(subject.get("commonName", ""))
    scheme, _, token = headers.get("Authorization", "").partition(" ")
    shown = hashlib.sha256(token.strip().encode()).hexdigest()
    known = tokens.get(name)
    if known is None or scheme != "Bearer" or not hmac.compare_digest(known, shown):
        return None
    return name


def read_tokens(path: Path, one: str) -> dict[str, str]:
    """The list of callers: SHA-256 of each one's token, by the name that its certificate has.

    Args:
        path: a JSON object.
        one: what a caller is called, as ``site``.

    Raises:
        WorkloadError: it is missing, empty, or holds something else.
    """
    value = read_json(path, f"the list of {one}s")
    if not is_dictionary(value) or not value:
        raise WorkloadError(f"{path} names no {one}: a JSON object of token digests is needed")
    for name, shown in value.items():
        if not name or not isinstance(shown, str) or not _DIGEST.match(shown):
            raise WorkloadError(
                f"{path}: the token of {name!r} must be its SHA-256 in lower-case hexadecimal"
            )
    return dict(value)


def read_token(path: Path, one: str) -> str:
    """A caller's own token.

    Raises:
        WorkloadError: it is missing, or too short to be a secret.
    """
    token = read_bytes(path, f"the {one}'s token").decode("ascii", "replace").strip()
    if len(token) < _LEAST_TOKEN:
        raise WorkloadError(
            f"the token in {path} has {len(token)} characters: at least {_LEAST_TOKEN} random "
            "ones are needed (python -c 'import secrets; print(secrets.token_urlsafe(32))')"
        )
    return token


def place(option: str, text: str) -> tuple[str, int]:
    """Host and port of ``host:port``.

    Raises:
        WorkloadError: it is something else.
    """
    found = _PLACE.match(text)
    if not found or not 0 <= int(found[2]) <= 65535:
        raise WorkloadError(f"{option} is {text!r}: allowed is host:port")
    return found[1].strip("[]"), int(found[2])
