"""Private endpoints, and the private DNS zones of a network that lead to them.

A network has one zone for each service, in its own resource group and under the name that Azure
asks for, so that a zone's id follows from the network's id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_azure_native as azure_native

from falaj.components.azure._ids import resource_id

NETWORK = "Microsoft.Network/virtualNetworks"


@dataclass(frozen=True)
class Service:
    """A kind of target of private endpoints."""

    group_id: str
    """What Azure calls the part of the resource that is reached."""
    zones: tuple[str, ...]
    """Private DNS zones that name it; ``{region}`` stands for the region."""


#: https://learn.microsoft.com/azure/private-link/private-endpoint-dns
SERVICES = {
    "blob": Service("blob", ("privatelink.blob.core.windows.net",)),
    "file": Service("file", ("privatelink.file.core.windows.net",)),
    "vault": Service("vault", ("privatelink.vaultcore.azure.net",)),
    "registry": Service("registry", ("privatelink.azurecr.io",)),
    "monitor": Service(
        "azuremonitor",
        (
            "privatelink.monitor.azure.com",
            "privatelink.oms.opinsights.azure.com",
            "privatelink.ods.opinsights.azure.com",
            "privatelink.agentsvc.azure-automation.net",
            "privatelink.blob.core.windows.net",
        ),
    ),
}


def api_server_zone(region: str) -> str:
    """The private DNS zone where AKS writes the names of API servers that stand in the network.

    With ``privatelink`` in place of ``private`` it is for clusters behind a private link:
    https://github.com/MicrosoftDocs/azure-docs/issues/104092
    """
    return f"private.{region}.azmk8s.io"


def zone_names(region: str) -> tuple[str, ...]:
    """Every private DNS zone that a network needs for its endpoints, each once."""
    names = (zone.format(region=region) for each in SERVICES.values() for zone in each.zones)
    return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class Door:
    """Where private endpoints stand: a network's subnet for them."""

    network_id: pulumi.Input[str]
    subnet_id: pulumi.Input[str]
    group: pulumi.Input[str]
    """Resource group of the endpoints themselves."""
    region: str
    tags: Mapping[str, str]


def endpoint_name(target_id: str) -> str:
    """Name of the endpoint of a resource, found again from the resource's id."""
    return f"{target_id.rstrip('/').rpartition('/')[2]}-endpoint"


def private_endpoint(
    name: str,
    service: str,
    target_id: pulumi.Input[str],
    door: Door,
    opts: pulumi.ResourceOptions,
) -> azure_native.network.PrivateEndpoint:
    """An address in the network for one resource, and its names in the network's zones.

    Args:
        name: in the program; names of resources follow from it.
        service: one of `SERVICES`.
        target_id: the resource that is reached.
        door: where the endpoint stands.
        opts: options of the component's resources.
    """
    kind = SERVICES[service]
    target = pulumi.Output.from_input(target_id)
    endpoint = azure_native.network.PrivateEndpoint(
        name,
        resource_group_name=door.group,
        private_endpoint_name=target.apply(endpoint_name),
        location=door.region,
        subnet=azure_native.network.SubnetArgs(id=door.subnet_id),
        private_link_service_connections=[
            azure_native.network.PrivateLinkServiceConnectionArgs(
                name=service, private_link_service_id=target, group_ids=[kind.group_id]
            )
        ],
        tags=dict(door.tags),
        opts=opts,
    )
    azure_native.network.PrivateDnsZoneGroup(
        f"{name}-names",
        resource_group_name=door.group,
        private_endpoint_name=endpoint.name,
        private_dns_zone_group_name="default",
        private_dns_zone_configs=[
            azure_native.network.PrivateDnsZoneConfigArgs(
                name=zone.replace(".", "-"), private_dns_zone_id=zone_id(door.network_id, zone)
            )
            for zone in (each.format(region=door.region) for each in kind.zones)
        ],
        opts=opts,
    )
    return endpoint


def zone_id(network_id: pulumi.Input[str], zone: str) -> pulumi.Output[str]:
    """Id of a network's private DNS zone."""
    return pulumi.Output.from_input(network_id).apply(
        lambda text: f"{_group_of(text)}/providers/Microsoft.Network/privateDnsZones/{zone}"
    )


def endpoint_id(network_id: str, target_id: str) -> str:
    """Id of the endpoint that a `Network` makes for a resource, such as the vault of keys."""
    name = endpoint_name(target_id)
    return f"{_group_of(network_id)}/providers/Microsoft.Network/privateEndpoints/{name}"


def _group_of(network_id: str) -> str:
    network = resource_id(network_id, NETWORK)
    return f"/subscriptions/{network.subscription}/resourceGroups/{network.group}"
