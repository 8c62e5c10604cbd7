"""Worker processes as the master has them: how they are started, asked and ended."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson

from falaj.workloads.inference.process import channel
from falaj.workloads.inference.process.channel import Channel
from falaj.workloads.inference.process.further import Asked
from falaj.workloads.inference.process.roles import SERVER
from falaj.workloads.inference.settings import Settings

LAST_WORDS_SECONDS = 5.0
KILL_SECONDS = 5.0
"""Time after the end of a drain before a worker that hangs is killed."""


class WorkerHandle:
    """Starts a worker and talks with it.

    ``state`` is one of starting, ready, serving, draining, ended.
    """

    def __init__(
        self,
        model: str,
        version: int,
        received: Callable[[WorkerHandle, int, bytes], None],
        ended: Callable[[WorkerHandle], None],
    ) -> None:
        self.model = model
        self.version = version
        self.state = "starting"
        self.error: str | None = None
        self.pid = 0
        self.manifest: Mapping[str, Any] = {}
        """What its package says that drift is judged by."""
        self.engine: str | None = None
        """What runs its model, and why that isn't what the package names; None: not known yet, or
        a runtime beside."""
        self.signature: Mapping[str, Any] = {}
        """What its requests and answers are."""
        self.further: Mapping[str, Mapping[str, Any]] = {}
        """What became of each further model in it."""
        self.memory = 0
        """Bytes that its first model takes, as it is estimated."""
        self.share = 0.0
        """Of its answered requests, that it was told to copy."""
        self.stands: dict[str, Any] = {}
        """How it was told that an experiment's candidate is."""
        self._received = received
        self._ended = ended
        self._channel = Channel(self._message, lambda: None)
        self._changed = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self._watch: asyncio.Task[None] | None = None

    @property
    def versions(self) -> dict[str, str]:
        """The version of each model that it can be asked for."""
        of_further = {name: each["version"] for name, each in self.further.items()}
        every = of_further | {self.model: self.version}
        return {name: str(version) for name, version in every.items() if version is not None}

    def facts(self) -> dict[str, Any]:
        """Return what `state.json` says of this worker."""
        return {
            "pid": self.pid, "version": self.version, "state": self.state, "engine": self.engine
        }  # fmt: skip

    async def start(
        self,
        listener: socket.socket,
        path: str,
        configuration: bytes,
        role: str = SERVER,
        further: Mapping[str, Asked] | None = None,
    ) -> None:
        """Start the process and send it its configuration, and what it is there for."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "falaj.workloads.inference.process.worker",
                str(listener.fileno()),
                str(theirs.fileno()),
                str(os.getpid()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(listener.fileno(), theirs.fileno()),
            )
        finally:
            theirs.close()
        self.pid = self._process.pid
        await asyncio.get_running_loop().create_connection(lambda: self._channel, sock=ours)
        document = {
            "path": path, "settings": configuration.decode(), "version": self.version,
            "role": role,
            "further": {name: asdict(each) for name, each in (further or {}).items()},
        }  # fmt: skip
        self._channel.send(channel.CONFIGURE, orjson.dumps(document))
        self._watch = asyncio.create_task(self._watch_process())

    async def _watch_process(self) -> None:
        assert self._process is not None  # noqa: S101 - started
        status = await self._process.wait()
        if self.state == "starting" and self.error is None:
            # The worker had no chance to say why: killed, or a fault of ours (trace on stderr).
            self.error = f"the worker ended while loading ({_reason(status)})"
        # The stream may still hold the worker's last access lines.
        await self._channel.over(LAST_WORDS_SECONDS)
        self._channel.close()
        self._set("ended")
        self._ended(self)

    def _message(self, kind: int, payload: bytes) -> None:
        if kind == channel.READY:
            report = orjson.loads(payload)
            self.manifest, self.engine = report["manifest"], report["engine"]
            self.signature, self.further = report["signature"], report["further"]
            self.memory = report["memory"]
            self._set("ready")
        elif kind == channel.ACCEPTING:
            self._set("serving")
        elif kind == channel.FAILED:
            self.error = str(orjson.loads(payload)["error"])
        else:
            self._received(self, kind, payload)

    def _set(self, state: str) -> None:
        if self.state != "ended" and not (self.state == "draining" and state != "ended"):
            self.state = state
        self._changed.set()

    async def reach(self, *states: str, seconds: float) -> bool:
        """Wait until the worker is in one of the states; False if it ended or took too long."""
        try:
            async with asyncio.timeout(seconds):
                while self.state not in states:
                    if self.state == "ended":
                        return False
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self.error = self.error or f"the worker wasn't {states[0]} after {seconds:g} s"
            return False
        return True

    def accept(self) -> None:
        """Let the worker take connections."""
        self._channel.send(channel.ACCEPT)

    def answer(self, number: bytes, payload: bytes) -> None:
        """Answer a worker's question of this number."""
        self._channel.send(channel.ANSWERED, number + payload)

    def tell(self, kind: int, payload: bytes) -> None:
        """Send the worker a message."""
        self._channel.send(kind, payload)

    async def drain(self, seconds: float, *, leaving: bool) -> None:
        """Let the worker answer what comes for some time, then end it."""
        self._set("draining")
        self._channel.send(channel.DRAIN, orjson.dumps({"seconds": seconds, "leaving": leaving}))
        if not await self.reach("ended", seconds=seconds + KILL_SECONDS):
            self.kill()
            await self.reach("ended", seconds=KILL_SECONDS)

    def kill(self) -> None:
        """End the process at once."""
        if self._process is not None and self.state != "ended":
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()


def _reason(status: int) -> str:
    if status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"exit status {status}; see the server's log"


@dataclass
class Generation:
    """The workers of one configuration and version."""

    settings: Settings
    version: int
    wish: tuple[object, ...]
    listener: socket.socket
    workers: list[WorkerHandle] = field(default_factory=list[WorkerHandle])
    signature: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What their requests and answers are."""
    further: Mapping[str, Asked] = field(default_factory=dict[str, Asked])
    """Which versions of further models they are to have."""
    memory: int = 0
    """Bytes that the first model takes of each, as it is estimated."""
