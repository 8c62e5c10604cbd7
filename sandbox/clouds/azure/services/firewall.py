"""Microsoft.Network: firewalls, their policies and rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import arm, checks, naming, subnets
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.azure.services import security_rules
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.clouds.rules import absent, all_of, between, equals, refused, required, texts


def _firewall_problems(inputs: Inputs) -> Iterator[Problem]:
    is_hub = inputs.optional_string("sku.name") == "AZFW_Hub"
    configurations = inputs.items("ipConfigurations")
    if not is_hub and inputs.is_absent("ipConfigurations[0]"):
        yield Problem("ipConfigurations", "is missing: a firewall needs its subnet and an address")
    with_subnet = [path for path, _ in configurations if inputs.is_given(f"{path}.subnet.id")]
    lacks_subnet = all(inputs.is_absent(f"{path}.subnet.id") for path, _ in configurations)
    if configurations and lacks_subnet and not is_hub:
        yield Problem("ipConfigurations[0].subnet.id", "is missing: name AzureFirewallSubnet")
    if len(with_subnet) > 1:
        yield Problem(
            f"{with_subnet[1].split('.')[0]}.subnet",
            "the first configuration alone names the subnet; leave it out here",
        )
    if inputs.is_given("firewallPolicy"):
        for name in ("applicationRuleCollections", "networkRuleCollections", "natRuleCollections"):
            if inputs.items(name):
                yield Problem(name, "don't go together with a firewallPolicy; put the rules there")


def _firewall_conflicts(resource: Resource) -> Iterator[Problem]:
    where = location(resource)
    for path, _ in resource.items("ipConfigurations"):
        yield from subnets.fits(
            resource, f"{path}.subnet.id", where=where, least=26, name="AzureFirewallSubnet"
        )
    yield from subnets.fits(
        resource,
        "managementIpConfiguration.subnet.id",
        where=where,
        least=26,
        name="AzureFirewallManagementSubnet",
    )


def _policy_problems(inputs: Inputs) -> Iterator[Problem]:
    tier = inputs.optional_string("sku.tier") or "Standard"
    if tier != "Premium":
        for path in ("intrusionDetection", "transportSecurity"):
            if inputs.is_given(path) and inputs.is_given("sku.tier"):
                yield Problem(path, f"needs the tier Premium; given is {tier}")
    if tier == "Basic" and inputs.flag("dnsSettings.enableProxy"):
        yield Problem("dnsSettings.enableProxy", "needs the tier Standard or Premium")


def _rule_group_problems(inputs: Inputs) -> Iterator[Problem]:
    for path, _ in inputs.items("ruleCollections"):
        yield from checks.between(inputs, f"{path}.priority", 100, 65000)
        yield from checks.needs(inputs, f"{path}.name", "each collection needs a name")
        kinds = {
            inputs.optional_string(f"{rule}.ruleType") for rule, _ in inputs.items(f"{path}.rules")
        }
        if {"ApplicationRule", "NetworkRule"} <= kinds:
            yield Problem(
                f"{path}.rules",
                "mixes rules for applications and networks; make a collection of each",
            )
        for rule, _ in inputs.items(f"{path}.rules"):
            yield from _firewall_rule(inputs, rule)


def _firewall_rule(inputs: Inputs, path: str) -> Iterator[Problem]:
    for where, text in inputs.strings(f"{path}.sourceAddresses"):
        if text != "*" and "-" not in text and "/" in text:
            yield from checks.cidr(where, text)
    if inputs.is_absent(f"{path}.sourceAddresses[0]") and inputs.is_absent(
        f"{path}.sourceIpGroups[0]"
    ):
        yield Problem(f"{path}.sourceAddresses", "is missing: say whom the rule is for")
    if inputs.optional_string(f"{path}.ruleType") == "ApplicationRule":
        targets = ("targetFqdns", "fqdnTags", "targetUrls", "webCategories")
        if all(inputs.is_absent(f"{path}.{name}[0]") for name in targets):
            yield Problem(f"{path}.targetFqdns", "is missing: name the hosts that are allowed")
        for where, text in inputs.strings(f"{path}.targetFqdns"):
            if "://" in text or "/" in text:
                yield Problem(where, f"{text!r} isn't a host name; leave out the scheme and path")
    if inputs.optional_string(f"{path}.ruleType") == "NetworkRule":
        for where, text in inputs.strings(f"{path}.destinationPorts"):
            yield from security_rules.ports(where, text)


def _firewall_outputs(resource: Resource) -> dict[str, Any]:
    configurations: list[Any] = []
    for path, item in resource.items("ipConfigurations"):
        if not isinstance(item, Mapping):
            continue
        address = subnets.address(
            resource.world, resource.optional_string(f"{path}.subnet.id") or "", resource.id
        )
        own = f"{resource.id}/azureFirewallIpConfigurations/{arm.segment(str(item.get('name')))}"
        configurations.append({**item, "id": own, "privateIPAddress": address})
    return {"ipConfigurations": configurations, "ipGroups": []}


KINDS: Final = (
    AzureKind(
        "azure-native:network:AzureFirewall",
        "Microsoft.Network/azureFirewalls/{azureFirewallName}",
        name=naming.NameRule(1, 56, naming.NETWORK.pattern, naming.NETWORK.text),
        replaces=("zones",),
        rules=(
            refused(
                "managementIpConfiguration",
                "is missing: the tier Basic needs its own management subnet and address",
                all_of(equals("sku.tier", "Basic"), absent("managementIpConfiguration")),
            ),
            _firewall_problems,
        ),
        crosschecks=(_firewall_conflicts,),
        computed=_firewall_outputs,
    ),
    AzureKind(
        "azure-native:network:FirewallPolicy",
        "Microsoft.Network/firewallPolicies/{firewallPolicyName}",
        name=naming.NETWORK,
        is_held_by_references=True,
        rules=(texts("dnsSettings.servers[]", checks.address), _policy_problems),
    ),
    AzureKind(
        "azure-native:network:FirewallPolicyRuleCollectionGroup",
        "Microsoft.Network/firewallPolicies/{firewallPolicyName}/ruleCollectionGroups/"
        "{ruleCollectionGroupName}",
        name=naming.NETWORK,
        rules=(
            between("priority", 100, 65000),
            required("priority", "give each group its own, 100 to 65000"),
            _rule_group_problems,
        ),
    ),
    AzureKind(
        "azure-native:network:IpGroup",
        "Microsoft.Network/ipGroups/{ipGroupsName}",
        name=naming.NETWORK,
        is_held_by_references=True,
    ),
)  # fmt: skip
