"""Runs one of the sandbox's providers as the engine's plugin.

``python -m falaj.sandbox.serving PACKAGE ENGINE_ADDRESS``
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeVar

from falaj.engine.short_lived import collect_rarely

# Before what follows is imported, which makes most of what there is to look at.
if __name__ == "__main__":
    collect_rarely()

import grpc
from google.protobuf import any_pb2

from falaj.engine.errors import EngineError
from falaj.engine.languagehost.watch import parent_ended
from falaj.sandbox import activation, models, properties, urns
from falaj.sandbox.charts import groups
from falaj.sandbox.charts.groups import Warn, construct, construct_unmodelled
from falaj.sandbox.cloud import Cloud
from falaj.sandbox.clouds import vendor
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.errors import ModelError, PartialError, SandboxError
from falaj.sandbox.prediction import Prediction
from falaj.sandbox.refusals import RefusalLog
from falaj.sandbox.store import Store
from falaj.wire import Values, decode, encode, servicer
from falaj.wire.protocol import engine_pb2, engine_pb2_grpc, status_pb2
from falaj.wire.protocol import provider_pb2 as proto
from falaj.wire.servicer import Changing, Failure, GrpcContext, Servicer
from falaj.wire.values import PropertyChange

Answer = TypeVar("Answer")

_THREADS: Final = 64


class SandboxServicer(Servicer):
    """Answers the engine for one cloud.

    Args:
        warn: shows a warning beside the stack.
        warn_beside: shows a warning beside a resource, given its URN. Default: beside the stack.
        prediction: answers previews as if they were updates. Default: previews know no more than
            those of a real cloud.
        refusals: where to note what is refused, and go on. Default: a refusal ends the run.
    """

    takes_assets = True

    def __init__(
        self,
        cloud: Cloud,
        warn: Callable[[str], None],
        prediction: Prediction | None = None,
        warn_beside: Warn | None = None,
        refusals: RefusalLog | None = None,
    ) -> None:
        super().__init__(cloud.tables.package.version)
        self._cloud = cloud
        self._warn = warn
        self._warn_beside: Warn = warn_beside or (lambda text, _: warn(text))
        self._prediction = prediction
        self._refusals = refusals
        self._announced = False
        # One for each resource that the engine works on at a time, and more.
        self._threads = ThreadPoolExecutor(_THREADS) if cloud.waits else None

    def schema(self) -> str:
        """No more than the name and the version: programs use the SDK that is installed."""
        package = self._cloud.tables.package
        return json.dumps({"name": package.name, "version": package.version})

    def cancel(self) -> None:
        """Stop what waits for a control plane; nothing else takes long."""
        self._cloud.cancel()

    async def check_settings(self, given: Values) -> tuple[Values, Sequence[Failure]]:
        """The provider's settings as they are, and what is wrong with them."""
        problems = self._cloud.check_settings(given)
        return given, self._refused(f"provider {self._cloud.package}", "", problems)

    async def diff_settings(self, old: Values, new: Values) -> list[PropertyChange]:
        """Another region or account is another provider; its resources say what that means."""
        return properties.compare(old, new)

    async def configure(self, given: Values) -> None:
        """Take over the provider's own settings, and say loudly that this is the sandbox."""
        if not self._announced:
            self._announced = True
            self._warn(self._cloud.banner)
        self._cloud.configure(given)
        if self._prediction:
            self._prediction.configure(given)

    async def check(
        self, urn: str, given: Values, old: Values
    ) -> tuple[Values, Sequence[Failure]]:
        """The inputs with what the cloud fills in, and what it would refuse."""

        def work() -> tuple[Values, Sequence[Failure]]:
            if (warning := vendor.warning(urns.token(urn))) is not None:
                self._warn_beside(warning, urn)
            try:
                checked, problems = self._at(urn).check(urn, given, old)
            except ModelError as error:
                self._noted(error, urns.token(urn), urns.name(urn))
                return given, []
            return checked, self._refused(urns.token(urn), urns.name(urn), problems)

        return await self._done(work)

    async def diff(
        self, urn: str, id: str, state: Values, old: Values, new: Values,
        *, ignored: Sequence[str],
    ) -> tuple[list[PropertyChange], bool]:  # fmt: skip
        """Compare a resource's inputs with those that are wanted."""

        def work() -> tuple[list[PropertyChange], bool]:
            self._at(urn).refuse_foreign(urn, id, state)
            return self._at(urn).difference(urn, old, new, id, list(ignored))

        return await self._done(work)

    async def create(
        self, urn: str, inputs: Values, *, preview: bool, seconds: float
    ) -> tuple[str, Values]:
        """Make a resource, or say what it would be like."""

        def work() -> tuple[str, Values]:
            if preview:
                previewed = self._at(urn).preview_create(urn, inputs)
                try:
                    predicted = self._prediction and self._prediction.create(urn, inputs)
                except (SandboxError, ModelError) as error:
                    self._noted(error, urns.token(urn), urns.name(urn))
                    predicted = None
                return predicted or ("", previewed)
            self._prediction = None
            self._at(urn).refuse_new(urn, inputs)
            return self._at(urn).create(urn, inputs, seconds=seconds)

        return await self._done(work)

    async def read(
        self, urn: str, id: str, state: Values, inputs: Values
    ) -> tuple[Values, Values] | None:
        """What is true of a resource."""
        found = await self._done(lambda: self._at(urn).read(urn, id, state, inputs))
        if found is None and self._refusals and not state:
            token = urns.token(urn)
            reason = f"{id!r} doesn't exist in the sandbox; the program got made-up values"
            self._refusals.note(token, urns.name(urn), [reason])
            return self._at(urn).imagined(token, id), {}
        return None if found is None else (dict(found.outputs), dict(found.inputs))

    async def update(
        self, urn: str, id: str, state: Values, old: Values, new: Values,
        *, preview: bool, seconds: float,
    ) -> Values:  # fmt: skip
        """Bring a resource to the inputs that are wanted, or say what it would be like."""

        def work() -> Values:
            if preview:
                previewed = self._at(urn).preview_update(urn, id, state, old, new)
                predicted = self._prediction and self._prediction.update(urn, id, state, new)
                return predicted or previewed
            self._prediction = None
            return self._at(urn).update(urn, id, state, new, seconds=seconds)

        return await self._done(work)

    async def delete(self, urn: str, id: str, state: Values, *, seconds: float) -> None:
        """Remove a resource."""
        await self._done(lambda: self._at(urn).delete(urn, id, state, seconds=seconds))

    def secret_outputs(self, urn: str) -> frozenset[str]:
        """What the vendor's provider always marks as secret."""
        return vendor.secret_outputs(urns.token(urn))

    def explained(self, error: Exception) -> str:
        """A refusal's own words; what is none of them is a bug of the sandbox."""
        if isinstance(error, EngineError | ValueError):
            return str(error)
        return f"an internal error of the sandbox: {type(error).__name__}: {error}; a bug"

    def failure_details(self, error: Exception, changing: Changing) -> bytes | None:
        """What exists although the operation failed (ErrorResourceInitFailed)."""
        if not isinstance(error, PartialError) or error.state is None:
            return None
        made, outputs, _ = error.state
        is_creation = isinstance(changing, proto.CreateRequest)
        inputs = changing.properties if is_creation else changing.news
        secrets = decode(inputs, assets=True)[1] | self.secret_outputs(changing.urn)
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
        return status.SerializeToString()

    async def Invoke(  # noqa: N802 - the name is the protocol's
        self, request: proto.InvokeRequest, context: GrpcContext
    ) -> proto.InvokeResponse:
        """Answer a query."""

        def work() -> proto.InvokeResponse:
            arguments, _ = decode(request.args, assets=True)
            asked = self._prediction or self._cloud
            try:
                answer: Values = asked.invoke(request.tok, arguments)
            except (SandboxError, ModelError) as error:
                if self._refusals or isinstance(error, ModelError):
                    self._noted(
                        error, request.tok, "", "; the program went on with made-up values"
                    )
                    return _invoked(self._cloud.made_up(request.tok))
                failures = [
                    proto.CheckFailure(property=path, reason=reason)
                    for path, reason in _failures(error.problems)
                ]
                return proto.InvokeResponse(failures=failures)
            return _invoked(answer)

        return await self.answer(lambda: self._done(work), context)

    async def Construct(  # noqa: N802 - the name is the protocol's
        self, request: proto.ConstructRequest, context: GrpcContext
    ) -> proto.ConstructResponse:
        """Make a component that the vendor's provider makes: a chart, a file of manifests."""

        async def build(inputs: Mapping[str, Any]) -> groups.Group:
            # Helm takes a moment, and the first time it is built.
            return await asyncio.to_thread(
                groups.build, request.type, request.name, inputs, self._cloud.capabilities()
            )

        version = self._cloud.tables.package.version
        if not self._cloud.is_modelled:
            found = self._cloud.tables.resource(request.type)
            outputs = () if found is None else found.outputs
            return await self.answer(lambda: construct_unmodelled(request, outputs), context)
        return await self.answer(
            lambda: construct(request, version, build, self._warn_beside), context
        )

    def _refused(self, token: str, name: str, problems: Sequence[Problem]) -> list[Failure]:
        """What the engine is told of problems: nothing, where they are noted instead."""
        if self._refusals is None:
            return _failures(problems)
        self._refusals.note(token, name, problems)
        return []

    def _noted(
        self, error: SandboxError | ModelError, token: str, name: str, then: str = ""
    ) -> None:
        """Note an error and what was done all the same, where that is asked for; else raise it."""
        if self._refusals is None:
            raise error
        reasons = error.problems if isinstance(error, SandboxError) else (error,)
        self._refusals.note(token, name, [f"{each}{then}" for each in reasons])

    def _at(self, urn: str) -> Cloud:
        return self._cloud.of(urns.token(urn))

    async def _done(self, work: Callable[[], Answer]) -> Answer:
        """Do it, aside where it may take long."""
        if self._threads is None:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def _invoked(answer: Values) -> proto.InvokeResponse:
    response = proto.InvokeResponse()
    getattr(response, "return").CopyFrom(encode(answer))  # a word of Python's own
    return response


def _failures(problems: Iterable[Problem]) -> list[Failure]:
    return [(each.path, each.reason) for each in problems]


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
        RefusalLog.of(os.environ),
    )


class _Warnings:
    """Shows warnings beside the stack, over the engine's Log call."""

    def __init__(self, address: str) -> None:
        # The SDK's types of it name a module that the SDK hasn't.
        self._engine: Any = engine_pb2_grpc.EngineStub(grpc.insecure_channel(address))

    def __call__(self, message: str, urn: str = "") -> None:
        request = engine_pb2.LogRequest(severity=engine_pb2.WARNING, message=message, urn=urn)
        # The engine may be on its way out; a deployment isn't to fail for a warning.
        with contextlib.suppress(grpc.RpcError):
            self._engine.Log(request, timeout=5)


def main(arguments: list[str] | None = None) -> int:
    """Serve as the engine asks; 0 ended in order, 2 refused."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("package")
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
