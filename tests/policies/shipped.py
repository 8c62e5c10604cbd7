"""The six shipped stacks as the rules see them, without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from engine.sandbox.mocks import Declared, SandboxMocks
from policies.model import UNKNOWN, Provider, Resource, Stack, is_list
from tests.stacks.in_mocks import SIX, declare, shipped
from wire import Unknown

__all__ = ["SIX", "stack_of", "whole"]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if is_list(value):
        return [_plain(each) for each in value]
    return UNKNOWN if isinstance(value, Unknown) else value


def whole(mocks: SandboxMocks) -> Stack:
    """What a program declared in the mocks, as a stack after its update."""
    return Stack(
        tuple(
            _resource(each, mocks)
            for each in mocks.resources
            if each.type != "pulumi:pulumi:Stack"
        ),
        name="dev",
        project="falaj",
    )


def _resource(declared: Declared, mocks: SandboxMocks) -> Resource:
    identity = declared.provider.rpartition("::")[2]
    found = [each for each in mocks.resources if identity and each.id == identity]
    provider = Provider(found[0].type, _plain(found[0].inputs), found[0].name) if found else None
    return Resource(
        declared.type,
        declared.name,
        _plain(declared.inputs),
        urn=f"urn:pulumi:dev::falaj::{declared.type}::{declared.name}",
        provider=provider,
        outputs=_plain(declared.outputs),
        id=declared.id,
        custom=declared.custom,
    )


@cache
def stack_of(name: str) -> Stack:
    """A shipped stack, one of `SIX`, with its own foundation where it refers to one."""
    return whole(declare(shipped(name), name))
