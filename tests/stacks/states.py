"""Shipped stacks as the engine writes them, without an engine: after an update or in a preview."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Literal

from pulumi.runtime.mocks import MockMonitor

from falaj.policies.model import is_list
from falaj.sandbox.inprocess import Declared, SandboxMocks
from falaj.wire import Unknown
from tests.stacks.in_mocks import IN_CLUSTER, SIX, declare, shipped

ALL = (*SIX, *IN_CLUSTER)
Form = Literal["state", "preview", "unknown"]
"""``state``: after an update. ``preview``: the sandbox predicts ids, but nothing has one yet.
``unknown``: a preview that knows no ids, as that of a real cloud."""
UNKNOWN_TEXT = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
ROOT_TYPE = "pulumi:pulumi:Stack"


@contextmanager
def _recorded() -> Generator[dict[tuple[str, str], dict[str, Any]]]:
    """What the SDK told the engine of each resource besides its inputs, by type and name."""
    told: dict[tuple[str, str], dict[str, Any]] = {}
    register = MockMonitor.RegisterResource

    def recording(self: MockMonitor, request: Any) -> Any:
        dependencies = {
            key: list(value.urns) for key, value in request.propertyDependencies.items()
        }
        told[request.type, request.name] = {
            "urn": self.make_urn(request.parent, request.type, request.name),
            "parent": request.parent,
            "propertyDependencies": dependencies,
        }
        return register(self, request)

    MockMonitor.RegisterResource = recording
    try:
        yield told
    finally:
        MockMonitor.RegisterResource = register


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if is_list(value):
        return [_plain(each) for each in value]
    return UNKNOWN_TEXT if isinstance(value, Unknown) else value


def _state(each: Declared, told: Mapping[str, Any], form: Form) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": each.type,
        "custom": each.custom,
        "inputs": _plain(each.inputs),
        **({"provider": each.provider} if each.provider else {}),
        **told,
    }
    if each.type.startswith("pulumi:providers:"):
        # The engine keeps settings of providers as texts.
        found["inputs"] = {key: str(value) for key, value in found["inputs"].items()}
    if form == "state":
        found |= {"id": each.id, "outputs": _plain(each.outputs)}
    return found


def _read(each: Declared, told: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    """What the engine knows of a resource that a program only reads."""
    beginning = next(iter(told.values()))["urn"].split("::")[:2]
    return {"urn": "::".join((*beginning, each.type, each.name))}


def states_of(mocks: SandboxMocks, told: Mapping[tuple[str, str], Any], form: Form) -> list[Any]:
    return [
        _state(each, told.get((each.type, each.name), _read(each, told)), form)
        for each in mocks.resources
        if each.type != ROOT_TYPE
    ]


def declared(config: Mapping[str, Any], stack: str, form: Form = "state") -> list[dict[str, Any]]:
    """The resources of a stack of this configuration."""
    return states_of(*_declared(config, stack, form == "unknown"), form)


def _declared(
    config: Mapping[str, Any], stack: str, preview: bool
) -> tuple[SandboxMocks, Mapping[tuple[str, str], Any]]:
    with _recorded() as told:
        return declare(config, stack, preview=preview), told


@cache
def _shipped(stack: str, preview: bool) -> tuple[SandboxMocks, Mapping[tuple[str, str], Any]]:
    """What a shipped stack declares, which takes seconds: two of its forms are made of one."""
    return _declared(shipped(stack), stack, preview)


@cache
def states(stack: str, form: Form = "state") -> tuple[dict[str, Any], ...]:
    """The resources of a shipped stack; one that refers to a foundation makes its own."""
    return tuple(states_of(*_shipped(stack, form == "unknown"), form))


def place(stack: str) -> str:
    """Where a shipped stack is."""
    cloud = stack.partition("-")[0]
    regions = {"aws": "me-central-1", "azure": "uaenorth"}
    return f"{cloud}/{regions[cloud]}" if cloud in regions else "kubernetes/abudhabi-dc1"


def resource(kind: str, name: str = "it", /, **inputs: Any) -> dict[str, Any]:
    """One resource as the engine writes it, made by hand."""
    return {
        "urn": f"urn:pulumi:dev::shop::{kind}::{name}",
        "type": kind,
        "custom": True,
        "inputs": inputs,
    }
