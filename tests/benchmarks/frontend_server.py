"""The same service behind another HTTP front: `frontend_server.py SERVICE.json VERSION FRONT`.

Prints its port and serves one version with everything on: TLS 1.3, tokens, checks, records. The
fronts: ``falaj``, the product's; ``parsed``, the same without known heads, so that each request
is parsed and authorised; ``rowless``, the product's without buffers bound to a single row;
``uvicorn``, with httptools and uvloop.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import uvloop

from falaj.workloads.inference import settings
from falaj.workloads.inference.auth import Authenticator
from falaj.workloads.inference.connections import listening
from falaj.workloads.inference.connections.connection import Connection
from falaj.workloads.inference.connections.http import Answer, Exchange
from falaj.workloads.inference.errors import RequestError
from falaj.workloads.inference.process import worker
from falaj.workloads.inference.service import Service
from falaj.workloads.registry.keyring import KeyRing
from falaj.workloads.registry.store import Store


async def no_metrics() -> bytes:
    return b""


def load(path: Path, version: int) -> tuple[Service, listening.ServerContext]:
    configuration = settings.read(path)
    keyring = KeyRing.open(configuration.keyring)
    package = Store(configuration.registry).load(
        configuration.model, version, keyring, keyring.verify_key()
    )
    service = Service(
        configuration,
        model=worker.backends_of(configuration, package).model,
        authenticator=Authenticator(configuration.auth),
        pool=ThreadPoolExecutor(1),
        threads=1,
        metrics=no_metrics,
    )
    return service, listening.server_context(configuration.tls)


async def records(service: Service) -> None:
    """Take the records as a worker's flush does, but send them nowhere."""
    while True:
        await asyncio.sleep(worker.FLUSH_SECONDS)
        b"".join(service.lines)
        for caller in service.callers:
            caller.calls = 0
        service.lines, service.callers, service.denials = [], [], {}
        service.answers.tick()


WANTED = {b"authorization", b"content-length", b"inference-header-content-length"}


class Application:
    """The service as an ASGI application."""

    def __init__(self, service: Service) -> None:
        self.service = service

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http":
            return
        service = self.service
        exchange = Exchange(
            method=scope["method"].encode(),
            url=scope["raw_path"],
            headers={name: value for name, value in scope["headers"] if name in WANTED},
        )
        try:
            service.admit(exchange, None, b"")
            more = True
            while more:
                message = await receive()
                exchange.append(message["body"])
                exchange.received += len(message["body"])
                more = message["more_body"]
            exchange.started = time.perf_counter()
            answer = service.handle(exchange)
            if inspect.isawaitable(answer):
                answer = await answer
        except RequestError as error:
            answer = Answer(error.status, error.body())
        headers = [
            (b"content-type", answer.content_type),
            (b"content-length", b"%d" % len(answer.body)),
        ]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})
        client = scope["client"]
        service.finished(
            exchange, f'"{client[0]}:{client[1]}"'.encode(), answer.status, len(answer.body)
        )


async def serve_uvicorn(
    service: Service, context: listening.ServerContext, listener: socket.socket
):
    import uvicorn

    configuration = uvicorn.Config(
        Application(service), http="httptools", loop="uvloop", ws="none", lifespan="off",
        access_log=False, log_level="warning", server_header=False, timeout_keep_alive=75,
    )  # fmt: skip
    configuration.load()
    configuration.ssl = context
    await uvicorn.Server(configuration).serve([listener])


async def main(path: str, version: str, front: str) -> None:
    service, context = load(Path(path), int(version))
    listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(listener.getsockname()[1], flush=True)
    flushing = asyncio.ensure_future(records(service))
    if front == "uvicorn":
        await serve_uvicorn(service, context, listener)
    else:
        if front == "parsed":
            service.remember = lambda exchange, heads: None
        if front == "rowless":
            service.model.row = None
        server = await asyncio.get_running_loop().create_server(
            lambda: Connection(service), sock=listener, ssl=context
        )
        await server.serve_forever()
    flushing.cancel()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        uvloop.run(main(*sys.argv[1:]))
