"""What an inference tier may reach on Azure, and how it is reached itself.

Its identity pulls its image and its package and reads two secrets. Callers find it by a private
name; in front of machines stands an internal load balancer, with rules of who may come in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import network

from falaj.components.azure._component import titled
from falaj.components.azure._ids import resource_id
from falaj.components.azure._roles import REGISTRY_TYPE, Grant, grant
from falaj.components.azure.serving.cloud_init import FOLDER, SECRETS
from falaj.components.specification.cpu_inference_tier import (
    CpuInferenceTierArgs,
    CpuInferenceTierSpec,
    is_by_digest,
)

_SECRET = "Microsoft.KeyVault/vaults/secrets"  # noqa: S105 - a kind of resource
_PACKAGE = ("model", "version", "package_digest", "keys_digest")


@dataclass(frozen=True)
class Access:
    """The tier's identity, and what it was given."""

    identity: azure_native.managedidentity.UserAssignedIdentity
    grants: list[pulumi.Resource]


def give_access(
    name: str,
    args: CpuInferenceTierArgs,
    group: azure_native.resources.ResourceGroup,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> Access:
    """Make the tier's identity: it pulls from the registry, and reads two secrets."""
    identity = azure_native.managedidentity.UserAssignedIdentity(
        name,
        resource_group_name=group.name,
        resource_name_=group.name,
        location=group.location,
        tags=dict(tags),
        opts=opts,
    )
    who = identity.principal_id
    wanted = {
        "images": Grant("AcrPull", args["registry_id"], who),
        "keyring": Grant("Key Vault Secrets User", args.get("keyring_secret_id", ""), who),
        "certificate": Grant("Key Vault Secrets User", args.get("certificate_id", ""), who),
    }
    return Access(
        identity, [grant(f"{name}-{purpose}", what, opts) for purpose, what in wanted.items()]
    )


def serving_settings(
    args: CpuInferenceTierArgs,
    spec: CpuInferenceTierSpec,
    client: pulumi.Input[str],
    *,
    workers: int,
) -> pulumi.Output[dict[str, Any]]:
    """What `start_server.py` reads; no secrets, only where they are."""
    found = pulumi.Output.all(
        client=client,
        repository=args["package_repository"],
        keyring=pulumi.Output.from_input(args.get("keyring_secret_id", "")).apply(secret_url),
        certificate=pulumi.Output.from_input(args.get("certificate_id", "")).apply(secret_url),
    )
    return found.apply(
        lambda known: {
            **known,
            **{each: spec.args[each] for each in _PACKAGE},
            "folder": FOLDER,
            "secrets": SECRETS[spec.args["mode"]],
            "port": spec.port,
            "host_name": spec.host_name,
            "workers": workers,
        }
    )


def secret_url(text: str) -> str:
    """Address of a secret's current version, out of its resource id."""
    found = resource_id(text, _SECRET)
    return f"https://{found.names[0]}.vault.azure.net/secrets/{found.name}"


def image_by_digest(image: pulumi.Input[str]) -> pulumi.Output[str]:
    """The image, which must be named by its digest also where that is known only now."""
    return pulumi.Output.from_input(image).apply(_by_digest)


def _by_digest(image: str) -> str:
    if not is_by_digest(image):
        raise ValueError(
            f"image: given {image!r}; allowed: an image of the registry by digest, "
            "host/name@sha256:…; a tag can be moved to another image"
        )
    return image


def registry_host(args: CpuInferenceTierArgs) -> pulumi.Output[str]:
    """Address of the registry, out of its resource id."""
    return pulumi.Output.from_input(args["registry_id"]).apply(
        lambda text: f"{resource_id(text, REGISTRY_TYPE).name.lower()}.azurecr.io"
    )


def give_name(
    name: str,
    args: CpuInferenceTierArgs,
    host_name: str,
    address: pulumi.Input[str],
    *,
    group: azure_native.resources.ResourceGroup,
    tags: Mapping[str, str],
    opts: pulumi.ResourceOptions,
) -> None:
    """Let the network find the tier by its name: a zone of that one name, so that no other name
    below the same domain is touched. Private zones have no region; their content stays the
    tenant's."""
    zone = azure_native.privatedns.PrivateZone(
        name,
        resource_group_name=group.name,
        private_zone_name=host_name,
        location="global",
        tags=dict(tags),
        opts=opts,
    )
    azure_native.privatedns.VirtualNetworkLink(
        name,
        resource_group_name=group.name,
        private_zone_name=zone.name,
        virtual_network_link_name="network",
        location="global",
        registration_enabled=False,
        virtual_network=azure_native.privatedns.SubResourceArgs(id=args["network_id"]),
        tags=dict(tags),
        opts=opts,
    )
    azure_native.privatedns.PrivateRecordSet(
        name,
        resource_group_name=group.name,
        private_zone_name=zone.name,
        record_type="A",
        relative_record_set_name="@",
        ttl=60,
        a_records=[azure_native.privatedns.ARecordArgs(ipv4_address=address)],
        opts=opts,
    )


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
