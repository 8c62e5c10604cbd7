"""The six shipped stacks as the rules see them, without an engine."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from pulumi.runtime.mocks import MockMonitor

from falaj.policies.model import UNKNOWN, Options, Provider, Resource, Stack, is_list
from falaj.sandbox.inprocess import Declared, SandboxMocks
from falaj.wire import Unknown
from tests.stacks.in_mocks import SIX, declare, shipped

__all__ = ["SIX", "stack_of", "whole"]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if is_list(value):
        return [_plain(each) for each in value]
    return UNKNOWN if isinstance(value, Unknown) else value


def whole(mocks: SandboxMocks, options: Mapping[tuple[str, str], Options] | None = None) -> Stack:
    """What a program declared in the mocks, as a stack after its update."""
    return Stack(
        tuple(
            _resource(each, mocks, (options or {}).get((each.type, each.name), Options()))
            for each in mocks.resources
            if each.type != "pulumi:pulumi:Stack"
        ),
        name="dev",
        project="falaj",
    )


def _resource(declared: Declared, mocks: SandboxMocks, options: Options) -> Resource:
    identity = declared.provider.rpartition("::")[2]
    found = [each for each in mocks.resources if identity and each.id == identity]
    provider = Provider(found[0].type, _plain(found[0].inputs), found[0].name) if found else None
    return Resource(
        declared.type,
        declared.name,
        _plain(declared.inputs),
        urn=f"urn:pulumi:dev::falaj::{declared.type}::{declared.name}",
        provider=provider,
        options=options,
        outputs=_plain(declared.outputs),
        id=declared.id,
        custom=declared.custom,
    )


@contextmanager
def _recorded() -> Generator[dict[tuple[str, str], Options]]:
    """The options of what is declared meanwhile, which the SDK's mocks aren't told."""
    options: dict[tuple[str, str], Options] = {}
    register = MockMonitor.RegisterResource

    def recording(self: MockMonitor, request: Any) -> Any:
        options[request.type, request.name] = Options(
            protect=request.protect, retain_on_delete=request.retainOnDelete
        )
        return register(self, request)

    MockMonitor.RegisterResource = recording
    try:
        yield options
    finally:
        MockMonitor.RegisterResource = register


@cache
def stack_of(name: str) -> Stack:
    """A shipped stack, one of `SIX`, with its own foundation where it refers to one."""
    return stack_with(shipped(name), name)


def stack_with(config: Mapping[str, Any], name: str = "dev") -> Stack:
    """A stack of this configuration, likewise."""
    with _recorded() as options:
        stack = whole(declare(config, name), options)
    if foundation := config.get("falaj:foundation"):
        reference = Resource("pulumi:pulumi:StackReference", str(foundation), {"name": foundation})
        return Stack((*stack.resources, reference), stack.name, stack.project)
    return stack
