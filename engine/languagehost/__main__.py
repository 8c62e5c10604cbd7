"""`pulumi-language-python ENGINE_ADDRESS`: print a port, serve on it until told or orphaned."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys

from falaj.engine.short_lived import collect_rarely

# Before what follows is imported, which makes most of what there is to look at.
if __name__ == "__main__":
    collect_rarely()

import grpc.aio

from falaj.engine.languagehost.children import Children
from falaj.engine.languagehost.server import (
    PLUGIN_GRACE_SECONDS,
    PROGRAM_GRACE_SECONDS,
    LanguageHost,
)
from falaj.engine.languagehost.watch import parent_ended
from falaj.wire.protocol import MESSAGE_OPTIONS, language_pb2_grpc

_CALL_SECONDS = 0.5
"""How long calls have whose children are gone."""


async def serve(engine_address: str, parent: int) -> None:
    """Serve until SIGINT, SIGTERM or the end of `parent`; leave no child behind."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    children = Children()
    server = grpc.aio.server(options=MESSAGE_OPTIONS)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(
        LanguageHost(engine_address, children), server
    )
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    stopped, orphaned = asyncio.create_task(stop.wait()), asyncio.create_task(parent_ended(parent))
    await asyncio.wait({stopped, orphaned}, return_when=asyncio.FIRST_COMPLETED)
    # The engine waits 5 s for us and then kills; without it there is time for a checkpoint.
    await children.close(PROGRAM_GRACE_SECONDS if stopped.done() else PLUGIN_GRACE_SECONDS)
    stopped.cancel()
    orphaned.cancel()
    # With their children calls end by themselves; of one that is cancelled gRPC prints a trace.
    await server.stop(_CALL_SECONDS)


def main() -> None:
    """Read the engine's arguments and serve."""
    parent = os.getppid()
    parser = argparse.ArgumentParser(prog="pulumi-language-python", description=__doc__)
    parser.add_argument("engine_address", nargs="?", default="")
    # The engine passes its logging and tracing flags on to every plugin; they change nothing here.
    parser.add_argument("--tracing", help=argparse.SUPPRESS)
    arguments, _ = parser.parse_known_args()
    try:
        asyncio.run(serve(arguments.engine_address, parent))
    except KeyboardInterrupt:
        sys.exit(130)  # before the handlers were there


if __name__ == "__main__":
    main()
