"""Public addresses, and what has one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Finding,
    Requirement,
    Resource,
    Rule,
    Severity,
    View,
    get,
    indeterminate,
    is_unknown,
    items,
    requirement_rule,
    rule,
    select,
    text,
    violation,
)
from falaj.policies.reading.azure_children import mentions
from falaj.policies.reading.types import azure

_CONTROLS: Final = ("uae-ia:T4.5.3", "iso27001:A.8.20", "nist-800-207:2")
_ADDRESS: Final = azure("network:PublicIPAddress", "network:PublicIPPrefix")
#: What sends and is controlled, or lets people in by name: by type, the properties that hold an
#: address.
_CONTROLLED: Final = {
    "network:AzureFirewall": ("ipConfigurations", "managementIpConfiguration", "hubIPAddresses"),
    "network:NatGateway": (
        "publicIpAddresses", "publicIpPrefixes", "publicIpAddressesV6", "publicIpPrefixesV6",
    ),
    "network:VirtualNetworkGateway": ("ipConfigurations",),
    "network:BastionHost": ("ipConfigurations",),
    "network:VirtualHubIpConfiguration": ("publicIPAddress",),
    "network:PublicIPAddress": ("publicIPPrefix",),
}  # fmt: skip
_BALANCER: Final = azure("network:LoadBalancer")


@rule(
    "zero-trust-azure-public-address",
    "Public addresses belong to what controls the way out",
    Severity.HIGH,
    _ADDRESS,
    _CONTROLS,
    "Delete the address and reach the service over a private endpoint or a private line. A "
    "firewall, a NAT gateway, a VPN gateway or Bastion may have one.",
)
def public_address(resource: Resource, view: View) -> Iterator[Finding]:
    """An address says nothing about its use: what uses it decides."""
    if text(resource.get("natGateway.id")):
        return
    if view.stack is None:
        yield indeterminate("", "what uses the public address isn't known yet")
        return
    for name, paths in _CONTROLLED.items():
        for user in view.stack.of_kind(*sorted(azure(name))):
            if user.urn != resource.urn and any(
                mentions(view, user, path, resource) for path in paths
            ):
                return
    for user in view.stack.of_kind(*sorted(_BALANCER)):
        if mentions(view, user, "frontendIPConfigurations", resource) and _only_sends(user):
            return
    yield violation("", "no firewall, NAT gateway, VPN gateway or Bastion uses the public address")


def _only_sends(balancer: Resource) -> bool:
    inward = ("loadBalancingRules", "inboundNatRules", "inboundNatPools")
    return bool(items(balancer.get("outboundRules"))) and not any(
        items(balancer.get(each)) for each in inward
    )


_CONFIGURATIONS: Final = "networkInterfaceConfigurations.ipConfigurations"
_MACHINES: Final[dict[str, frozenset[str]]] = {
    "ipConfigurations.publicIPAddress": azure("network:NetworkInterface"),
    f"networkProfile.{_CONFIGURATIONS}.publicIPAddressConfiguration": azure(
        "compute:VirtualMachine"
    ),
    f"virtualMachineProfile.networkProfile.{_CONFIGURATIONS}.publicIPAddressConfiguration": azure(
        "compute:VirtualMachineScaleSet"
    ),
}


@rule(
    "zero-trust-azure-public-machine",
    "Machines have no public addresses",
    Severity.HIGH,
    frozenset(kind for kinds in _MACHINES.values() for kind in kinds),
    _CONTROLS,
    "Remove the public address; let administrators in through Bastion and traffic out through a "
    "firewall or a NAT gateway.",
)
def public_machine(resource: Resource, view: View) -> Iterator[Finding]:
    """Network interfaces, and machines that bring their own."""
    for path, kinds in _MACHINES.items():
        if resource.kind in kinds:
            for where, value in select(resource.properties, path):
                if is_unknown(value):
                    yield indeterminate(where, "whether it has a public address can't be seen")
                else:
                    yield violation(where, "a public address is given to the machine")


_FRONTENDS: Final = _BALANCER | azure("network:ApplicationGateway")


@rule(
    "zero-trust-azure-public-frontend",
    "Balancers and gateways listen on private addresses",
    Severity.HIGH,
    _FRONTENDS,
    _CONTROLS,
    "Give the frontend a subnet and a private address.",
)
def public_frontend(resource: Resource, view: View) -> Iterator[Finding]:
    """A balancer that has rules for what is sent alone lets nobody in."""
    if resource.kind in _BALANCER and _only_sends(resource):
        return
    for key in ("publicIPAddress", "publicIPPrefix"):
        for where, value in select(resource.properties, f"frontendIPConfigurations.{key}"):
            if is_unknown(value):
                yield indeterminate(where, "whether the frontend is public can't be seen")
            else:
                yield violation(where, "the frontend listens on a public address")


_GROUP: Final = azure("containerinstance:ContainerGroup")
_APP: Final = azure("app:ContainerApp")
_ENVIRONMENT: Final = azure("app:ManagedEnvironment")

_public_containers = requirement_rule(
    "zero-trust-azure-public-machines-of-services",
    "Machines that services run have no public addresses",
    Severity.HIGH,
    {
        _GROUP: (Requirement("ipAddress.type", ("Private",)),),
        azure("machinelearningservices:Compute"): (
            Requirement("properties.properties.enableNodePublicIp", ("false",)),
        ),
        azure("batch:Pool"): (
            Requirement(
                "networkConfiguration.publicIPAddressConfiguration.provision",
                ("NoPublicIPAddresses",),
                "BatchManaged",
            ),
        ),
        azure("databricks:Workspace"): (
            Requirement("parameters.enableNoPublicIp.value", ("true",)),
        ),
        azure("web:AppServiceEnvironment"): (
            Requirement(
                "internalLoadBalancingMode",
                ("Web, Publishing", "Web,Publishing", "Publishing, Web", "Web"),
                "none",
            ),
        ),
        azure("sql:ManagedInstance"): (Requirement("publicDataEndpointEnabled", ("false",)),),
        azure("devtestlab:VirtualMachine"): (
            Requirement("disallowPublicIpAddress", ("true",), "false"),
        ),
    },
    _CONTROLS,
    "Put the machines into a subnet, without public addresses.",
)


@rule(
    "zero-trust-azure-public-container-app",
    "Container apps are reached from inside",
    Severity.HIGH,
    _APP,
    _CONTROLS,
    "Set configuration.ingress.external to false, or put the app into an environment whose "
    "vnetConfiguration.internal is true.",
)
def public_container_app(resource: Resource, view: View) -> Iterator[Finding]:
    """External means: from outside of the environment. Of an internal one, that is its network
    (https://learn.microsoft.com/azure/container-apps/networking)."""
    for path in (
        "configuration.ingress.external",
        "configuration.ingress.additionalPortMappings.external",
    ):
        for where, value in select(resource.properties, path):
            if value is False or str(value).lower() == "false":
                continue
            if view.stack is None:
                yield indeterminate(where, "whether its environment is internal isn't known yet")
            elif not _is_inside(resource, view):
                kind = indeterminate if is_unknown(value) else violation
                yield kind(where, "the app answers from outside of its environment")


def _is_inside(resource: Resource, view: View) -> bool:
    found = [
        each
        for path in ("managedEnvironmentId", "environmentId")
        for each in view.referred(resource, path)
        if each.kind in _ENVIRONMENT
    ]
    return bool(found) and all(
        get(each.properties, "vnetConfiguration.internal") is True
        or str(each.get("publicNetworkAccess")).lower() == "disabled"
        for each in found
    )


@rule(
    "zero-trust-azure-public-environment",
    "Environments of container apps are internal",
    Severity.HIGH,
    _ENVIRONMENT,
    _CONTROLS,
    "Set vnetConfiguration.internal to true, which only a new environment can have, or "
    "publicNetworkAccess to Disabled with a private endpoint.",
)
def public_environment(resource: Resource, view: View) -> Iterator[Finding]:
    """Without a network of its own it has a public address."""
    internal = resource.get("vnetConfiguration.internal")
    access = resource.get("publicNetworkAccess")
    if str(internal).lower() == "true" or str(access).lower() == "disabled":
        return
    if is_unknown(internal) or is_unknown(access):
        yield indeterminate("vnetConfiguration.internal", "whether it is internal can't be seen")
    else:
        yield violation("vnetConfiguration.internal", "the environment has a public address")


_bastion_links = requirement_rule(
    "zero-trust-azure-bastion-links",
    "Nobody enters through Bastion with a link alone",
    Severity.HIGH,
    {azure("network:BastionHost"): (Requirement("enableShareableLink", ("false",)),)},
    ("uae-ia:T5.2.2", "iso27001:A.8.2", "iso27001:A.8.5", "nist-800-207:6"),
    "Leave enableShareableLink out, or set it to false.",
)

_forwarding = requirement_rule(
    "zero-trust-azure-ip-forwarding",
    "Machines don't forward what isn't theirs",
    Severity.MEDIUM,
    {azure("network:NetworkInterface"): (Requirement("enableIPForwarding", ("false",)),)},
    ("uae-ia:T4.5.3", "iso27001:A.8.20", "iso27001:A.8.22", "nist-800-207:2"),
    "Leave enableIPForwarding out, or set it to false; use Azure Firewall to forward and inspect.",
)

RULES: tuple[Rule, ...] = (
    public_address,
    public_machine,
    public_frontend,
    _public_containers,
    public_container_app,
    public_environment,
    _bastion_links,
    _forwarding,
)
