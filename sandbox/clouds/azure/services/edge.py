"""Microsoft.Network: gateways, load balancers, public addresses and firewalls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, kinds, naming, regions, resources, subnets
from falaj.sandbox.clouds.azure.kinds import AzureKind
from falaj.sandbox.clouds.azure.resources import location
from falaj.sandbox.clouds.azure.services import network
from falaj.sandbox.clouds.azure.services.network import SUBNET
from falaj.sandbox.clouds.inputs import Inputs, Resource
from falaj.sandbox.clouds.kinds import (
    absent,
    all_of,
    between,
    equals,
    for_each,
    given,
    refused,
    required,
    texts,
    when,
)
from falaj.sandbox.clouds.model import Problem
from falaj.sandbox.properties import is_list
from falaj.wire.documents import is_dictionary, is_mapping

_V2: Final = ("Standard_v2", "WAF_v2")
# Documentation addresses (RFC 5737): nothing answers there.
_PUBLIC: Final = "203.0.113."
_LISTS: Final = {
    "applicationGateways": (
        "gatewayIPConfigurations", "frontendIPConfigurations", "frontendPorts", "httpListeners",
        "backendAddressPools", "backendHttpSettingsCollection", "requestRoutingRules", "probes",
        "sslCertificates", "trustedRootCertificates", "sslProfiles", "urlPathMaps",
        "redirectConfigurations", "rewriteRuleSets", "listeners", "routingRules",
        "backendSettingsCollection", "privateLinkConfigurations",
    ),
    "loadBalancers": (
        "frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes",
        "inboundNatRules", "outboundRules",
    ),
}  # fmt: skip


def parts(resource: Resource, kind: str) -> dict[str, Any]:
    """The lists of a gateway or balancer, each part with the id that Azure gives it."""
    found: dict[str, Any] = {}
    for name in _LISTS[kind]:
        items = [item for _, item in resource.items(name) if is_mapping(item)]
        if items:
            found[name] = [
                {
                    **item,
                    "id": f"{resource.id}/{name}/{item.get('name')}",
                    "provisioningState": "Succeeded",
                }
                for item in items
            ]
    return found


def _own_parts(inputs: Inputs, kind: str) -> Iterator[Problem]:
    """Parts that name another part of the same resource name one that is there."""
    declared = {
        (name.lower(), str(item.get("name")).lower())
        for name in _LISTS[kind]
        for _, item in inputs.items(name)
        if is_mapping(item)
    }
    named = [item for item in _LISTS[kind] if inputs.items(item)]
    for name in named:
        for path, item in inputs.items(name):
            for key, value in item.items() if is_mapping(item) else ():
                for where, id in _ids(value, f"{path}.{key}"):
                    tail = id.split(f"/{kind}/")[-1].split("/")
                    inside = len(tail) == 3 and tail[1].lower() in {
                        each.lower() for each in _LISTS[kind]
                    }
                    if inside and (tail[1].lower(), tail[2].lower()) not in declared:
                        yield Problem(
                            where, f"there is no {tail[2]!r} in {tail[1]}; name one that is there"
                        )


def _ids(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if is_mapping(value):
        id = value.get("id")
        if isinstance(id, str):
            yield f"{path}.id", id
    elif is_list(value):
        for index, item in enumerate(value):
            yield from _ids(item, f"{path}[{index}]")


def _public_ip_problems(inputs: Inputs) -> Iterator[Problem]:
    sku = inputs.optional_string("sku.name")
    if (
        sku in ("Standard", "StandardV2")
        and inputs.optional_string("publicIPAllocationMethod") == "Dynamic"
    ):
        yield Problem("publicIPAllocationMethod", f"Dynamic doesn't go with {sku}; choose Static")


def _gateway_problems(inputs: Inputs) -> Iterator[Problem]:
    sku, tier = inputs.optional_string("sku.name"), inputs.optional_string("sku.tier")
    if sku and tier and not sku.startswith(tier) and sku not in _V2:
        yield Problem("sku.tier", f"{tier} doesn't go with the SKU {sku}")
    if sku in _V2 and tier is not None and tier != sku:
        yield Problem("sku.tier", f"{tier} doesn't go with the SKU {sku}; it must be {sku}")
    if sku and sku not in (*_V2, "Basic"):
        # Source: application-gateway/v1-retirement: no new v1 gateways since 1 September 2024.
        yield Problem(
            "sku.name", f"{sku} is of the retired first version; choose Standard_v2 or WAF_v2"
        )
    low = inputs.number("autoscaleConfiguration.minCapacity")
    high = inputs.number("autoscaleConfiguration.maxCapacity")
    if low is not None and high is not None and low > high:
        yield Problem("autoscaleConfiguration.maxCapacity", f"{high:g} is less than minCapacity")
    yield from _own_parts(inputs, "applicationGateways")


def _listeners(inputs: Inputs) -> Iterator[Problem]:
    for path, _ in inputs.items("requestRoutingRules"):
        if inputs.optional_string("sku.name") in _V2 and inputs.is_absent(f"{path}.priority"):
            yield Problem(f"{path}.priority", "is missing: each rule needs one, 1 to 20000")
        yield from between(f"{path}.priority", 1, 20000)(inputs)
    for path, _ in inputs.items("sslCertificates"):
        if inputs.is_absent(f"{path}.data") and inputs.is_absent(f"{path}.keyVaultSecretId"):
            yield Problem(path, "has neither data nor keyVaultSecretId; give one of them")
        if inputs.is_given(f"{path}.keyVaultSecretId") and inputs.is_absent("identity"):
            yield Problem(
                "identity",
                "is missing: the gateway reads its certificate from the "
                "vault by a user-assigned identity",
            )


def _gateway_alone(resource: Resource) -> Iterator[Problem]:
    """Gateways have a subnet of their own (application-gateway/configuration-infrastructure)."""
    for path, _ in resource.items("gatewayIPConfigurations"):
        subnet = resource.optional_string(f"{path}.subnet.id")
        for made in resources.azure(resource.world) if subnet else ():
            if made.token in (resource.token, SUBNET) or naming.same(made.id, resource.id):
                continue
            if any(naming.same(id, subnet or "") for _, id in resources.references(made.inputs)):
                yield Problem(
                    f"{path}.subnet.id",
                    f"{made.id.rpartition('/')[2]!r} is in this subnet; a gateway needs a subnet "
                    "of its own",
                )
                return


def _gateway_conflicts(resource: Resource) -> Iterator[Problem]:
    for path, _ in resource.items("gatewayIPConfigurations"):
        yield from subnets.fits(
            resource,
            f"{path}.subnet.id",
            where=location(resource),
            # Network isolation asks for this delegation (application-gateway-private-deployment).
            delegated_to=None,
            may_be_delegated=True,
        )
    for path, _ in resource.items("frontendIPConfigurations"):
        text, id = (
            resource.optional_string(f"{path}.privateIPAddress"),
            resource.optional_string(f"{path}.subnet.id"),
        )
        subnet = subnets.find(resource.world, id) if id else None
        if subnet and text and not subnets.is_inside(subnet, text):
            yield Problem(f"{path}.privateIPAddress", f"{text} isn't an address of the subnet")


def _balancer_problems(inputs: Inputs) -> Iterator[Problem]:
    for path, _ in inputs.items("frontendIPConfigurations"):
        if inputs.is_given(f"{path}.subnet") and inputs.is_given(f"{path}.publicIPAddress"):
            yield Problem(path, "has a subnet and a public address; a frontend has one of them")
        if inputs.optional_string(
            f"{path}.privateIPAllocationMethod"
        ) == "Static" and inputs.is_absent(f"{path}.privateIPAddress"):
            yield Problem(f"{path}.privateIPAddress", "is missing: a Static frontend needs it")
        yield from checks.address(
            f"{path}.privateIPAddress", inputs.optional_string(f"{path}.privateIPAddress")
        )
        yield from checks.zones(f"{path}.zones", inputs)
    yield from _own_parts(inputs, "loadBalancers")


def _balancer_conflicts(resource: Resource) -> Iterator[Problem]:
    for path, _ in resource.items("frontendIPConfigurations"):
        yield from subnets.fits(
            resource, f"{path}.subnet.id", where=location(resource), may_be_delegated=True
        )
        text, id = (
            resource.optional_string(f"{path}.privateIPAddress"),
            resource.optional_string(f"{path}.subnet.id"),
        )
        subnet = subnets.find(resource.world, id) if id else None
        if subnet and text and not subnets.is_inside(subnet, text):
            yield Problem(f"{path}.privateIPAddress", f"{text} isn't an address of the subnet")


def _public_ip_outputs(resource: Resource) -> dict[str, Any]:
    last = int(naming.digest(4, resource.id), 16) % 254 + 1
    found: dict[str, Any] = {"ipAddress": f"{_PUBLIC}{last}"}
    label = resource.optional_string("dnsSettings.domainNameLabel")
    region = location(resource)
    settings = resource.at("dnsSettings")
    if label and region and is_dictionary(settings):
        host = f"{label}.{regions.normalise(region)}.cloudapp.azure.com"
        found["dnsSettings"] = {**settings, "fqdn": host}
    return found


def _frontends(resource: Resource, kind: str) -> dict[str, Any]:
    found = parts(resource, kind)
    for index, item in enumerate(found.get("frontendIPConfigurations", [])):
        path = f"frontendIPConfigurations[{index}]"
        subnet = resource.optional_string(f"{path}.subnet.id")
        if subnet and item.get("privateIPAddress") is None:
            address = subnets.address(resource.world, subnet, resource.id, path)
            item.update({"privateIPAddress": address} if address else {})
    return found


def _gateway_outputs(resource: Resource) -> dict[str, Any]:
    return {"operationalState": "Running", **_frontends(resource, "applicationGateways")}


def _balancer_outputs(resource: Resource) -> dict[str, Any]:
    return _frontends(resource, "loadBalancers")


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


_TIERS: Final = ("Basic", "Standard", "Premium")


def _same_tier(resource: Resource) -> Iterator[Problem]:
    """A firewall takes no policy of a higher tier (firewall-manager/policy-overview)."""
    id = resource.optional_string("firewallPolicy.id")
    made = resources.by_id(resource.world, id) if id else None
    own = resource.optional_string("sku.tier") or "Standard"
    theirs = Inputs(made.inputs).optional_string("sku.tier") or "Standard" if made else own
    if own in _TIERS and theirs in _TIERS and _TIERS.index(theirs) > _TIERS.index(own):
        yield Problem(
            "firewallPolicy",
            f"is of the tier {theirs}, and the firewall of {own}; give both the same tier",
        )


def _names_resolved(resource: Resource) -> Iterator[Problem]:
    """Names in rules of the network need the firewall's own resolver (firewall/fqdn-filtering-
    network-rules)."""
    policy = resources.by_id(resource.world, resource.id.rsplit("/", 2)[0])
    if policy is None or Inputs(policy.inputs).at("dnsSettings.enableProxy") not in (None, False):
        return
    for path, _ in resource.items("ruleCollections"):
        for rule, _ in resource.items(f"{path}.rules"):
            if resource.optional_string(f"{rule}.ruleType") == "NetworkRule" and resource.items(
                f"{rule}.destinationFqdns"
            ):
                yield Problem(
                    f"{rule}.destinationFqdns",
                    "need dnsSettings.enableProxy on the policy; set it to true there",
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
    seen: set[float] = set()
    for path, _ in inputs.items("ruleCollections"):
        priority = inputs.number(f"{path}.priority")
        if priority in seen:
            yield Problem(
                f"{path}.priority",
                f"the priority {priority:g} is another collection's; give each its own",
            )
        seen |= {priority} if priority is not None else set()
        yield from between(f"{path}.priority", 100, 65000)(inputs)
        yield from required(f"{path}.name", "each collection needs a name")(inputs)
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
            yield from network.ports(where, text)


def _firewall_outputs(resource: Resource) -> dict[str, Any]:
    configurations: list[Any] = []
    for path, item in resource.items("ipConfigurations"):
        if not is_mapping(item):
            continue
        address = subnets.address(
            resource.world, resource.optional_string(f"{path}.subnet.id") or "", resource.id
        )
        own = (
            f"{resource.id}/azureFirewallIpConfigurations/{naming.segment(str(item.get('name')))}"
        )
        configurations.append({**item, "id": own, "privateIPAddress": address})
    return {"ipConfigurations": configurations, "ipGroups": []}


KINDS: Final = (
    AzureKind(
        "azure-native:network:PublicIPAddress",
        "Microsoft.Network/publicIPAddresses/{publicIpAddressName}",
        name=kinds.NETWORK,
        is_held_by_references=True,
        replaces=("publicIPAddressVersion", "publicIPPrefix", "sku", "zones"),
        rules=(
            # Source: virtual-network/ip-services/public-ip-basic-upgrade-guidance (30 Sept 2025).
            refused(
                "sku.name",
                "Basic addresses can't be made since 30 September 2025; choose Standard",
                equals("sku.name", "Basic"),
            ),
            between("idleTimeoutInMinutes", 4, 30, "minutes"),
            _public_ip_problems,
        ),
        computed=_public_ip_outputs,
    ),
    AzureKind(
        "azure-native:network:NatGateway",
        "Microsoft.Network/natGateways/{natGatewayName}",
        name=kinds.NETWORK,
        is_held_by_references=True,
        replaces=("zones",),
    ),
    AzureKind(
        "azure-native:network:ApplicationGateway",
        "Microsoft.Network/applicationGateways/{applicationGatewayName}",
        name=kinds.NETWORK,
        replaces=("zones",),
        rules=(
            refused(
                "sku.capacity", "is missing: give a capacity or an autoscaleConfiguration",
                absent("sku.capacity", "autoscaleConfiguration"),
            ),
            refused(
                "sku.capacity", "doesn't go with autoscaleConfiguration; give one of them",
                all_of(given("sku.capacity"), given("autoscaleConfiguration")),
            ),
            between("sku.capacity", 1, 125),
            between("autoscaleConfiguration.minCapacity", 0, 125),
            between("autoscaleConfiguration.maxCapacity", 2, 125),
            refused(
                "gatewayIPConfigurations", "is missing: a gateway needs at least one",
                absent("gatewayIPConfigurations[0]"),
            ),
            refused(
                "frontendIPConfigurations", "is missing: a gateway needs at least one",
                absent("frontendIPConfigurations[0]"),
            ),
            refused(
                "frontendPorts", "is missing: a gateway needs at least one",
                absent("frontendPorts[0]"),
            ),
            refused(
                "backendAddressPools", "is missing: a gateway needs at least one",
                absent("backendAddressPools[0]"),
            ),
            refused(
                "httpListeners", "is missing: a gateway needs at least one",
                absent("httpListeners[0]"),
            ),
            refused(
                "requestRoutingRules", "is missing: a gateway needs at least one",
                absent("requestRoutingRules[0]"),
            ),
            for_each(
                "httpListeners[]",
                refused(
                    "sslCertificate", "is missing: an Https listener needs one",
                    all_of(equals("protocol", "Https"), absent("sslCertificate")),
                ),
            ),
            between("frontendPorts[].port", 1, 65199),
            _listeners,
            _gateway_problems,
        ),
        crosschecks=(_gateway_conflicts, _gateway_alone),
        computed=_gateway_outputs,
    ),
    AzureKind(
        "azure-native:network:LoadBalancer",
        "Microsoft.Network/loadBalancers/{loadBalancerName}",
        name=kinds.NETWORK,
        is_held_by_references=True,
        replaces=("sku",),
        rules=(
            # Source: load-balancer/load-balancer-basic-upgrade-guidance (30 September 2025).
            refused(
                "sku.name",
                "Basic balancers can't be made since 30 September 2025; choose Standard",
                equals("sku.name", "Basic"),
            ),
            between("loadBalancingRules[].frontendPort", 0, 65534),
            between("loadBalancingRules[].backendPort", 0, 65535),
            between("loadBalancingRules[].idleTimeoutInMinutes", 4, 100, "minutes"),
            for_each(
                "probes[]", between("port", 1, 65535),
                when(
                    equals("protocol", "Http", "Https"),
                    required("requestPath", "a web probe needs a path"),
                ),
            ),
            _balancer_problems,
        ),
        crosschecks=(_balancer_conflicts,),
        computed=_balancer_outputs,
    ),
    AzureKind(
        "azure-native:network:AzureFirewall",
        "Microsoft.Network/azureFirewalls/{azureFirewallName}",
        name=kinds.NameRule(1, 56, kinds.NETWORK.pattern, kinds.NETWORK.text),
        replaces=("zones",),
        rules=(
            refused(
                "managementIpConfiguration",
                "is missing: the tier Basic needs its own management subnet and address",
                all_of(equals("sku.tier", "Basic"), absent("managementIpConfiguration")),
            ),
            _firewall_problems,
        ),
        crosschecks=(_firewall_conflicts, _same_tier),
        computed=_firewall_outputs,
    ),
    AzureKind(
        "azure-native:network:FirewallPolicy",
        "Microsoft.Network/firewallPolicies/{firewallPolicyName}",
        name=kinds.NETWORK,
        is_held_by_references=True,
        rules=(texts("dnsSettings.servers[]", checks.address), _policy_problems),
    ),
    AzureKind(
        "azure-native:network:FirewallPolicyRuleCollectionGroup",
        "Microsoft.Network/firewallPolicies/{firewallPolicyName}/ruleCollectionGroups/"
        "{ruleCollectionGroupName}",
        name=kinds.NETWORK,
        rules=(
            between("priority", 100, 65000),
            required("priority", "give each group its own, 100 to 65000"),
            _rule_group_problems,
        ),
        crosschecks=(_names_resolved,),
    ),
    AzureKind(
        "azure-native:network:IpGroup",
        "Microsoft.Network/ipGroups/{ipGroupsName}",
        name=kinds.NETWORK,
        is_held_by_references=True,
    ),
)  # fmt: skip
