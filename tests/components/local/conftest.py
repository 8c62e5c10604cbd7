"""The provider as the engine meets it: a process of its own, spoken to over gRPC."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import empty_pb2
from pulumi.runtime import proto
from pulumi.runtime.proto import engine_pb2_grpc, provider_pb2_grpc

from falaj.components.local.provider.handler import Context
from falaj.wire.values import decode, encode

PROVIDER = Path(__file__).parents[3] / "components" / "local" / "provider"


class EngineDouble(engine_pb2_grpc.EngineServicer):
    """Records the messages that the provider sends to the engine."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str, bool]] = []

    def Log(self, request: Any, context: Any) -> empty_pb2.Empty:  # noqa: N802
        del context
        self.messages.append((request.urn, request.message, request.ephemeral))
        return empty_pb2.Empty()


@dataclass
class ProviderClient:
    """Calls the provider with plain values."""

    stub: Any
    engine: EngineDouble
    process: subprocess.Popen[str]

    def urn(self, type_name: str, name: str = "thing") -> str:
        return f"urn:pulumi:dev::project::falaj-local:index:{type_name}::{name}"

    def check(
        self, type_name: str, news: Mapping[str, Any], olds: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, str]]:
        answer = self.stub.Check(
            proto.CheckRequest(urn=self.urn(type_name), news=encode(news), olds=encode(olds or {}))
        )
        failures = {failure.property: failure.reason for failure in answer.failures}
        return decode(answer.inputs)[0], failures

    def create(
        self, type_name: str, inputs: Mapping[str, Any], *, preview: bool = False
    ) -> tuple[str, dict[str, Any]]:
        checked, failures = self.check(type_name, inputs)
        assert failures == {}
        answer = self.stub.Create(
            proto.CreateRequest(
                urn=self.urn(type_name), properties=encode(checked), preview=preview
            ),
            timeout=120,
        )
        return answer.id, decode(answer.properties)[0]

    def diff(
        self, type_name: str, resource_id: str, state: Mapping[str, Any], inputs: Mapping[str, Any]
    ) -> Any:
        checked, failures = self.check(type_name, inputs, state)
        assert failures == {}
        return self.stub.Diff(
            proto.DiffRequest(
                urn=self.urn(type_name), id=resource_id, olds=encode(state), news=encode(checked)
            )
        )

    def update(
        self,
        type_name: str,
        resource_id: str,
        state: Mapping[str, Any],
        inputs: Mapping[str, Any],
        *,
        preview: bool = False,
    ) -> dict[str, Any]:
        checked, failures = self.check(type_name, inputs, state)
        assert failures == {}
        answer = self.stub.Update(
            proto.UpdateRequest(
                urn=self.urn(type_name),
                id=resource_id,
                olds=encode(state),
                news=encode(checked),
                preview=preview,
            ),
            timeout=120,
        )
        return decode(answer.properties)[0]

    def read(
        self, type_name: str, resource_id: str, state: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        answer = self.stub.Read(
            proto.ReadRequest(urn=self.urn(type_name), id=resource_id, properties=encode(state)),
            timeout=60,
        )
        return answer.id, decode(answer.properties)[0]

    def delete(self, type_name: str, resource_id: str, state: Mapping[str, Any]) -> None:
        self.stub.Delete(
            proto.DeleteRequest(urn=self.urn(type_name), id=resource_id, properties=encode(state)),
            timeout=120,
        )


def _start_provider() -> Iterator[ProviderClient]:
    double = EngineDouble()
    server = grpc.server(ThreadPoolExecutor(max_workers=4))
    engine_pb2_grpc.add_EngineServicer_to_server(double, server)
    engine_port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    process = subprocess.Popen(
        [sys.executable, str(PROVIDER), f"127.0.0.1:{engine_port}"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    port = int(process.stdout.readline())
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub: Any = provider_pb2_grpc.ResourceProviderStub(channel)
        yield ProviderClient(stub, double, process)
    process.terminate()
    process.wait(timeout=60)
    process.stdout.close()
    server.stop(grace=None).wait()


@pytest.fixture(scope="module")
def provider() -> Iterator[ProviderClient]:
    """A provider process that the tests of a module share."""
    yield from _start_provider()


@pytest.fixture
def own_provider() -> Iterator[ProviderClient]:
    """A provider process for a test that cancels or ends it."""
    yield from _start_provider()


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A site folder as Workspace makes it."""
    folder = tmp_path / "site"
    folder.mkdir(mode=0o700)
    return folder


@dataclass
class Said:
    """A context for calling handlers directly, and what they reported."""

    lines: list[str] = field(default_factory=list[str])
    statuses: list[str] = field(default_factory=list[str])

    def context(self) -> Context:
        return Context(
            name="thing",
            report=lambda text, passing: (self.statuses if passing else self.lines).append(text),
        )


@pytest.fixture
def said() -> Said:
    return Said()
