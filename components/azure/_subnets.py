"""Subnets of a network: their names are fixed, so that a subnet is found from the network's id."""

from __future__ import annotations

import pulumi

NODES = "nodes"
ENDPOINTS = "endpoints"
STORAGE = "storage"
SERVING = "serving"
#: Where AKS puts the API server: a subnet that is delegated to the service, /28 or larger:
#: https://learn.microsoft.com/azure/aks/api-server-vnet-integration
CONTROL_PLANE = "control-plane"
#: Where Container Apps run: delegated as well, /27 or larger:
#: https://learn.microsoft.com/azure/container-apps/custom-virtual-networks
CONTAINERS = "containers"

#: Services that a subnet is handed over to, by the subnet's name.
DELEGATIONS = {
    STORAGE: "Microsoft.Netapp/volumes",
    CONTROL_PLANE: "Microsoft.ContainerService/managedClusters",
    CONTAINERS: "Microsoft.App/environments",
}


def subnet_id(network_id: pulumi.Input[str], name: str) -> pulumi.Output[str]:
    """Id of the subnet ``name`` of a network."""
    return pulumi.Output.concat(network_id, "/subnets/", name)
