"""Components on Azure, declared against the sandbox instead of a cloud."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

import pulumi
import pytest
from pulumi.runtime.mocks import MockMonitor

from falaj.components.azure.provider import RegionProvider
from falaj.sandbox.inprocess import Declared, SandboxMocks
from tests.loops import own_loop

os.environ["PULUMI_ERROR_OUTPUT_STRING"] = "1"

PLACED: dict[str, Any] = {
    "region": "uaenorth",
    "tenant": "acme",
    "owner": "platform@acme.ae",
    "data_class": "confidential",
    "cost_center": "4711",
}
SUBSCRIPTION = "00000000-0000-0000-0000-000000000000"
GROUP = f"/subscriptions/{SUBSCRIPTION}/resourceGroups/acme-dev"
NETWORK = f"{GROUP}/providers/Microsoft.Network/virtualNetworks/acme-dev-network"
VAULT = f"{GROUP}/providers/Microsoft.KeyVault/vaults/acme-keys"
USER = f"{GROUP}/providers/Microsoft.ManagedIdentity/userAssignedIdentities/acme-user"
SOMEBODY = "10000000-0000-0000-0000-000000000001"
SOMEBODY_ELSE = "10000000-0000-0000-0000-000000000002"


def key(purpose: str) -> str:
    """Identifier of a key of the tests' vault."""
    return f"https://acme-keys.vault.azure.net/keys/{purpose}"


Program = Callable[[pulumi.ResourceOptions], Any]


class _Sandbox(SandboxMocks):
    """The sandbox, one question at a time: the SDK asks from several threads."""

    def __init__(self, preview: bool) -> None:
        super().__init__(preview=preview)
        self._one_at_a_time = threading.Lock()

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> Any:
        with self._one_at_a_time:
            return super().new_resource(args)

    def call(self, args: pulumi.runtime.MockCallArgs) -> Any:
        with self._one_at_a_time:
            return super().call(args)


class _Monitor(MockMonitor):
    """Remembers the options that resources were declared with."""

    def __init__(self, mocks: SandboxMocks) -> None:
        super().__init__(mocks)
        self.requests: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        self.requests[request.name] = request
        return super().RegisterResource(request)


class Deployed:
    """What a program declared, and what its component gave back."""

    def __init__(self, mocks: SandboxMocks, monitor: _Monitor) -> None:
        self._mocks = mocks
        self._monitor = monitor
        self.made: Any = None
        self.outputs: dict[str, Any] = {}
        """The component's outputs; empty in previews, where they are unknown."""

    @property
    def resources(self) -> list[Declared]:
        """Everything that was declared, in order."""
        return self._mocks.resources

    @property
    def queries(self) -> list[tuple[str, Mapping[str, Any]]]:
        """What was asked of the cloud."""
        return self._mocks.queries

    def kept(self, name: str) -> bool:
        """Whether a resource is protected in the stack and retained in the cloud."""
        request = self._monitor.requests[name]
        return request.protect and request.retainOnDelete

    def request(self, name: str) -> Any:
        """How a resource was declared to the engine."""
        return self._monitor.requests[name]

    def ignored(self, name: str) -> list[str]:
        """Properties of a resource whose changes are ignored."""
        return list(self._monitor.requests[name].ignoreChanges)

    def named(self, name: str) -> Declared:
        """The one resource of that name."""
        return self._mocks.named(name)

    def of_type(self, token: str) -> list[Declared]:
        """Resources of a type; ``azure-native:`` may be left out."""
        full = token if token.startswith(("azure-native:", "falaj-")) else f"azure-native:{token}"
        return self._mocks.of_type(full)

    def one(self, token: str) -> Declared:
        """The only resource of a type."""
        found = self.of_type(token)
        assert len(found) == 1, [each.name for each in found]
        return found[0]


def deploy(
    program: Program, *, preview: bool = False, stack: str = "dev", region: str = "uaenorth"
) -> Deployed:
    """Run a program that declares components; its refusals are raised here.

    Args:
        program: makes a component, which it returns, with the options that it is given.
        preview: whether ids and computed values are unknown, as in ``pulumi preview``.
        stack: name of the stack.
        region: where the provider is pinned.
    """
    with own_loop():
        mocks = _Sandbox(preview=preview)
        monitor = _Monitor(mocks)
        pulumi.runtime.set_mocks(
            mocks, project="falaj", stack=stack, preview=preview, monitor=monitor
        )
        deployed = Deployed(mocks, monitor)

        @pulumi.runtime.test
        def run() -> pulumi.Output[None]:
            provider = RegionProvider("azure", {"region": region, "account_id": SUBSCRIPTION})
            made = program(pulumi.ResourceOptions(providers=[provider]))
            values = vars(made) if isinstance(made, pulumi.Resource) else made
            outputs = {
                name: value
                for name, value in values.items()
                if isinstance(value, pulumi.Output) and not name.startswith("_")
            }

            def keep(found: dict[str, Any]) -> None:
                deployed.outputs = found

            deployed.made = made
            return pulumi.Output.from_input(outputs).apply(keep)

        run()
    return deployed


@pytest.fixture(name="deploy")
def _deploy() -> Callable[..., Deployed]:
    """`deploy`, for tests."""
    return deploy


@pytest.fixture
def placed() -> dict[str, Any]:
    """What every component takes: confidential data in production."""
    return dict(PLACED)
