"""A private network: subnets, rules, names, records, and the one way out."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.azure._egress import fqdn
from falaj.components.azure._network_watcher import awaited
from falaj.components.azure.network import DELEGATIONS, FLOWS, OUTWARD, security_rules
from falaj.components.specification.address_plan import AddressPlan
from falaj.components.specification.placed import REGIONAL
from tests.components.azure.conftest import PLACED, Deployed
from tests.components.azure.conftest import deploy as deploy_now
from tests.components.azure.foundation import Foundation
from tests.components.azure.security_groups import allows, rules_of

Deploy = Callable[..., Deployed]
ROLES = ("nodes", "endpoints", "storage", "serving", "control-plane", "containers", "balancers")
HUB = (
    "/subscriptions/99999999-0000-0000-0000-000000000000/resourceGroups/hub/providers"
    "/Microsoft.Network/virtualNetworks/hub"
)
WORLD = ("*", "Internet", "0.0.0.0/0", "::/0")


def make(deploy: Deploy, *, region: str = "uaenorth", **changes: Any) -> Deployed:
    placed = {name: changes.pop(name) for name in list(changes) if name in PLACED}
    if "environment" in changes:
        placed["environment"] = changes.pop("environment")
    return deploy(
        lambda opts: Foundation(opts, region=region, **placed).network(**changes), region=region
    )


@pytest.fixture(scope="module", name="usual")
def _usual() -> Deployed:
    return make(deploy_now)


@pytest.fixture(scope="module", name="serving")
def _serving() -> Deployed:
    """Where no cluster may stand."""
    return make(deploy_now, purpose="serving")


@pytest.fixture(scope="module", name="guarded")
def _guarded() -> Deployed:
    return make(
        deploy_now, egress_domains=["models.example.ae", ".acme.ae"], data_class="internal"
    )


@pytest.fixture(scope="module", name="other")
def _other() -> Deployed:
    """Everything that can be chosen, in the region without zones."""
    return make(
        deploy_now,
        region="uaecentral",
        cidr="192.168.4.0/22",
        flow_log_days=90,
        environment="test",
        key_ring_id=None,
    )


@pytest.fixture(scope="module", name="restricted")
def _restricted() -> Deployed:
    """One zone, restricted data, a way out, and long names."""
    return deploy_now(
        lambda opts: Foundation(
            opts, tenant="abcdefghijklmnopqrst", data_class="restricted"
        ).network(egress_domains=["models.example.ae"], zones=["2"], purpose="serving"),
        stack="x" * 60,
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cidr": "10.0.0.0/23"}, "from /16 to /22"),
        ({"cidr": "8.8.0.0/16"}, "private range"),
        ({"cidr": "10.244.16.0/20"}, "cidr: .*apart from 10.244.0.0/16, where pods are"),
        ({"zones": ["4"]}, r"zones\[0\]"),
        ({"zones": []}, "at least one"),
        ({"egress_domains": ["*"]}, r"egress_domains\[0\]"),
        ({"egress_domains": ["https://models.example.ae"]}, "leave out scheme"),
        ({"flow_log_days": 5}, "flow_log_days"),
        ({"key_identity_id": None}, "key_identity_id: missing; needed on Azure"),
        ({"network_watcher_id": "ours"}, "network_watcher_id: .*id of a network watcher"),
        ({"joined_network_ids": ["hub"]}, r"joined_network_ids\[0\]: .*id of a virtual network"),
        ({"joined_network_ids": [HUB, HUB]}, r"joined_network_ids\[1\]: .*each only once"),
        ({"joined_network_ids": [HUB], "purpose": "serving"}, "none stands there"),
        ({"egress_domain": ["models.example.ae"]}, "did you mean 'egress_domains'"),
    ],
)
def test_refuses(deploy: Deploy, changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=reason):
        make(deploy, **changes)


def test_nothing_public_without_being_asked(usual: Deployed) -> None:
    for token in ("PublicIPAddress", "AzureFirewall", "NatGateway", "RouteTable"):
        assert not usual.of_type(f"network:{token}")
    for subnet in usual.of_type("network:Subnet"):
        # A service's own subnet has no such thing: said of it, it would be drift.
        own = subnet.inputs["subnetName"] in DELEGATIONS
        assert subnet.inputs.get("defaultOutboundAccess") is (None if own else False)
        assert subnet.inputs["networkSecurityGroup"]["id"]
        assert "serviceEndpoints" not in subnet.inputs


def test_subnets_by_role_over_all_zones(usual: Deployed) -> None:
    names = [each.inputs["subnetName"] for each in usual.of_type("network:Subnet")]
    assert sorted(names) == sorted(ROLES)
    for output in ("node", "endpoint", "storage", "serving"):
        found = usual.outputs[f"{output}_subnet_ids"]
        assert list(found) == ["1", "2", "3"]
        assert len(set(found.values())) == 1
    assert usual.outputs["node_subnet_ids"]["1"].endswith("/subnets/nodes")
    assert usual.made.zones == ["1", "2", "3"]
    assert set(usual.outputs["security_group_ids"]) == set(ROLES) - {"containers", "balancers"}


def test_subnets_are_handed_over_to_their_services(usual: Deployed) -> None:
    for subnet in usual.of_type("network:Subnet"):
        role = subnet.inputs["subnetName"]
        handed = [each["serviceName"] for each in subnet.inputs.get("delegations", [])]
        assert handed == ([DELEGATIONS[role]] if role in DELEGATIONS else [])
    endpoints = usual.named("net-endpoints").inputs
    assert endpoints["privateEndpointNetworkPolicies"] == "Enabled"


def test_no_rule_is_open_to_the_world(usual: Deployed) -> None:
    for group in usual.of_type("network:NetworkSecurityGroup"):
        for rule in group.inputs["securityRules"]:
            if rule["access"] == "Deny":
                continue
            for end in ("source", "destination"):
                peers = rule.get(f"{end}AddressPrefixes", [rule.get(f"{end}AddressPrefix")])
                assert not set(peers) & set(WORLD), (group.name, rule["name"])
            ports = rule.get("destinationPortRanges", [rule.get("destinationPortRange")])
            assert not {"22", "3389"} & set(ports)


def test_every_group_ends_with_nothing_else(usual: Deployed) -> None:
    for group in usual.of_type("network:NetworkSecurityGroup"):
        last = [rule for rule in group.inputs["securityRules"] if rule["priority"] == 4096]
        assert {rule["direction"] for rule in last} == {"Inbound", "Outbound"}
        assert {rule["access"] for rule in last} == {"Deny"}


def test_each_flow_is_allowed_at_both_of_its_ends() -> None:
    plan = AddressPlan(ipaddress.IPv4Network("10.64.0.0/16"), (REGIONAL,))
    ranges = {role: plan.subnet(REGIONAL, role) for role in ROLES}
    rules = {role: security_rules(role, ranges, FLOWS) for role in ROLES}
    for flow in FLOWS:
        if flow.source not in ROLES or flow.target not in ROLES:
            continue
        source, target = str(ranges[flow.source]), str(ranges[flow.target])
        for role in (flow.source, flow.target):
            assert any(
                rule.access == "Allow"
                and source in peers(rule.source_address_prefix, rule.source_address_prefixes)
                and target
                in peers(rule.destination_address_prefix, rule.destination_address_prefixes)
                for rule in rules[role]
            ), (flow, role)


def test_the_parts_of_a_control_plane_speak_to_one_another(usual: Deployed) -> None:
    one, other = "10.64.192.4", "10.64.192.5"
    where = ipaddress.ip_network(usual.named("net-control-plane").inputs["addressPrefix"])
    assert ipaddress.ip_address(one) in where
    rules = rules_of(usual, "control-plane")
    for direction in ("Inbound", "Outbound"):
        for protocol in ("Tcp", "Udp"):
            assert allows(rules, direction, source=one, target=other, port=2379, protocol=protocol)


JOINED_CLIENT, NODE, FRONT_END = "10.8.0.9", "10.64.0.5", "10.64.240.9"


def test_services_of_a_cluster_are_reached_from_joined_networks(usual: Deployed) -> None:
    # A balancer of AKS keeps the front end's address, which the machines' rules see.
    front_ends = ipaddress.ip_network(usual.named("net-balancers").inputs["addressPrefix"])
    assert ipaddress.ip_address(FRONT_END) in front_ends
    for role in ("balancers", "nodes"):
        rules = rules_of(usual, role)
        for port in (443, 8470):
            assert allows(rules, "Inbound", source=JOINED_CLIENT, target=FRONT_END, port=port)
        assert not allows(rules, "Inbound", source="8.8.8.8", target=FRONT_END, port=443)
    # The machines themselves stay out of reach.
    rules = rules_of(usual, "nodes")
    for port in (443, 10250, 30443):
        assert not allows(rules, "Inbound", source=JOINED_CLIENT, target=NODE, port=port)
    assert allows(rules, "Inbound", source="AzureLoadBalancer", target=NODE, port=30443)


CONTAINER, CONTAINER_PORT = "10.64.208.20", 8443


def test_a_container_app_is_reached(usual: Deployed) -> None:
    # The vendor's table: learn.microsoft.com/azure/container-apps/firewall-integration. A rule
    # sees the port that is exposed, or the one that the balancer made of it.
    where = ipaddress.ip_network(usual.named("net-containers").inputs["addressPrefix"])
    assert ipaddress.ip_address(CONTAINER) in where
    rules = rules_of(usual, "containers")
    for client in (JOINED_CLIENT, NODE):
        for port in (443, CONTAINER_PORT, 30000, 32767):
            assert allows(rules, "Inbound", source=client, target=CONTAINER, port=port)
        assert not allows(rules, "Inbound", source=client, target=CONTAINER, port=22)
    for port in (30000, 32767):
        assert allows(rules, "Inbound", source="AzureLoadBalancer", target=CONTAINER, port=port)
        for protocol in ("Tcp", "Udp"):
            assert allows(
                rules, "Inbound", source=CONTAINER, target="10.64.208.21", port=port,
                protocol=protocol,
            )  # fmt: skip
    for port in (443, CONTAINER_PORT, 30000):
        outward = rules_of(usual, "nodes")
        assert allows(outward, "Outbound", source=NODE, target=CONTAINER, port=port)


@pytest.mark.parametrize(
    "tag",
    [
        "MicrosoftContainerRegistry",
        "AzureFrontDoor.FirstParty",
        "AzureActiveDirectory",
        "AzureMonitor",
    ],
)
def test_container_apps_reach_their_platform_and_nothing_else(usual: Deployed, tag: str) -> None:
    rules = rules_of(usual, "containers")
    assert allows(rules, "Outbound", source=CONTAINER, target=tag, port=443)
    assert not allows(rules, "Outbound", source=CONTAINER, target=tag, port=80)
    for protocol in ("Tcp", "Udp"):
        assert allows(
            rules, "Outbound", source=CONTAINER, target="168.63.129.16", port=53, protocol=protocol
        )
    endpoint = usual.named("net-endpoints").inputs["addressPrefix"].partition("/")[0]
    assert allows(rules, "Outbound", source=CONTAINER, target=endpoint, port=443)
    for other in ("Internet", "Storage", "AzureCloud", "8.8.8.8"):
        assert not allows(rules, "Outbound", source=CONTAINER, target=other, port=443)


def test_the_firewall_lets_the_platform_of_container_apps_through(guarded: Deployed) -> None:
    domains, logs = guarded.named("net-firewall-rules").inputs["ruleCollections"]
    _, platform = domains["rules"]
    containers = guarded.named("net-containers").inputs["addressPrefix"]
    assert platform["sourceAddresses"] == [containers]
    # learn.microsoft.com/azure/container-apps/use-azure-firewall: images, and identities.
    assert {
        "mcr.microsoft.com", "*.data.mcr.microsoft.com",
        "packages.aks.azure.com", "acs-mirror.azureedge.net",
        "*.identity.azure.net", "login.microsoft.com", "*.login.microsoft.com",
        "login.microsoftonline.com", "*.login.microsoftonline.com",
    } == set(platform["targetFqdns"])  # fmt: skip
    [sent] = logs["rules"]
    assert (sent["sourceAddresses"], sent["destinationAddresses"], sent["destinationPorts"]) == (
        [containers], ["AzureMonitor"], ["443"],
    )  # fmt: skip


def peers(one: Any, several: Any) -> list[str]:
    return list(several or [one])


def test_pods_are_reached_at_their_own_addresses(usual: Deployed) -> None:
    # The last rules of a group concern the overlay, too: learn.microsoft.com/azure/aks/
    # concepts-network-azure-cni-overlay asks for node to pod and pod to pod, on all ports.
    pods, nodes = "10.244.0.0/16", "10.64.0.0/17"
    (group,) = [
        each.inputs["securityRules"]
        for each in usual.of_type("network:NetworkSecurityGroup")
        if each.name.endswith("-nodes-rules")
    ]
    for direction in ("Inbound", "Outbound"):
        (rule,) = [
            each
            for each in group
            if each["direction"] == direction and each["name"].endswith("-nodes")
        ]
        assert rule["protocol"] == "*"
        assert rule["destinationPortRange"] == "*"
        assert rule["sourceAddressPrefixes"] == [nodes, pods]
        assert rule["destinationAddressPrefixes"] == [nodes, pods]
    (webhooks,) = [each for each in group if each["name"] == "from-control-plane"]
    assert pods in webhooks["destinationAddressPrefixes"]


@given(st.integers(16, 22), st.sampled_from(ROLES), st.booleans())
def test_rules_can_be_told_apart(prefix: int, role: str, outward: bool) -> None:
    plan = AddressPlan(ipaddress.IPv4Network(f"10.0.0.0/{prefix}"), (REGIONAL,))
    ranges = {each: plan.subnet(REGIONAL, each) for each in ROLES}
    rules = security_rules(role, ranges, (*FLOWS, *OUTWARD) if outward else FLOWS)
    for direction in ("Inbound", "Outbound"):
        priorities = [each.priority for each in rules if each.direction == direction]
        assert len(set(priorities)) == len(priorities)
        assert all(100 <= int(str(each)) <= 4096 for each in priorities)
    assert len({each.name for each in rules}) == len(rules)


def test_names_lead_to_private_endpoints(usual: Deployed) -> None:
    zones = {each.inputs["privateZoneName"] for each in usual.of_type("privatedns:PrivateZone")}
    assert {
        "privatelink.blob.core.windows.net",
        "privatelink.file.core.windows.net",
        "privatelink.vaultcore.azure.net",
        "privatelink.azurecr.io",
        "privatelink.monitor.azure.com",
    } <= zones
    links = usual.of_type("privatedns:VirtualNetworkLink")
    assert {each.inputs["privateZoneName"] for each in links} == zones
    assert all(each.inputs["registrationEnabled"] is False for each in links)


def test_joined_networks_learn_the_names_of_api_servers(
    deploy: Deploy, usual: Deployed, serving: Deployed
) -> None:
    zone = "private.uaenorth.azmk8s.io"
    joined = make(deploy, joined_network_ids=[HUB])
    linked = [
        each.inputs["virtualNetwork"]["id"]
        for each in joined.of_type("privatedns:VirtualNetworkLink")
        if each.inputs["privateZoneName"] == zone
    ]
    assert sorted(linked) == sorted([joined.one("network:VirtualNetwork").id, HUB])
    # All other zones may stand in the joined network as well, with other addresses.
    links = joined.of_type("privatedns:VirtualNetworkLink")
    assert [each.inputs["virtualNetwork"]["id"] for each in links].count(HUB) == 1
    zones = {each.inputs["privateZoneName"] for each in usual.of_type("privatedns:PrivateZone")}
    assert zone in zones
    without = serving.of_type("privatedns:PrivateZone")
    assert zone not in {each.inputs["privateZoneName"] for each in without}


def test_the_vault_gets_its_endpoint(usual: Deployed) -> None:
    endpoint = usual.named("net-keys-endpoint").inputs
    [connection] = endpoint["privateLinkServiceConnections"]
    assert connection["privateLinkServiceId"] == usual.one("keyvault:Vault").id
    assert endpoint["subnet"]["id"].endswith("/subnets/endpoints")


def test_connections_are_recorded_under_our_key(usual: Deployed) -> None:
    log = usual.one("network:FlowLog").inputs
    account = usual.named("net-flows-account")
    assert log["enabled"] is True
    assert log["storageId"] == account.id
    assert log["targetResourceId"] == usual.one("network:VirtualNetwork").id
    assert log["networkWatcherName"] == "NetworkWatcher_uaenorth"
    assert account.inputs["encryption"]["keyVaultProperties"]["keyName"] == "logs"
    assert account.inputs["networkRuleSet"]["bypass"] == "AzureServices"
    assert account.inputs["allowSharedKeyAccess"] is False
    writer = usual.named("net-flows-writer")
    assert log["identity"]["userAssignedIdentities"] == [writer.id]
    assert usual.named("net-flows-write").inputs["scope"] == account.id
    assert usual.kept("net-flows-account")
    assert usual.kept("net-group")


WATCHER = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/NetworkWatcherRG"
    "/providers/Microsoft.Network/networkWatchers/ours"
)


def test_the_watcher_of_a_region_is_asked_for(deploy: Deploy, usual: Deployed) -> None:
    asked = [args for token, args in usual.queries if token.endswith(":getNetworkWatcher")]
    assert asked[0]["networkWatcherName"] == "NetworkWatcher_uaenorth"
    assert asked[0]["resourceGroupName"] == "NetworkWatcherRG"
    log = make(deploy, network_watcher_id=WATCHER).one("network:FlowLog").inputs
    assert (log["resourceGroupName"], log["networkWatcherName"]) == ("NetworkWatcherRG", "ours")


def _answers(monkeypatch: pytest.MonkeyPatch, errors: list[str]) -> list[float]:
    """Azure answers with these errors, one for each question, and then with the watcher; how long
    was waited."""
    waited: list[float] = []

    async def invoke(*_: Any) -> dict[str, Any]:
        if errors:
            raise RuntimeError(errors.pop(0))
        return {}

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(pulumi.runtime, "invoke_async", invoke)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(pulumi.runtime, "is_dry_run", lambda: False)
    return waited


MISSING = "Code=ResourceNotFound: the resource was not found"


def test_a_watcher_that_azure_is_about_to_make(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = _answers(monkeypatch, [MISSING, MISSING])
    found = asyncio.run(awaited("NetworkWatcher_uaenorth", "uaenorth", pulumi.InvokeOptions()))
    assert found == "NetworkWatcher_uaenorth"
    assert len(waited) == 2


def test_a_watcher_that_is_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    waited = _answers(monkeypatch, [MISSING] * 100)
    with pytest.raises(pulumi.RunError, match="az network watcher configure --locations uaen"):
        asyncio.run(awaited("NetworkWatcher_uaenorth", "uaenorth", pulumi.InvokeOptions()))
    assert sum(waited) == 300


def test_a_watcher_that_may_not_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    _answers(monkeypatch, ["Code=AuthorizationFailed"])
    with pytest.raises(RuntimeError, match="AuthorizationFailed"):
        asyncio.run(awaited("NetworkWatcher_uaenorth", "uaenorth", pulumi.InvokeOptions()))


def test_machines_encrypt_what_they_send_where_no_cluster_may_stand(
    usual: Deployed, serving: Deployed
) -> None:
    network = serving.one("network:VirtualNetwork").inputs
    assert network["encryption"] == {"enabled": True, "enforcement": "AllowUnencrypted"}
    assert "encryption" not in usual.one("network:VirtualNetwork").inputs


def test_domains_are_reached_through_the_firewall(guarded: Deployed) -> None:
    rules, _ = guarded.named("net-firewall-rules").inputs["ruleCollections"]
    rule, _ = rules["rules"]
    assert rule["targetFqdns"] == ["models.example.ae", "*.acme.ae"]
    assert rule["sourceAddresses"] == ["10.64.0.0/16"]
    assert rule["protocols"] == [{"protocolType": "Https", "port": 443}]
    policy = guarded.one("network:FirewallPolicy").inputs
    assert policy["threatIntelMode"] == "Deny"
    assert policy["sku"] == {"tier": "Standard"}
    assert len(guarded.of_type("network:PublicIPAddress")) == 1


def test_routes_lead_to_the_firewall(guarded: Deployed) -> None:
    routes = guarded.one("network:RouteTable")
    [route] = routes.inputs["routes"]
    firewall = guarded.one("network:AzureFirewall")
    address = firewall.outputs["ipConfigurations"][0]["privateIPAddress"]
    assert (route["addressPrefix"], route["nextHopIpAddress"]) == ("0.0.0.0/0", address)
    routed = {
        each.inputs["subnetName"]
        for each in guarded.of_type("network:Subnet")
        if each.inputs.get("routeTable", {}).get("id") == routes.id
    }
    assert routed == {"nodes", "serving", "containers"}


def test_only_https_may_leave(guarded: Deployed) -> None:
    open_rules = [
        (group.name, rule)
        for group in guarded.of_type("network:NetworkSecurityGroup")
        for rule in group.inputs["securityRules"]
        if rule["access"] == "Allow" and rule.get("destinationAddressPrefix") == "Internet"
    ]
    assert {name for name, _ in open_rules} == {
        "net-nodes-rules",
        "net-serving-rules",
        "net-containers-rules",
    }
    assert {rule["destinationPortRange"] for _, rule in open_rules} == {"443"}
    assert {rule["direction"] for _, rule in open_rules} == {"Outbound"}


@pytest.mark.parametrize(
    ("domain", "written"), [("models.example.ae", "models.example.ae"), (".acme.ae", "*.acme.ae")]
)
def test_domains_as_the_firewall_writes_them(domain: str, written: str) -> None:
    assert fqdn(domain) == written


def test_zones_that_are_chosen(restricted: Deployed) -> None:
    assert restricted.made.zones == ["2"]
    assert list(restricted.outputs["node_subnet_ids"]) == ["2"]
    assert restricted.one("network:AzureFirewall").inputs["zones"] == ["2"]


def test_restricted_data_are_searched_for_intrusions(restricted: Deployed) -> None:
    policy = restricted.one("network:FirewallPolicy").inputs
    assert policy["sku"] == {"tier": "Premium"}
    assert policy["intrusionDetection"] == {"mode": "Deny"}
    assert restricted.one("network:AzureFirewall").inputs["sku"]["tier"] == "Premium"
    # Azure's firewall and encryption by the network exclude one another.
    assert "encryption" not in restricted.one("network:VirtualNetwork").inputs


def test_a_region_without_zones(other: Deployed) -> None:
    assert list(other.outputs["node_subnet_ids"]) == ["regional"]
    assert other.named("net-flows-account").inputs["sku"] == {"name": "Standard_LRS"}
    places = {each.inputs["location"] for each in other.resources if "location" in each.inputs}
    assert places <= {"uaecentral", "global"}


def test_address_range(other: Deployed) -> None:
    network = other.one("network:VirtualNetwork").inputs
    assert network["addressSpace"] == {"addressPrefixes": ["192.168.4.0/22"]}
    ranges = [
        ipaddress.IPv4Network(each.inputs["addressPrefix"])
        for each in other.of_type("network:Subnet")
    ]
    whole = ipaddress.IPv4Network("192.168.4.0/22")
    assert all(each.subnet_of(whole) for each in ranges)
    assert not any(a.overlaps(b) for a in ranges for b in ranges if a != b)


def test_no_key_ring_no_endpoint_of_it(other: Deployed) -> None:
    assert "net-keys-endpoint" not in {each.name for each in other.resources}


def test_records_are_forgotten_in_time(other: Deployed) -> None:
    [rule] = other.named("net-flows-lifecycle").inputs["policy"]["rules"]
    deleted = rule["definition"]["actions"]["baseBlob"]["delete"]
    assert deleted == {"daysAfterModificationGreaterThan": 90}
    assert not other.kept("net-flows-account")
