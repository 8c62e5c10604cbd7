"""Takes the engine's events as it sends them: all of a preview and of the update after it.

The engine can also write them to a file (``--event-log``), but empties that file at the start of
each phase of an operation (pulumi/pulumi v3.255.0, pkg/backend/display/display.go): who reads it
while it grows misses what the second phase writes where the first was read already. A stream is
ended by an answer that the engine waits for, so that nothing of it is missed.
"""

from __future__ import annotations

import json
import queue
from collections.abc import Iterable, Iterator, Mapping
from concurrent import futures
from pathlib import Path
from typing import Any, Final, Self, cast

import grpc
from google.protobuf import empty_pb2

from falaj.wire.protocol import MESSAGE_OPTIONS, events_pb2_grpc

#: One phase's events come after the other's; a second call may begin as the first one ends.
_THREADS: Final = 2


class EventStream(events_pb2_grpc.EventsServicer):
    """The events of one operation, in the form of pulumi/pulumi, sdk/go/common/apitype/events.go.

    Used as ``with EventStream() as events:`` around an operation that is told ``events.address``.
    """

    def __init__(self) -> None:
        """Nothing listens before ``with``."""
        self._came: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._server = grpc.server(
            futures.ThreadPoolExecutor(max_workers=_THREADS), options=MESSAGE_OPTIONS
        )
        self.address = ""
        """What the engine's ``--event-log`` is told."""

    def __enter__(self) -> Self:
        events_pb2_grpc.add_EventsServicer_to_server(self, self._server)
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.address = f"tcp://127.0.0.1:{port}"
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None).wait()

    def StreamEvents(  # noqa: N802 - named by the protocol
        self, request_iterator: Iterable[Any], context: grpc.ServicerContext
    ) -> empty_pb2.Empty:
        """Keep what the engine sends until it has sent all of a phase."""
        for request in request_iterator:
            self._came.put(request.event)
        return empty_pb2.Empty()

    def new(self) -> Iterator[Mapping[str, Any]]:
        """The events that came since the last call."""
        while True:
            try:
                line = self._came.get_nowait()
            except queue.Empty:
                return
            yield from events_of([line])


def events_of(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    """The events in lines of JSON; what is none is passed over."""
    for line in lines:
        try:
            event: Any = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict):
            yield cast("dict[str, Any]", event)


def read_events(path: Path) -> Iterator[Mapping[str, Any]]:
    """The events that an operation of one phase wrote to a file, as a preview does."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        yield from events_of(lines)
