"""Messages to the engine, shown beside the resource that they are about."""

from __future__ import annotations

import contextlib

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc


class EngineLog:
    """Sends messages over the engine's Log call; a message that can't be sent is dropped.

    Args:
        address: the engine's address, as given on the plugin's command line.
    """

    def __init__(self, address: str) -> None:
        self._engine = engine_pb2_grpc.EngineStub(grpc.insecure_channel(address))

    def __call__(self, urn: str, message: str, passing: bool) -> None:
        """Show `message` beside the resource; a passing one is replaced by the next."""
        request = engine_pb2.LogRequest(
            severity=engine_pb2.INFO, message=message, urn=urn, ephemeral=passing
        )
        # Progress must never make work fail: the engine may be on its way out.
        with contextlib.suppress(grpc.RpcError):
            self._engine.Log(request, timeout=5)
