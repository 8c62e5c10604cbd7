"""Registers a component and its objects with the engine, as the vendor's provider does."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import grpc.aio
from pulumi.runtime import proto
from pulumi.runtime.proto import resource_pb2, resource_pb2_grpc

from falaj.engine.errors import EngineError
from falaj.sandbox.charts import groups
from falaj.sandbox.charts.groups import Declared
from falaj.wire import SIGNATURE, Values, decode, encode, has_unknown

_REFERENCE: Final = "5cf8f73096256a8f31e491e813e4eb8e"
_MESSAGE_LIMIT: Final = 400 << 20  # the engine's own limit on messages
_SECRET_FIELDS: Final = {"kubernetes:core/v1:Secret": frozenset({"data", "stringData"})}
# What the engine tells of the component's options, by its own names; the children inherit the
# rest from the component.
_OPTIONS: Final = ("protect", "retainOnDelete", "deletedWith")

Warn = Callable[[str, str], None]
"""Shows a warning beside a resource, given its URN."""


async def construct(
    request: proto.ConstructRequest,
    version: str,
    build: Callable[[Mapping[str, Any]], Awaitable[groups.Group]],
    warn: Warn,
) -> proto.ConstructResponse:
    """Make a component with all its objects.

    Args:
        version: of the provider, for objects without one of their own.
        build: the objects, from the component's arguments.
        warn: shows a warning.

    Raises:
        EngineError: the engine refuses the component or one of its objects.
    """
    groups.require_known(request.type)
    inputs, secrets = decode(request.inputs, assets=True)
    options = [("grpc.max_receive_message_length", _MESSAGE_LIMIT)]
    async with grpc.aio.insecure_channel(request.monitorEndpoint, options=options) as channel:
        monitor = resource_pb2_grpc.ResourceMonitorStub(channel)
        urn = await _register_component(monitor, request, inputs, secrets)
        made: list[tuple[str, str]] = []
        if has_unknown(inputs):
            warn(
                f"{request.name}: arguments aren't known before the update; the preview shows "
                "none of its objects",
                urn,
            )
        else:
            group = await build(inputs)
            for text in group.warnings:
                warn(text, urn)
            # What a secret value became can't be told apart in what was rendered.
            group = dataclasses.replace(group, is_secret=bool(secrets))
            made = await _register_all(monitor, request, urn, version, group)
        references = [{SIGNATURE: _REFERENCE, "urn": u, "id": i} for u, i in made]
        outputs = encode({"resources": references})
        await _call(
            monitor.RegisterResourceOutputs,
            resource_pb2.RegisterResourceOutputsRequest(urn=urn, outputs=outputs),
            request.name,
        )
    return proto.ConstructResponse(urn=urn, state=outputs)


async def _register_component(
    monitor: Any, request: proto.ConstructRequest, inputs: Values, secrets: frozenset[str]
) -> str:
    asked = resource_pb2.RegisterResourceRequest(
        type=request.type,
        name=request.name,
        parent=request.parent,
        custom=False,
        object=encode(inputs, secrets),
        dependencies=list(request.dependencies),
        providers=dict(request.providers),
        aliases=list(request.aliases),
        acceptSecrets=True,
        acceptResources=True,
        supportsPartialValues=True,
    )
    for name in _OPTIONS:
        if request.HasField(name) if name != "deletedWith" else request.deletedWith:
            setattr(asked, name, getattr(request, name))
    return (await _call(monitor.RegisterResource, asked, request.name)).urn


async def _register_all(
    monitor: Any,
    request: proto.ConstructRequest,
    parent: str,
    version: str,
    group: groups.Group,
) -> list[tuple[str, str]]:
    """URNs and ids of all objects; each is registered when those it waits for are there."""
    provider = request.providers.get("kubernetes", "")
    tasks: list[asyncio.Task[tuple[str, str]]] = []

    async def register(each: Declared) -> tuple[str, str]:
        waited = [(await tasks[place])[0] for place in each.after]
        hidden = _SECRET_FIELDS.get(each.token, frozenset[str]()) & frozenset(each.manifest)
        if group.is_secret:
            hidden = frozenset(each.manifest) - {"apiVersion", "kind", "metadata"}
        asked = resource_pb2.RegisterResourceRequest(
            type=each.token,
            name=each.name,
            parent=parent,
            custom=True,
            object=encode(dict(each.manifest), hidden),
            dependencies=waited,
            provider=provider,
            version=version,
            acceptSecrets=True,
            supportsPartialValues=True,
        )
        if each.is_kept or (request.HasField("retainOnDelete") and request.retainOnDelete):
            asked.retainOnDelete = True
        answer = await _call(monitor.RegisterResource, asked, each.name)
        return answer.urn, answer.id

    for each in group.objects:
        tasks.append(asyncio.create_task(register(each)))
    done = await asyncio.gather(*tasks, return_exceptions=True)
    for each in done:
        if isinstance(each, BaseException):
            raise each
    return [each for each in done if not isinstance(each, BaseException)]


async def _call(method: Any, asked: Any, name: str) -> Any:
    try:
        return await method(asked)
    except grpc.aio.AioRpcError as error:
        # The engine has said why, beside the resource itself.
        raise EngineError(f"{name} wasn't made: {error.details() or 'see above'}") from error
