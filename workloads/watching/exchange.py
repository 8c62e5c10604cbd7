"""One request over TLS, bounded in bytes and in time whatever the other side does.

On the loopback interface it may go without TLS.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MOST_ADDRESSES: Final = 3
"""Of a host, that are tried."""


class ExchangeError(Exception):
    """There was no whole answer; the message says why."""


class NoAnswerError(Exception):
    """Who was asked didn't say it; the message says why and what to do."""


class UnreachedError(ExchangeError):
    """Nobody was there to be asked, so that nothing was said."""


class UndeliveredError(Exception):
    """A message that wasn't taken.

    Attributes:
        for_good: whether another try of the same can't help.
    """

    def __init__(self, message: str, *, for_good: bool) -> None:
        super().__init__(message)
        self.for_good = for_good


def judged_addresses(host: str, port: int, is_private: Callable[[str], bool]) -> list[str]:
    """What is connected to for a host, so that no other answer of DNS counts.

    Args:
        host: its name or address.
        port: likewise.
        is_private: whether a name or an address is of one's own networks.

    Raises:
        UndeliveredError: it has no address, or one that its name doesn't promise.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise UndeliveredError(f"its host has no address: {error}", for_good=False) from None
    addresses = list(dict.fromkeys(str(each[4][0]) for each in found))[:_MOST_ADDRESSES]
    for address in addresses:
        if not is_private(host) or is_private(address):
            continue
        # The name says that it is one's own network, and what it leads to isn't.
        raise UndeliveredError(
            f"nothing is sent to {host}: it is a name of one's own networks that stands for "
            f"{address}, which isn't of them",
            for_good=True,
        )
    return addresses


def tls_context(authority: Path | None, what: str) -> ssl.SSLContext:
    """Whom to trust, by TLS 1.2 or newer.

    Args:
        authority: PEM file; None: whom the machine trusts.
        what: it is, for people.

    Raises:
        UndeliveredError: the file can't be read.
    """
    try:
        context = ssl.create_default_context(cafile=str(authority) if authority else None)
    except (OSError, ssl.SSLError) as error:
        raise UndeliveredError(
            f"{what}: {authority} can't be read: {error}", for_good=False
        ) from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


@dataclass(frozen=True)
class Peer:
    """Whom to ask.

    Attributes:
        address: name or IP address to connect to.
        port: likewise.
        name: what its certificate has to be for.
        context: whom to trust, and which versions of TLS; None: without TLS, for loopback alone.
        seconds: the most that all of it may take.
        most_bytes: the most that its answer may have.
    """

    address: str
    port: int
    name: str
    context: ssl.SSLContext | None
    seconds: float
    most_bytes: int

    def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> tuple[int, bytes, str]:
        """Send a request; returns the status, the body and the header ``Location``.

        Raises:
            ExchangeError: it can't be reached (`UnreachedError`) or trusted, or takes too long, or
                says too much.
        """
        try:
            plain = socket.create_connection((self.address, self.port), self.seconds)
        except OSError as error:
            raise UnreachedError(f"it can't be reached: {error.strerror or error}") from None
        try:
            secured = plain
            if self.context is not None:
                secured = self.context.wrap_socket(
                    plain, server_hostname=self.name, do_handshake_on_connect=False
                )
        except (OSError, ValueError) as error:
            plain.close()
            raise ExchangeError(_reason(error)) from None
        # A timeout of a socket is for each packet: who sends a byte now and then would never end.
        late = threading.Event()
        timer = threading.Timer(self.seconds, cut_off, (secured, late))
        timer.daemon = True
        timer.start()
        connection = http.client.HTTPConnection(self.address, self.port)
        connection.sock = secured
        try:
            if isinstance(secured, ssl.SSLSocket):
                secured.do_handshake()
            connection.request(method, path, body, dict(headers))
            with connection.getresponse() as answer:
                data = answer.read(self.most_bytes + 1)
                # A body that is shorter than was promised is an end, and no error, with a limit.
                whole = answer.isclosed() or not answer.length
        except (OSError, http.client.HTTPException, ValueError) as error:
            if late.is_set():
                raise ExchangeError(f"no whole answer within {self.seconds:g} s") from None
            raise ExchangeError(_reason(error)) from None
        finally:
            timer.cancel()
            connection.close()
            secured.close()
        if late.is_set():
            raise ExchangeError(f"no whole answer within {self.seconds:g} s")
        if len(data) > self.most_bytes:
            raise ExchangeError(f"its answer has more than {self.most_bytes:,} bytes")
        if not whole:
            raise ExchangeError("its answer broke off")
        return answer.status, data, answer.headers.get("Location", "")


def ask_first(
    peers: Sequence[Peer], method: str, path: str, headers: Mapping[str, str], body: bytes | None
) -> tuple[int, bytes, str]:
    """Ask the first that is there: a host may have an address that nobody listens at.

    Raises:
        ExchangeError: as `Peer.ask` of the first that is there, or of the last one.
    """
    for peer in peers[:-1]:
        try:
            return peer.ask(method, path, headers, body)
        except UnreachedError:
            continue
    return peers[-1].ask(method, path, headers, body)


def cut_off(secured: socket.socket, late: threading.Event) -> None:
    """End a connection whose time is over, and note that it was."""
    late.set()
    with contextlib.suppress(OSError):
        # Of the socket itself: to end TLS in order would be to wait for the other side.
        socket.socket.shutdown(secured, socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate isn't trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed: {error.reason or error}"
    if isinstance(error, OSError):
        return f"the connection broke: {error.strerror or error or type(error).__name__}"
    return f"its answer isn't HTTP: {str(error)[:100] or type(error).__name__}"
