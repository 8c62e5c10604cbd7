"""The engine's events reach the command whole, whatever comes before or after them."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import events_pb2, events_pb2_grpc

from falaj.stacks.command.events import EventStream, events_of
from falaj.stacks.command.operation import Progress
from falaj.wire.protocol import MESSAGE_OPTIONS


@pytest.fixture
def stream() -> Iterator[EventStream]:
    with EventStream() as events:
        yield events


def send(events: EventStream, sent: list[dict[str, Any]]) -> None:
    """Send a phase's events as the engine does, which goes on when they were taken."""
    address = events.address.removeprefix("tcp://")
    with grpc.insecure_channel(address, options=MESSAGE_OPTIONS) as channel:
        requests = (events_pb2.EventRequest(event=f"{json.dumps(each)}\n") for each in sent)
        events_pb2_grpc.EventsStub(channel).StreamEvents(requests, timeout=30)


def step(name: str, *, planning: bool) -> list[dict[str, Any]]:
    metadata = {"op": "create", "urn": f"urn:pulumi:dev::shop::a:b/c:D::{name}", "type": "a:b/c:D"}
    return [
        {"resourcePreEvent": {"metadata": metadata, "planning": planning}},
        {"resOutputsEvent": {"metadata": metadata, "planning": planning}},
    ]


@pytest.mark.parametrize("when", ["as it comes", "at the end"])
def test_an_update_is_told_whole_after_a_longer_preview(stream: EventStream, when: str) -> None:
    """The engine's file of events is emptied between the two: an update that said less than its
    preview was never seen, and of others the beginning wasn't."""
    progress = Progress(lambda _: None)

    def follow() -> None:
        for event in stream.new():
            progress.take(event)

    preview = [each for name in ("one", "two", "three") for each in step(name, planning=True)]
    send(stream, [*preview, {"summaryEvent": {"resourceChanges": {"create": 3}}}])
    if when == "as it comes":
        follow()
        assert progress.changes == {"create": 3}
    send(stream, step("one", planning=False))
    follow()
    assert (progress.planned, progress.steps, progress.made) == (3, 1, {"create": 1})
    assert progress.changes == {}
    send(stream, [{"summaryEvent": {"resourceChanges": {"create": 1}}}])
    follow()
    assert progress.changes == {"create": 1}


def test_an_event_may_be_as_large_as_the_engines_messages(stream: EventStream) -> None:
    large = {"diagnosticEvent": {"message": "x" * (5 << 20)}}
    send(stream, [large])
    assert list(stream.new()) == [large]


def test_a_phase_that_breaks_off_leaves_what_came(stream: EventStream) -> None:
    def broken() -> Iterator[events_pb2.EventRequest]:
        yield events_pb2.EventRequest(event='{"sequence": 1}\n')
        while not (came := list(stream.new())):
            pass
        assert came == [{"sequence": 1}]
        raise RuntimeError("the engine was killed")

    channel = grpc.insecure_channel(stream.address.removeprefix("tcp://"))
    with channel, pytest.raises((grpc.RpcError, RuntimeError)):
        events_pb2_grpc.EventsStub(channel).StreamEvents(broken(), timeout=30)
    send(stream, [{"sequence": 2}])
    assert list(stream.new()) == [{"sequence": 2}]


def test_nothing_listens_after_the_operation() -> None:
    with EventStream() as events:
        host, port = events.address.removeprefix("tcp://").split(":")
        socket.create_connection((host, int(port)), timeout=5).close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def test_what_is_no_event_is_passed_over() -> None:
    lines = ["", "not json", "[1]", "null", '{"sequence": 1}', '{"half']
    assert list(events_of(lines)) == [{"sequence": 1}]
