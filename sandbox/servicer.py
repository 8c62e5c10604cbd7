"""The provider's face towards the engine: gRPC calls in, plain values to the sandbox's cloud."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import grpc
import grpc.aio
from google.protobuf import any_pb2, empty_pb2
from pulumi.runtime import proto
from pulumi.runtime.proto import provider_pb2_grpc, status_pb2

from falaj.engine.errors import EngineError
from falaj.sandbox import diff, urns
from falaj.sandbox.charts import groups
from falaj.sandbox.charts.construct import Warn, construct
from falaj.sandbox.cloud import Cloud
from falaj.sandbox.clouds import vendor
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.errors import PartialError, SandboxError
from falaj.sandbox.foresight import Foresight
from falaj.wire import Values, decode, encode

Answer = TypeVar("Answer")
GrpcContext = grpc.aio.ServicerContext[Any, Any]
Changing = proto.CreateRequest | proto.UpdateRequest

_THREADS: Final = 64

_KINDS: Final = {
    (diff.ADD, False): proto.PropertyDiff.ADD,
    (diff.ADD, True): proto.PropertyDiff.ADD_REPLACE,
    (diff.DELETE, False): proto.PropertyDiff.DELETE,
    (diff.DELETE, True): proto.PropertyDiff.DELETE_REPLACE,
    (diff.UPDATE, False): proto.PropertyDiff.UPDATE,
    (diff.UPDATE, True): proto.PropertyDiff.UPDATE_REPLACE,
}


class SandboxServicer(provider_pb2_grpc.ResourceProviderServicer):
    """Answers the engine for one cloud.

    Args:
        warn: shows a warning beside the stack.
        warn_beside: shows a warning beside a resource, given its URN. Default: beside the stack.
        foresight: answers previews as if they were updates. Default: previews know no more than
            those of a real cloud.
    """

    def __init__(
        self,
        cloud: Cloud,
        warn: Callable[[str], None],
        foresight: Foresight | None = None,
        warn_beside: Warn | None = None,
    ) -> None:
        self._cloud = cloud
        self._warn = warn
        self._warn_beside: Warn = warn_beside or (lambda text, _: warn(text))
        self._foresight = foresight
        self._announced = False
        # One for each resource that the engine works on at a time, and more.
        self._threads = ThreadPoolExecutor(_THREADS) if cloud.waits else None

    async def Handshake(  # noqa: N802 - the name is the protocol's
        self, request: proto.ProviderHandshakeRequest, context: GrpcContext
    ) -> proto.ProviderHandshakeResponse:
        """Take secrets, but neither references nor output values: plain values are enough."""
        del request, context
        return proto.ProviderHandshakeResponse(accept_secrets=True)

    async def GetPluginInfo(  # noqa: N802 - the name is the protocol's
        self, request: empty_pb2.Empty, context: GrpcContext
    ) -> proto.PluginInfo:
        """The version is that of the SDK whose types are checked."""
        del request, context
        return proto.PluginInfo(version=self._cloud.tables.package.version)

    async def GetSchema(  # noqa: N802 - the name is the protocol's
        self, request: proto.GetSchemaRequest, context: GrpcContext
    ) -> proto.GetSchemaResponse:
        """No more than the name and the version: programs use the SDK that is installed."""
        del request, context
        package = self._cloud.tables.package
        document = {"name": package.name, "version": package.version}
        return proto.GetSchemaResponse(schema=json.dumps(document))

    async def Cancel(  # noqa: N802 - the name is the protocol's
        self, request: empty_pb2.Empty, context: GrpcContext
    ) -> empty_pb2.Empty:
        """Stop what waits for a control plane; nothing else takes long."""
        del request, context
        self._cloud.cancel()
        return empty_pb2.Empty()

    async def CheckConfig(  # noqa: N802 - the name is the protocol's
        self, request: proto.CheckRequest, context: GrpcContext
    ) -> proto.CheckResponse:
        """Check the provider's own settings."""

        def work() -> proto.CheckResponse:
            given, _ = decode(request.news)
            problems = self._cloud.check_settings(given)
            return proto.CheckResponse(inputs=request.news, failures=_failures(problems))

        return await self._answer(work, context)

    async def DiffConfig(  # noqa: N802 - the name is the protocol's
        self, request: proto.DiffRequest, context: GrpcContext
    ) -> proto.DiffResponse:
        """Another region or account is another provider; its resources say what that means."""
        old, _ = decode(request.old_inputs if request.old_inputs.fields else request.olds)
        new, _ = decode(request.news)
        return await self._answer(lambda: _diff_response(diff.compare(old, new), False), context)

    async def Configure(  # noqa: N802 - the name is the protocol's
        self, request: proto.ConfigureRequest, context: GrpcContext
    ) -> proto.ConfigureResponse:
        """Take over the provider's own settings, and say loudly that this is the sandbox."""

        def work() -> proto.ConfigureResponse:
            self._cloud.configure(decode(request.args)[0])
            if self._foresight:
                self._foresight.configure(decode(request.args)[0])
            return proto.ConfigureResponse(
                acceptSecrets=True,
                supportsPreview=True,
                acceptResources=False,
                acceptOutputs=False,
            )

        if not self._announced:
            self._announced = True
            self._warn(self._cloud.banner)
        return await self._answer(work, context)

    async def Check(  # noqa: N802 - the name is the protocol's
        self, request: proto.CheckRequest, context: GrpcContext
    ) -> proto.CheckResponse:
        """Check a resource's inputs."""

        def work() -> proto.CheckResponse:
            given, secrets = decode(request.news, assets=True)
            old, _ = decode(request.olds, assets=True)
            if (warning := vendor.warning(urns.token(request.urn))) is not None:
                self._warn_beside(warning, request.urn)
            checked, problems = self._at(request.urn).check(request.urn, given, old)
            return proto.CheckResponse(
                inputs=encode(checked, secrets | self._secrets(request.urn)),
                failures=_failures(problems),
            )

        return await self._answer(work, context)

    async def Diff(  # noqa: N802 - the name is the protocol's
        self, request: proto.DiffRequest, context: GrpcContext
    ) -> proto.DiffResponse:
        """Compare a resource's inputs with those that are wanted."""

        def work() -> proto.DiffResponse:
            state, _ = decode(request.olds, assets=True)
            old, _ = decode(request.old_inputs, assets=True)
            new, _ = decode(request.news, assets=True)
            self._at(request.urn).refuse_foreign(request.urn, request.id, state)
            changes, delete_first = self._at(request.urn).difference(
                request.urn, old, new, request.id, list(request.ignoreChanges)
            )
            return _diff_response(changes, delete_first)

        return await self._answer(work, context)

    async def Create(  # noqa: N802 - the name is the protocol's
        self, request: proto.CreateRequest, context: GrpcContext
    ) -> proto.CreateResponse:
        """Make a resource, or say what it would be like."""

        def work() -> proto.CreateResponse:
            inputs, secrets = decode(request.properties, assets=True)
            secrets |= self._secrets(request.urn)
            if request.preview:
                previewed = self._at(request.urn).preview_create(request.urn, inputs)
                foreseen = self._foresight and self._foresight.create(request.urn, inputs)
                made, outputs = foreseen or ("", previewed)
                return proto.CreateResponse(id=made, properties=encode(outputs, secrets))
            self._foresight = None
            made, outputs = self._at(request.urn).create(
                request.urn, inputs, seconds=request.timeout
            )
            return proto.CreateResponse(id=made, properties=encode(outputs, secrets))

        return await self._answer(work, context, request)

    async def Read(  # noqa: N802 - the name is the protocol's
        self, request: proto.ReadRequest, context: GrpcContext
    ) -> proto.ReadResponse:
        """Find out what is true of a resource; one that is gone has an empty id."""

        def work() -> proto.ReadResponse:
            state, secrets = decode(request.properties, assets=True)
            secrets |= self._secrets(request.urn)
            last, secret_inputs = decode(request.inputs, assets=True)
            found = self._at(request.urn).read(request.urn, request.id, state, last)
            if found is None:
                return proto.ReadResponse()
            outputs: Values = dict(found.outputs)
            inputs: Values = dict(found.inputs)
            return proto.ReadResponse(
                id=request.id,
                properties=encode(outputs, secrets),
                inputs=encode(inputs, secrets | secret_inputs),
            )

        return await self._answer(work, context)

    async def Update(  # noqa: N802 - the name is the protocol's
        self, request: proto.UpdateRequest, context: GrpcContext
    ) -> proto.UpdateResponse:
        """Bring a resource to the inputs that are wanted."""

        def work() -> proto.UpdateResponse:
            state, _ = decode(request.olds, assets=True)
            old, _ = decode(request.old_inputs, assets=True)
            new, secrets = decode(request.news, assets=True)
            secrets |= self._secrets(request.urn)
            if request.preview:
                previewed = self._at(request.urn).preview_update(
                    request.urn, request.id, state, old, new
                )
                foreseen = self._foresight and self._foresight.update(
                    request.urn, request.id, state, new
                )
                outputs = foreseen or previewed
            else:
                self._foresight = None
                outputs = self._at(request.urn).update(
                    request.urn, request.id, state, new, seconds=request.timeout
                )
            return proto.UpdateResponse(properties=encode(outputs, secrets))

        return await self._answer(work, context, request)

    async def Delete(  # noqa: N802 - the name is the protocol's
        self, request: proto.DeleteRequest, context: GrpcContext
    ) -> empty_pb2.Empty:
        """Remove a resource."""

        def work() -> empty_pb2.Empty:
            state, _ = decode(request.properties, assets=True)
            self._at(request.urn).delete(request.urn, request.id, state, seconds=request.timeout)
            return empty_pb2.Empty()

        return await self._answer(work, context)

    async def Invoke(  # noqa: N802 - the name is the protocol's
        self, request: proto.InvokeRequest, context: GrpcContext
    ) -> proto.InvokeResponse:
        """Answer a query."""

        def work() -> proto.InvokeResponse:
            arguments, _ = decode(request.args, assets=True)
            try:
                asked = self._foresight or self._cloud
                answer: Values = asked.invoke(request.tok, arguments)
            except SandboxError as error:
                return proto.InvokeResponse(failures=_failures(error.problems))
            response = proto.InvokeResponse()
            getattr(response, "return").CopyFrom(encode(answer))  # a word of Python's own
            return response

        return await self._answer(work, context)

    async def Construct(  # noqa: N802 - the name is the protocol's
        self, request: proto.ConstructRequest, context: GrpcContext
    ) -> proto.ConstructResponse:
        """Make a component that the vendor's provider makes: a chart, a file of manifests."""

        async def build(inputs: Mapping[str, Any]) -> groups.Group:
            # Helm takes a moment, and the first time it is built.
            return await asyncio.to_thread(
                groups.build, request.type, request.name, inputs, self._cloud.surroundings()
            )

        version = self._cloud.tables.package.version
        return await self._answered(
            construct(request, version, build, self._warn_beside), context, None
        )

    def _at(self, urn: str) -> Cloud:
        return self._cloud.of(urns.token(urn))

    def _secrets(self, urn: str) -> frozenset[str]:
        return vendor.secret_outputs(urns.token(urn))

    async def _answer(
        self,
        work: Callable[[], Answer],
        context: GrpcContext,
        changing: Changing | None = None,
    ) -> Answer:
        """Do it, aside where it may take long; errors are told as `_answered` does."""

        async def done() -> Answer:
            if self._threads is not None:
                return await asyncio.get_running_loop().run_in_executor(self._threads, work)
            return work()

        return await self._answered(done(), context, changing)

    async def _answered(
        self, work: Awaitable[Answer], context: GrpcContext, changing: Changing | None
    ) -> Answer:
        """Turn errors into one plain message; none of them shows a trace."""
        try:
            return await work
        except PartialError as error:
            if changing is not None:
                _attach_state(error, context, changing, self._secrets(changing.urn))
            message = str(error)
        except (EngineError, ValueError) as error:
            message = str(error)
        except Exception as error:
            message = f"an internal error of the sandbox: {type(error).__name__}: {error}; a bug"
        await context.abort(grpc.StatusCode.UNKNOWN, message)
        raise AssertionError("abort always raises")


