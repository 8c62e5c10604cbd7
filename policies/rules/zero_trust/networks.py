"""Networks on Azure: security groups on every subnet, firewalls that look and deny."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    get,
    indeterminate,
    is_true,
    is_unknown,
    items,
    requirement_rule,
    rule,
    scalar,
    text,
    violation,
)
from falaj.policies.reading.addresses import are_open, is_open
from falaj.policies.reading.azure_children import children, entries
from falaj.policies.reading.types import azure

# Networks on Azure: subnets with rules, firewalls that filter, gateways that inspect.

CONTROLS: Final = ("uae-ia:T4.5.3", "iso27001:A.8.20", "iso27001:A.8.22", "nist-800-207:2")
_SUBNET: Final = azure("network:Subnet")
_NETWORK: Final = azure("network:VirtualNetwork")
#: Subnets of Azure's own machines, whose rules are Azure's:
#: https://learn.microsoft.com/azure/firewall/firewall-faq, …/vpn-gateway/vpn-gateway-about-vpn-
#: gateway-settings, …/route-server/route-server-faq, …/bastion/bastion-nsg
_OWN: Final = frozenset(
    (
        "azurebastionsubnet", "azurefirewallmanagementsubnet", "azurefirewallsubnet",
        "gatewaysubnet", "routeserversubnet",
    )
)  # fmt: skip
#: Delegations that take no rules, or not on all networks.
_WITHOUT: Final = frozenset(
    (
        "microsoft.hardwaresecuritymodules/dedicatedhsms", "microsoft.netapp/volumes",
        "microsoft.network/dnsresolvers", "microsoft.network/networkvirtualappliances",
    )
)  # fmt: skip


@rule(
    "zero-trust-azure-subnet-rules",
    "Subnets have a security group",
    Severity.MEDIUM,
    _SUBNET | _NETWORK,
    CONTROLS,
    "Give the subnet a networkSecurityGroup that names who may talk to whom.",
)
def subnet_rules(resource: Resource, context: Context) -> Iterator[Finding]:
    """Without one, everything in the network may talk to everything."""
    if resource.kind in _SUBNET:
        yield from _rules_of(resource.properties, "", resource.name)
        return
    for path, each in entries(resource.get("subnets"), "subnets"):
        yield from _rules_of(each, path + ".", "")


def _rules_of(subnet: Any, base: str, name: str) -> Iterator[Finding]:
    given = text(get(subnet, "subnetName")) or text(get(subnet, "name")) or name
    if given.lower() in _OWN:
        return
    services = [get(each, "serviceName") for each in items(get(subnet, "delegations"))]
    if any(scalar(each) in _WITHOUT for each in services):
        return
    group = get(subnet, "networkSecurityGroup")
    path = base + "networkSecurityGroup"
    if group is ABSENT:
        yield violation(path, "the subnet has no security group")
    elif get(group, "id") is ABSENT and get(group, "securityRules") is ABSENT:
        yield violation(path, "the security group isn't named")


_PEERING: Final = azure("network:VirtualNetworkPeering")
_peering = requirement_rule(
    "zero-trust-azure-peering-transit",
    "Networks that are joined don't let others through",
    Severity.LOW,
    {
        _PEERING: (
            Requirement("allowForwardedTraffic", ("false",)),
            Requirement("allowGatewayTransit", ("false",)),
        )
    },
    CONTROLS,
    "Leave allowForwardedTraffic and allowGatewayTransit out, or waive the rule for the hub whose "
    "firewall inspects what it forwards.",
)


@rule(
    "zero-trust-azure-private-endpoint-rules",
    "Security groups concern private endpoints",
    Severity.LOW,
    _SUBNET,
    CONTROLS,
    "Set privateEndpointNetworkPolicies of the subnet to Enabled.",
)
def private_endpoint_rules(resource: Resource, context: Context) -> Iterator[Finding]:
    """Where the stack puts private endpoints into the subnet; by default rules don't concern them
    (https://learn.microsoft.com/azure/private-link/disable-private-endpoint-network-policy)."""
    path = "privateEndpointNetworkPolicies"
    value = resource.get(path)
    if scalar(value) in {"enabled", "networksecuritygroupenabled"}:
        return
    if context.stack is None:
        yield indeterminate(path, "whether private endpoints stand in the subnet isn't known yet")
        return
    if children(context, resource, azure("network:PrivateEndpoint"), "subnet.id"):
        if is_unknown(value):
            yield indeterminate(path, "whether rules concern private endpoints can't be seen")
        else:
            given = (
                "isn't given, and the default is Disabled" if value is ABSENT else "is disabled"
            )
            yield violation(path, f"it {given}; it must be Enabled")


@rule(
    "zero-trust-azure-default-outbound",
    "Subnets have no way out but one that somebody chose",
    Severity.LOW,
    _SUBNET,
    ("uae-ia:T4.5.3", "iso27001:A.8.12", "iso27001:A.8.20", "nist-800-207:2"),
    "Set defaultOutboundAccess to false, and lead what must go out through a firewall or a NAT "
    "gateway.",
)
def default_outbound(resource: Resource, context: Context) -> Iterator[Finding]:
    """Azure gives machines an address of its own to send from, unless told otherwise:
    https://learn.microsoft.com/azure/virtual-network/ip-services/default-outbound-access. Routes
    and NAT gateways take its place; what Azure runs in a subnet goes out as its service says."""
    path = "defaultOutboundAccess"
    value = resource.get(path)
    name = text(resource.get("subnetName")) or text(resource.get("name")) or resource.name
    instead = [resource.get(each) for each in ("natGateway", "routeTable", "delegations")]
    if scalar(value) == "false" or name.lower() in _OWN or any(items(each) for each in instead):
        return
    if is_unknown(value):
        yield indeterminate(path, "whether machines have a way out by default can't be seen")
    else:
        given = "isn't given, and the default is true" if value is ABSENT else "is true"
        yield violation(path, f"it {given}; it must be false")


_GROUP: Final = azure("network:FirewallPolicyRuleCollectionGroup")
_FIREWALL: Final = azure("network:AzureFirewall")
_COLLECTIONS: Final = {
    **dict.fromkeys(_GROUP, ("ruleCollections",)),
    **dict.fromkeys(
        _FIREWALL, ("applicationRuleCollections", "networkRuleCollections", "natRuleCollections")
    ),
}


@rule(
    "zero-trust-azure-firewall-open",
    "Firewalls let named destinations through",
    Severity.HIGH,
    _GROUP | _FIREWALL,
    (*CONTROLS, "iso27001:A.8.23"),
    "Name domains in application rules, or ranges and service tags in network rules; translate "
    "nothing from the Internet inwards.",
)
def firewall_open(resource: Resource, context: Context) -> Iterator[Finding]:
    """Any domain, any address, and translation from any source."""
    for key in _COLLECTIONS.get(resource.kind, ()):
        for path, collection in entries(resource.get(key), key):
            if is_unknown(collection):
                yield indeterminate(path, "what the rules let through can't be seen")
                continue
            if scalar(get(collection, "action.type")) == "deny":
                continue
            for where, each in entries(get(collection, "rules"), f"{path}.rules"):
                yield from _lets_through(each, where, get(collection, "action.type"))


def _lets_through(given: Any, where: str, action: Any) -> Iterator[Finding]:
    if is_unknown(given):
        yield indeterminate(where, "what the rule lets through can't be seen")
        return
    translates = scalar(action) in {"dnat", "snat"} or get(given, "translatedPort") is not ABSENT
    keys = ("sourceAddresses",) if translates else (
        "targetFqdns", "targetUrls", "destinationFqdns", "destinationAddresses"
    )  # fmt: skip
    for key in keys:
        for path, each in entries(get(given, key), f"{where}.{key}"):
            reason = f"the rule lets {'anybody in' if translates else 'anything out'}"
            if is_unknown(each):
                yield indeterminate(path, "whom the rule is for can't be seen")
            elif is_open(each) or text(each) in {"*.*", "http://*", "https://*", "*.com"}:
                yield violation(path, f"{reason} ({text(each)})")
    ranges = [each for each in items(get(given, "destinationAddresses")) if not is_unknown(each)]
    if not translates and are_open(ranges) and not any(is_open(each) for each in ranges):
        yield violation(f"{where}.destinationAddresses", "together the ranges are the Internet")


_POLICY: Final = azure("network:FirewallPolicy")


@rule(
    "zero-trust-azure-firewall-intelligence",
    "Firewalls stop what is known to be bad",
    Severity.MEDIUM,
    _POLICY | _FIREWALL,
    (*CONTROLS, "iso27001:A.8.16"),
    "Set threatIntelMode to Deny (the tier Basic knows Alert only), and leave intrusion detection "
    "on where the tier has it.",
)
def firewall_intelligence(resource: Resource, context: Context) -> Iterator[Finding]:
    """By default it tells and lets through: https://learn.microsoft.com/azure/firewall/
    threat-intel. A firewall with a policy has the policy's."""
    if resource.kind in _FIREWALL and resource.get("firewallPolicy") is not ABSENT:
        return
    tier = scalar(resource.get("sku.tier"))
    allowed = ("Alert", "Deny") if tier == "basic" else ("Deny",)
    yield from Requirement("threatIntelMode", allowed, "Alert").findings(resource.properties)
    yield from Requirement("intrusionDetection.mode", ("Alert", "Deny")).findings(
        resource.properties
    )


_GATEWAY: Final = azure("network:ApplicationGateway")


@rule(
    "zero-trust-azure-gateway-inspection",
    "Gateways for applications inspect each request",
    Severity.MEDIUM,
    _GATEWAY,
    (*CONTROLS, "nist-800-207:4"),
    "Use the tier WAF_v2 with a firewallPolicy in the mode Prevention.",
)
def gateway_inspection(resource: Resource, context: Context) -> Iterator[Finding]:
    """By a policy of its own, or the older configuration in the gateway."""
    policy = resource.get("firewallPolicy")
    own = "webApplicationFirewallConfiguration"
    enabled, mode = resource.get(f"{own}.enabled"), resource.get(f"{own}.firewallMode")
    if is_unknown(enabled) or is_unknown(mode):
        yield indeterminate(own, "whether requests are inspected can't be seen")
    elif is_true(enabled) and scalar(mode) == "detection":
        yield violation(f"{own}.firewallMode", "attacks are seen and let through; it is Detection")
    elif not is_true(enabled) and policy is ABSENT:
        yield violation("firewallPolicy", "no web application firewall inspects requests")


_waf_mode = requirement_rule(
    "zero-trust-azure-waf-mode",
    "Web application firewalls stop what they find",
    Severity.MEDIUM,
    {
        azure(
            "network:WebApplicationFirewallPolicy",
            "frontdoor:Policy",
            "cdn:Policy",
        ): (
            Requirement("policySettings.mode", ("Prevention",), "Detection"),
            Requirement("policySettings.state", ("Enabled",)),
            Requirement("policySettings.enabledState", ("Enabled",)),
        )
    },
    (*CONTROLS, "nist-800-207:4"),
    "Set policySettings.mode to Prevention, and leave the policy enabled.",
)


RULES: tuple[Rule, ...] = (
    subnet_rules,
    _peering,
    private_endpoint_rules,
    default_outbound,
    firewall_open,
    firewall_intelligence,
    gateway_inspection,
    _waf_mode,
)
