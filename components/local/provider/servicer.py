"""The provider's face towards the engine: gRPC calls in, plain messages out.

The SDK's servicer wraps every error in a stack trace and takes unknown values for texts. This one
answers a person's mistake with its message alone, writes what is truly internal to a log file,
and keeps unknowns and secrets right.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf import empty_pb2
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime import proto

from falaj.components.local.machine.errors import InputsError, LocalError
from falaj.components.local.provider.dispatch import LocalProvider
from falaj.components.local.provider.faults import record_fault
from falaj.components.local.provider.handler import Change
from falaj.wire.values import Values, decode, encode

Answer = TypeVar("Answer")
GrpcContext = grpc.aio.ServicerContext[Any, Any]

_KINDS: Final = {
    # (was there before, is there now, replaces)
    (False, True, False): proto.PropertyDiff.ADD,
    (False, True, True): proto.PropertyDiff.ADD_REPLACE,
    (True, False, False): proto.PropertyDiff.DELETE,
    (True, False, True): proto.PropertyDiff.DELETE_REPLACE,
    (True, True, False): proto.PropertyDiff.UPDATE,
    (True, True, True): proto.PropertyDiff.UPDATE_REPLACE,
}


class LocalServicer(ProviderServicer):
    """Answers the engine for a `LocalProvider`."""

    def __init__(self, provider: LocalProvider, version: str, engine_address: str) -> None:
        super().__init__([], version, provider, engine_address)
        self._local = provider

    async def CheckConfig(  # noqa: N802 - the name is the protocol's
        self, request: proto.CheckRequest, context: GrpcContext
    ) -> proto.CheckResponse:
        """Check the provider's own settings."""

        async def work() -> proto.CheckResponse:
            given, secrets = decode(request.news)
            checked = self._local.check_configuration(given)
            return proto.CheckResponse(inputs=encode(checked, secrets))

        return await self._checked(work, context)

    async def DiffConfig(  # noqa: N802 - the name is the protocol's
        self, request: proto.DiffRequest, context: GrpcContext
    ) -> proto.DiffResponse:
        """The provider's settings never replace a resource: they only say where logs go."""
        del context
        changed = decode(request.olds)[0] != decode(request.news)[0]
        return proto.DiffResponse(
            changes=proto.DiffResponse.DIFF_SOME if changed else proto.DiffResponse.DIFF_NONE
        )

    async def Configure(  # noqa: N802 - the name is the protocol's
        self, request: proto.ConfigureRequest, context: GrpcContext
    ) -> proto.ConfigureResponse:
        """Take over the provider's own settings."""

        async def work() -> proto.ConfigureResponse:
            self._local.configure_site(decode(request.args)[0])
            return proto.ConfigureResponse(
                acceptSecrets=True,
                supportsPreview=True,
                acceptResources=False,
                acceptOutputs=False,
            )

        return await self._plain(work, context)

    async def Check(  # noqa: N802 - the name is the protocol's
        self, request: proto.CheckRequest, context: GrpcContext
    ) -> proto.CheckResponse:
        """Check a resource's inputs."""

        async def work() -> proto.CheckResponse:
            given, secrets = decode(request.news)
            old, _ = decode(request.olds)
            checked = await self._local.check_inputs(request.urn, given, old)
            return proto.CheckResponse(inputs=encode(checked, secrets))

        return await self._checked(work, context)

    async def Diff(  # noqa: N802 - the name is the protocol's
        self, request: proto.DiffRequest, context: GrpcContext
    ) -> proto.DiffResponse:
        """Compare a resource's state with the inputs that are wanted."""

        async def work() -> proto.DiffResponse:
            state, _ = decode(request.olds)
            inputs, _ = decode(request.news)
            difference = await self._local.difference(request.urn, state, inputs)
            ignored = set(request.ignoreChanges)
            changes = {k: v for k, v in difference.changes.items() if k not in ignored}
            some = proto.DiffResponse.DIFF_SOME if changes else proto.DiffResponse.DIFF_NONE
            return proto.DiffResponse(
                changes=some,
                diffs=list(changes),
                replaces=[key for key, change in changes.items() if change.replaces],
                deleteBeforeReplace=difference.delete_before_replace,
                detailedDiff={
                    key: _property_diff(key, change, state, inputs)
                    for key, change in changes.items()
                },
                hasDetailedDiff=True,
            )

        return await self._plain(work, context)

    async def Create(  # noqa: N802 - the name is the protocol's
        self, request: proto.CreateRequest, context: GrpcContext
    ) -> proto.CreateResponse:
        """Make a resource, or say what it would be like."""

        async def work() -> proto.CreateResponse:
            inputs, secrets = decode(request.properties)
            made, outputs = await self._local.make(request.urn, inputs, preview=request.preview)
            return proto.CreateResponse(id=made, properties=encode(outputs, secrets))

        return await self._plain(work, context)

    async def Read(  # noqa: N802 - the name is the protocol's
        self, request: proto.ReadRequest, context: GrpcContext
    ) -> proto.ReadResponse:
        """Find out what is true of a resource; one that is gone has an empty id."""

        async def work() -> proto.ReadResponse:
            state, secrets = decode(request.properties)
            found = await self._local.look(request.urn, request.id, state)
            if found is None:
                return proto.ReadResponse()
            return proto.ReadResponse(
                id=request.id,
                properties=encode(found[0], secrets),
                inputs=encode(found[1], secrets),
            )

        return await self._plain(work, context)

    async def Update(  # noqa: N802 - the name is the protocol's
        self, request: proto.UpdateRequest, context: GrpcContext
    ) -> proto.UpdateResponse:
        """Bring a resource to the inputs that are wanted."""

        async def work() -> proto.UpdateResponse:
            state, _ = decode(request.olds)
            inputs, secrets = decode(request.news)
            outputs = await self._local.change(
                request.urn, request.id, state, inputs, preview=request.preview
            )
            return proto.UpdateResponse(properties=encode(outputs, secrets))

        return await self._plain(work, context)

    async def Delete(  # noqa: N802 - the name is the protocol's
        self, request: proto.DeleteRequest, context: GrpcContext
    ) -> empty_pb2.Empty:
        """Remove a resource."""

        async def work() -> empty_pb2.Empty:
            state, _ = decode(request.properties)
            await self._local.remove(request.urn, request.id, state)
            return empty_pb2.Empty()

        return await self._plain(work, context)

    async def _checked(
        self, work: Callable[[], Awaitable[proto.CheckResponse]], context: GrpcContext
    ) -> proto.CheckResponse:
        """Turn refused inputs into the engine's list of failures."""

        async def inner() -> proto.CheckResponse:
            try:
                return await work()
            except InputsError as error:
                failures = [
                    proto.CheckFailure(property=refusal.property, reason=refusal.reason)
                    for refusal in error.refusals
                ]
                return proto.CheckResponse(failures=failures)

        return await self._plain(inner, context)

    async def _plain(self, work: Callable[[], Awaitable[Answer]], context: GrpcContext) -> Answer:
        """Turn errors into one plain message; traces of internal ones go to a log file."""
        try:
            return await work()
        except (LocalError, InputsError) as error:
            message = str(error)
            if isinstance(error, LocalError) and error.details:
                place = record_fault(self._local.site, error.details)
                message = f"{message}\nthe details are in {place}"
        except asyncio.CancelledError:
            raise
        except Exception as error:
            place = record_fault(self._local.site, traceback.format_exc())
            message = (
                f"an internal error of Falaj's local provider: {type(error).__name__}: {error}\n"
                f"this is a bug; the details are in {place}"
            )
        await context.abort(grpc.StatusCode.UNKNOWN, message)
        raise AssertionError("abort always raises")


def _property_diff(key: str, change: Change, state: Values, inputs: Values) -> proto.PropertyDiff:
    before = state.get(key) is not None
    now = inputs.get(key) is not None if change.is_input else True
    kind = _KINDS.get((before, now, change.replaces), proto.PropertyDiff.UPDATE)
    return proto.PropertyDiff(kind=kind, inputDiff=change.is_input)
