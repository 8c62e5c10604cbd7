"""Stands in for components that run inside a vendor's provider of which there is no model."""

from __future__ import annotations

from collections.abc import Iterable

from pulumi.runtime import proto

from falaj.sandbox.charts.groups import monitor_of, register_component, register_outputs
from falaj.wire import UNKNOWN, decode, encode


async def construct(
    request: proto.ConstructRequest, outputs: Iterable[str]
) -> proto.ConstructResponse:
    """Register a component by its inputs: what it would be made of isn't known.

    Args:
        request: the engine's.
        outputs: the names of what it gives, each of which is unknown.

    Raises:
        EngineError: the engine refuses the component.
    """
    inputs, secrets = decode(request.inputs, assets=True)
    async with monitor_of(request) as monitor:
        urn = await register_component(monitor, request, inputs, secrets)
        given = encode({**inputs, **dict.fromkeys(set(outputs) - set(inputs), UNKNOWN)}, secrets)
        await register_outputs(monitor, request, urn, given)
    return proto.ConstructResponse(urn=urn, state=given)
