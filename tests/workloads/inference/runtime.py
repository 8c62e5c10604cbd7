"""A stand-in for Triton: reads its model repository and answers on the loopback interface.

Speaks the protocol in plain and asks for no credentials, as Triton does, through the same parser
and tensors as Falaj's server. ``python -m tests.workloads.inference.runtime REPOSITORY MODEL PORT
[SLOW_SECONDS]``.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import orjson

from falaj.workloads.inference.auth import Identity
from falaj.workloads.inference.connections.connection import Connection
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.models import model
from falaj.workloads.inference.protocol import routes
from falaj.workloads.inference.protocol.oip import Inference
from falaj.workloads.inference.service import Service
from falaj.workloads.inference.settings import (
    AuthSettings,
    Limits,
    Settings,
    TlsSettings,
)

NOBODY = Path("/nonexistent")


class Anybody:
    """Lets everybody in."""

    def identify(self, authorization: bytes | None, certificate: Mapping[str, Any] | None) -> Any:
        del certificate
        who = "with credentials" if authorization else "nobody"
        return Identity(who, frozenset({"admin"}), "none", time.time() + 3600)


class Runtime(Service):
    """The service with Triton's statistics; keeps the heads that it was sent."""

    seen: list[Exchange]

    def admit(
        self, exchange: Exchange, certificate: Mapping[str, Any] | None, client: bytes
    ) -> None:
        if exchange.url.endswith(b"/stats"):
            exchange.route = routes.Route("stats", (b"GET",), None)
            return
        super().admit(exchange, certificate, client)
        self.seen.append(exchange)

    def handle(self, exchange: Exchange) -> Any:
        if exchange.route is not None and exchange.route.name == "stats":
            counters = self.counters
            queue = {"count": sum(counters.queue), "ns": int(counters.queue_seconds * 1e9)}
            document = {"model_stats": [{"inference_stats": {"queue": queue}}]}
            return Answer(200, orjson.dumps(document))
        return super().handle(exchange)


async def no_metrics() -> bytes:
    return b""


def runtime(content: bytes, name: str, version: str, *, slow: float = 0.0) -> Runtime:
    """A runtime of one model; each run takes ``slow`` seconds longer."""
    limits = Limits()
    loaded = model.load(content, name=name, version=version, manifest={}, threads=1, limits=limits)
    auth = AuthSettings("nobody", "nobody", NOBODY, {})
    configuration = Settings(
        name, "127.0.0.1", 0, 1, 1, NOBODY, name, "production", NOBODY,
        TlsSettings(NOBODY, NOBODY, None), auth, limits, None, None, NOBODY, NOBODY, "", b"",
    )  # fmt: skip
    if slow:
        loaded.expected = [slow] * 32
        run = loaded.run

        def longer(inference: Inference) -> Any:
            time.sleep(slow)
            return run(inference)

        loaded.run = longer  # type: ignore[method-assign]
    made = Runtime(
        configuration,
        model=loaded,
        authenticator=Anybody(),  # type: ignore[arg-type]
        pool=ThreadPoolExecutor(4),
        threads=4,
        metrics=no_metrics,
    )
    made.seen = []
    return made


async def listen(made: Runtime, port: int = 0, **options: Any) -> tuple[asyncio.Server, int]:
    """Listen on the loopback interface; returns the server and its port."""
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(made), "127.0.0.1", port, **options
    )
    return server, int(server.sockets[0].getsockname()[1])


def main() -> None:
    repository, name, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    slow = float(sys.argv[4]) if len(sys.argv) > 4 else 0.0
    (version,) = [each for each in (repository / name).iterdir() if each.is_dir()]
    content = (version / "model.onnx").read_bytes()

    async def serve() -> None:
        server, _ = await listen(runtime(content, name, version.name, slow=slow), port)
        await server.serve_forever()

    asyncio.run(serve())


if __name__ == "__main__":
    main()
