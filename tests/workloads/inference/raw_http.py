"""HTTP as bytes on a TLS connection, as strange clients send it."""

from __future__ import annotations

import json
import socket

from tests.workloads.inference.serving import Server, row

INFER = b"/v2/models/mlp/infer"


class Raw:
    """A TLS connection on which bytes are sent as they are."""

    def __init__(self, server: Server) -> None:
        context = server.site.pki.client_context()
        plain = socket.create_connection(("127.0.0.1", server.port), timeout=20)
        self.socket = context.wrap_socket(plain, server_hostname="localhost")
        self._rest = b""

    def send(self, *parts: bytes) -> None:
        for part in parts:
            self.socket.sendall(part)

    def answer(self) -> tuple[int, dict[bytes, bytes], bytes]:
        """Read one answer: status, headers, body."""
        while b"\r\n\r\n" not in self._rest:
            self._more()
        head, _, self._rest = self._rest.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        headers = dict(line.split(b": ", 1) for line in lines[1:])
        size = int(headers.get(b"Content-Length", b"0"))
        while len(self._rest) < size:
            self._more()
        body, self._rest = self._rest[:size], self._rest[size:]
        return int(lines[0].split()[1]), headers, body

    def _more(self) -> None:
        data = self.socket.recv(65536)
        assert data, f"the connection ended after {self._rest!r}"
        self._rest += data

    def ended(self) -> bool:
        """Tell whether the server closes without another answer."""
        try:
            return self._rest == b"" and self.socket.recv(65536) == b""
        except ConnectionResetError:
            return False

    def close(self) -> None:
        self.socket.close()


def head(
    token: str, length: int, *lines: bytes, method: bytes = b"POST", url: bytes = INFER
) -> bytes:
    fixed = [
        b"%b %b HTTP/1.1" % (method, url),
        b"Host: localhost",
        b"Authorization: Bearer " + token.encode(),
        b"Content-Length: %d" % length,
    ]
    return b"\r\n".join([*fixed, *lines]) + b"\r\n\r\n"


def request(token: str, **more: object) -> bytes:
    body = json.dumps(row(**more)).encode()
    return head(token, len(body)) + body


def error(answer: tuple[int, dict[bytes, bytes], bytes]) -> str:
    assert answer[1][b"Content-Type"] == b"application/json"
    document = json.loads(answer[2])
    assert set(document) == {"error"}
    return document["error"]
