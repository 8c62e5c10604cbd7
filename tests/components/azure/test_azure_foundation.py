"""A whole foundation on Azure: storage, images, audit, duties, files, money, in one deployment."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import pulumi
import pytest

from components.azure._roles import ROLES
from engine.sandbox.mocks import Declared
from tests.components.azure.conftest import Deployed
from tests.components.azure.conftest import deploy as deploy_now
from tests.components.azure.estate import Estate

MEMBERS = {
    duty: [f"10000000-0000-0000-0000-00000000000{position}"]
    for position, duty in enumerate(
        ("provisioner", "trainer", "deployer", "auditor", "key-administrator")
    )
}
PARTS = {
    *("keys", "net", "store", "images", "audit", "people", "trainer", "deployer", "files", "money")
}
#: Kinds that Azure keeps in no region: names, settings of the subscription.
GLOBAL = {
    "azure-native:privatedns:PrivateZone",
    "azure-native:privatedns:VirtualNetworkLink",
    "azure-native:monitor:PrivateLinkScope",
}


def everything(opts: pulumi.ResourceOptions, **placed: Any) -> dict[str, Any]:
    """Every component of a foundation, and of what stands on it; their outputs by component."""
    estate = Estate(opts, **placed)
    store = estate.store()
    parts = {
        "store": store,
        "images": estate.registry(
            upstreams=["quay.io", "mcr.microsoft.com"], repositories=["training", "inference"]
        ),
        "audit": estate.trail(
            alert_emails=["soc@acme.ae"], data_store_id=store.store_ids["datasets"]
        ),
        "people": estate.people(members=MEMBERS, require_mfa=False),
        "trainer": estate.workload("trainer"),
        "deployer": estate.workload("deployer"),
        "files": estate.files(),
        "money": estate.budget(),
    }
    return {
        f"{name}.{output}": value
        for name, part in parts.items()
        for output, value in vars(part).items()
        if isinstance(value, pulumi.Output)
    }


@pytest.fixture(scope="module", name="made")
def _made() -> Deployed:
    return deploy_now(everything)


def own(made: Deployed) -> list[Declared]:
    return [each for each in made.resources if each.type.startswith("azure-native:")]


def test_nothing_stands_anywhere_else(made: Deployed) -> None:
    for each in own(made):
        place = each.inputs.get("location")
        if place == "global":
            assert each.type in GLOBAL, each.name
        elif place is not None:
            assert place == "uaenorth", each.name


def takes(token: str, argument: str) -> bool:
    """Whether the SDK's type has the argument."""
    _, module, kind = token.split(":")
    args = getattr(import_module(f"pulumi_azure_native.{module}"), f"{kind}Args", None)
    return args is not None and argument in inspect.signature(args.__init__).parameters


def test_everything_that_can_carries_tags_and_names_its_place(made: Deployed) -> None:
    for each in own(made):
        if takes(each.type, "tags"):
            assert each.inputs["tags"]["falaj:tenant"] == "acme", each.name
            assert each.inputs["tags"]["falaj:data-class"] == "confidential", each.name
            assert {"falaj:owner", "falaj:cost-center"} <= set(each.inputs["tags"]), each.name
            assert each.inputs["tags"]["falaj:component"] in PARTS, each.name
        if takes(each.type, "location") and each.type != "azure-native:resources:Resource":
            assert each.inputs.get("location"), each.name


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from texts(each)
    elif isinstance(value, str):
        yield value


def test_nothing_names_a_region_abroad(made: Deployed) -> None:
    abroad = ("westeurope", "northeurope", "eastus", "uksouth", "centralindia", "qatarcentral")
    for each in own(made):
        assert not [text for text in texts(each.inputs) if text.lower() in abroad], each.name


def test_production_keeps_what_holds_data(made: Deployed) -> None:
    holding = {
        *("StorageAccount", "BlobContainer", "FileShare", "Vault", "Key", "Registry", "Workspace"),
        *("Cluster", "Account", "CapacityPool", "CapacityPoolVolume", "DiskEncryptionSet"),
    }
    found = [each for each in own(made) if each.type.split(":")[2] in holding]
    assert len(found) > 20
    assert [each.name for each in found if not made.kept(each.name)] == []


