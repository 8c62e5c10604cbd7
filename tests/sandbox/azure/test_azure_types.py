"""An input that is called `type` stays as it was given, whatever Resource Manager's type is."""

from __future__ import annotations

import pytest

from falaj.sandbox.clouds.azure import MODEL, resources
from falaj.sandbox.clouds.azure.resources import shape
from falaj.sandbox.schema import Tables
from falaj.sandbox.store import Store


def with_an_input_type() -> list[str]:
    tokens = Tables("azure-native").tokens()
    return [t for t in tokens if (known := shape(t)) and "type" in known.inputs & known.outputs]


def test_every_type_keeps_an_input_that_is_called_type() -> None:
    tokens = with_an_input_type()
    assert {"azure-native:storage:Blob", "azure-native:containerservice:AgentPool"} < set(tokens)
    world = Store(":memory:")
    for token in tokens:
        inputs = {"resourceGroupName": "g", "type": "as given"}
        id = MODEL.identity(token, "name", inputs, {}, f"urn:pulumi:s::p::{token}::name")
        assert MODEL.outputs(token, id, inputs, {}, world)["type"] == "as given", token


@pytest.mark.parametrize(
    ("token", "type"),
    [
        ("azure-native:network:Subnet", "Microsoft.Network/virtualNetworks/subnets"),
        ("azure-native:keyvault:Vault", "Microsoft.KeyVault/vaults"),
    ],
)
def test_what_has_no_such_input_answers_with_resource_managers_type(token: str, type: str) -> None:
    assert resources.shape(token) is not None
    inputs = {"resourceGroupName": "g"}
    id = MODEL.identity(token, "name", inputs, {}, f"urn:pulumi:s::p::{token}::name")
    assert MODEL.outputs(token, id, inputs, {}, Store(":memory:"))["type"] == type
