"""The sandbox takes no cluster but the test control plane of this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from falaj.engine.errors import EngineError
from falaj.sandbox.cluster.connection import Connection


def kubeconfig(folder: Path, server: str, user: dict[str, Any] | None = None) -> Path:
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "x",
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": user or {"token": "t"}}],
            }
        )
    )
    return path


class _Empty(BaseHTTPRequestHandler):
    """An API server that has nothing in it."""

    asked: list[str] = []  # noqa: RUF012 - set anew by each test

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b'{"reason": "NotFound", "message": "not found"}')

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    _Empty.asked = []
    with ThreadingHTTPServer(("127.0.0.1", 0), _Empty) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_cluster_without_the_mark_is_refused(tmp_path: Path, server: ThreadingHTTPServer) -> None:
    path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.server_port}")
    with pytest.raises(EngineError, match="is no test control plane of Falaj: it has no"):
        Connection(path)
    mark = "/api/v1/namespaces/kube-system/configmaps/falaj-test-control-plane"
    assert _Empty.asked == [mark]


@pytest.mark.parametrize(
    "address", ["https://203.0.113.7:6443", "https://api.example.org", "https://127.0.0.1.example"]
)
def test_cluster_elsewhere_is_refused_at_once(tmp_path: Path, address: str) -> None:
    with pytest.raises(EngineError, match="isn't on this machine"):
        Connection(kubeconfig(tmp_path, address))


@pytest.mark.parametrize("key", ["exec", "auth-provider"])
def test_kubeconfig_that_starts_a_program_is_refused(tmp_path: Path, key: str) -> None:
    user = {key: {"command": "touch", "args": [str(tmp_path / "ran")]}}
    with pytest.raises(EngineError, match="logs in with a program"):
        Connection(kubeconfig(tmp_path, "https://127.0.0.1:1", user))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("text", ["", "a: [", "[]", "clusters: 3", '{"users": [{"user": null}]}'])
def test_file_that_is_no_kubeconfig_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(EngineError, match="is no kubeconfig that can be used"):
        Connection(path)
    with pytest.raises(EngineError, match="which isn't there"):
        Connection(tmp_path / "nowhere")


def test_control_plane_that_is_down_is_told(tmp_path: Path, server: ThreadingHTTPServer) -> None:
    port = server.server_port
    server.server_close()
    with pytest.raises(EngineError, match="doesn't answer"):
        Connection(kubeconfig(tmp_path, f"http://127.0.0.1:{port}"))