def test_no_role_allows_everything(made: Deployed) -> None:
    roles = made.of_type("authorization:RoleDefinition")
    assert len(roles) >= 7
    for role in roles:
        for permissions in role.inputs["permissions"]:
            actions = [*permissions["actions"], *permissions["dataActions"]]
            assert actions
            wild = [each for each in actions if "*" in each]
            assert wild == (["*/read"] if role.name == "people-auditor" else []), role.name


# Storage


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


# Images


def test_the_registry_is_private(made: Deployed) -> None:
    given = made.one("containerregistry:Registry").inputs
    assert given["sku"] == {"name": "Premium"}
    assert given["adminUserEnabled"] is False
    assert given["anonymousPullEnabled"] is False
    assert given["publicNetworkAccess"] == "Disabled"
    assert given["networkRuleSet"]["defaultAction"] == "Deny"
    assert given["zoneRedundancy"] == "Enabled"
    policies = {name: each["status"] for name, each in given["policies"].items()}
    assert policies == {
        "exportPolicy": "disabled",
        "quarantinePolicy": "disabled",
        "retentionPolicy": "enabled",
        "softDeletePolicy": "disabled",
        "trustPolicy": "disabled",
    }
    key = given["encryption"]["keyVaultProperties"]
    assert key["keyIdentifier"].endswith("/keys/registry")
    user = made.named("keys-user")
    assert list(given["identity"]["userAssignedIdentities"]) == [user.id]
    assert key["identity"] == user.outputs["clientId"]
    assert not made.of_type("containerregistry:Replication")


def test_images_are_pulled_through_from_named_registries_only(made: Deployed) -> None:
    rules = {
        each.inputs["sourceRepository"]: each.inputs["targetRepository"]
        for each in made.of_type("containerregistry:CacheRule")
    }
    assert rules == {
        "mcr.microsoft.com/*": "aks-managed-repository/*",
        "quay.io/*": "quay-io/*",
    }


def test_repositories(made: Deployed) -> None:
    host = made.outputs["images.registry_host"]
    assert host.endswith(".azurecr.io")
    assert made.outputs["images.repository_urls"] == {
        "training": f"{host}/training",
        "inference": f"{host}/inference",
    }
    registry = made.outputs["images.registry_id"]
    assert set(made.outputs["images.repository_ids"].values()) == {registry}


# Audit


def test_logs_are_searched_privately_and_kept(made: Deployed) -> None:
    workspace = made.one("operationalinsights:Workspace")
    given = workspace.inputs
    assert given["publicNetworkAccessForIngestion"] == "Disabled"
    assert given["publicNetworkAccessForQuery"] == "Disabled"
    assert given["retentionInDays"] == 365
    assert given["features"]["disableLocalAuth"] is True
    scope = made.one("monitor:PrivateLinkScope").inputs["accessModeSettings"]
    assert scope == {"ingestionAccessMode": "PrivateOnly", "queryAccessMode": "PrivateOnly"}
    assert made.outputs["audit.log_destination_id"] == workspace.id
    lock = made.one("authorization:ManagementLockByScope").inputs
    assert (lock["scope"], lock["level"]) == (workspace.id, "CanNotDelete")


def test_logs_have_no_cluster_of_their_own_unless_it_is_asked_for(made: Deployed) -> None:
    assert not made.of_type("operationalinsights:Cluster")


