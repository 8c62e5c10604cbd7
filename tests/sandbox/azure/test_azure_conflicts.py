"""What Azure refuses given what exists, and what keeps it from deleting."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.sandbox.clouds.azure import MODEL, naming, resources
from falaj.sandbox.errors import SandboxError
from falaj.sandbox.inprocess import Sandbox
from tests.sandbox.azure.samples import SCOPE

GROUP = {"resourceGroupName": "rg"}
SUBNET = {**GROUP, "virtualNetworkName": "vnet"}


def refusal(samples: Any, token: str, **inputs: Any) -> str:
    with pytest.raises(SandboxError) as error:
        samples.add("new", token, **inputs)
    return str(error.value)


def update(samples: Any, key: str, changes: dict[str, Any]) -> dict[str, Any]:
    made = samples.made[key]
    properties = {**made.inputs["properties"], **changes.get("properties", {})}
    inputs = {**made.inputs, **changes, "properties": properties}
    urn = f"urn:pulumi:stack::project::{made.token}::{key}"
    return samples.sandbox.cloud.update(urn, made.id, made.outputs, inputs)


def delete_blockers(samples: Any, key: str) -> list[str]:
    made = samples.made[key]
    world = samples.sandbox.store
    found = resources.by_id(world, made.id)
    assert found is not None
    return [problem.reason for problem in MODEL.delete_blockers(made.token, found, world)]


def test_a_group_that_does_not_exist(new_sandbox: Sandbox) -> None:
    with pytest.raises(SandboxError, match="resource group 'rg' doesn't exist"):
        new_sandbox.create("azure-native:network:VirtualNetwork", "v", {
            **GROUP, "addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}})  # fmt: skip


def test_a_parent_that_does_not_exist(samples: Any) -> None:
    text = refusal(
        samples,
        "network:Subnet",
        **GROUP,
        virtualNetworkName="other",
        subnetName="a",
        addressPrefix="10.0.20.0/24",
    )
    assert "virtualNetworkName" in text
    assert "doesn't exist" in text


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("10.0.0.0/24", "overlaps 10.0.0.0/22 of the subnet 'nodes'"),
        ("10.9.0.0/24", "isn't inside the network's address space"),
    ],
)
def test_a_subnet_beside_its_network_or_on_another(samples: Any, block: str, words: str) -> None:
    text = refusal(samples, "network:Subnet", **SUBNET, subnetName="a", addressPrefix=block)
    assert words in text


def test_a_subnet_overlaps_one_that_its_network_declared(samples: Any) -> None:
    text = refusal(
        samples,
        "network:Subnet",
        **GROUP,
        virtualNetworkName="vnet2",
        subnetName="a",
        addressPrefix="10.1.0.128/25",
    )
    assert "'inline'" in text


def test_two_rules_of_one_priority(samples: Any) -> None:
    rule = samples.made["rule"].inputs
    assert "taken by 'https'" in refusal(
        samples, "network:SecurityRule", **{**rule, "securityRuleName": "other"}
    )
    out = {**rule, "securityRuleName": "out", "direction": "Outbound"}
    samples.add("out", "network:SecurityRule", **out)


def test_a_reference_to_nothing(samples: Any) -> None:
    text = refusal(
        samples,
        "network:Subnet",
        **SUBNET,
        subnetName="a",
        addressPrefix="10.0.20.0/24",
        networkSecurityGroup={"id": f"{samples.id('rg')}/providers/Microsoft.Network/"
                              "networkSecurityGroups/none"},
    )  # fmt: skip
    assert "networkSecurityGroup.id" in text
    assert "doesn't exist" in text


def test_a_reference_into_another_subscription_is_not_the_sandboxs_to_know(samples: Any) -> None:
    real = "/subscriptions/12345678-1234-1234-1234-123456789abc/resourceGroups/r/providers"
    samples.add(
        "new",
        "network:VirtualNetworkPeering",
        **SUBNET,
        virtualNetworkPeeringName="hub",
        remoteVirtualNetwork={"id": f"{real}/Microsoft.Network/virtualNetworks/hub"},
    )


def test_letter_case_of_an_id_does_not_count(samples: Any) -> None:
    upper = samples.id("nsg").upper().replace("/SUBSCRIPTIONS", "/subscriptions")
    samples.add(
        "new",
        "network:Subnet",
        **SUBNET,
        subnetName="a",
        addressPrefix="10.0.20.0/24",
        networkSecurityGroup={"id": upper},
    )


def test_names_that_are_unique_in_all_of_azure(samples: Any) -> None:
    samples.add("second", "resources:ResourceGroup", resourceGroupName="second")
    vault = samples.made["vault"].inputs
    text = refusal(samples, "keyvault:Vault", **{**vault, "resourceGroupName": "second"})
    assert "unique in all of Azure" in text


def test_a_name_that_is_taken(samples: Any) -> None:
    assert "exists already" in refusal(samples, "keyvault:Vault", **samples.made["vault"].inputs)


def encryption_set(samples: Any, key: str, **more: Any) -> dict[str, Any]:
    return {
        **GROUP,
        "diskEncryptionSetName": "set",
        "activeKey": {"keyUrl": key},
        "identity": {"type": "SystemAssigned"},
        **more,
    }


def test_a_key_in_another_region(samples: Any) -> None:
    inputs = encryption_set(
        samples, samples.out("key", "keyUriWithVersion"), location="uaecentral"
    )
    assert "same region" in refusal(samples, "compute:DiskEncryptionSet", **inputs)


def test_a_key_that_can_be_purged(samples: Any) -> None:
    properties = {**samples.made["vault"].inputs["properties"]}
    del properties["enablePurgeProtection"]
    samples.add("soft", "keyvault:Vault", **GROUP, vaultName="soft-1", properties=properties)
    key = samples.add(
        "soft-key", "keyvault:Key", **GROUP, vaultName="soft-1", keyName="k",
        properties={"kty": "RSA"},
    )  # fmt: skip
    inputs = encryption_set(samples, key.outputs["keyUriWithVersion"])
    assert "purge protection" in refusal(samples, "compute:DiskEncryptionSet", **inputs)


@pytest.mark.parametrize(
    ("vault", "key", "words"),
    [("vault-2", "disks", "no vault called"), ("vault-1", "none", "has no key 'none'")],
)
def test_a_key_that_does_not_exist(samples: Any, vault: str, key: str, words: str) -> None:
    uri = f"https://{vault}.vault.azure.net/keys/{key}/{'0' * 32}"
    inputs = encryption_set(samples, uri)
    assert words in refusal(samples, "compute:DiskEncryptionSet", **inputs)


def test_a_key_of_an_hsm_in_a_vault_without(samples: Any) -> None:
    properties = {**samples.made["vault"].inputs["properties"]}
    properties["sku"] = {"family": "A", "name": "standard"}
    samples.add("plain", "keyvault:Vault", **GROUP, vaultName="plain-1", properties=properties)
    text = refusal(
        samples, "keyvault:Key", **GROUP, vaultName="plain-1", keyName="k",
        properties={"kty": "RSA-HSM"},
    )  # fmt: skip
    assert "premium" in text


def test_a_second_assignment_of_the_same_role(samples: Any) -> None:
    text = refusal(samples, "authorization:RoleAssignment", **samples.made["assignment"].inputs)
    assert "assigns the same role" in text


def test_a_subnet_without_the_delegation(more_samples: Any) -> None:
    volume = {**more_samples.made["volume"].inputs, "volumeName": "two", "creationToken": "two"}
    volume["subnetId"] = more_samples.id("links")
    text = refusal(more_samples, "netapp:CapacityPoolVolume", **volume)
    assert "isn't delegated to Microsoft.Netapp/volumes" in text


def test_a_volume_that_does_not_fit_its_pool(more_samples: Any) -> None:
    volume = {**more_samples.made["volume"].inputs, "volumeName": "two", "creationToken": "two"}
    volume["usageThreshold"] = 4 * 1024**4
    assert "don't fit" in refusal(more_samples, "netapp:CapacityPoolVolume", **volume)


def test_a_firewall_in_another_subnet(samples: Any) -> None:
    firewall = {**samples.made["firewall"].inputs, "azureFirewallName": "two"}
    firewall["ipConfigurations"] = [{"name": "x", "subnet": {"id": samples.id("nodes")}}]
    assert "must be called AzureFirewallSubnet" in refusal(
        samples, "network:AzureFirewall", **firewall
    )


def test_nodes_in_a_delegated_subnet(more_samples: Any) -> None:
    pool = {**more_samples.made["gpu"].inputs, "agentPoolName": "two"}
    pool["vnetSubnetID"] = more_samples.id("netapp")
    text = refusal(more_samples, "containerservice:AgentPool", **pool)
    assert "can't hold this resource" in text


def test_a_pool_of_a_size_that_its_reservations_do_not_hold(more_samples: Any) -> None:
    pool = {**more_samples.made["gpu"].inputs, "agentPoolName": "two"}
    pool["vmSize"] = "Standard_ND96isr_H100_v5"
    text = refusal(more_samples, "containerservice:AgentPool", **pool)
    assert "reserves Standard_ND96isr_H200_v5" in text


def test_more_nodes_than_the_subnet_or_a_cluster_can_have(more_samples: Any) -> None:
    pool = {**more_samples.made["gpu"].inputs, "agentPoolName": "two", "count": 1000}
    small = more_samples.add(
        "small", "network:Subnet", **SUBNET, subnetName="small", addressPrefix="10.0.20.0/28"
    )
    tight = {**pool, "count": 12, "vnetSubnetID": small.id}
    assert "11 addresses" in refusal(more_samples, "containerservice:AgentPool", **tight)
    wide = {"agentPoolName": "w0", "count": 0, "enableAutoScaling": True, "minCount": 0}
    for index in range(4):
        pools = {**pool, **wide, "agentPoolName": f"w{index}", "maxCount": 1000}
        more_samples.add(f"w{index}", "containerservice:AgentPool", **pools)
    last = {**pool, **wide, "agentPoolName": "w5", "maxCount": 1000}
    assert "5000" in refusal(more_samples, "containerservice:AgentPool", **last)


def test_a_pool_in_its_clusters_list_cannot_become_another(more_samples: Any) -> None:
    made = more_samples.made["cluster"]
    pools = [{**made.inputs["agentPoolProfiles"][0], "vmSize": "Standard_D8s_v6"}]
    inputs = {**made.inputs, "agentPoolProfiles": pools}
    world = more_samples.sandbox.store
    found = MODEL.conflicts(made.token, inputs, {"location": "uaenorth"}, world, made.id)
    assert [problem.path for problem in found] == ["agentPoolProfiles[0].vmSize"]
    same = MODEL.conflicts(made.token, made.inputs, {"location": "uaenorth"}, world, made.id)
    assert same == []


def test_a_pool_newer_than_its_cluster(more_samples: Any) -> None:
    pool = {**more_samples.made["gpu"].inputs, "agentPoolName": "two"}
    pool["orchestratorVersion"] = "1.35"
    assert "newer than the cluster" in refusal(more_samples, "containerservice:AgentPool", **pool)


def integrated(more_samples: Any, network: str, **settings: Any) -> dict[str, Any]:
    """A cluster whose API server stands in its network, which is made, too."""
    add = more_samples.add
    add(network, "network:VirtualNetwork", **GROUP, virtualNetworkName=network,
        addressSpace={"addressPrefixes": ["10.2.0.0/16"]}, **settings)  # fmt: skip
    service = {"name": "to", "serviceName": "Microsoft.ContainerService/managedClusters"}
    where = {**GROUP, "virtualNetworkName": network}
    nodes = add(f"{network}-nodes", "network:Subnet", **where, subnetName="nodes",
                addressPrefix="10.2.0.0/22")  # fmt: skip
    control = add(f"{network}-control", "network:Subnet", **where, subnetName="control",
                  addressPrefix="10.2.4.0/28", delegations=[service])  # fmt: skip
    cluster = {**more_samples.made["cluster"].inputs, "resourceName": network}
    cluster["apiServerAccessProfile"] = {
        **cluster["apiServerAccessProfile"],
        "enableVnetIntegration": True,
        "subnetId": control.id,
    }
    cluster["agentPoolProfiles"] = [{**cluster["agentPoolProfiles"][0], "vnetSubnetID": nodes.id}]
    return cluster


def test_machines_of_a_cluster_in_a_network_that_encrypts(more_samples: Any) -> None:
    cluster_type, pool_type = "containerservice:ManagedCluster", "containerservice:AgentPool"
    more_samples.add("plain", cluster_type, **integrated(more_samples, "plain"))
    encryption = {"enabled": True, "enforcement": "AllowUnencrypted"}
    cluster = integrated(more_samples, "encrypted", encryption=encryption)
    text = refusal(more_samples, cluster_type, **cluster)
    assert "agentPoolProfiles[0].vmSize" in text
    assert "take encryption.enabled off the network" in text
    (system,) = cluster["agentPoolProfiles"]
    older = {**cluster, "agentPoolProfiles": [{**system, "vmSize": "Standard_DC4s_v3"}]}
    more_samples.add("older", cluster_type, **older)
    pool = {**GROUP, "resourceName": "encrypted", "agentPoolName": "two", "mode": "User",
            "count": 1, "vnetSubnetID": system["vnetSubnetID"]}  # fmt: skip
    assert "AKS refuses generations 4" in refusal(
        more_samples, pool_type, **pool, vmSize="Standard_D4as_v6"
    )
    without = {**cluster, "resourceName": "apart"}
    without["apiServerAccessProfile"] = {"enablePrivateCluster": True, "privateDNSZone": "system"}
    more_samples.add("apart", cluster_type, **without)


def test_an_api_server_that_peers_can_not_find(more_samples: Any) -> None:
    cluster = {**more_samples.made["cluster"].inputs, "resourceName": "locked"}
    cluster["nodeResourceGroupProfile"] = {"restrictionLevel": "ReadOnly"}
    text = refusal(more_samples, "containerservice:ManagedCluster", **cluster)
    assert "privateDNSZone" in text
    assert "give the id of an own zone" in text
    alone = integrated(more_samples, "alone")
    alone["nodeResourceGroupProfile"] = {"restrictionLevel": "ReadOnly"}
    more_samples.add("alone-cluster", "containerservice:ManagedCluster", **alone)
    zone = more_samples.add("servers", "privatedns:PrivateZone", **GROUP,
                            privateZoneName="privatelink.uaenorth.azmk8s.io")  # fmt: skip
    access = {"enablePrivateCluster": True, "privateDNSZone": zone.id}
    named = {**cluster, "apiServerAccessProfile": access}
    more_samples.add("named", "containerservice:ManagedCluster", **named)


def test_services_of_a_cluster_on_its_nodes_addresses(more_samples: Any) -> None:
    cluster = {**more_samples.made["cluster"].inputs, "resourceName": "two"}
    cluster["networkProfile"] = {
        **cluster["networkProfile"], "serviceCidr": "10.0.0.0/20", "dnsServiceIP": "10.0.0.10",
    }  # fmt: skip
    assert "overlaps the nodes' network" in refusal(
        more_samples, "containerservice:ManagedCluster", **cluster
    )


def test_an_endpoint_of_another_region_than_its_subnet(samples: Any) -> None:
    endpoint = {**samples.made["endpoint"].inputs, "privateEndpointName": "two"}
    text = refusal(samples, "network:PrivateEndpoint", **endpoint, location="uaecentral")
    assert "same region" in text


def test_a_network_linked_to_two_zones_of_a_name(samples: Any) -> None:
    samples.add("second", "resources:ResourceGroup", resourceGroupName="second")
    name = "privatelink.vaultcore.azure.net"
    of = {"resourceGroupName": "second", "privateZoneName": name}
    samples.add("zone2", "privatedns:PrivateZone", **of)
    text = refusal(
        samples, "privatedns:VirtualNetworkLink", **of, virtualNetworkLinkName="x",
        virtualNetwork={"id": samples.id("vnet")},
    )  # fmt: skip
    assert "linked to another zone" in text


def test_a_limit_of_the_subscription(samples: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from falaj.sandbox.clouds.azure import relations

    token = "azure-native:network:VirtualNetwork"
    few = {token: relations.Quota(2, "region", "a page")}
    monkeypatch.setattr(relations, "quotas", lambda: few)
    network = {**samples.made["vnet"].inputs, "virtualNetworkName": "third"}
    assert "Azure allows 2" in refusal(samples, "network:VirtualNetwork", **network)
    samples.add("new", "network:VirtualNetwork", **{**network, "location": "uaecentral"})


def test_a_lock_keeps_all_below_it(samples: Any) -> None:
    assert delete_blockers(samples, "secret") == []
    samples.add(
        "lock", "authorization:ManagementLockByScope", scope=samples.id("vault"), lockName="l",
        level="CanNotDelete",
    )  # fmt: skip
    assert any("take the lock away" in reason for reason in delete_blockers(samples, "secret"))
    assert delete_blockers(samples, "lock") == []
    assert delete_blockers(samples, "identity") == []


@pytest.mark.parametrize(
    "closed",
    [
        {"publicNetworkAccess": "Disabled"},
        {"networkAcls": {"defaultAction": "Deny", "bypass": "AzureServices"}},
    ],
)
def test_a_closed_vaults_keys_are_made_and_go_with_it_only(
    samples: Any, closed: dict[str, Any]
) -> None:
    vault = samples.made["vault"].inputs
    properties = {**vault["properties"], **closed}
    samples.add(
        "v", "keyvault:Vault", **{**vault, "vaultName": "vault-2", "properties": properties}
    )
    for key, token in (("key", "keyvault:Key"), ("secret", "keyvault:Secret")):
        samples.add(f"v-{key}", token, **{**samples.made[key].inputs, "vaultName": "vault-2"})
        assert delete_blockers(samples, key) == []
        [reason] = delete_blockers(samples, f"v-{key}")
        assert "ForbiddenByConnection" in reason
        assert "retain_on_delete" in reason
    made = samples.made["v"]
    samples.sandbox.cloud.delete(f"urn:pulumi:s::p::{made.token}::v", made.id, {**made.outputs})
    for key in ("v-key", "v-secret"):
        assert resources.by_id(samples.sandbox.store, samples.id(key)) is None
    assert resources.by_id(samples.sandbox.store, samples.id("key")) is not None


@pytest.mark.parametrize(
    ("path", "changes"),
    [
        ("tags", {"tags": {"owner": "somebody"}}),
        ("properties.attributes", {"properties": {"attributes": {"enabled": False}}}),
        ("properties.keyOps", {"properties": {"keyOps": ["wrapKey", "unwrapKey"]}}),
    ],
)
def test_a_key_that_exists_stays_as_it_is(
    samples: Any, path: str, changes: dict[str, Any]
) -> None:
    with pytest.raises(SandboxError) as refused:
        update(samples, "key", changes)
    assert f"{path}: KeyCreationParametersDidNotMatchExistingKey" in str(refused.value)
    assert "ignore_changes" in str(refused.value)


def test_another_rotation_of_a_key_is_taken_and_not_written(samples: Any) -> None:
    trigger = {"action": {"type": "rotate"}, "trigger": {"timeAfterCreate": "P90D"}}
    policy = {"lifetimeActions": [trigger], "attributes": {"expiryTime": "P180D"}}
    found = update(samples, "key", {"properties": {"rotationPolicy": policy}})
    assert "rotationPolicy" not in found


def test_a_modules_key_goes_with_it_only(samples: Any) -> None:
    [reason] = delete_blockers(samples, "hsm-key")
    assert "retain_on_delete" in reason
    with pytest.raises(SandboxError, match="properties: Resource Manager changes no key"):
        update(samples, "hsm-key", {"properties": {"keySize": 3072}})


def test_a_subscriptions_plan_is_never_deleted(samples: Any) -> None:
    samples.add(
        "arm", "security:Pricing", pricingName="Arm", scopeId=SCOPE, pricingTier="Standard"
    )
    [reason] = delete_blockers(samples, "arm")
    assert "InvalidUrlConfiguration" in reason
    assert "Free" in reason
    samples.add(
        "one", "security:Pricing", pricingName="KeyVaults", scopeId=samples.id("vault"),
        pricingTier="Standard",
    )  # fmt: skip
    assert delete_blockers(samples, "one") == []


def test_a_read_only_lock_stops_changes(samples: Any) -> None:
    samples.add(
        "lock", "authorization:ManagementLockAtResourceGroupLevel", **GROUP, lockName="l",
        level="ReadOnly",
    )  # fmt: skip
    text = refusal(samples, "network:RouteTable", **GROUP, routeTableName="new")
    assert "allows reading only" in text


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("links", "uses it"),
        ("vnet", "its subnet 'AzureFirewallSubnet' is in use"),
        ("pip", "uses it"),
        ("policy", "uses it"),
        ("zone", "network link"),
    ],
)
def test_what_is_in_use_stays(samples: Any, key: str, words: str) -> None:
    assert any(words in reason for reason in delete_blockers(samples, key))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("disks", "uses it"),
        ("netapp-account", "stands below it"),
        ("pool", "stands below it"),
        ("reserved", "stands below it"),
        ("environment", "uses it"),
    ],
)
def test_what_holds_something_stays(more_samples: Any, key: str, words: str) -> None:
    assert any(words in reason for reason in delete_blockers(more_samples, key))


@pytest.mark.parametrize("key", ["app", "gpu", "volume", "share", "endpoint", "assignment"])
def test_what_nothing_needs_may_go(more_samples: Any, key: str) -> None:
    assert delete_blockers(more_samples, key) == []


def test_everything_can_be_taken_away_in_the_reverse_order(more_samples: Any) -> None:
    cloud = more_samples.sandbox.cloud
    for key, made in reversed(more_samples.made.items()):
        if key == "hsm-key":  # goes with its module only
            continue
        urn = f"urn:pulumi:stack::project::{made.token}::{key}"
        cloud.delete(urn, made.id, {**made.outputs})
    assert list(more_samples.sandbox.store.all()) == []


def test_the_network_watcher_of_a_region_is_there_by_itself(samples: Any) -> None:
    world = samples.sandbox.store
    group = f"/subscriptions/{naming.SUBSCRIPTION}/resourceGroups/NetworkWatcherRG"
    watcher = f"{group}/providers/Microsoft.Network/networkWatchers/NetworkWatcher_uaenorth"
    assert resources.exists(world, group)
    assert resources.exists(world, watcher)
    assert not resources.exists(world, naming.group_id("other"))
