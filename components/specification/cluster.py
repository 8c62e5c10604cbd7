"""Arguments of `Cluster`."""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pulumi

from falaj.components.specification.address_plan import PRIVATE
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import (
    DEFAULT_KUBERNETES_VERSION,
    KUBERNETES_VERSIONS,
    NAME,
)
from falaj.components.specification.machine_choice import checked_subnets
from falaj.components.specification.placed import (
    LOG_DAYS,
    NO_BOUNDARY,
    NO_LOG_DAYS,
    Placed,
    PlacedArgs,
    check_placed,
    checked_principals,
    chosen_zones,
    log_days,
    region_zones,
)
from falaj.components.specification.resolver import DOMAIN, ENFORCE, MODES


@described
class ClusterArgs(PlacedArgs):
    """Arguments of `Cluster`."""

    network_id: pulumi.Input[str]
    """``Network.network_id``."""
    node_subnet_ids: pulumi.Input[dict[str, str]]
    """``Network.node_subnet_ids``."""
    security_group_id: pulumi.Input[str]
    """``Network.security_group_ids["control-plane"]``."""
    cluster_key_id: pulumi.Input[str]
    """Key of the cluster's secrets: ``KeyRing.key_ids["cluster"]``."""
    log_key_id: pulumi.Input[str]
    """``KeyRing.key_ids["logs"]``."""
    disk_encryption_id: pulumi.Input[str]
    """``KeyRing.disk_encryption_id``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_identity_id``. Not needed: an AKS cluster has an identity of its own, which
    may use this one key only."""
    key_ring_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_ring_id``. Needed on Azure."""
    registry_id: NotRequired[pulumi.Input[str]]
    """``Registry.registry_id``: nodes may pull from it. Needed on Azure."""
    log_destination_id: NotRequired[pulumi.Input[str]]
    """``AuditTrail.log_destination_id``. Needed on Azure; on AWS the cluster has a log group of
    its own."""
    zones: NotRequired[list[str]]
    """Zones of ``node_subnet_ids`` to use, as plain values. Default on AWS: every zone that the
    network covers, of which EKS needs two or more; on Azure every zone of the region that is not
    reported as impaired."""
    administrators: NotRequired[list[str]]
    """Principals that administer the cluster: role ARNs, or object ids of Entra groups, with who
    deploys stacks in the cluster among their members. Default: nobody, not even who makes it;
    whoever manages it in the cloud can let somebody in. A stack needs one or more, except in the
    sandbox."""
    viewers: NotRequired[list[str]]
    """Principals that may read, secrets excepted. Default: nobody."""
    kubernetes_version: NotRequired[
        Annotated[str, KUBERNETES_VERSIONS, Default(DEFAULT_KUBERNETES_VERSION)]
    ]
    """Minor version."""
    service_cidr: NotRequired[Annotated[str, Default("172.20.0.0/16")]]
    """Range of service addresses, outside of the network's."""
    log_days: NotRequired[Annotated[int, LOG_DAYS, Default(365)]]
    """Days that control-plane logs are kept. AWS only: on Azure they are in the
    workspace, see ``AuditTrail.retention_days``."""
    strict_network_policy: NotRequired[Annotated[bool, Default(value=False)]]
    """Whether pods start with all traffic denied until a policy allows it. The cluster's own
    add-ons need policies then: set it once these are in place. Without it traffic of pods is open
    until a policy selects them. AWS only."""
    resolver: NotRequired[Annotated[str, MODES, Default(ENFORCE)]]
    """What pods are told of names outside of the cluster, of the region's services of AWS, of
    ``allowed_domains`` and of ``resolver_domains``: ``enforce``, that there is no such name;
    ``audit``, what the network's resolver says, which is logged and counted; ``off`` leaves the
    resolver as EKS has it, and names can carry data to whoever holds a domain. AWS only: on Azure
    the add-on ``resolver`` of `Platform`."""
    resolver_domains: NotRequired[list[Annotated[str, DOMAIN]]]
    """Further domains whose names pods resolve; ``.example.ae`` stands for all below it. Default:
    none. AWS only."""
    allowed_domains: NotRequired[pulumi.Input[list[str]]]
    """Domains that pods may reach anyway: those of the network's firewall, hosts that the packs
    allow. Default: none. AWS only."""
    boundary_id: NotRequired[pulumi.Input[str]]
    """``Identity.boundary_id``. Default: none. AWS only."""