def test_what_is_recorded_goes_into_search_and_archive(made: Deployed) -> None:
    workspace = made.outputs["audit.log_destination_id"]
    archive = made.named("store-audit-account").id
    activities = made.one("monitor:SubscriptionDiagnosticSetting")
    assert activities.id == made.outputs["audit.trail_id"]
    assert {each["category"] for each in activities.inputs["logs"]} >= {
        "Administrative",
        "Security",
        "Policy",
    }
    recorded = {
        each.name: (each.inputs["resourceUri"], each.inputs.get("storageAccountId"))
        for each in made.of_type("monitor:DiagnosticSetting")
    }
    assert recorded == {
        "audit-keys": (made.named("keys-vault").id, archive),
        "audit-data": (f"{made.named('store-data-account').id}/blobServices/default", archive),
        "audit-archive": (f"{archive}/blobServices/default", None),
    }
    assert activities.inputs["storageAccountId"] == archive
    for each in [activities, *made.of_type("monitor:DiagnosticSetting")]:
        assert each.inputs["workspaceId"] == workspace


def test_threats_are_looked_for_but_not_in_the_data(made: Deployed) -> None:
    plans = {each.inputs["pricingName"]: each.inputs for each in made.of_type("security:Pricing")}
    assert set(plans) == {"Arm", "KeyVaults", "StorageAccounts", "Containers", "VirtualMachines"}
    assert {each["pricingTier"] for each in plans.values()} == {"Standard"}
    looks = {
        each["name"]: each["isEnabled"]
        for plan in plans.values()
        for each in plan.get("extensions", [])
    }
    assert looks["OnUploadMalwareScanning"] == "False"
    assert looks["SensitiveDataDiscovery"] == "False"
    assert looks["AgentlessVmScanning"] == "False"
    contact = made.one("security:SecurityContact").inputs
    assert contact["emails"] == "soc@acme.ae"
    assert contact["notificationsSources"] == [
        {"sourceType": "Alert", "minimalSeverity": "Medium"}
    ]


# Duties


def rights(made: Deployed, duty: str) -> dict[str, str]:
    """Role definitions of a duty's member, by scope."""
    return {
        each.inputs["scope"]: each.inputs["roleDefinitionId"].rpartition("/")[2]
        for each in made.of_type("authorization:RoleAssignment")
        if each.inputs["principalId"] == MEMBERS[duty][0]
    }


def test_each_duty_is_given_where_it_is_needed(made: Deployed) -> None:
    ids = made.outputs["store.bucket_ids"]
    registry = made.outputs["images.registry_id"]
    subscription = "/subscriptions/00000000-0000-0000-0000-000000000000"
    vault = made.named("keys-vault").id
    own_role = {
        duty: id.rpartition("/")[2] for duty, id in made.outputs["people.role_ids"].items()
    }
    reader = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
    assert rights(made, "trainer") == {
        ids["datasets"]: reader,
        ids["checkpoints"]: own_role["trainer"],
        ids["models"]: own_role["trainer"],
        registry: own_role["trainer"],
    }
    assert rights(made, "deployer") == {
        ids["models"]: own_role["deployer"],
        registry: own_role["deployer"],
    }
    assert rights(made, "auditor") == {
        subscription: own_role["auditor"],
        made.named("store-audit-account").id: reader,
    }
    assert rights(made, "key-administrator") == {vault: own_role["key-administrator"]}
    assert set(rights(made, "provisioner")) == {
        subscription,
        ids["state"],
        f"{vault}/keys/state",
    }
    assert made.outputs["people.boundary_id"] is None


def permissions(made: Deployed, duty: str) -> dict[str, list[str]]:
    [found] = made.named(f"people-{duty}").inputs["permissions"]
    return found


def test_who_sees_no_data(made: Deployed) -> None:
    for duty in ("provisioner", "auditor"):
        assert permissions(made, duty)["dataActions"] == []
        assert not [each for each in permissions(made, duty)["actions"] if "listKeys" in each]


def test_the_provisioner_deletes_nothing_that_holds_data(made: Deployed) -> None:
    actions = permissions(made, "provisioner")["actions"]
    deleting = [each for each in actions if each.endswith("/delete")]
    assert deleting
    for holding in (
        "Microsoft.Storage",
        "Microsoft.KeyVault",
        "Microsoft.NetApp",
        "workspaces",
        "resourceGroups",
        "amlFilesystems",
    ):
        assert not [each for each in deleting if holding in each]
    assert not [each for each in actions if "/roleDefinitions/write" in each]
    assert not [each for each in actions if "/locks/" in each]


