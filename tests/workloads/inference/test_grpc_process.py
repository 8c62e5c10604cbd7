"""A gRPC process whose worker is gone, or has let it go."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import grpc

from falaj.workloads.inference.process.channel import Channel
from falaj.workloads.inference.rpc import calls
from falaj.workloads.inference.rpc.front import SETTINGS_OF_LIBRARY
from tests.workloads.inference.grpc_calls import INFER, PROCESS

MIB = 1024 * 1024
CALLS = 50
BOUNDS = {
    "max_head_bytes": 16_384, "max_body_bytes": MIB, "max_inflight_bytes": 8 * MIB,
    "memory_bytes": 512 * MIB, "header_seconds": 10.0, "body_seconds": 10.0, "idle_seconds": 60.0,
}  # fmt: skip


async def _codes_of_calls_under_way(folder: Path) -> tuple[set[grpc.StatusCode], int]:
    messages: asyncio.Queue[int] = asyncio.Queue()
    channel = Channel(lambda kind, _: messages.put_nowait(kind), lambda: None)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with theirs:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", PROCESS, str(theirs.fileno()), str(os.getpid()), str(folder),
            pass_fds=(theirs.fileno(),), env={**SETTINGS_OF_LIBRARY, **os.environ},
        )  # fmt: skip
    try:
        await asyncio.get_running_loop().create_connection(lambda: channel, sock=ours)
        channel.send(calls.CONFIGURE, calls.pack(BOUNDS))
        assert await asyncio.wait_for(messages.get(), 60) == calls.LISTENING
        async with grpc.aio.insecure_channel(f"unix:{folder / calls.SOCKET}") as client:
            infer, message = client.unary_unary(INFER), bytes(MIB - 1024)
            begun = [
                infer(message, metadata=(("authorization", f"Bearer {each}"),))
                for each in range(CALLS)
            ]
            for _ in begun:
                await asyncio.wait_for(messages.get(), 60)  # it asks the worker
            channel.close()
            codes = await asyncio.wait_for(asyncio.gather(*(each.code() for each in begun)), 60)
        return set(codes), await asyncio.wait_for(process.wait(), 60)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def test_the_library_knows_what_it_is_told() -> None:
    """A version that doesn't goes by its defaults, in silence, and takes a tenth longer."""
    names = [each.lstrip("-") for each in SETTINGS_OF_LIBRARY["GRPC_EXPERIMENTS"].split(",")]
    found = find_spec("grpc._cython.cygrpc")
    assert found is not None
    assert found.origin is not None
    library = Path(found.origin).read_bytes()
    assert [name for name in names if name.encode() + b"\0" not in library] == []


def test_calls_under_way_are_told_to_come_again() -> None:
    """Not that they were cancelled, which they weren't: a client sends those no more."""
    # A socket's path has to be short.
    with tempfile.TemporaryDirectory(prefix="grpc-") as folder:
        codes, status = asyncio.run(_codes_of_calls_under_way(Path(folder)))
    assert (codes, status) == ({grpc.StatusCode.UNAVAILABLE}, 0)
