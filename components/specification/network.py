"""Arguments of `Network`."""

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NotRequired

import pulumi

from falaj.components.specification.address_plan import PRIVATE, AddressPlan
from falaj.components.specification.argument_errors import ArgumentErrors
from falaj.components.specification.arguments import Default
from falaj.components.specification.cluster import POD_CIDR
from falaj.components.specification.described import described
from falaj.components.specification.limits import OneOf, TextRule
from falaj.components.specification.placed import (
    LOG_DAYS,
    REGIONAL,
    Placed,
    PlacedArgs,
    check_placed,
    chosen_zones,
    log_days,
    region_zones,
)
from falaj.components.specification.resolver import DOMAIN

CLUSTER = "cluster"
SERVING = "serving"
PURPOSES = (CLUSTER, SERVING)
ORGANIZATION = TextRule(
    r"^o-[a-z0-9]{10,32}$",
    "an organisation's id: o- and 10 to 32 lower-case letters and digits",
    "o-a1b2c3d4e5",
)

VIRTUAL_NETWORK = TextRule(
    r"^/subscriptions/[0-9a-fA-F-]{36}/resourceGroups/[^/]+"
    r"/providers/Microsoft\.Network/virtualNetworks/[^/]+$",
    "the id of a virtual network",
    "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/hub"
    "/providers/Microsoft.Network/virtualNetworks/hub",
)
NETWORK_WATCHER = TextRule(
    r"^/subscriptions/[0-9a-fA-F-]{36}/resourceGroups/[^/]+"
    r"/providers/Microsoft\.Network/networkWatchers/[^/]+$",
    "the id of a network watcher",
    "/subscriptions/11111111-2222-3333-4444-555555555555/resourceGroups/NetworkWatcherRG"
    "/providers/Microsoft.Network/networkWatchers/watcher-uaenorth",
)

#: Between a carrier and its customers, and inside organisations that have used up the private
#: ranges: https://www.rfc-editor.org/rfc/rfc6598#section-7
_SHARED = ipaddress.IPv4Network("100.64.0.0/10")
_GROUP = re.compile(r"sg-[0-9a-f]{8,17}")
#: EC2 takes 60 rules each way in a security group, of which nodes and what comes later need some:
#: https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html
_MOST_CALLERS = 50


@described
class NetworkArgs(PlacedArgs):
    """Arguments of `Network`."""

    log_key_id: pulumi.Input[str]
    """Key of the flow logs: ``KeyRing.key_ids["logs"]``."""
    key_identity_id: NotRequired[pulumi.Input[str]]
    """Identity that may use the keys: ``KeyRing.key_identity_id``. Needed on Azure; AWS has
    none."""
    key_ring_id: NotRequired[pulumi.Input[str]]
    """``KeyRing.key_ring_id``: gets its private endpoint in this network. Default: none; on AWS
    one endpoint serves all keys."""
    cidr: NotRequired[Annotated[str, Default("10.64.0.0/16")]]
    """Private range, from /16 to /22; on Azure apart from 10.244.0.0/16, where pods have their
    addresses."""
    zones: NotRequired[list[str]]
    """Zone ids (``mec1-az1``; on Azure ``1``, ``2``, ``3``). Default: every zone of the region
    that is not reported as impaired."""
    egress_domains: NotRequired[list[Annotated[str, DOMAIN]]]
    """Domains that may be reached, through a firewall; ``.example.ae`` stands for all below it.
    Default: none, and the network has no way out."""
    purpose: NotRequired[Annotated[str, OneOf(PURPOSES), Default(CLUSTER)]]
    """What stands in the network: ``cluster``, anything; or ``serving``, the CPU inference tier
    alone, which calls few services. On AWS, where private endpoints are paid for by hour and zone,
    that leaves 4 of 18, and no subnets for nodes and storage; it can be changed later. On Azure,
    where endpoints are made with what they lead to, a network for ``serving`` encrypts what
    machines send; AKS refuses that beside a cluster, so set ``cluster`` before there is one."""
    joined_network_ids: NotRequired[list[Annotated[str, VIRTUAL_NETWORK]]]
    """Virtual networks that are peered with this one, or have a private line's other end: they
    learn the names of clusters' API servers. Such a network may have no other zone of that name.
    Default: none. Azure only."""
    network_watcher_id: NotRequired[Annotated[str, NETWORK_WATCHER]]
    """The region's network watcher, to which flow logs belong; a subscription can't have a second.
    Default: the one that Azure makes with the first network, in ``NetworkWatcherRG``. Azure
    only."""
    organization_id: NotRequired[Annotated[str, ORGANIZATION]]
    """Organisation (``o-…``) whose resources private endpoints may reach. Default: only those of
    this account. Not used on Azure, where an endpoint leads to one resource."""
    api_callers: NotRequired[list[str]]
    """Who reaches the API of a cluster here by TLS, beside its nodes: private ranges of networks
    that are joined to this one (``10.20.0.0/16``), or security groups (``sg-…``) of this network
    and of peered ones in the region; 50 at most. Default: nobody. AWS only: on Azure the private
    ranges of joined networks reach it already."""
    flow_log_days: NotRequired[Annotated[int, LOG_DAYS, Default(365)]]
    """Days that flow logs are kept."""
    session_manager: NotRequired[Annotated[bool, Default(False)]]
    """Whether machines are reached by AWS Systems Manager Session Manager: with ``serving`` that
    adds three endpoints; with ``cluster`` they are there. Not used on Azure."""


