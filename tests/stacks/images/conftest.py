"""Two registries on loopback: upstream and mirror."""

from __future__ import annotations

from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.stacks.images.registries import Registry, running


@pytest.fixture
def upstream(tmp_path: Path) -> Generator[Registry]:
    with running(tmp_path / "upstream") as registry:
        yield registry


@pytest.fixture
def target(tmp_path: Path) -> Generator[Registry]:
    with running(tmp_path / "target") as registry:
        yield registry


class _Refusing(BaseHTTPRequestHandler):
    def _refuse(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="a test"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD = do_POST = do_PUT = _refuse  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def refusing() -> Generator[str]:
    """The address of a registry that lets nobody in."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
