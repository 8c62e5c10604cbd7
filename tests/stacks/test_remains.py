"""What a cloud keeps of a stack that was destroyed, and how `down` tells it."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.stacks.command.remains import notices, remains

_VAULT = "/subscriptions/s/resourceGroups/g/providers/Microsoft.KeyVault/vaults/acme"
KEY = {"type": "azure-native:keyvault:Key", "id": f"{_VAULT}/keys/data"}
OF_A_MODULE = {
    "type": "azure-native:resources:Resource",
    "id": _VAULT.replace("vaults", "managedHSMs") + "/keys/data",
}
PLAN: dict[str, Any] = {
    "type": "azure-native:security:Pricing",
    "id": "/subscriptions/s/providers/Microsoft.Security/pricings/Arm",
    "inputs": {"pricingTier": "Standard"},
}
FREE = {**PLAN, "inputs": {"pricingTier": "Free"}}


@pytest.mark.parametrize(
    ("resource", "what"),
    [
        (KEY, "key"),
        (OF_A_MODULE, "key"),
        (PLAN, "plan"),
        ({"type": "azure-native:keyvault:Vault", "id": _VAULT}, None),
        ({"type": "aws:kms/key:Key", "id": "1234"}, None),
    ],
)
def test_what_cant_be_deleted(resource: dict[str, Any], what: str | None) -> None:
    assert remains(resource) == what


def test_what_is_left_is_said_once_with_what_ends_it() -> None:
    keys, plans = notices([PLAN, KEY, OF_A_MODULE, PLAN])
    assert "az keyvault recover" in keys
    assert "billed" in plans
    assert notices([FREE, {"type": "aws:kms/key:Key", "id": "1234"}]) == []
