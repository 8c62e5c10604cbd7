"""A cheap load client: raw bytes over keep-alive connections, one request at a time on each.

`load_client.py PORT CONNECTIONS SECONDS BODIES.json [AUTHORITY] [HEADER …]` prints one JSON
object: requests per second, the median and the 99th percentile in milliseconds, and failures.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import time
from pathlib import Path

import numpy as np
import uvloop

PATH = "/v2/models/mlp/infer"
END = b"]}]}"


class Client(asyncio.Protocol):
    def __init__(self, requests, times, failures, start):
        self.requests = requests
        self.times = times
        self.failures = failures
        self.index = start
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport
        self.send()

    def send(self):
        self.index += 1
        self.sent = time.perf_counter()
        self.transport.write(self.requests[self.index % len(self.requests)])

    def data_received(self, data):
        if self.buffer:
            data = self.buffer + data
            self.buffer = b""
        if not data.endswith(END):
            self.buffer = data
            return
        self.times.append(time.perf_counter() - self.sent)
        if not data.startswith(b"HTTP/1.1 200 "):
            self.failures.append(data[:200].decode("ascii", "replace"))
        self.send()

    def connection_lost(self, exc):
        if not STOPPING:
            self.failures.append(f"connection lost: {exc} {self.buffer[:200]!r}")


STOPPING: list[bool] = []


async def main() -> None:
    port, connections, seconds, bodies, *rest = sys.argv[1:]
    authority, headers = (rest[0] if rest else ""), rest[1:]
    context = ssl.create_default_context(cafile=authority) if authority else None
    extra = "".join(f"{header}\r\n" for header in headers)
    requests = [
        f"POST {PATH} HTTP/1.1\r\nHost: localhost:{port}\r\nContent-Type: application/json\r\n"
        f"{extra}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        for body in json.loads(Path(bodies).read_text())
    ]
    times: list[float] = []
    failures: list[str] = []
    loop = asyncio.get_running_loop()
    transports = []
    for number in range(int(connections)):
        transport, _ = await loop.create_connection(
            lambda number=number: Client(requests, times, failures, number),
            "127.0.0.1",
            int(port),
            ssl=context,
            server_hostname="localhost" if context else None,
        )
        transports.append(transport)
    await asyncio.sleep(0.3)
    before = len(times)
    times.clear()
    start = time.perf_counter()
    await asyncio.sleep(float(seconds))
    elapsed = time.perf_counter() - start
    measured = np.array(times) * 1e3
    STOPPING.append(True)
    total = len(times)
    for transport in transports:
        transport.abort()
    print(
        json.dumps(
            {
                "rate": len(measured) / elapsed,
                "p50": float(np.quantile(measured, 0.5)) if len(measured) else None,
                "p99": float(np.quantile(measured, 0.99)) if len(measured) else None,
                "requests": len(measured),
                "all_requests": before + total,
                "failures": failures[:5],
            }
        )
    )


uvloop.run(main())
