"""A connection of HTTP/2 on which frames are sent as they are, by RFC 9113 and RFC 7541."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct

from tests.workloads.inference.serving import Server

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = (
    0, 1, 3, 4, 6, 7, 8, 9,
)  # fmt: skip
END_STREAM, END_HEADERS, ACK = 1, 4, 1
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int = 0, stream: int = 0, payload: bytes = b"") -> bytes:
    """One frame."""
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def fields(**given: str) -> bytes:
    """A block of headers, each a literal that isn't indexed (RFC 7541, 6.2.2)."""
    found = b""
    for name, value in given.items():
        key = name.replace("__", ":").replace("_", "-").encode()
        data = value.encode()
        found += b"\0" + _integer(len(key)) + key + _integer(len(data)) + data
    return found


def _integer(value: int) -> bytes:
    if value < 127:
        return bytes([value])
    value -= 127
    found = b"\x7f"
    while value >= 128:
        found += bytes([value % 128 + 128])
        value //= 128
    return found + bytes([value])


class Frames:
    """A client that says what it likes."""

    def __init__(
        self, server: Server, token: str | None = None, *, source: str = "", **tls: object
    ) -> None:
        context = server.site.pki.client_context()
        context.set_alpn_protocols(["h2"])
        for name, value in tls.items():
            setattr(context, name, value)
        plain = socket.create_connection(
            ("localhost", server.port), timeout=30, source_address=(source, 0) if source else None
        )
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self.token = token
        self.send(PREFACE + frame(SETTINGS))

    def headers(self, path: str = "/inference.GRPCInferenceService/ModelInfer") -> bytes:
        """A block of headers for a call."""
        more = {"authorization": f"Bearer {self.token}"} if self.token else {}
        return fields(
            __method="POST", __scheme="https", __path=path, __authority="localhost",
            content_type="application/grpc", te="trailers", **more,
        )  # fmt: skip

    def send(self, data: bytes) -> None:
        """Send bytes."""
        self.socket.sendall(data)

    def read(self, seconds: float = 10) -> list[tuple[int, int, int, bytes]]:
        """All frames that come until the connection ends, or nothing comes for so long."""
        self.socket.settimeout(seconds)
        data = b""
        with contextlib.suppress(TimeoutError, ssl.SSLError, ConnectionError):
            while piece := self.socket.recv(65536):
                data += piece
        found: list[tuple[int, int, int, bytes]] = []
        while len(data) >= 9:
            size = int.from_bytes(data[:3], "big")
            stream = int.from_bytes(data[5:9], "big")
            found.append((data[3], data[4], stream, data[9 : 9 + size]))
            data = data[9 + size :]
        return found

    def is_closed(self, seconds: float = 20) -> bool:
        """Whether the server ends the connection within a time."""
        self.socket.settimeout(seconds)
        try:
            while self.socket.recv(65536):
                pass
        except TimeoutError:
            return False
        except (ssl.SSLError, ConnectionError):
            return True
        return True

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()
