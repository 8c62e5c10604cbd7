"""The internal gateway of a tier of machines: a load balancer, and who may come in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import network

from falaj.components.azure._names import titled
from falaj.components.specification.cpu_inference_tier import CpuInferenceTierSpec

FRONTEND, POOL, PROBE = "serving", "machines", "listening"
_IDLE_MINUTES = 4


@dataclass(frozen=True)
class Gateway:
    """Where callers come to, and the machines behind it."""

    pool_id: pulumi.Output[str]
    address: pulumi.Output[str]
    balancer: network.LoadBalancer


def make_gateway(
    name: str,
    spec: CpuInferenceTierSpec,
    subnet: pulumi.Input[str],
    *,
    group: azure_native.resources.ResourceGroup,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> Gateway:
    """A standard load balancer with a private address in every zone of the region.

    It passes TLS through: the server itself speaks TLS 1.3 and nothing older, so that nothing is
    in the clear on the way. An application gateway would end TLS in between, and doesn't speak 1.3
    to the machines behind it (learn.microsoft.com/azure/application-gateway/ssl-overview).
    """
    title = titled(spec.placed, name)
    own = pulumi.Output.concat(group.id, "/providers/Microsoft.Network/loadBalancers/", title)

    def part(kind: str, which: str) -> network.SubResourceArgs:
        return network.SubResourceArgs(id=pulumi.Output.concat(own, f"/{kind}/{which}"))

    every_zone = [zone.name or zone.id for zone in spec.placed.place.zones]
    balancer = network.LoadBalancer(
        name,
        resource_group_name=group.name,
        load_balancer_name=title,
        location=spec.placed.region,
        sku=network.LoadBalancerSkuArgs(
            name=network.LoadBalancerSkuName.STANDARD, tier=network.LoadBalancerSkuTier.REGIONAL
        ),
        frontend_ip_configurations=[
            network.FrontendIPConfigurationArgs(
                name=FRONTEND,
                private_ip_allocation_method=network.IPAllocationMethod.DYNAMIC,
                subnet=network.SubnetArgs(id=subnet),
                zones=every_zone or None,
            )
        ],
        backend_address_pools=[network.BackendAddressPoolArgs(name=POOL)],
        probes=[
            # The server listens when its model is loaded, and no sooner.
            network.ProbeArgs(
                name=PROBE,
                protocol=network.ProbeProtocol.TCP,
                port=spec.port,
                interval_in_seconds=5,
                probe_threshold=2,
            )
        ],
        load_balancing_rules=[
            network.LoadBalancingRuleArgs(
                name=FRONTEND,
                protocol=network.TransportProtocol.TCP,
                frontend_port=spec.port,
                backend_port=spec.port,
                frontend_ip_configuration=part("frontendIPConfigurations", FRONTEND),
                backend_address_pool=part("backendAddressPools", POOL),
                probe=part("probes", PROBE),
                idle_timeout_in_minutes=_IDLE_MINUTES,
                enable_tcp_reset=True,
                disable_outbound_snat=True,
            )
        ],
        tags=dict(tags),
        opts=opts,
    )
    return Gateway(
        pulumi.Output.concat(balancer.id, f"/backendAddressPools/{POOL}"),
        balancer.frontend_ip_configurations.apply(_private_address),
        balancer,
    )


def _private_address(
    frontends: Sequence[network.outputs.FrontendIPConfigurationResponse] | None,
) -> str:
    address = frontends[0].private_ip_address if frontends else None
    if not address:
        raise ValueError("the load balancer has no private address yet; run `up` again")
    return address


def guard_machines(
    name: str,
    spec: CpuInferenceTierSpec,
    group: azure_native.resources.ResourceGroup,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> network.NetworkSecurityGroup:
    """Rules on the machines' own interfaces, beside those of their subnet: callers and probes come
    in on one port; the machines go to private endpoints, and nowhere else."""
    inbound, outbound = (
        network.SecurityRuleDirection.INBOUND,
        network.SecurityRuleDirection.OUTBOUND,
    )
    allow, deny = network.SecurityRuleAccess.ALLOW, network.SecurityRuleAccess.DENY
    callers = list(spec.allowed_cidrs)
    port = str(spec.port)
    rules = [
        network.SecurityRuleArgs(
            name="callers",
            priority=100,
            direction=inbound,
            access=allow,
            protocol=network.SecurityRuleProtocol.TCP,
            source_address_prefixes=callers or None,
            source_address_prefix=None if callers else "VirtualNetwork",
            source_port_range="*",
            destination_address_prefix="VirtualNetwork",
            destination_port_range=port,
        ),
        _rule("probes", 110, inbound, allow, ("AzureLoadBalancer", "VirtualNetwork", port)),
        _rule("nothing-else-in", 4096, inbound, deny, ("*", "*", "*")),
        _rule("endpoints", 100, outbound, allow, ("VirtualNetwork", "VirtualNetwork", "443")),
        _rule("nothing-else-out", 4096, outbound, deny, ("*", "*", "*")),
    ]
    return network.NetworkSecurityGroup(
        name,
        resource_group_name=group.name,
        network_security_group_name=titled(spec.placed, name),
        location=spec.placed.region,
        security_rules=rules,
        tags=dict(tags),
        opts=opts,
    )


def _rule(
    name: str,
    priority: int,
    direction: network.SecurityRuleDirection,
    access: network.SecurityRuleAccess,
    way: tuple[str, str, str],
) -> network.SecurityRuleArgs:
    source, destination, port = way
    denied = access is network.SecurityRuleAccess.DENY
    return network.SecurityRuleArgs(
        name=name,
        priority=priority,
        direction=direction,
        access=access,
        protocol=(
            network.SecurityRuleProtocol.ASTERISK if denied else network.SecurityRuleProtocol.TCP
        ),
        source_address_prefix=source,
        source_port_range="*",
        destination_address_prefix=destination,
        destination_port_range=port,
    )
