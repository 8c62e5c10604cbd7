"""Keys in a vault: who manages them, who uses them, how long they live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pulumi
import pytest

from falaj.components.azure import KeyRing
from falaj.components.azure.key_ring import refuse_rotation
from tests.components.azure.conftest import PLACED, SOMEBODY, SOMEBODY_ELSE, Deployed
from tests.components.azure.conftest import deploy as deploy_now
from tests.components.azure.foundation import Foundation

Deploy = Callable[..., Deployed]
USES = ("encrypt", "decrypt", "wrap", "unwrap", "sign", "verify", "release", "backup", "purge")


def make(deploy: Deploy, **changes: Any) -> Deployed:
    placed = {name: changes.pop(name) for name in list(changes) if name in PLACED}
    if "environment" in changes:
        placed["environment"] = changes.pop("environment")
    return deploy(lambda opts: Foundation(opts, **placed).keys(**changes))


@pytest.fixture(scope="module", name="usual")
def _usual() -> Deployed:
    return make(deploy_now)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"purposes": []}, "at least one of data"),
        ({"purposes": ["data", "money"]}, r"purposes\[1\]: given 'money'"),
        ({"administrators": ["platform team"]}, "object id"),
        ({"rotation_days": 89}, "from 90 to 2560"),
        ({"deletion_window_days": 6}, "from 7 to 30"),
        ({"managed_hsm": "yes"}, "true or false"),
        ({"managed_hsm": True, "purposes": ["data"]}, "'disks' among them"),
        ({"region": "westeurope"}, "region"),
        ({"rotation_day": 100}, "did you mean 'rotation_days'"),
    ],
)
def test_refuses(deploy: Deploy, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=reason):
        make(deploy, **changes)


def test_the_vault_is_closed(usual: Deployed) -> None:
    vault = usual.one("keyvault:Vault").inputs["properties"]
    assert vault["sku"] == {"family": "A", "name": "premium"}
    assert vault["publicNetworkAccess"] == "Disabled"
    assert vault["enableRbacAuthorization"] is True
    assert vault["enablePurgeProtection"] is True
    assert vault["softDeleteRetentionInDays"] == 30
    assert vault["networkAcls"]["defaultAction"] == "Deny"
    assert vault["networkAcls"]["bypass"] == "AzureServices"
    assert not vault["networkAcls"]["ipRules"]
    assert "accessPolicies" not in vault


def test_a_key_for_each_purpose_in_hardware_with_rotation(usual: Deployed) -> None:
    keys = usual.of_type("keyvault:Key")
    purposes = ["data", "disks", "cluster", "logs", "registry", "state"]
    assert sorted(each.inputs["keyName"] for each in keys) == sorted(purposes)
    for each in keys:
        key = each.inputs["properties"]
        assert (key["kty"], key["keySize"]) == ("RSA-HSM", 4096)
        assert not {"sign", "verify", "release", "import"} & set(key["keyOps"])
        assert key["attributes"]["exportable"] is False
        [action] = key["rotationPolicy"]["lifetimeActions"]
        assert action == {"action": {"type": "rotate"}, "trigger": {"timeAfterCreate": "P365D"}}
        assert each.inputs["tags"]["falaj-purpose"] == each.inputs["keyName"]
        if each.inputs["keyName"] == "cluster":
            # AKS stops where a version that it uses has expired.
            assert "attributes" not in key["rotationPolicy"]
            continue
        assert key["rotationPolicy"]["attributes"]["expiryTime"] == "P455D"
    assert list(usual.outputs["key_ids"]) == purposes
    for purpose, uri in usual.outputs["key_ids"].items():
        assert uri.startswith("https://")
        assert uri.endswith(f".vault.azure.net/keys/{purpose}"), "no version"


def test_what_no_update_changes_of_a_key_is_left_alone(usual: Deployed) -> None:
    for each in usual.of_type("keyvault:Key"):
        fixed = {"tags", *(f"properties.{name}" for name in ("attributes", "keyOps"))}
        assert fixed <= set(usual.ignored(each.name))
        hooks = usual.request(each.name).hooks
        assert list(hooks.before_update) == ["keys-rotation"]


def test_another_rotation_of_a_key_that_exists_is_refused() -> None:
    def policy(days: int) -> dict[str, Any]:
        action = {"action": {"type": "rotate"}, "trigger": {"timeAfterCreate": f"P{days}D"}}
        return {"keyName": "data", "properties": {"rotationPolicy": {"lifetimeActions": [action]}}}

    def updated(had: dict[str, Any] | None, wanted: dict[str, Any]) -> None:
        refuse_rotation(
            pulumi.ResourceHookArgs(
                "urn", "id", "keys-data", "", old_inputs=had, new_inputs=wanted
            )
        )

    updated(policy(90), policy(90))
    with pytest.raises(pulumi.RunError, match=r"after P90D, and P100D was.*/keys/data/rotationp"):
        updated(policy(90), policy(100))
    with pytest.raises(pulumi.RunError, match="rotates after nothing"):
        updated({"keyName": "data"}, policy(100))


def test_rotation_days_and_window(deploy: Deploy) -> None:
    made = make(deploy, rotation_days=90, deletion_window_days=7, purposes=["data"])
    policy = made.one("keyvault:Key").inputs["properties"]["rotationPolicy"]
    assert policy["lifetimeActions"][0]["trigger"] == {"timeAfterCreate": "P90D"}
    assert policy["attributes"] == {"expiryTime": "P180D"}
    vault = made.one("keyvault:Vault").inputs["properties"]
    assert vault["softDeleteRetentionInDays"] == 7


def test_administrators_manage_and_cannot_use(deploy: Deploy) -> None:
    made = make(deploy, administrators=[SOMEBODY, SOMEBODY_ELSE])
    role = made.named("keys-administrator")
    [permissions] = role.inputs["permissions"]
    operations = [*permissions["actions"], *permissions["dataActions"]]
    assert not [each for each in operations for use in USES if use in each.lower()]
    assert "Microsoft.KeyVault/vaults/keys/rotate/action" in operations
    vault = made.one("keyvault:Vault").id
    given = [
        each
        for each in made.of_type("authorization:RoleAssignment")
        if each.inputs["roleDefinitionId"] == role.id
    ]
    assert {each.inputs["principalId"] for each in given} == {SOMEBODY, SOMEBODY_ELSE}
    assert {each.inputs["scope"] for each in given} == {vault}


def test_whoever_deploys_manages_keys_by_default(usual: Deployed) -> None:
    given = usual.named("keys-administrator-deployer")
    assert given.inputs["principalId"]
    assert [token for token, _ in usual.queries] == ["azure-native:authorization:getClientConfig"]


def test_services_wrap_and_unwrap_and_encrypt_with_the_key_of_data_only(usual: Deployed) -> None:
    user = usual.one("managedidentity:UserAssignedIdentity")
    principal = user.outputs["principalId"]
    given = {
        each.inputs["scope"]: each.inputs["roleDefinitionId"]
        for each in usual.of_type("authorization:RoleAssignment")
        if each.inputs["principalId"] == principal
    }
    vault, data = usual.one("keyvault:Vault").id, usual.named("keys-data").id
    assert set(given) == {vault, data}
    assert given[vault].endswith("/e147488a-f6f5-4113-8e2d-b22465e65bf6")
    [allowed] = usual.named("keys-encrypter").inputs["permissions"]
    assert given[data] == usual.named("keys-encrypter").id
    assert [each.rsplit("/keys/")[1] for each in allowed["dataActions"]] == [
        "read",
        "encrypt/action",
        "decrypt/action",
    ]
    assert usual.outputs["key_identity_id"] == user.id


def test_no_key_of_data_no_encrypting(deploy: Deploy) -> None:
    made = make(deploy, purposes=["logs"])
    assert "keys-encrypter" not in {each.name for each in made.resources}
    # Without a key for disks, the first one serves.
    url = made.one("compute:DiskEncryptionSet").inputs["activeKey"]["keyUrl"]
    assert "/keys/logs/" in url


def test_disks_are_encrypted_twice_and_follow_the_key(usual: Deployed) -> None:
    disks = usual.one("compute:DiskEncryptionSet")
    assert disks.inputs["encryptionType"] == "EncryptionAtRestWithPlatformAndCustomerKeys"
    assert disks.inputs["rotationToLatestKeyVersionEnabled"] is True
    assert "/keys/disks/" in disks.inputs["activeKey"]["keyUrl"]
    assert usual.ignored(disks.name) == ["activeKey.keyUrl"]
    assert usual.outputs["disk_encryption_id"] == disks.id


def test_production_is_kept_and_named_for_good(usual: Deployed) -> None:
    for name in ("keys-group", "keys-vault", "keys-data", "keys-user", "keys-use"):
        assert usual.kept(name), name
    assert usual.kept("keys-disks-set")
    assert usual.named("keys-vault").inputs["vaultName"].startswith("acme-dev-keys-")


@pytest.mark.parametrize("environment", ["development", "test"])
def test_others_are_destroyed_and_never_meet_a_deleted_name(
    deploy: Deploy, environment: str
) -> None:
    made = make(deploy, environment=environment)
    held = {each.name for each in made.resources if made.request(each.name).retainOnDelete}
    assert held == {each.name for each in made.of_type("keyvault:Key")}, "they go with the vault"
    assert not any(made.request(each.name).protect for each in made.resources)
    assert "vaultName" not in made.named("keys-vault").inputs
    vault = made.named("keys-vault").inputs["properties"]
    assert vault["softDeleteRetentionInDays"] == 7
    assert vault["enablePurgeProtection"] is True


def test_a_long_name_still_fits(deploy: Deploy) -> None:
    args: Any = {**PLACED, "tenant": "abcdefghijklmnopqrst", "environment": "test"}
    made = deploy(lambda opts: KeyRing("a-key-ring-with-a-long-name", args, opts), stack="x" * 40)
    assert len(made.one("keyvault:Vault").outputs["name"]) <= 24


def test_a_module_of_ones_own(deploy: Deploy) -> None:
    made = make(deploy, managed_hsm=True, administrators=[SOMEBODY])
    module = made.one("keyvault:ManagedHsm")
    settings = module.inputs["properties"]
    assert settings["enablePurgeProtection"] is True
    assert settings["publicNetworkAccess"] == "Disabled"
    assert settings["networkAcls"]["defaultAction"] == "Deny"
    assert settings["initialAdminObjectIds"] == [SOMEBODY]
    assert not settings.get("regions")
    assert made.kept(module.name)
    in_module = {each.inputs["resourceName"] for each in made.of_type("resources:Resource")}
    assert in_module == {"data", "logs", "registry"}
    for each in made.of_type("resources:Resource"):
        assert made.request(each.name).retainOnDelete
        assert "tags" in made.ignored(each.name)
    in_vault = {each.inputs["keyName"] for each in made.of_type("keyvault:Key")}
    assert in_vault == {"disks", "cluster", "state"}
    uris = made.outputs["key_ids"]
    assert list(uris) == ["data", "disks", "cluster", "logs", "registry", "state"]
    assert {each for each, uri in uris.items() if ".managedhsm.azure.net/" in uri} == in_module
