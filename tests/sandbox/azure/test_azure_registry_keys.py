"""A registry has to reach its key, and is nobody before it exists."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.sandbox import urns
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.inprocess import Sandbox
from tests.sandbox.azure.conftest import PARTS
from tests.sandbox.azure.samples import REGION, Resource, Samples
from tests.sandbox.azure.test_azure_problems import changed

KEY = "encryption.keyVaultProperties.identity"
SYSTEM = "SystemAssigned, UserAssigned"


class Changed(Samples):
    """Samples of which some are given other inputs."""

    def __init__(self, changes: dict[str, dict[str, Any]]) -> None:
        super().__init__(Sandbox("azure", config={"location": REGION}))
        self._changes = changes

    def add(self, key: str, token: str, **inputs: Any) -> Resource:
        for path, value in self._changes.get(key, {}).items():
            inputs = changed(inputs, path, value)
        return super().add(key, token, **inputs)


def registry(of_vault: dict[str, Any], **changes: Any) -> Samples:
    """All samples up to the registry, whose vault and itself are changed."""
    made = Changed({"vault": of_vault, "registry": changes})
    for part in PARTS:
        part(made)
    return made


CLOSED = [
    {"properties.networkAcls": {"defaultAction": "Deny", "bypass": "AzureServices"}},
    {"properties.publicNetworkAccess": "Disabled"},
    {"properties.networkAcls": {"defaultAction": "Deny", "ipRules": [{"value": "10.1.2.3"}]}},
]


@pytest.mark.parametrize("vault", CLOSED)
def test_a_closed_vault_lets_no_registry_in_as_another_identity(vault: dict[str, Any]) -> None:
    with pytest.raises(SandboxError, match="not a trusted service") as caught:
        registry(vault)
    assert "identity: system" in str(caught.value)


@pytest.mark.parametrize("vault", CLOSED)
def test_a_closed_vault_lets_a_registry_in_as_itself(vault: dict[str, Any]) -> None:
    registry(vault, **{KEY: "system", "identity.type": SYSTEM})


def test_not_past_a_firewall_that_trusts_nobody() -> None:
    vault = {"properties.networkAcls": {"defaultAction": "Deny", "bypass": "None"}}
    with pytest.raises(SandboxError, match="bypass"):
        registry(vault, **{KEY: "system", "identity.type": SYSTEM})


def test_it_has_to_be_itself() -> None:
    with pytest.raises(SandboxError, match="SystemAssigned"):
        registry({}, **{KEY: "system"})


def test_a_registry_that_does_not_exist_is_nobody() -> None:
    made = registry({}, **{KEY: "system", "identity.type": SYSTEM})
    given = made.made["registry"].inputs
    cloud = made.sandbox.cloud
    urn = urns.make("stack", "project", "azure-native:containerregistry:Registry", "another")
    with pytest.raises(SandboxError, match="before the registry exists"):
        cloud.refuse_new(urn, given)
    cloud.refuse_new(urn, changed(given, KEY, made.out("identity", "clientId")))
