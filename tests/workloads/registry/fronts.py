"""What may stand before a registry: logins, token servers, trouble, and other places for blobs."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

#: Who waits for it doesn't wait long.
QUICK = (0.01, 0.01, 0.01)
USER, PASSWORD, TOKEN = "robot", "s3cret:with-colon", "a-token"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@dataclass
class Asked:
    """A request as it came."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Front:
    """One that stands before a registry, or for one where nothing is behind it."""

    address: str = ""
    behind: str = ""
    asked: list[Asked] = field(default_factory=list[Asked])
    answer: Callable[[Asked], tuple[int, dict[str, str], bytes] | None] = lambda _: None
    """What it says itself; None hands the request on."""

    def authorisations(self) -> list[str]:
        return [each.headers.get("Authorization", "") for each in self.asked]


@contextmanager
def standing(behind: str = "", **settings: Any) -> Generator[Front]:
    """A front on loopback."""
    front = Front(behind=behind, **settings)

    class Handler(BaseHTTPRequestHandler):
        def _handle(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            asked = Asked(self.command, self.path, dict(self.headers), body)
            front.asked.append(asked)
            status, headers, text = front.answer(asked) or _handed_on(front.behind, asked)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if "Content-Length" not in headers:
                self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(text)

        do_GET = do_HEAD = do_POST = do_PUT = _handle  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        front.address = f"127.0.0.1:{server.server_port}"
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield front
        finally:
            server.shutdown()


def _handed_on(behind: str, asked: Asked) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(behind, timeout=30)
    kept = ("Content-Type", "Accept")
    headers = {name: value for name, value in asked.headers.items() if name in kept}
    connection.request(asked.method, asked.path, asked.body or None, headers)
    answer = connection.getresponse()
    text = answer.read()
    left_out = ("transfer-encoding", "connection", "date")
    said = {name: value for name, value in answer.getheaders() if name.lower() not in left_out}
    return answer.status, said, text


def basic(asked: Asked) -> tuple[int, dict[str, str], bytes] | None:
    """As a registry with passwords."""
    if asked.headers.get("Authorization") == BASIC:
        return None
    return 401, {"WWW-Authenticate": 'Basic realm="a registry"'}, _errors("UNAUTHORIZED")


def bearer(
    realm: Callable[[], str],
) -> Callable[[Asked], tuple[int, dict[str, str], bytes] | None]:
    """As a registry with tokens, which ``realm`` gives for the password."""

    def answer(asked: Asked) -> tuple[int, dict[str, str], bytes] | None:
        if urlsplit(asked.path).path == "/token":
            wanted = parse_qs(urlsplit(asked.path).query)
            if asked.headers.get("Authorization") != BASIC or "scope" not in wanted:
                return 401, {}, _errors("UNAUTHORIZED")
            return 200, {}, json.dumps({"token": TOKEN}).encode()
        if asked.headers.get("Authorization") == f"Bearer {TOKEN}":
            return None
        challenge = f'Bearer realm="{realm()}",service="a registry",scope="repository:x:pull"'
        return 401, {"WWW-Authenticate": challenge}, _errors("UNAUTHORIZED")

    return answer


def _errors(code: str) -> bytes:
    return json.dumps({"errors": [{"code": code, "message": "not so"}]}).encode()
