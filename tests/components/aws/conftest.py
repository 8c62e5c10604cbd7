"""Deploys one component into the sandbox, without an engine."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pytest
from pulumi.runtime.mocks import MockMonitor

from components.aws.provider import RegionProvider
from engine.sandbox.mocks import Declared, SandboxMocks

os.environ.setdefault("PULUMI_ERROR_OUTPUT_STRING", "1")

REGION = "me-central-1"

#: What every component takes. The region's status is acknowledged by its date.
PLACED = {
    "region": REGION,
    "tenant": "acme",
    "owner": "platform@acme.example",
    "data_class": "restricted",
    "cost_center": "ai-42",
    "environment": "test",
    "acknowledge_degraded": "2026-04-30",
}


class Deployment(SandboxMocks):
    """What was declared, and what the program returned with its outputs resolved."""

    returned: Any = None
    _lock = threading.RLock()

    def __init__(self, *, preview: bool) -> None:
        super().__init__(preview=preview)
        self.requests: list[Any] = []

    def new_resource(self, args: Any) -> Any:
        with self._lock:
            return super().new_resource(args)

    def kept(self) -> dict[str, tuple[bool, bool]]:
        """Whether each resource is protected and retained, by type and name."""
        return {
            f"{each.type} {each.name}": (each.protect, each.retainOnDelete)
            for each in self.requests
        }

    def documents(self) -> list[tuple[Declared, str, Mapping[str, Any]]]:
        """Every policy document: the resource, the property, the document."""
        found: list[tuple[Declared, str, Mapping[str, Any]]] = []
        for each in self.resources:
            for key, value in each.inputs.items():
                if isinstance(value, str) and value.startswith('{"Version":'):
                    found.append((each, key, json.loads(value)))
        return found

    def statements(self, name: str, key: str = "policy") -> dict[str, Mapping[str, Any]]:
        """The statements of one resource's document by their ids."""
        document = json.loads(self.named(name).inputs[key])
        return {each["Sid"]: each for each in document["Statement"]}


class Monitor(MockMonitor):
    """Keeps the options that resources were registered with."""

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        self.mocks.requests.append(request)
        return super().RegisterResource(request)


Build = Callable[[pulumi.ResourceOptions], Any]


def run(build: Build, *, preview: bool = False, region: str = REGION) -> Deployment:
    """Run a program that declares components; what it returns is resolved.

    Args:
        build: makes components with the options given, which carry the region's provider.
        preview: whether outputs of resources stay unknown.
        region: of the provider.
    """
    asyncio.set_event_loop(asyncio.new_event_loop())
    mocks = Deployment(preview=preview)
    monitor = Monitor(mocks)
    pulumi.runtime.set_mocks(mocks, project="falaj", stack="dev", preview=preview, monitor=monitor)

    @pulumi.runtime.test
    def program() -> pulumi.Output[None]:
        provider = RegionProvider("uae", {"region": region, "account_id": "000000000000"})
        made = build(pulumi.ResourceOptions(providers=[provider]))
        outputs = made
        if isinstance(made, pulumi.ComponentResource):
            # Its own outputs, without the arguments that the SDK puts beside them.
            own = type(made).__annotations__
            outputs = {key: value for key, value in vars(made).items() if key in own}

        def keep(value: Any) -> None:
            mocks.returned = value

        return pulumi.Output.from_input(outputs).apply(keep)

    program()
    return mocks


@pytest.fixture
def deploy() -> Callable[..., Deployment]:
    """`run`: deploys and returns what was declared."""
    return run


@pytest.fixture
def placed() -> dict[str, Any]:
    """The shared arguments, of a test environment."""
    return dict(PLACED)
