"""Runs the provider as a plugin process, and ends it when the engine is gone."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Final

from falaj.components.local.provider.engine_log import EngineLog
from falaj.components.local.provider.handler import Handler
from falaj.components.local.provider.servicer import LocalServicer
from falaj.wire import servicer as wire

VERSION: Final = "0.1.0"
_ALIVE_EVERY_S: Final = 2.0
_MISSED_LIMIT: Final = 3


async def serve(engine_address: str, handlers: Sequence[Handler]) -> None:
    """Serve until the engine ends the process, is gone itself, or a signal comes."""
    servicer = LocalServicer(handlers, EngineLog(engine_address), VERSION)
    # Work in threads sees the cancellation, stops its processes and keeps what it has.
    await wire.serve(servicer, _wait_until_alone(engine_address), grace_s=60)


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
