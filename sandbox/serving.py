"""Runs one of the sandbox's providers as the engine's plugin.

``python -m falaj.sandbox.serving PACKAGE ENGINE_ADDRESS``
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from pathlib import Path

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

from falaj.engine.errors import EngineError
from falaj.engine.languagehost.watch import parent_ended
from falaj.sandbox import activation, models
from falaj.sandbox.cloud import Cloud
from falaj.sandbox.prediction import Prediction
from falaj.sandbox.servicer import SandboxServicer
from falaj.sandbox.store import Store
from falaj.wire import servicer


def serve(package: str, engine_address: str) -> None:
    """Serve until the engine ends the process, is gone itself, or a signal comes.

    Raises:
        EngineError: the sandbox wasn't asked for, or real credentials are in reach.
    """
    activation.require_active(os.environ)
    store = Store(Path(os.environ[activation.CLOUD_VARIABLE]))
    cloud = _cloud(package, store)
    parent = os.getppid()
    asyncio.run(
        servicer.serve(_servicer(cloud, store, engine_address, parent), parent_ended(parent))
    )


def _cloud(package: str, store: Store) -> Cloud:
    """The package's cloud: made up, or the test control plane that the environment names."""
    model = models.load(package)
    if package != "kubernetes" or not os.environ.get(activation.CLUSTER_VARIABLE):
        return Cloud(model, store)
    # The official client takes half a second.
    from falaj.sandbox.cluster.cluster import Cluster  # noqa: PLC0415
    from falaj.sandbox.cluster.connection import Connection  # noqa: PLC0415

    return Cluster(model, store, Connection(Path(os.environ[activation.CLUSTER_VARIABLE])))


def _servicer(cloud: Cloud, store: Store, engine_address: str, parent: int) -> SandboxServicer:
    # Each provider of a stack has a process of its own: one of them speaks for all.
    run = f"{parent} {engine_address}"
    warn = _Warnings(engine_address)
    return SandboxServicer(
        cloud,
        lambda text: warn(text) if store.is_first(f"{run} {cloud.waits}") else None,
        Prediction.of(cloud.package, os.environ),
        warn,
    )


class _Warnings:
    """Shows warnings beside the stack, over the engine's Log call."""

    def __init__(self, address: str) -> None:
        self._engine = engine_pb2_grpc.EngineStub(grpc.insecure_channel(address))

    def __call__(self, message: str, urn: str = "") -> None:
        request = engine_pb2.LogRequest(severity=engine_pb2.WARNING, message=message, urn=urn)
        # The engine may be on its way out; a deployment isn't to fail for a warning.
        with contextlib.suppress(grpc.RpcError):
            self._engine.Log(request, timeout=5)


def main(arguments: list[str] | None = None) -> int:
    """Serve as the engine asks; 0 ended in order, 2 refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package", choices=models.PACKAGES)
    parser.add_argument("engine_address", metavar="ENGINE_ADDRESS")
    # The engine passes its logging and tracing flags on to every plugin.
    parser.add_argument("--tracing", help=argparse.SUPPRESS)
    parser.add_argument("--logtostderr", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("-v", help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    try:
        serve(given.package, given.engine_address)
    except EngineError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
