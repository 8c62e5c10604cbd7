"""What the gRPC servicers of Falaj's providers have in common: messages in, plain values out.

The SDK's servicer wraps every error in a stack trace and takes unknown values for texts. This one
answers a person's mistake with its message alone, and keeps unknowns and secrets right. Protocol:
pulumi/pulumi, proto/pulumi/provider.proto.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, ClassVar, Final, TypeAlias, TypeVar

import grpc
import grpc.aio
from google.protobuf import empty_pb2, struct_pb2

from falaj.wire.protocol import MESSAGE_OPTIONS, plugin_pb2, provider_pb2_grpc
from falaj.wire.protocol import provider_pb2 as proto
from falaj.wire.values import PropertyChange, Values, decode, encode

Answer = TypeVar("Answer")
GrpcContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Changing: TypeAlias = "proto.CreateRequest | proto.UpdateRequest"

_DIFF_KINDS: Final = {
    ("add", False): proto.PropertyDiff.ADD,
    ("add", True): proto.PropertyDiff.ADD_REPLACE,
    ("delete", False): proto.PropertyDiff.DELETE,
    ("delete", True): proto.PropertyDiff.DELETE_REPLACE,
    ("update", False): proto.PropertyDiff.UPDATE,
    ("update", True): proto.PropertyDiff.UPDATE_REPLACE,
}


Failure: TypeAlias = tuple[str, str]
"""The path of an input that is refused, and the reason in words for people."""


class Servicer(provider_pb2_grpc.ResourceProviderServicer, ABC):
    """Answers the engine. A provider says what is checked, compared, made, read and removed.

    Each operation may raise any error; `explained` puts it into words.

    Args:
        version: of the provider's package.
    """

    takes_assets: ClassVar[bool] = False
    """Whether inputs may hold assets and archives."""

    def __init__(self, version: str) -> None:
        self._version = version

    @abstractmethod
    def schema(self) -> str:
        """The package's schema, as JSON."""

    @abstractmethod
    def cancel(self) -> None:
        """Ask everything that runs to stop and keep what it has."""

    @abstractmethod
    async def check_settings(self, given: Values) -> tuple[Values, Sequence[Failure]]:
        """The provider's own settings with defaults, and what is wrong with them."""

    @abstractmethod
    async def diff_settings(self, old: Values, new: Values) -> list[PropertyChange]:
        """What differs between the provider's own settings."""

    @abstractmethod
    async def configure(self, given: Values) -> None:
        """Take over the provider's own settings."""

    @abstractmethod
    async def check(
        self, urn: str, given: Values, old: Values
    ) -> tuple[Values, Sequence[Failure]]:
        """A resource's inputs with defaults, and what is wrong with them."""

    @abstractmethod
    async def diff(
        self, urn: str, id: str, state: Values, old: Values, new: Values,
        *, ignored: Sequence[str],
    ) -> tuple[list[PropertyChange], bool]:  # fmt: skip
        """What differs, and whether a replacement deletes the old resource first."""

    @abstractmethod
    async def create(
        self, urn: str, inputs: Values, *, preview: bool, seconds: float
    ) -> tuple[str, Values]:
        """The id and the outputs of a new resource; in a preview as far as they are known."""

    @abstractmethod
    async def read(
        self, urn: str, id: str, state: Values, inputs: Values
    ) -> tuple[Values, Values] | None:
        """The outputs and the inputs as they really are; None where the resource is gone."""

    @abstractmethod
    async def update(
        self, urn: str, id: str, state: Values, old: Values, new: Values,
        *, preview: bool, seconds: float,
    ) -> Values:  # fmt: skip
        """The outputs of a changed resource; in a preview as far as they are known."""

    @abstractmethod
    async def delete(self, urn: str, id: str, state: Values, *, seconds: float) -> None:
        """Remove a resource."""

    @abstractmethod
    def explained(self, error: Exception) -> str:
        """What people are told of an error; called where it is caught."""

    def secret_outputs(self, urn: str) -> frozenset[str]:
        """Outputs of a resource that are always secret, beside those whose input is."""
        del urn
        return frozenset()

    def failure_details(self, error: Exception, changing: Changing) -> bytes | None:
        """What a failed operation has made all the same, as a packed ``google.rpc.Status``."""
        del error, changing
        return None

    async def Handshake(  # noqa: N802 - the name is the protocol's
        self, request: proto.ProviderHandshakeRequest, context: GrpcContext
    ) -> proto.ProviderHandshakeResponse:
        """Take secrets, but neither references nor output values: plain values are enough."""
        del request, context
        return proto.ProviderHandshakeResponse(accept_secrets=True)

    async def GetPluginInfo(  # noqa: N802 - the name is the protocol's
        self, request: empty_pb2.Empty, context: GrpcContext
    ) -> plugin_pb2.PluginInfo:
        """The package's version."""
        del request, context
        return plugin_pb2.PluginInfo(version=self._version)

    async def GetSchema(  # noqa: N802 - the name is the protocol's
        self, request: proto.GetSchemaRequest, context: GrpcContext
    ) -> proto.GetSchemaResponse:
        """The package's schema."""
        del request, context
        return proto.GetSchemaResponse(schema=self.schema())

    async def Cancel(  # noqa: N802 - the name is the protocol's
        self, request: empty_pb2.Empty, context: GrpcContext
    ) -> empty_pb2.Empty:
        """Stop what runs."""
        del request, context
        self.cancel()
        return empty_pb2.Empty()

    async def CheckConfig(  # noqa: N802 - the name is the protocol's
        self, request: proto.CheckRequest, context: GrpcContext
    ) -> proto.CheckResponse:
        """Check the provider's own settings."""

        async def work() -> proto.CheckResponse:
            given, secrets = decode(request.news)
            checked, failures = await self.check_settings(given)
            return _check_response(checked, secrets, failures)

        return await self.answer(work, context)

    async def DiffConfig(  # noqa: N802 - the name is the protocol's
        self, request: proto.DiffRequest, context: GrpcContext
    ) -> proto.DiffResponse:
        """Compare the provider's own settings."""

        async def work() -> proto.DiffResponse:
            old, _ = decode(request.old_inputs if request.old_inputs.fields else request.olds)
            new, _ = decode(request.news)
            return _diff_response(await self.diff_settings(old, new), delete_first=False)

        return await self.answer(work, context)

    async def Configure(  # noqa: N802 - the name is the protocol's
        self, request: proto.ConfigureRequest, context: GrpcContext
    ) -> proto.ConfigureResponse:
        """Take over the provider's own settings."""

        async def work() -> proto.ConfigureResponse:
            await self.configure(decode(request.args)[0])
            return proto.ConfigureResponse(
                acceptSecrets=True,
                supportsPreview=True,
                acceptResources=False,
                acceptOutputs=False,
            )

        return await self.answer(work, context)

    async def Check(  # noqa: N802 - the name is the protocol's
        self, request: proto.CheckRequest, context: GrpcContext
    ) -> proto.CheckResponse:
        """Check a resource's inputs."""

        async def work() -> proto.CheckResponse:
            given, secrets = self._decode(request.news)
            old, _ = self._decode(request.olds)
            checked, failures = await self.check(request.urn, given, old)
            return _check_response(checked, secrets | self.secret_outputs(request.urn), failures)

        return await self.answer(work, context)

    async def Diff(  # noqa: N802 - the name is the protocol's
        self, request: proto.DiffRequest, context: GrpcContext
    ) -> proto.DiffResponse:
        """Compare a resource with what is wanted."""

        async def work() -> proto.DiffResponse:
            state, _ = self._decode(request.olds)
            old, _ = self._decode(request.old_inputs)
            new, _ = self._decode(request.news)
            changes, delete_first = await self.diff(
                request.urn, request.id, state, old, new, ignored=list(request.ignoreChanges)
            )
            return _diff_response(changes, delete_first=delete_first)

        return await self.answer(work, context)

    async def Create(  # noqa: N802 - the name is the protocol's
        self, request: proto.CreateRequest, context: GrpcContext
    ) -> proto.CreateResponse:
        """Make a resource, or say what it would be like."""

        async def work() -> proto.CreateResponse:
            inputs, secrets = self._decode(request.properties)
            made, outputs = await self.create(
                request.urn, inputs, preview=request.preview, seconds=request.timeout
            )
            secrets |= self.secret_outputs(request.urn)
            return proto.CreateResponse(id=made, properties=encode(outputs, secrets))

        return await self.answer(work, context, request)

    async def Read(  # noqa: N802 - the name is the protocol's
        self, request: proto.ReadRequest, context: GrpcContext
    ) -> proto.ReadResponse:
        """Find out what is true of a resource; one that is gone has an empty id."""

        async def work() -> proto.ReadResponse:
            state, secrets = self._decode(request.properties)
            last, secret_inputs = self._decode(request.inputs)
            secrets |= self.secret_outputs(request.urn)
            found = await self.read(request.urn, request.id, state, last)
            if found is None:
                return proto.ReadResponse()
            outputs, inputs = found
            return proto.ReadResponse(
                id=request.id,
                properties=encode(outputs, secrets),
                inputs=encode(inputs, secrets | secret_inputs),
            )

        return await self.answer(work, context)

    async def Update(  # noqa: N802 - the name is the protocol's
        self, request: proto.UpdateRequest, context: GrpcContext
    ) -> proto.UpdateResponse:
        """Bring a resource to the inputs that are wanted, or say what it would be like."""

        async def work() -> proto.UpdateResponse:
            state, _ = self._decode(request.olds)
            old, _ = self._decode(request.old_inputs)
            new, secrets = self._decode(request.news)
            outputs = await self.update(
                request.urn, request.id, state, old, new,
                preview=request.preview, seconds=request.timeout,
            )  # fmt: skip
            secrets |= self.secret_outputs(request.urn)
            return proto.UpdateResponse(properties=encode(outputs, secrets))

        return await self.answer(work, context, request)

    async def Delete(  # noqa: N802 - the name is the protocol's
        self, request: proto.DeleteRequest, context: GrpcContext
    ) -> empty_pb2.Empty:
        """Remove a resource."""

        async def work() -> empty_pb2.Empty:
            state, _ = self._decode(request.properties)
            await self.delete(request.urn, request.id, state, seconds=request.timeout)
            return empty_pb2.Empty()

        return await self.answer(work, context)

    async def answer(
        self,
        work: Callable[[], Awaitable[Answer]],
        context: GrpcContext,
        changing: Changing | None = None,
    ) -> Answer:
        """Do it, and turn an error into one plain message; none of them shows a trace."""
        try:
            return await work()
        except Exception as error:
            message = self.explained(error)
            details = self.failure_details(error, changing) if changing is not None else None
            if details is not None:
                context.set_trailing_metadata((("grpc-status-details-bin", details),))
        await context.abort(grpc.StatusCode.UNKNOWN, message)
        raise AssertionError("abort always raises")

    def _decode(self, struct: struct_pb2.Struct) -> tuple[Values, frozenset[str]]:
        return decode(struct, assets=self.takes_assets)


