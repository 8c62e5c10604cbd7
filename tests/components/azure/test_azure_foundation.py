"""A whole foundation on Azure: places, tags, images, audit, money, in one deployment."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import pulumi
import pytest

from tests.components.azure.conftest import Deployed, deploy
from tests.components.azure.foundation import Foundation
from tests.components.azure.whole_foundation import foundation, own

PARTS = {
    *("keys", "net", "store", "images", "audit", "people", "trainer", "deployer", "files", "money")
}
#: Kinds that Azure keeps in no region: names, settings of the subscription.
GLOBAL = {
    "azure-native:privatedns:PrivateZone",
    "azure-native:privatedns:VirtualNetworkLink",
    "azure-native:monitor:PrivateLinkScope",
}


@pytest.fixture(scope="module", name="made")
def _made() -> Deployed:
    return foundation()


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
            assert each.inputs["tags"]["falaj-tenant"] == "acme", each.name
            assert each.inputs["tags"]["falaj-data-class"] == "confidential", each.name
            assert {"falaj-owner", "falaj-cost-center"} <= set(each.inputs["tags"]), each.name
            assert each.inputs["tags"]["falaj-component"] in PARTS, each.name
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
    # Its own identity gets through the closed vault's firewall, and may use its key alone.
    assert key["identity"] == "system"
    assert given["identity"]["type"] == "SystemAssigned, UserAssigned"
    registry = made.one("containerregistry:Registry")
    use = made.named("images-use").inputs
    assert use["principalId"] == registry.outputs["identity"]["principalId"]
    assert use["scope"] == made.named("keys-registry").id
    assert not made.of_type("containerregistry:Replication")


def test_the_registry_is_made_with_a_key_of_an_open_vault_that_holds_nothing_else() -> None:
    def first(opts: pulumi.ResourceOptions) -> dict[str, Any]:
        return {"id": Foundation(opts).registry(first_key=True).registry_id}

    made = deploy(first)
    vault, key = made.named("images-first"), made.named("images-first-key")
    assert vault.inputs["properties"]["publicNetworkAccess"] == "Enabled"
    assert vault.inputs["properties"]["enablePurgeProtection"] is True
    assert not made.kept(vault.name)
    # The engine asks nobody to delete the key: it goes with its vault.
    assert made.request(key.name).deletedWith.endswith(f"::{vault.name}")
    given = made.one("containerregistry:Registry").inputs["encryption"]["keyVaultProperties"]
    user = made.named("keys-user")
    assert given == {"keyIdentifier": key.outputs["keyUri"], "identity": user.outputs["clientId"]}
    use = made.named("images-first-use").inputs
    assert (use["scope"], use["principalId"]) == (vault.id, user.outputs["principalId"])
    # What the next update needs is granted in this one, and the tenant's own vault stays closed.
    assert made.named("images-use").inputs["scope"] == made.named("keys-registry").id
    own = made.named("keys-vault").inputs["properties"]
    assert own["publicNetworkAccess"] == "Disabled"


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


# Money


def test_the_budget_of_the_tenant(made: Deployed) -> None:
    budget = made.one("consumption:Budget")
    given = budget.inputs
    assert given["amount"] == 20000
    assert given["filter"]["tags"] == {
        "name": "falaj-tenant",
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
