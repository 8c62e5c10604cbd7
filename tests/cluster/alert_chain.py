"""The way of an alert on the loopback: those who wait for it, and what carries it to them."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import re
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from falaj.engine.controlplane import ControlPlane, binaries
from falaj.engine.controlplane.certificates import Pair
from falaj.engine.controlplane.objects import wait_for
from falaj.engine.debian import program
from tests.ports import free_port

SECONDS = 120.0
_CERTIFICATES = "/etc/alertmanager/certs"


@dataclass(frozen=True)
class Request:
    """What a receiver was sent."""

    path: str
    authorization: str
    body: dict[str, Any]


@dataclass
class Receivers:
    """Servers of HTTPS that keep what they are sent; ``/moved`` sends elsewhere."""

    port: int
    requests: list[Request] = field(default_factory=list[Request])

    def alerts(self, path: str) -> set[tuple[str, str]]:
        """Names and states of alerts that came to a path."""
        return {
            (alert["labels"]["alertname"], alert["status"])
            for each in self.requests
            if each.path == path
            for alert in each.body.get("alerts", ())
        }


@contextmanager
def receivers(pair: Pair) -> Generator[Receivers]:
    """Such a server at ``https://localhost``."""
    found = Receivers(0)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            authorization = self.headers.get("Authorization", "")
            found.requests.append(Request(self.path, authorization, json.loads(body)))
            if self.path == "/moved":
                self.send_response(307)
                self.send_header("Location", f"https://localhost:{found.port}/elsewhere")
            else:
                self.send_response(202 if self.path == "/v2/enqueue" else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        found.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield found
        server.shutdown()


@dataclass
class Relay:
    """A mail relay: what it was told, and what it was given, each with whether TLS was on."""

    port: int
    commands: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])
    mail: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])


@contextmanager
def relay(pair: Pair | None) -> Generator[Relay]:
    """A relay at ``localhost`` that offers TLS with a certificate, or none at all (RFC 3207)."""
    found, loop = Relay(free_port()), asyncio.new_event_loop()
    context: ssl.SSLContext | None = None
    if pair:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        safe = False
        writer.write(b"220 relay\r\n")
        while line := (await reader.readline()).decode().strip():
            found.commands.append((line, safe))
            match line.split()[0].upper():
                case "EHLO":
                    more = "AUTH PLAIN" if safe else "STARTTLS" if context else "SIZE"
                    writer.write(f"250-relay\r\n250 {more}\r\n".encode())
                case "STARTTLS" if context:
                    writer.write(b"220 go ahead\r\n")
                    await writer.drain()
                    await writer.start_tls(context)
                    safe = True
                case "AUTH":
                    writer.write(b"235 welcome\r\n")
                case "DATA":
                    writer.write(b"354 go ahead\r\n")
                    text = (await reader.readuntil(b"\r\n.\r\n")).decode()
                    found.mail.append((text, safe))
                    writer.write(b"250 taken\r\n")
                case "QUIT":
                    writer.write(b"221 bye\r\n")
                    break
                case _:
                    writer.write(b"250 fine\r\n")
        writer.close()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(serve, "127.0.0.1", found.port)

    server = loop.run_until_complete(start())
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield found
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@contextmanager
def running(
    command: Sequence[str | Path], folder: Path, ready: Callable[[], Any]
) -> Generator[None]:
    """A process until the block ends, from when it is ready."""
    log = folder / f"{Path(command[0]).name}.log"
    with log.open("wb") as to:
        process = subprocess.Popen(
            command, cwd=folder, stdout=to, stderr=to, env={**os.environ, "GOMAXPROCS": "2"}
        )
    try:

        def there() -> Any:
            assert process.poll() is None, log.read_text("utf-8")[-3000:]
            return ready()

        wait_for(there, f"{command[0]} to be ready", seconds=SECONDS)
        yield
    finally:
        process.kill()
        process.wait()


def binary(name: str) -> Path:
    """A command that is built of a module of its name."""
    return Path(binaries.ensure([name])[name]) / name


