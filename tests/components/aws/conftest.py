"""Deploys one component into the sandbox, without an engine."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from inspect import get_annotations, signature
from operator import itemgetter
from typing import Any

import pulumi
import pytest
from pulumi.runtime.mocks import MockMonitor

from falaj.components.aws.key_ring import KeyRing
from falaj.components.aws.provider import RegionProvider
from falaj.components.specification.key_ring import PURPOSES
from falaj.sandbox.inprocess import Declared, SandboxMocks
from tests.loops import own_loop

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

    def __init__(self, *, preview: bool) -> None:
        super().__init__(preview=preview)
        self.requests: list[Any] = []

    def one(self, token: str, name: str = "") -> Declared:
        """The one resource of a type, or of a type and name."""
        (found,) = [each for each in self.of_type(token) if not name or each.name == name]
        return found

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

    def statements(self, name: str, kind: str = "") -> dict[str, Mapping[str, Any]]:
        """The statements of the one policy of a resource's name, by their ids."""
        (found,) = [
            document
            for each, key, document in self.documents()
            if each.name == name and key == "policy" and (not kind or each.type == kind)
        ]
        return {each["Sid"]: each for each in found["Statement"]}


class Monitor(MockMonitor):
    """Keeps the options that resources were registered with."""

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        self.mocks.requests.append(request)
        return super().RegisterResource(request)


Build = Callable[..., Any]


def keys(opts: pulumi.ResourceOptions) -> dict[str, pulumi.Output[str]]:
    """A key for each purpose."""
    ring = KeyRing("keys", {**PLACED}, opts)  # pyright: ignore[reportArgumentType]
    return {purpose: ring.key_ids.apply(itemgetter(purpose)) for purpose in PURPOSES}


def run(build: Build, *, preview: bool = False, region: str = REGION) -> Deployment:
    """Run a program that declares components; what it returns is resolved.

    Args:
        build: makes components with the options given, which carry the region's provider; one
            with two parameters also gets the keys of a key ring by purpose.
        preview: whether outputs of resources stay unknown.
        region: of the provider.
    """
    with own_loop():
        mocks = Deployment(preview=preview)
        monitor = Monitor(mocks)
        pulumi.runtime.set_mocks(
            mocks, project="falaj", stack="dev", preview=preview, monitor=monitor
        )

        @pulumi.runtime.test
        def program() -> pulumi.Output[None]:
            provider = RegionProvider("uae", {"region": region, "account_id": "000000000000"})
            opts = pulumi.ResourceOptions(providers=[provider])
            made = (
                build(opts, keys(opts)) if len(signature(build).parameters) == 2 else build(opts)
            )
            outputs = made
            if isinstance(made, pulumi.ComponentResource):
                # Its own outputs, without the arguments that the SDK puts beside them.
                own = {name for each in type(made).__mro__ for name in get_annotations(each)}
                outputs = {key: value for key, value in vars(made).items() if key in own}

            def keep(value: Any) -> None:
                mocks.returned = value

            return pulumi.Output.from_input(outputs).apply(keep)

        program()
    return mocks


@pytest.fixture(scope="session")
def deploy() -> Callable[..., Deployment]:
    """`run`: deploys and returns what was declared."""
    return run


@pytest.fixture(scope="session")
def placed() -> dict[str, Any]:
    """The shared arguments, of a test environment; copy it to change it."""
    return dict(PLACED)
