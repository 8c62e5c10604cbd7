"""Runs the provider as a plugin process, and ends it when the engine is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

import grpc.aio
from pulumi.runtime.proto import provider_pb2_grpc

from falaj.components.local.provider.dispatch import LocalProvider
from falaj.components.local.provider.engine_log import EngineLog
from falaj.components.local.provider.handler import Handler
from falaj.components.local.provider.servicer import LocalServicer

VERSION: Final = "0.1.0"
_MESSAGE_LIMIT: Final = 400 << 20  # the engine's own limit on messages
_ALIVE_EVERY_S: Final = 2.0
_MISSED_LIMIT: Final = 3


async def serve(engine_address: str, handlers: Sequence[Handler]) -> None:
    """Serve until the engine ends the process, is gone itself, or a signal comes.

    The port is printed on the standard output, as the engine expects of a plugin.
    """
    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leaving.set)
    provider = LocalProvider(handlers, EngineLog(engine_address), VERSION)
    server = grpc.aio.server(
        options=[
            ("grpc.max_receive_message_length", _MESSAGE_LIMIT),
            ("grpc.max_send_message_length", _MESSAGE_LIMIT),
        ]
    )
    servicer = LocalServicer(provider, VERSION, engine_address)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()

    watch = asyncio.create_task(_wait_until_alone(engine_address))
    left = asyncio.create_task(leaving.wait())
    await asyncio.wait({watch, left}, return_when=asyncio.FIRST_COMPLETED)
    await provider.cancel()
    # Work in threads sees the cancellation, stops its processes and keeps what it has.
    await server.stop(grace=60)


async def _wait_until_alone(engine_address: str) -> None:
    """Return when the engine no longer answers, or the parent process is gone.

    An engine that was killed sends no Cancel; without this the training would go on unseen.
    """
    parent = os.getppid()
    host, _, port = engine_address.rpartition(":")
    missed = 0
    while missed < _MISSED_LIMIT:
        await asyncio.sleep(_ALIVE_EVERY_S)
        if os.getppid() != parent:
            return
        try:
            _, writer = await asyncio.wait_for(asyncio.open_connection(host, int(port)), 5)
        except (OSError, TimeoutError):
            missed += 1
            continue
        missed = 0
        writer.close()