def asked(url: str, body: Any = None) -> Any:
    """The answer of a server on the loopback; None while it isn't there or ready."""
    data = None if body is None else json.dumps(body).encode()
    wanted = urllib.request.Request(url, data, {"Content-Type": "application/json"})  # noqa: S310
    try:
        with urllib.request.urlopen(wanted, timeout=10) as answer:  # noqa: S310
            text = answer.read()
    except (urllib.error.URLError, ConnectionError):
        return None
    return json.loads(text) if text[:1] in {b"{", b"["} else text.decode() or "empty"


@contextmanager
def operator(cluster: ControlPlane, folder: Path) -> Generator[None]:
    """The real operator, which makes what Alertmanager reads of objects in the cluster."""
    client, port = cluster.objects.client.configuration, free_port()
    command = (
        binary("prometheus-operator"),
        f"--apiserver={client.host}", f"--ca-file={client.ssl_ca_cert}",
        f"--cert-file={client.cert_file}", f"--key-file={client.key_file}",
        f"--web.listen-address=127.0.0.1:{port}",
    )  # fmt: skip
    with running(command, folder, lambda: asked(f"http://127.0.0.1:{port}/healthz")):
        yield


def generated(
    cluster: ControlPlane, namespace: str, name: str, names: Sequence[str], folder: Path
) -> str:
    """What the operator made of the objects: the text that Alertmanager reads, with its files.

    Only the folder of certificates is another one, and what is waited for is sent at once.
    Waits until it has all ``names`` in it, and the files that it names are there.
    """

    def data(of: str) -> dict[str, bytes]:
        found = cluster.objects.get("v1", "Secret", f"alertmanager-{name}-{of}", namespace) or {}
        return {key: base64.b64decode(each) for key, each in (found.get("data") or {}).items()}

    def whole() -> str:
        text = gzip.decompress(data("generated").get("alertmanager.yaml.gz", b"")).decode()
        files = data("tls-assets-0")
        for key, content in files.items():
            (folder / key).write_bytes(content)
        wanted = re.findall(rf"{_CERTIFICATES}/(\S+)", text)
        return text if set(wanted) <= set(files) and all(each in text for each in names) else ""

    text = wait_for(whole, "the operator's configuration", seconds=SECONDS)
    return text.replace(_CERTIFICATES, str(folder)).replace("group_wait: 30s", "group_wait: 1s")


@contextmanager
def alertmanager(text: str, folder: Path) -> Generator[str]:
    """A real Alertmanager with a configuration; its address."""
    (folder / "alertmanager.yml").write_text(text, encoding="utf-8")
    address = f"127.0.0.1:{free_port()}"
    command = (
        binary("alertmanager"), "--config.file=alertmanager.yml",
        "--storage.path=alertmanager", f"--web.listen-address={address}",
        "--cluster.listen-address=",
    )  # fmt: skip
    with running(command, folder, lambda: asked(f"http://{address}/-/ready")):
        yield f"http://{address}"


@contextmanager
def prometheus(rules: Any, metrics: str, send_to: str, folder: Path) -> Generator[str]:
    """A real Prometheus that reads metrics every second and sends alerts; its address."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(metrics.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        target = f"127.0.0.1:{server.server_address[1]}"
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [
                {
                    "job_name": "gpus",
                    "honor_labels": True,
                    "static_configs": [{"targets": [target]}],
                }
            ],
            "alerting": {
                "alertmanagers": [
                    {"static_configs": [{"targets": [send_to.removeprefix("http://")]}]}
                ]
            },
        }
        (folder / "rules.yml").write_text(json.dumps(rules), encoding="utf-8")
        (folder / "prometheus.yml").write_text(json.dumps(config), encoding="utf-8")
        address = f"127.0.0.1:{free_port()}"
        command = (
            program("prometheus"), "--config.file=prometheus.yml", "--storage.tsdb.path=data",
            f"--web.listen-address={address}",
            # What fires before it has found Alertmanager is sent again.
            "--rules.alert.resend-delay=2s",
        )  # fmt: skip
        with running(command, folder, lambda: asked(f"http://{address}/-/ready")):
            yield f"http://{address}"
        server.shutdown()