@dataclass(frozen=True, kw_only=True)
class NetworkSpec:
    """The plain arguments of `Network`, checked."""

    placed: Placed
    cidr: str
    plan: AddressPlan
    """Subnets of every zone of the region; on Azure, whose subnets span zones, of one block."""
    zones: tuple[str, ...]
    """Zones in use; `zones.REGIONAL` alone where the region has none."""
    egress_domains: tuple[str, ...]
    joined_network_ids: tuple[str, ...]
    network_watcher_id: str | None
    organization_id: str | None
    api_callers: tuple[str, ...]
    flow_log_days: int
    purpose: str
    session_manager: bool


def check(cloud: str, name: str, args: NetworkArgs) -> NetworkSpec:
    """Check what is plain in the arguments of `Network`.

    Args:
        cloud: ``aws`` or ``azure``.
        name: the component's name.
        args: its arguments.

    Raises:
        pulumi.InputPropertiesError: with every argument that was refused, and why.
    """
    errors = ArgumentErrors(f"Network {name!r}")
    given: Mapping[str, Any] = args
    checked = errors.checked(given, NetworkArgs, cloud)
    placed = check_placed(cloud, given, errors)
    zones = chosen_zones(placed, given, errors) if placed else ()
    network = _cidr(checked["cidr"], errors)
    if cloud == "azure" and network and network.overlaps(ipaddress.IPv4Network(POD_CIDR)):
        errors.add("cidr", str(network), f"a range apart from {POD_CIDR}, where pods are")
    domains = _domains(checked["egress_domains"] or (), errors)
    callers = _api_callers(checked["api_callers"] or (), errors)
    days = log_days(cloud, "flow_log_days", checked["flow_log_days"], errors)
    purpose: str = checked["purpose"]
    if cloud == "azure":
        errors.needed(given, ("key_identity_id",), "on Azure")
        if callers:
            errors.say(
                "api_callers",
                "the private ranges of networks that are joined to this one (peerings, VPN, "
                "ExpressRoute) reach the API server on Azure already; leave it out, and join the "
                "callers' network",
            )
    elif purpose == SERVING and callers:
        errors.say(
            "api_callers",
            "given with purpose 'serving', where no cluster stands; leave it out, or set purpose "
            "to 'cluster'",
        )
    elif purpose == SERVING and domains:
        errors.say(
            "egress_domains",
            f"given {', '.join(domains)} with purpose 'serving', which has no nodes, and only "
            "nodes use the firewall on AWS; leave it out, or set purpose to 'cluster'",
        )
    joined = errors.texts("joined_network_ids", checked["joined_network_ids"] or ())
    if cloud != "azure" and checked["network_watcher_id"] is not None:
        errors.say("network_watcher_id", "network watchers exist on Azure only; leave it out")
    if joined and cloud != "azure":
        errors.say(
            "joined_network_ids", "names are linked to networks on Azure only; leave it out on AWS"
        )
    elif joined and purpose == SERVING:
        errors.say(
            "joined_network_ids",
            "given with purpose 'serving': the names are those of clusters, of which none stands "
            "there; leave it out",
        )
    errors.raise_if_any()
    if placed is None or network is None:
        raise AssertionError("what can't be used was refused")
    planned = (REGIONAL,) if cloud == "azure" else region_zones(placed.place)
    plan = AddressPlan(network, planned)
    return NetworkSpec(
        placed=placed,
        cidr=str(network),
        plan=plan,
        zones=zones,
        egress_domains=domains,
        joined_network_ids=joined,
        network_watcher_id=checked["network_watcher_id"],
        organization_id=checked["organization_id"],
        api_callers=callers,
        flow_log_days=days,
        purpose=purpose,
        session_manager=checked["session_manager"],
    )


def _cidr(value: object, errors: ArgumentErrors) -> ipaddress.IPv4Network | None:
    allowed = "a private range from /16 to /22 such as 10.64.0.0/16"
    try:
        network = ipaddress.IPv4Network(value if isinstance(value, str) else "")
    except ValueError as error:
        errors.add("cidr", value, allowed, str(error))
        return None
    inside = any(network.subnet_of(private) for private in PRIVATE)
    if not inside or not 16 <= network.prefixlen <= 22:
        errors.add("cidr", value, allowed + ", inside 10/8, 172.16/12 or 192.168/16")
        return None
    return network


def _api_callers(value: object, errors: ArgumentErrors) -> tuple[str, ...]:
    found: list[str] = []
    allowed = (
        f"a range inside {', '.join(map(str, (*PRIVATE, _SHARED)))}, or a security group's id, "
        "such as sg-0123456789abcdef0"
    )
    for position, given in enumerate(errors.texts("api_callers", value)):
        at = f"api_callers[{position}]"
        caller = given
        if not _GROUP.fullmatch(given):
            try:
                network = ipaddress.IPv4Network(given)
            except ValueError as error:
                errors.add(at, given, allowed, str(error))
                continue
            if not any(network.subnet_of(inside) for inside in (*PRIVATE, _SHARED)):
                errors.add(at, given, allowed, "nothing public reaches a cluster's API")
                continue
            caller = str(network)
        if caller in found:
            errors.add(at, given, "each only once", "leave out the second")
        else:
            found.append(caller)
    if len(found) > _MOST_CALLERS:
        errors.add(
            "api_callers", len(found), f"{_MOST_CALLERS} at most",
            "write several ranges as one that holds them",
        )  # fmt: skip
    return tuple(found)


def _domains(value: object, errors: ArgumentErrors) -> tuple[str, ...]:
    found: list[str] = []
    for position, given in enumerate(errors.texts("egress_domains", value)):
        domain = given.lower()
        at = f"egress_domains[{position}]"
        if not DOMAIN.allows(domain):
            errors.add(
                at,
                given,
                DOMAIN,
                "leave out scheme, port, path and '*', and write out no address",
            )
        elif domain in found:
            errors.add(at, given, "each only once", "leave out the second")
        else:
            found.append(domain)
    return tuple(found)