#: Most that the CIDR of services may hold and least that add-ons need:
#: docs.aws.amazon.com/eks/latest/APIReference/API_KubernetesNetworkConfigRequest.html (/24 to
#: /12); learn.microsoft.com/azure/aks/configure-azure-cni (smaller than /12).
_SERVICE_PREFIXES = range(13, 25)
#: What AKS keeps for itself: learn.microsoft.com/azure/aks/concepts-network-ip-address-planning;
#: and 172.17.0.0/16, which containers on EKS nodes use.
_TAKEN = tuple(
    ipaddress.IPv4Network(text)
    for text in ("172.17.0.0/16", "172.30.0.0/16", "172.31.0.0/16", "192.0.2.0/24")
)
#: Where pods of an AKS cluster have their addresses, in an overlay; free in the network as well.
POD_CIDR = "10.244.0.0/16"
#: AKS takes groups alone: https://learn.microsoft.com/azure/aks/entra-id-authorization
_ENTRA_GROUP = "an Entra group; put users and service principals into one"
_AZURE_NEEDS = ("key_ring_id", "registry_id", "log_destination_id")


@dataclass(frozen=True, kw_only=True)
class ClusterSpec:
    """The plain arguments of `Cluster`, checked."""

    placed: Placed
    name: str
    zones: tuple[str, ...]
    zones_named: bool
    """Whether the user named the zones; else those that the network covers are used."""
    administrators: tuple[str, ...]
    viewers: tuple[str, ...]
    kubernetes_version: str
    service_cidr: str
    log_days: int
    strict_network_policy: bool
    resolver: str
    resolver_domains: tuple[str, ...]


def check(cloud: str, name: str, args: ClusterArgs) -> ClusterSpec:
    """Check what is plain in a cluster's arguments.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"Cluster {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, ClusterArgs, cloud)
    errors.form("name", name, NAME)
    placed = check_placed(cloud, given, errors)
    if cloud == "azure":
        errors.needed(given, _AZURE_NEEDS, "on Azure")
        if given.get("boundary_id") is not None:
            errors.say("boundary_id", NO_BOUNDARY)
        if given.get("strict_network_policy"):
            errors.say(
                "strict_network_policy",
                "it is a mode of AWS's network plugin; on Azure apply a policy that denies all "
                "and leave it out",
            )
        for argument in ("resolver", "resolver_domains"):
            if given.get(argument) is not None:
                errors.say(
                    argument,
                    "the add-on 'resolver' of Platform decides on Azure; set its mode and "
                    "domains, and leave it out here",
                )
        if given.get("log_days") is not None:
            errors.say("log_days", NO_LOG_DAYS)
    administrators = checked_principals(
        cloud, "administrators", checked["administrators"] or (), errors, of=_ENTRA_GROUP
    )
    viewers = checked_principals(
        cloud, "viewers", checked["viewers"] or (), errors, of=_ENTRA_GROUP
    )
    for both in sorted(set(administrators) & set(viewers)):
        errors.add(
            "viewers", both, "principals that are not administrators",
            "an administrator can read already",
        )  # fmt: skip
    cidr = _service_cidr(checked["service_cidr"], errors, cloud)
    days = log_days(cloud, "log_days", checked["log_days"], errors)
    zones = _zones(placed, given, errors) if placed else ()
    checked_subnets(given, "node_subnet_ids", zones, errors)
    errors.raise_if_any()
    if placed is None:
        raise AssertionError("a place that can't be used was refused")
    return ClusterSpec(
        placed=placed,
        name=name,
        zones=zones,
        zones_named=given.get("zones") is not None,
        administrators=administrators,
        viewers=viewers,
        kubernetes_version=checked["kubernetes_version"],
        service_cidr=cidr,
        log_days=days,
        strict_network_policy=checked["strict_network_policy"],
        resolver=checked["resolver"],
        resolver_domains=tuple(checked["resolver_domains"] or ()),
    )


def _zones(placed: Placed, args: Mapping[str, Any], errors: ArgumentErrors) -> tuple[str, ...]:
    if placed.place.cloud != "aws":
        return chosen_zones(placed, args, errors)
    if args.get("zones") is None:
        return region_zones(placed.place)
    zones = chosen_zones(placed, args, errors)
    if len(zones) == 1:
        # docs.aws.amazon.com/eks/latest/userguide/network-reqs.html
        errors.add(
            "zones", list(zones), "two zones or more, which EKS needs for its control plane",
            "name another zone (pools need not use it), or leave 'zones' out",
        )  # fmt: skip
    return zones


def _service_cidr(value: str, errors: ArgumentErrors, cloud: str) -> str:
    try:
        network = ipaddress.IPv4Network(value)
    except ValueError as error:
        errors.add("service_cidr", value, f"a private range such as 172.20.0.0/16 ({error})")
        return value
    if network.prefixlen not in _SERVICE_PREFIXES or not any(
        network.subnet_of(private) for private in PRIVATE
    ):
        errors.add(
            "service_cidr",
            value,
            f"a /13 to /24 inside {', '.join(map(str, PRIVATE))}",
        )
    pods = (ipaddress.IPv4Network(POD_CIDR),) if cloud == "azure" else ()
    for taken in (*_TAKEN, *pods):
        if network.overlaps(taken):
            errors.add("service_cidr", value, f"a range apart from {taken}, which is taken")
    return str(network)
