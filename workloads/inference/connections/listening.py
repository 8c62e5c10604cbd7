"""Accepting connections: the TLS context, handshakes, and what those are told that fail.

An event loop ends a failed handshake without a word: OpenSSL's alert is made and never sent, and
who speaks plain HTTP to the port gets nothing at all. So connections are accepted here, and a
second descriptor of each is kept until its handshake is done, for these last words.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
import sys
from collections.abc import Callable
from typing import Any

from falaj.workloads.inference.errors import InferenceError
from falaj.workloads.inference.settings import TlsSettings

_AT_ONCE = 16
"""Connections that one wake-up takes; other workers take from the same socket."""
_PAUSE_SECONDS = 0.2
"""Time without accepting when the process has no file descriptors left."""
LINGER_SECONDS = 1.0
"""Time in which the bytes of a client that was refused, or answered for the last time, are still
read: a reset would destroy what it is told."""
_PLAIN = b"This port speaks TLS 1.3: use https://\n"
_PLAIN_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(_PLAIN), _PLAIN)
)
_NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class HandshakeError(ssl.SSLError):
    """A handshake that failed; ``farewell`` is what the other side is told, as bytes."""

    farewell = b""


class _Handshakes(ssl.SSLObject):
    """Tells of failed handshakes, and keeps what they have to say.

    (`SSLContext.sslobject_class` is the standard library's own place for a class like this.)
    """

    outgoing: ssl.MemoryBIO | None = None

    def do_handshake(self) -> None:
        """Go on with the handshake."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            failed = getattr(self.context, "failed", None)
            if failed is not None:
                failed(_REASONS.get(error.reason or "", error.reason or "unknown reason"))
            # With the alert of RFC 8446, 6.2, that OpenSSL has made.
            failure = HandshakeError(*error.args)
            is_plain = error.reason in {"HTTP_REQUEST", "HTTPS_PROXY_REQUEST"}
            if is_plain:
                failure.farewell = _PLAIN_ANSWER
            elif self.outgoing is not None:
                failure.farewell = self.outgoing.read()
            raise failure from error


class ServerContext(ssl.SSLContext):
    """A server's context; ``failed`` is called with the reason of each failed handshake."""

    failed: Callable[[str], None] | None = None
    sslobject_class = _Handshakes

    def wrap_bio(
        self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *arguments: Any, **named: Any
    ) -> ssl.SSLObject:
        """Make one side of a connection that knows where its bytes go."""
        made = super().wrap_bio(incoming, outgoing, *arguments, **named)
        if isinstance(made, _Handshakes):
            made.outgoing = outgoing
        return made


_REASONS = {
    "HTTPS_PROXY_REQUEST": "plain HTTP of a proxy on the TLS port",
    "HTTP_REQUEST": "plain HTTP on the TLS port (use https://)",
    "UNSUPPORTED_PROTOCOL": "an older TLS than 1.3",
    "CERTIFICATE_VERIFY_FAILED": "a client certificate that the authority didn't sign",
    "WRONG_VERSION_NUMBER": "something else than TLS",
}


def server_context(settings: TlsSettings) -> ServerContext:
    """Return the context for the listening socket.

    A client certificate is asked for when an authority is set, and not demanded: a caller
    without one shows a token. One that the authority didn't sign ends the handshake.

    Raises:
        InferenceError: a file is missing or broken, or the key doesn't fit the certificate.
    """
    for path in (settings.certificate, settings.private_key, settings.client_ca):
        if path is not None and not path.is_file():
            raise InferenceError(f"the TLS file {path} doesn't exist; run `up` to make it anew")
    context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(settings.certificate, settings.private_key)
    except (ssl.SSLError, OSError) as error:
        raise InferenceError(
            f"can't use the certificate {settings.certificate} with the key "
            f"{settings.private_key}: {error}"
        ) from error
    if settings.client_ca is not None:
        try:
            context.load_verify_locations(settings.client_ca)
        except (ssl.SSLError, OSError) as error:
            raise InferenceError(
                f"can't use the client authority {settings.client_ca}: {error}"
            ) from error
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


class Listener:
    """Takes connections from a listening socket, which others may share, through their handshake.

    Args:
        listener: the socket, which isn't blocking.
        context: of TLS.
        make: makes the protocol of a connection.
        handshake_seconds: time for a handshake.
    """

    def __init__(
        self,
        listener: socket.socket,
        context: ServerContext,
        make: Callable[[], asyncio.Protocol],
        *,
        handshake_seconds: float,
    ) -> None:
        self._socket = listener
        self._context = context
        self._make = make
        self._seconds = handshake_seconds
        self._loop = asyncio.get_running_loop()
        self._arriving: set[asyncio.Task[None]] = set()
        self._open = True
        self._listen()

    def close(self) -> None:
        """Accept no more; those that were accepted go on."""
        self._open = False
        self._loop.remove_reader(self._socket)

    def _listen(self) -> None:
        if self._open:
            self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _ = self._socket.accept()
                connection.setblocking(False)
                spare = connection.dup()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                print(f"can't accept: {error}", file=sys.stderr, flush=True)
                if error.errno in _NO_DESCRIPTORS:
                    self._loop.remove_reader(self._socket)
                    self._loop.call_later(_PAUSE_SECONDS, self._listen)
                return
            task = self._loop.create_task(self._arrive(connection, spare))
            self._arriving.add(task)
            task.add_done_callback(self._arriving.discard)

    async def _arrive(self, connection: socket.socket, spare: socket.socket) -> None:
        with spare:
            try:
                await self._loop.connect_accepted_socket(
                    self._make, connection, ssl=self._context,
                    ssl_handshake_timeout=self._seconds,
                )  # fmt: skip
            except HandshakeError as error:
                await self._part(spare, error.farewell)
            except OSError:  # gone, or too slow
                return

    async def _part(self, spare: socket.socket, farewell: bytes) -> None:
        with contextlib.suppress(OSError):
            spare.setblocking(False)
            spare.send(farewell)
            spare.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(LINGER_SECONDS):
                while await self._loop.sock_recv(spare, 65536):
                    pass
