"""Where data lies on Azure: accounts, containers, the file systems; closed and encrypted."""

from __future__ import annotations

import pytest

from falaj.sandbox.inprocess import Declared
from tests.components.azure.conftest import Deployed
from tests.components.azure.whole_foundation import foundation


@pytest.fixture(scope="module", name="made")
def _made() -> Deployed:
    return foundation()


def accounts(made: Deployed) -> list[Declared]:
    return made.of_type("storage:StorageAccount")


def test_accounts_are_closed(made: Deployed) -> None:
    assert {each.name for each in accounts(made)} == {
        *("net-flows-account", "files-homes-account"),
        *("store-data-account", "store-audit-account", "store-state-account"),
    }
    for each in accounts(made):
        given = each.inputs
        assert given["allowSharedKeyAccess"] is False
        assert given["defaultToOAuthAuthentication"] is True
        assert given["publicNetworkAccess"] == "Disabled"
        assert given["allowBlobPublicAccess"] is False
        assert given["allowCrossTenantReplication"] is False
        assert given["allowedCopyScope"] == "PrivateLink"
        assert given["enableHttpsTrafficOnly"] is True
        assert given["minimumTlsVersion"] == "TLS1_2"
        assert given["isSftpEnabled"] is False
        assert given["isLocalUserEnabled"] is False
        assert given["networkRuleSet"]["defaultAction"] == "Deny"
        assert not given["networkRuleSet"]["ipRules"]


def test_accounts_are_encrypted_with_the_key_of_their_purpose(made: Deployed) -> None:
    keys = {}
    for each in accounts(made):
        encryption = each.inputs["encryption"]
        assert encryption["keySource"] == "Microsoft.Keyvault"
        assert encryption["requireInfrastructureEncryption"] is True
        assert encryption["encryptionIdentity"]["encryptionUserAssignedIdentity"]
        assert "keyVersion" not in encryption["keyVaultProperties"], "follows the newest"
        assert all(service["keyType"] == "Account" for service in encryption["services"].values())
        keys[each.name] = encryption["keyVaultProperties"]["keyName"]
    assert keys == {
        "net-flows-account": "logs",
        "store-data-account": "data",
        "store-audit-account": "logs",
        "store-state-account": "state",
        "files-homes-account": "data",
    }


def test_containers_by_purpose(made: Deployed) -> None:
    names = made.outputs["store.bucket_names"]
    assert names == {
        each: each for each in ("datasets", "models", "checkpoints", "audit", "state")
    }
    ids, stores = made.outputs["store.bucket_ids"], made.outputs["store.store_ids"]
    for purpose, id in ids.items():
        assert id == f"{stores[purpose]}/blobServices/default/containers/{purpose}"
    assert stores["datasets"] == stores["models"] == stores["checkpoints"]
    assert len(set(stores.values())) == 3
    containers = made.of_type("storage:BlobContainer")
    assert {each.inputs["publicAccess"] for each in containers} == {"None"}


def test_objects_can_be_had_back(made: Deployed) -> None:
    for service in made.of_type("storage:BlobServiceProperties"):
        assert service.inputs["isVersioningEnabled"] is True
        assert service.inputs["deleteRetentionPolicy"]["days"] == 30
        assert service.inputs["deleteRetentionPolicy"]["allowPermanentDelete"] is False
        assert service.inputs["containerDeleteRetentionPolicy"]["days"] == 30


def test_audit_logs_are_immutable_in_production(made: Deployed) -> None:
    rule = made.named("store-audit-account").inputs["immutableStorageWithVersioning"]
    assert rule["enabled"] is True
    assert rule["immutabilityPolicy"]["immutabilityPeriodSinceCreationInDays"] == 365
    assert rule["immutabilityPolicy"]["state"] == "Unlocked"
    assert made.named("store-audit-account").inputs["networkRuleSet"]["bypass"] == "AzureServices"
    for name in ("store-data-account", "store-state-account"):
        assert "immutableStorageWithVersioning" not in made.named(name).inputs
        assert made.named(name).inputs["networkRuleSet"]["bypass"] == "None"


def test_everything_is_reached_privately(made: Deployed) -> None:
    reached = {
        connection["privateLinkServiceId"].rpartition("/")[2]: connection["groupIds"]
        for endpoint in made.of_type("network:PrivateEndpoint")
        for connection in endpoint.inputs["privateLinkServiceConnections"]
    }
    assert sorted(group for [group] in reached.values()) == sorted(
        [*["blob"] * 4, "file", "vault", "registry", "azuremonitor"]
    )
    for group in made.of_type("network:PrivateDnsZoneGroup"):
        for zone in group.inputs["privateDnsZoneConfigs"]:
            assert "/privateDnsZones/privatelink." in zone["privateDnsZoneId"]


def test_the_fast_file_system(made: Deployed) -> None:
    account = made.one("netapp:Account").inputs
    assert account["encryption"]["keySource"] == "Microsoft.KeyVault"
    assert account["encryption"]["keyVaultProperties"]["keyName"] == "data"
    pool = made.one("netapp:CapacityPool").inputs
    assert (pool["serviceLevel"], pool["size"]) == ("Ultra", 2048 * 1024**3)
    volume = made.one("netapp:CapacityPoolVolume")
    assert volume.inputs["protocolTypes"] == ["NFSv4.1"]
    assert volume.inputs["zones"] == ["1"]
    assert volume.inputs["encryptionKeySource"] == "Microsoft.KeyVault"
    assert volume.inputs["subnetId"].endswith("/subnets/storage")
    door = made.named("net-keys-endpoint").id
    assert volume.inputs["keyVaultPrivateEndpointResourceId"] == door
    [rule] = volume.inputs["exportPolicy"]["rules"]
    assert "0.0.0.0/0" not in rule["allowedClients"]
    assert (rule["nfsv41"], rule["nfsv3"], rule["cifs"]) == (True, False, False)
    assert made.outputs["files.file_system_id"] == volume.id
    assert made.outputs["files.mount_address"].endswith(":/training")


def test_shared_homes(made: Deployed) -> None:
    share = made.one("storage:FileShare")
    assert share.inputs["enabledProtocols"] == "NFS"
    assert share.inputs["shareQuota"] == 256
    assert share.inputs["rootSquash"] == "RootSquash"
    account = made.named("files-homes-account")
    assert account.inputs["kind"] == "FileStorage"
    assert account.inputs["sku"] == {"name": "Premium_ZRS"}
    host = account.outputs["name"]
    assert made.outputs["files.homes_id"] == share.id
    assert made.outputs["files.homes_address"] == f"{host}.file.core.windows.net:/{host}/homes"