async def serve(
    servicer: Servicer, abandoned: Awaitable[None], *, grace_s: float | None = None
) -> None:
    """Serve until the engine ends the process, has abandoned it, or a signal comes.

    The port is printed on the standard output, as the engine expects of a plugin.

    Args:
        servicer: answers the engine; it is cancelled at the end.
        abandoned: done when the engine is gone: one that was killed sends no Cancel.
        grace_s: how long calls may go on after the end. Default: not at all.
    """
    leaving = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, leaving.set)
    server = grpc.aio.server(options=MESSAGE_OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    ends = {asyncio.ensure_future(abandoned), asyncio.ensure_future(leaving.wait())}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    servicer.cancel()
    await server.stop(grace_s)


def _check_response(
    checked: Values, secrets: frozenset[str], failures: Sequence[Failure]
) -> proto.CheckResponse:
    return proto.CheckResponse(
        inputs=encode(checked, secrets),
        failures=[proto.CheckFailure(property=path, reason=reason) for path, reason in failures],
    )


def _diff_response(changes: list[PropertyChange], *, delete_first: bool) -> proto.DiffResponse:
    tops = {change.path: change.path.partition(".")[0].partition("[")[0] for change in changes}
    return proto.DiffResponse(
        changes=proto.DiffResponse.DIFF_SOME if changes else proto.DiffResponse.DIFF_NONE,
        diffs=list(dict.fromkeys(tops.values())),
        replaces=list(dict.fromkeys(tops[each.path] for each in changes if each.replaces)),
        deleteBeforeReplace=delete_first,
        detailedDiff={
            change.path: proto.PropertyDiff(
                kind=_DIFF_KINDS[change.kind, change.replaces], inputDiff=change.is_input
            )
            for change in changes
        },
        hasDetailedDiff=True,
    )
