"""As `load_client.py`, by gRPC: one call at a time on each connection, with raw tensors.

`grpc_load_client.py PORT CONNECTIONS SECONDS ROWS.json AUTHORITY TOKEN` prints one JSON object.
"""

from __future__ import annotations

import asyncio
import json
import struct
import sys
import time
from pathlib import Path

import grpc
import numpy as np
import uvloop

from falaj.workloads.inference.rpc.messages import CLASSES, INFERENCE


def message(row):
    request = CLASSES["ModelInferRequest"](model_name="mlp")
    request.inputs.add(name="input", datatype="FP32", shape=[1, len(row)])
    request.raw_input_contents.append(struct.pack(f"<{len(row)}f", *row))
    return request.SerializeToString()


async def main() -> None:
    port, connections, seconds, rows, authority, token = sys.argv[1:]
    requests = [message(row) for row in json.loads(Path(rows).read_text())]
    credentials = grpc.ssl_channel_credentials(Path(authority).read_bytes())
    metadata = (("authorization", f"Bearer {token}"),)
    times: list[float] = []
    failures: list[str] = []
    stopping = False

    async def load(number: int) -> None:
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(f"localhost:{port}", credentials, options) as channel:
            call = channel.unary_unary(f"/{INFERENCE}/ModelInfer")
            index = number
            while not stopping:
                index += 1
                sent = time.perf_counter()
                try:
                    await call(requests[index % len(requests)], metadata=metadata)
                except grpc.aio.AioRpcError as error:
                    failures.append(f"{error.code()} {error.details()}")
                times.append(time.perf_counter() - sent)

    tasks = [asyncio.create_task(load(number)) for number in range(int(connections))]
    await asyncio.sleep(0.5)
    before = len(times)
    times.clear()
    start = time.perf_counter()
    await asyncio.sleep(float(seconds))
    elapsed = time.perf_counter() - start
    measured = np.array(times) * 1e3
    stopping = True
    await asyncio.gather(*tasks)
    print(
        json.dumps(
            {
                "rate": len(measured) / elapsed,
                "p50": float(np.quantile(measured, 0.5)),
                "p99": float(np.quantile(measured, 0.99)),
                "requests": len(measured),
                "all_requests": before + len(times),
                "failures": failures[:5],
            }
        )
    )


uvloop.run(main())