def test_the_provisioner_makes_what_components_are_made_of(made: Deployed) -> None:
    actions = set(permissions(made, "provisioner")["actions"])
    assert {
        "Microsoft.Network/privateDnsZones/A/write",
        "Microsoft.App/managedEnvironments/join/action",
        "Microsoft.Compute/proximityPlacementGroups/write",
        "Microsoft.ContainerService/managedClusters/listClusterUserCredential/action",
        "Microsoft.OperationalInsights/workspaces/sharedKeys/action",
    } <= actions
    assert not [each for each in actions if "*" in each or "listClusterAdmin" in each]


def test_the_provisioner_grants_what_components_grant(made: Deployed) -> None:
    [given] = [
        each
        for each in made.of_type("authorization:RoleAssignment")
        if each.inputs["principalId"] == MEMBERS["provisioner"][0] and each.inputs.get("condition")
    ]
    condition = given.inputs["condition"]
    assert given.inputs["conditionVersion"] == "2.0"
    assert condition.count("(") == condition.count(")")
    assert condition.count("GuidEquals") == condition.count("AND @") == 4
    user, viewer, pull = (
        ROLES["Azure Kubernetes Service Cluster User Role"],
        ROLES["Azure Kubernetes Service RBAC Reader"],
        ROLES["AcrPull"],
    )
    assert condition.count("{'Group'} AND @Request") == 1
    for half in condition.split(") AND (")[:2]:
        services, people = half.split("{'Group'}")
        assert pull in services
        assert pull not in people
        assert user in people
        assert viewer in people
        assert user not in services
    powerful = (
        "8e3af657-a8ff-443c-a75c-2fe8c4bcb635",  # Owner
        "b24988ac-6180-42a0-ab88-20f7382dd24c",  # Contributor
        "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9",  # User Access Administrator
        "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b",  # RBAC Cluster Admin of AKS
        "00482a5a-887f-4fb3-b363-3b7fe8e74483",  # Key Vault Administrator
    )
    assert not [each for each in powerful if each in condition]


def test_pods_get_what_their_duty_needs(made: Deployed) -> None:
    ids = made.outputs["store.bucket_ids"]
    reader = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
    writer = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
    expected = {
        "trainer": {ids["datasets"]: reader, ids["checkpoints"]: writer, ids["models"]: writer},
        "deployer": {ids["models"]: reader},
    }
    for duty, wanted in expected.items():
        identity = made.named(f"{duty}-identity")
        found = {
            each.inputs["scope"]: each.inputs["roleDefinitionId"].rpartition("/")[2]
            for each in made.of_type("authorization:RoleAssignment")
            if each.inputs["principalId"] == identity.outputs["principalId"]
        }
        assert found == wanted
        assert made.outputs[f"{duty}.identity_id"] == identity.outputs["clientId"]
        credential = made.named(f"{duty}-credential").inputs
        assert credential["subject"] == "system:serviceaccount:training:jobs"
        assert credential["audiences"] == ["api://AzureADTokenExchange"]
        assert credential["issuer"].startswith("https://uaenorth.oic.prod-aks.azure.com/")


# Files and money


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


def test_the_budget_of_the_tenant(made: Deployed) -> None:
    budget = made.one("consumption:Budget")
    given = budget.inputs
    assert given["amount"] == 20000
    assert given["filter"]["tags"] == {
        "name": "falaj:tenant",
        "operator": "In",
        "values": ["acme"],
    }
    alerts = given["notifications"]
    assert {title: each["threshold"] for title, each in alerts.items()} == {
        "actual-50": 50,
        "actual-80": 80,
        "actual-100": 100,
        "forecast": 100,
    }
    assert alerts["forecast"]["thresholdType"] == "Forecasted"
    assert all(each["contactEmails"] == ["finance@acme.ae"] for each in alerts.values())
    assert made.ignored(budget.name) == ["timePeriod"]
    assert made.outputs["money.budget_id"] == budget.id
