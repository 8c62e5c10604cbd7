"""A registry of images with one repository on the loopback interface, which wants what it is told
to want: for what a registry without logins and mishaps can't be asked."""

from __future__ import annotations

import base64
import http.server
import json
import threading
import urllib.parse
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

BASIC = base64.b64encode(b"AWS:password").decode()


@dataclass
class Kept:
    """What the registry answers with, and what it was asked."""

    name: str
    address: str = ""
    content: dict[str, bytes] = field(default_factory=dict[str, bytes])
    demand: str = ""
    """``basic`` or ``bearer``: what it wants to be shown."""
    realm: str = ""
    break_off: int = 0
    """How many more blobs end in their middle."""
    status: int = 0
    """What it answers, whatever is asked."""
    redirect: str = ""
    """Where blobs are."""
    asked: list[tuple[str, dict[str, str]]] = field(
        default_factory=list[tuple[str, dict[str, str]]]
    )
    forms: list[dict[str, list[str]]] = field(default_factory=list[dict[str, list[str]]])

    def add(self, layout: Path) -> str:
        """Keep an image; its digest."""
        for blob in (layout / "blobs/sha256").iterdir():
            self.content[f"/v2/{self.name}/blobs/sha256:{blob.name}"] = blob.read_bytes()
        index = json.loads((layout / "index.json").read_bytes())
        digest = str(index["manifests"][0]["digest"])
        data = (layout / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes()
        self.content[f"/v2/{self.name}/manifests/{digest}"] = data
        return digest

    def paths(self, part: str) -> list[str]:
        """What was asked for below a part of the repository."""
        return [path for path, _ in self.asked if f"/{part}/" in path]


class Handler(http.server.BaseHTTPRequestHandler):
    """A registry that has one repository, and gives tokens where it is told to want them."""

    kept: Kept

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.kept.forms.append(urllib.parse.parse_qs(body))
        tokens = {"access_token": "pull", "refresh_token": "refresh"}
        self._answer(200, json.dumps(tokens).encode())

    def do_GET(self) -> None:
        kept, headers = self.kept, {k.lower(): v for k, v in self.headers.items()}
        kept.asked.append((self.path, headers))
        if kept.status:
            self._answer(kept.status, b"the registry's own words")
        elif self.path.startswith("/token?"):
            self._token(headers)
        elif (asks := self._demand(headers.get("authorization", ""))) is not None:
            self._answer(401, b"", {"WWW-Authenticate": asks})
        elif kept.redirect and "/blobs/" in self.path:
            self._answer(307, b"", {"Location": kept.redirect + self.path})
        elif (content := kept.content.get(self.path)) is None:
            self._answer(404, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')
        else:
            self._content(content, headers.get("range", ""))

    def _token(self, headers: dict[str, str]) -> None:
        if headers.get("authorization") == f"Basic {BASIC}":
            self._answer(200, json.dumps({"token": "pull"}).encode())
        else:
            self._answer(401, b"who?")

    def _demand(self, shown: str) -> str | None:
        if self.kept.demand == "basic" and shown != f"Basic {BASIC}":
            return 'Basic realm="registry"'
        if self.kept.demand == "bearer" and shown != "Bearer pull":
            realm = self.kept.realm or f"http://{self.kept.address}/token"
            return f'Bearer realm="{realm}",service="here",scope="repository:other:push"'
        return None

    def _content(self, content: bytes, wanted: str) -> None:
        start = int(wanted.removeprefix("bytes=").rstrip("-") or 0)
        part = content[start:]
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        if self.kept.break_off and "/blobs/" in self.path:
            self.kept.break_off -= 1
            part = part[: len(part) // 2]
        self.wfile.write(part)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Quiet."""


@contextmanager
def serving(name: str) -> Generator[Kept]:
    """A registry that has the repository ``name``."""
    found = Kept(name)
    handler = type("Own", (Handler,), {"kept": found})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    found.address = f"127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield found
    finally:
        server.shutdown()
        server.server_close()