def _attach_state(
    error: PartialError, context: GrpcContext, changing: Changing, always_secret: frozenset[str]
) -> None:
    """Tell the engine what exists although the operation failed (ErrorResourceInitFailed)."""
    if error.state is None:
        return
    made, outputs, _ = error.state
    is_creation = isinstance(changing, proto.CreateRequest)
    inputs = changing.properties if is_creation else changing.news
    secrets = decode(inputs, assets=True)[1] | always_secret
    detail = proto.ErrorResourceInitFailed(
        id=made,
        properties=encode(dict(outputs), secrets),
        reasons=[str(error)],
        inputs=inputs,
    )
    packed = any_pb2.Any()
    packed.Pack(detail)
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error))
    status.details.append(packed)
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))


def _failures(problems: tuple[Problem, ...] | list[Problem]) -> list[proto.CheckFailure]:
    return [proto.CheckFailure(property=each.path, reason=each.reason) for each in problems]


def _diff_response(changes: list[diff.Change], delete_first: bool) -> proto.DiffResponse:
    tops = {change.path: change.path.partition(".")[0].partition("[")[0] for change in changes}
    return proto.DiffResponse(
        changes=proto.DiffResponse.DIFF_SOME if changes else proto.DiffResponse.DIFF_NONE,
        diffs=list(dict.fromkeys(tops.values())),
        replaces=list(dict.fromkeys(tops[each.path] for each in changes if each.replaces)),
        deleteBeforeReplace=delete_first,
        detailedDiff={
            change.path: proto.PropertyDiff(
                kind=_KINDS[change.kind, change.replaces], inputDiff=True
            )
            for change in changes
        },
        hasDetailedDiff=True,
    )
