"""Microsoft.Network: application gateways, load balancers and public addresses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.sandbox.clouds.azure import checks, invented, naming, places, subnets
from falaj.sandbox.clouds.azure.ask import Ask
from falaj.sandbox.clouds.azure.kind import Kind
from falaj.sandbox.clouds.azure.results import location
from falaj.sandbox.clouds.model import Problem

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


def parts(ask: Ask, kind: str) -> dict[str, Any]:
    """The lists of a gateway or balancer, each part with the id that Azure gives it."""
    found: dict[str, Any] = {}
    for name in _LISTS[kind]:
        items = [item for _, item in ask.items(name) if isinstance(item, Mapping)]
        if items:
            found[name] = [
                {
                    **item,
                    "id": f"{ask.id}/{name}/{item.get('name')}",
                    "provisioningState": "Succeeded",
                }
                for item in items
            ]
    return found


def _own_parts(ask: Ask, kind: str) -> Iterator[Problem]:
    """Parts that name another part of the same resource name one that is there."""
    declared = {
        (name.lower(), str(item.get("name")).lower())
        for name in _LISTS[kind]
        for _, item in ask.items(name)
        if isinstance(item, Mapping)
    }
    named = [item for item in _LISTS[kind] if ask.items(item)]
    for name in named:
        for path, item in ask.items(name):
            for key, value in item.items() if isinstance(item, Mapping) else ():
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
    if isinstance(value, Mapping):
        id = value.get("id")
        if isinstance(id, str):
            yield f"{path}.id", id
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _ids(item, f"{path}[{index}]")


def _public_ip_problems(ask: Ask) -> Iterator[Problem]:
    sku = ask.text("sku.name")
    if sku == "Basic":
        # Source: virtual-network/ip-services/public-ip-basic-upgrade-guidance (30 Sept 2025).
        yield Problem(
            "sku.name", "Basic addresses can't be made since 30 September 2025; choose Standard"
        )
    if sku in ("Standard", "StandardV2") and ask.text("publicIPAllocationMethod") == "Dynamic":
        yield Problem("publicIPAllocationMethod", f"Dynamic doesn't go with {sku}; choose Static")
    yield from checks.between(ask, "idleTimeoutInMinutes", 4, 30, "minutes")


def _gateway_problems(ask: Ask) -> Iterator[Problem]:
    sku, tier = ask.text("sku.name"), ask.text("sku.tier")
    if sku and tier and not sku.startswith(tier) and sku not in _V2:
        yield Problem("sku.tier", f"{tier} doesn't go with the SKU {sku}")
    if sku in _V2 and tier is not None and tier != sku:
        yield Problem("sku.tier", f"{tier} doesn't go with the SKU {sku}; it must be {sku}")
    if sku and sku not in (*_V2, "Basic"):
        # Source: application-gateway/v1-retirement: no new v1 gateways since 1 September 2024.
        yield Problem(
            "sku.name", f"{sku} is of the retired first version; choose Standard_v2 or WAF_v2"
        )
    if ask.is_absent("sku.capacity") and ask.is_absent("autoscaleConfiguration"):
        yield Problem("sku.capacity", "is missing: give a capacity or an autoscaleConfiguration")
    if ask.is_given("sku.capacity") and ask.is_given("autoscaleConfiguration"):
        yield Problem("sku.capacity", "doesn't go with autoscaleConfiguration; give one of them")
    yield from checks.between(ask, "sku.capacity", 1, 125)
    low = ask.number("autoscaleConfiguration.minCapacity")
    high = ask.number("autoscaleConfiguration.maxCapacity")
    yield from checks.between(ask, "autoscaleConfiguration.minCapacity", 0, 125)
    yield from checks.between(ask, "autoscaleConfiguration.maxCapacity", 2, 125)
    if low is not None and high is not None and low > high:
        yield Problem("autoscaleConfiguration.maxCapacity", f"{high:g} is less than minCapacity")
    for name in (
        "gatewayIPConfigurations",
        "frontendIPConfigurations",
        "frontendPorts",
        "backendAddressPools",
        "httpListeners",
        "requestRoutingRules",
    ):
        if ask.is_absent(f"{name}[0]"):
            yield Problem(name, "is missing: a gateway needs at least one")
    yield from _listeners(ask)
    yield from _own_parts(ask, "applicationGateways")


def _listeners(ask: Ask) -> Iterator[Problem]:
    for path, _ in ask.items("requestRoutingRules"):
        if ask.text("sku.name") in _V2 and ask.is_absent(f"{path}.priority"):
            yield Problem(f"{path}.priority", "is missing: each rule needs one, 1 to 20000")
        yield from checks.between(ask, f"{path}.priority", 1, 20000)
    for path, _ in ask.items("httpListeners"):
        if ask.text(f"{path}.protocol") == "Https" and ask.is_absent(f"{path}.sslCertificate"):
            yield Problem(f"{path}.sslCertificate", "is missing: an Https listener needs one")
    for path, _ in ask.items("frontendPorts"):
        yield from checks.between(ask, f"{path}.port", 1, 65199)
    for path, _ in ask.items("sslCertificates"):
        if ask.is_absent(f"{path}.data") and ask.is_absent(f"{path}.keyVaultSecretId"):
            yield Problem(path, "has neither data nor keyVaultSecretId; give one of them")
        if ask.is_given(f"{path}.keyVaultSecretId") and ask.is_absent("identity"):
            yield Problem(
                "identity",
                "is missing: the gateway reads its certificate from the "
                "vault by a user-assigned identity",
            )


def _gateway_conflicts(ask: Ask) -> Iterator[Problem]:
    for path, _ in ask.items("gatewayIPConfigurations"):
        yield from subnets.fits(
            ask,
            f"{path}.subnet.id",
            where=location(ask),
            # Network isolation asks for this delegation (application-gateway-private-deployment).
            delegated_to=None,
            may_be_delegated=True,
        )
    for path, _ in ask.items("frontendIPConfigurations"):
        text, id = ask.text(f"{path}.privateIPAddress"), ask.text(f"{path}.subnet.id")
        subnet = subnets.find(ask.world, id) if ask.world and id else None
        if subnet and text and not subnets.is_inside(subnet, text):
            yield Problem(f"{path}.privateIPAddress", f"{text} isn't an address of the subnet")


def _balancer_problems(ask: Ask) -> Iterator[Problem]:
    sku = ask.text("sku.name")
    if sku == "Basic":
        # Source: load-balancer/load-balancer-basic-upgrade-guidance (30 September 2025).
        yield Problem(
            "sku.name", "Basic balancers can't be made since 30 September 2025; choose Standard"
        )
    for path, _ in ask.items("frontendIPConfigurations"):
        if ask.is_given(f"{path}.subnet") and ask.is_given(f"{path}.publicIPAddress"):
            yield Problem(path, "has a subnet and a public address; a frontend has one of them")
        if ask.text(f"{path}.privateIPAllocationMethod") == "Static" and ask.is_absent(
            f"{path}.privateIPAddress"
        ):
            yield Problem(f"{path}.privateIPAddress", "is missing: a Static frontend needs it")
        yield from checks.address(f"{path}.privateIPAddress", ask.text(f"{path}.privateIPAddress"))
        yield from checks.zones(f"{path}.zones", ask)
    for path, _ in ask.items("loadBalancingRules"):
        yield from checks.between(ask, f"{path}.frontendPort", 0, 65534)
        yield from checks.between(ask, f"{path}.backendPort", 0, 65535)
        yield from checks.between(ask, f"{path}.idleTimeoutInMinutes", 4, 100, "minutes")
    for path, _ in ask.items("probes"):
        yield from checks.between(ask, f"{path}.port", 1, 65535)
        if ask.text(f"{path}.protocol") in ("Http", "Https"):
            yield from checks.needs(ask, f"{path}.requestPath", "a web probe needs a path")
    yield from _own_parts(ask, "loadBalancers")


def _balancer_conflicts(ask: Ask) -> Iterator[Problem]:
    for path, _ in ask.items("frontendIPConfigurations"):
        yield from subnets.fits(
            ask, f"{path}.subnet.id", where=location(ask), may_be_delegated=True
        )
        text, id = ask.text(f"{path}.privateIPAddress"), ask.text(f"{path}.subnet.id")
        subnet = subnets.find(ask.world, id) if ask.world and id else None
        if subnet and text and not subnets.is_inside(subnet, text):
            yield Problem(f"{path}.privateIPAddress", f"{text} isn't an address of the subnet")


def _public_ip_outputs(ask: Ask) -> dict[str, Any]:
    last = int(invented.digest(4, ask.id or ""), 16) % 254 + 1
    found: dict[str, Any] = {"ipAddress": f"{_PUBLIC}{last}"}
    label = ask.text("dnsSettings.domainNameLabel")
    region = location(ask)
    settings = ask.at("dnsSettings")
    if label and region and isinstance(settings, dict):
        host = f"{label}.{places.normalise(region)}.cloudapp.azure.com"
        found["dnsSettings"] = {**settings, "fqdn": host}
    return found


def _frontends(ask: Ask, kind: str) -> dict[str, Any]:
    found = parts(ask, kind)
    for index, item in enumerate(found.get("frontendIPConfigurations", [])):
        path = f"frontendIPConfigurations[{index}]"
        subnet = ask.text(f"{path}.subnet.id")
        if subnet and item.get("privateIPAddress") is None:
            address = subnets.address(ask.world, subnet, ask.id or "", path)
            item.update({"privateIPAddress": address} if address else {})
    return found


def _gateway_outputs(ask: Ask) -> dict[str, Any]:
    return {"operationalState": "Running", **_frontends(ask, "applicationGateways")}


def _balancer_outputs(ask: Ask) -> dict[str, Any]:
    return _frontends(ask, "loadBalancers")


KINDS: Final = (
    Kind(
        "azure-native:network:PublicIPAddress",
        "Microsoft.Network/publicIPAddresses/{publicIpAddressName}",
        name=naming.NETWORK,
        is_held_by_references=True,
        replaces=frozenset({"publicIPAddressVersion", "publicIPPrefix", "sku", "zones"}),
        problems=_public_ip_problems,
        outputs=_public_ip_outputs,
    ),
    Kind(
        "azure-native:network:NatGateway",
        "Microsoft.Network/natGateways/{natGatewayName}",
        name=naming.NETWORK,
        is_held_by_references=True,
        replaces=frozenset({"zones"}),
    ),
    Kind(
        "azure-native:network:ApplicationGateway",
        "Microsoft.Network/applicationGateways/{applicationGatewayName}",
        name=naming.NETWORK,
        replaces=frozenset({"zones"}),
        problems=_gateway_problems,
        conflicts=_gateway_conflicts,
        outputs=_gateway_outputs,
    ),
    Kind(
        "azure-native:network:LoadBalancer",
        "Microsoft.Network/loadBalancers/{loadBalancerName}",
        name=naming.NETWORK,
        is_held_by_references=True,
        replaces=frozenset({"sku"}),
        problems=_balancer_problems,
        conflicts=_balancer_conflicts,
        outputs=_balancer_outputs,
    ),
)
