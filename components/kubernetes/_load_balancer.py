"""Load balancers with a private address alone, which keep the addresses of their clients.

https://kubernetes-sigs.github.io/aws-load-balancer-controller/latest/guide/service/annotations/
https://learn.microsoft.com/en-us/azure/aks/internal-lb
"""

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.catalogue.clusters import AZURE_SWITCH
from falaj.components.kubernetes._placed import InCluster
from falaj.components.kubernetes._validation import PRIVATE
from falaj.components.specification.address_plan import BALANCERS
from falaj.components.specification.argument_errors import ArgumentErrors

_AWS: Final = "service.beta.kubernetes.io/aws-load-balancer"
_AZURE_ADDRESS: Final = "service.beta.kubernetes.io/azure-load-balancer-ipv4"


@dataclass(frozen=True)
class LoadBalancer:
    """What a Service says to get one."""

    annotations: dict[str, str]
    fields: dict[str, Any]
    """Of the Service's ``spec``."""


def private_load_balancer(
    distribution: str, ranges: Sequence[str], *, address: str = "", subnet: str = ""
) -> LoadBalancer:
    """A load balancer of the cluster's platform, for clients of one's own networks.

    Clients' addresses are kept: network policies and limits judge them.

    Args:
        distribution: ``eks``, ``aks`` or ``existing``.
        ranges: where clients are.
        address: its private address; an ``existing`` cluster's needs one. Default: any of its
            subnet's.
        subnet: of the cloud. Default on AKS: the network's for front ends, where joined networks
            may come in; else the cluster's own.
    """
    fields: dict[str, Any] = {
        "type": "LoadBalancer",
        "externalTrafficPolicy": "Local",
        # Only Azure's balancer goes by way of node ports.
        "allocateLoadBalancerNodePorts": distribution == "aks",
        "loadBalancerSourceRanges": list(ranges),
    }
    if distribution == "eks":
        # Without class and type the legacy controller answers, which doesn't know the scheme.
        annotations = {
            f"{_AWS}-type": "external",
            f"{_AWS}-scheme": "internal",
            f"{_AWS}-nlb-target-type": "ip",
            f"{_AWS}-target-group-attributes": "preserve_client_ip.enabled=true",
            **({f"{_AWS}-subnets": subnet} if subnet else {}),
            **({f"{_AWS}-private-ipv4-addresses": address} if address else {}),
        }
        return LoadBalancer(annotations, {**fields, "loadBalancerClass": "service.k8s.aws/nlb"})
    if distribution == "aks":
        annotations = {
            AZURE_SWITCH: "true",
            f"{AZURE_SWITCH}-subnet": subnet or BALANCERS,
            **({_AZURE_ADDRESS: address} if address else {}),
        }
        return LoadBalancer(annotations, fields)
    return LoadBalancer({}, {**fields, "loadBalancerIP": address})


def checked_address(placed: InCluster | None, value: object, errors: ArgumentErrors) -> str:
    """The argument ``address`` of a component with a load balancer; empty where there is none."""
    if value is None:
        if placed and placed.distribution == "existing":
            errors.say("address", "missing; needed on an existing cluster: a private address "
                         "that its load balancer has")  # fmt: skip
        return ""
    try:
        found = ipaddress.ip_address(str(value))
    except ValueError:
        found = None
    if found is None or not any(
        found in each for each in PRIVATE if each.version == found.version
    ):
        errors.add("address", value, "a private address")
    return str(value)
