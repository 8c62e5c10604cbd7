"""Microsoft.Network: firewalls, their policies and rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, checks, naming, subnets
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.azure.services import security_rules
from falaj.sandbox.clouds.model import Problem


def _firewall_problems(ask: Ask) -> Iterator[Problem]:
    is_hub = ask.text("sku.name") == "AZFW_Hub"
    configurations = ask.items("ipConfigurations")
    if not is_hub and ask.is_absent("ipConfigurations[0]"):
        yield Problem("ipConfigurations", "is missing: a firewall needs its subnet and an address")
    with_subnet = [path for path, _ in configurations if ask.is_given(f"{path}.subnet.id")]
    lacks_subnet = all(ask.is_absent(f"{path}.subnet.id") for path, _ in configurations)
    if configurations and lacks_subnet and not is_hub:
        yield Problem("ipConfigurations[0].subnet.id", "is missing: name AzureFirewallSubnet")
    if len(with_subnet) > 1:
        yield Problem(
            f"{with_subnet[1].split('.')[0]}.subnet",
            "the first configuration alone names the subnet; leave it out here",
        )
    if ask.is_given("firewallPolicy"):
        for name in ("applicationRuleCollections", "networkRuleCollections", "natRuleCollections"):
            if ask.items(name):
                yield Problem(name, "don't go together with a firewallPolicy; put the rules there")
    if ask.text("sku.tier") == "Basic" and ask.is_absent("managementIpConfiguration"):
        yield Problem(
            "managementIpConfiguration",
            "is missing: the tier Basic needs its own management subnet and address",
        )


def _firewall_conflicts(ask: Ask) -> Iterator[Problem]:
    where = location(ask)
    for path, _ in ask.items("ipConfigurations"):
        yield from subnets.fits(
            ask, f"{path}.subnet.id", where=where, least=26, name="AzureFirewallSubnet"
        )
    yield from subnets.fits(
        ask,
        "managementIpConfiguration.subnet.id",
        where=where,
        least=26,
        name="AzureFirewallManagementSubnet",
    )


def _policy_problems(ask: Ask) -> Iterator[Problem]:
    tier = ask.text("sku.tier") or "Standard"
    if tier != "Premium":
        for path in ("intrusionDetection", "transportSecurity"):
            if ask.is_given(path) and ask.is_given("sku.tier"):
                yield Problem(path, f"needs the tier Premium; given is {tier}")
    if tier == "Basic" and ask.flag("dnsSettings.enableProxy"):
        yield Problem("dnsSettings.enableProxy", "needs the tier Standard or Premium")
    for where, text in ask.texts("dnsSettings.servers"):
        yield from checks.address(where, text)


def _rule_group_problems(ask: Ask) -> Iterator[Problem]:
    yield from checks.between(ask, "priority", 100, 65000)
    yield from checks.needs(ask, "priority", "give each group its own, 100 to 65000")
    for path, _ in ask.items("ruleCollections"):
        yield from checks.between(ask, f"{path}.priority", 100, 65000)
        yield from checks.needs(ask, f"{path}.name", "each collection needs a name")
        kinds = {ask.text(f"{rule}.ruleType") for rule, _ in ask.items(f"{path}.rules")}
        if {"ApplicationRule", "NetworkRule"} <= kinds:
            yield Problem(
                f"{path}.rules",
                "mixes rules for applications and networks; make a collection of each",
            )
        for rule, _ in ask.items(f"{path}.rules"):
            yield from _firewall_rule(ask, rule)


def _firewall_rule(ask: Ask, path: str) -> Iterator[Problem]:
    for where, text in ask.texts(f"{path}.sourceAddresses"):
        if text != "*" and "-" not in text and "/" in text:
            yield from checks.cidr(where, text)
    if ask.is_absent(f"{path}.sourceAddresses[0]") and ask.is_absent(f"{path}.sourceIpGroups[0]"):
        yield Problem(f"{path}.sourceAddresses", "is missing: say whom the rule is for")
    if ask.text(f"{path}.ruleType") == "ApplicationRule":
        targets = ("targetFqdns", "fqdnTags", "targetUrls", "webCategories")
        if all(ask.is_absent(f"{path}.{name}[0]") for name in targets):
            yield Problem(f"{path}.targetFqdns", "is missing: name the hosts that are allowed")
        for where, text in ask.texts(f"{path}.targetFqdns"):
            if "://" in text or "/" in text:
                yield Problem(where, f"{text!r} isn't a host name; leave out the scheme and path")
    if ask.text(f"{path}.ruleType") == "NetworkRule":
        for where, text in ask.texts(f"{path}.destinationPorts"):
            yield from security_rules.ports(where, text)


def _firewall_outputs(ask: Ask) -> dict[str, Any]:
    configurations: list[Any] = []
    for path, item in ask.items("ipConfigurations"):
        if not isinstance(item, Mapping):
            continue
        address = subnets.address(ask.world, ask.text(f"{path}.subnet.id") or "", ask.id or "")
        own = f"{ask.id}/azureFirewallIpConfigurations/{arm.segment(str(item.get('name')))}"
        configurations.append({**item, "id": own, "privateIPAddress": address})
    return {"ipConfigurations": configurations, "ipGroups": []}


KINDS: Final = (
    Kind(
        "azure-native:network:AzureFirewall",
        "Microsoft.Network/azureFirewalls/{azureFirewallName}",
        name=naming.NameRule(1, 56, naming.NETWORK.pattern, naming.NETWORK.text),
        replaces=frozenset({"zones"}),
        problems=_firewall_problems,
        conflicts=_firewall_conflicts,
        outputs=_firewall_outputs,
    ),
    Kind(
        "azure-native:network:FirewallPolicy",
        "Microsoft.Network/firewallPolicies/{firewallPolicyName}",
        name=naming.NETWORK,
        is_held_by_references=True,
        problems=_policy_problems,
    ),
    Kind(
        "azure-native:network:FirewallPolicyRuleCollectionGroup",
        "Microsoft.Network/firewallPolicies/{firewallPolicyName}/ruleCollectionGroups/"
        "{ruleCollectionGroupName}",
        name=naming.NETWORK,
        problems=_rule_group_problems,
    ),
    Kind(
        "azure-native:network:IpGroup",
        "Microsoft.Network/ipGroups/{ipGroupsName}",
        name=naming.NETWORK,
        is_held_by_references=True,
    ),
)
