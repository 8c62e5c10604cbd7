"""A cheap load client of the protocol: HTTP with JSON or binary tensors, or gRPC.

`cell_client.py SPECIFICATION.json` reads what to send and to whom, and prints one JSON object:
answers per second, the median and the 99th percentile in milliseconds, and failures. One request
at a time on each connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import sys
import time
from pathlib import Path
from typing import Any, cast

import grpc
import numpy as np
import uvloop

from falaj.workloads.inference.rpc.messages import INFERENCE

OPEN_SECONDS = 30.0
"""That connections may take until they have an answer each."""


class Figures:
    """What answers took, in seconds, and what failed."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.failures: list[str] = []
        self.stopping = False


class Connection(asyncio.Protocol):
    """Sends the next request when the last one is answered."""

    def __init__(self, requests: list[bytes], figures: Figures, start: int) -> None:
        self._requests, self._figures, self._index = requests, figures, start
        self._received = bytearray()
        self._end = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._send()

    def _send(self) -> None:
        self._received.clear()
        self._end = -1
        self._index += 1
        self._sent = time.perf_counter()
        self._transport.write(self._requests[self._index % len(self._requests)])

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._end < 0:
            head = self._received.find(b"\r\n\r\n")
            if head < 0:
                return
            fields = self._received[:head].lower().split(b"\r\n")
            (length,) = [int(each[15:]) for each in fields if each.startswith(b"content-length:")]
            self._end = head + 4 + length
        if len(self._received) < self._end:
            return
        self._figures.times.append(time.perf_counter() - self._sent)
        if not self._received.startswith(b"HTTP/1.1 200 "):
            self._figures.failures.append(self._received[:300].decode("ascii", "replace"))
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._figures.stopping:
            self._figures.failures.append(f"connection lost: {exc}")


async def by_http(specification: dict[str, Any], requests: list[bytes], found: Figures) -> None:
    """Open the connections; each sends from then on."""
    authority = specification["authority"]
    context = ssl.create_default_context(cafile=authority) if authority else None
    for number in range(specification["connections"]):
        await asyncio.get_running_loop().create_connection(
            lambda number=number: Connection(requests, found, number),
            "127.0.0.1", specification["port"], ssl=context,
            server_hostname="localhost" if context else None,
        )  # fmt: skip


async def by_grpc(specification: dict[str, Any], requests: list[bytes], found: Figures) -> None:
    """Open the channels; each calls from then on."""
    authority = specification["authority"]
    target, options = f"localhost:{specification['port']}", [("grpc.use_local_subchannel_pool", 1)]
    metadata = [tuple(each) for each in specification["metadata"]]

    async def calls(number: int) -> None:
        if authority:
            credentials = grpc.ssl_channel_credentials(Path(authority).read_bytes())
            channel = grpc.aio.secure_channel(target, credentials, options)
        else:
            channel = grpc.aio.insecure_channel(target, options)
        call = channel.unary_unary(f"/{INFERENCE}/ModelInfer")
        while not found.stopping:
            number += 1
            sent = time.perf_counter()
            try:
                await call(requests[number % len(requests)], metadata=metadata)
            except grpc.aio.AioRpcError as error:
                found.failures.append(f"{error.code()} {error.details()}")
            found.times.append(time.perf_counter() - sent)

    for number in range(specification["connections"]):
        RUNNING.append(asyncio.create_task(calls(number)))
    await asyncio.sleep(0)


RUNNING: list[asyncio.Task[None]] = []


async def main() -> None:
    specification = json.loads(Path(sys.argv[1]).read_text())
    requests = [Path(each).read_bytes() for each in specification["requests"]]
    found = Figures()
    await (by_grpc if specification["grpc"] else by_http)(specification, requests, found)
    until = time.perf_counter() + OPEN_SECONDS
    while len(found.times) < specification["connections"] and time.perf_counter() < until:
        await asyncio.sleep(0.1)
    before, start = len(found.times), time.perf_counter()
    await asyncio.sleep(specification["seconds"])
    elapsed = time.perf_counter() - start
    measured = np.array(found.times[before:]) * 1e3
    found.stopping = True
    for each in RUNNING:
        each.cancel()
    for each in RUNNING:
        with contextlib.suppress(asyncio.CancelledError):
            await each
    print(
        json.dumps(
            {
                "rate": len(measured) / elapsed,
                "p50": float(np.quantile(measured, 0.5)) if len(measured) else None,
                "p99": float(np.quantile(measured, 0.99)) if len(measured) else None,
                "failures": found.failures[:5],
            }
        )
    )


uvloop.run(main())
