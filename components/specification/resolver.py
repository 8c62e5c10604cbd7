"""What the cluster's resolver answers: names of the cluster, of allowed domains, and no others.

A question for a name reaches who holds its domain, and so carries data to anybody who has one.
Here CoreDNS asks others about allowed domains alone. Zones are blocks of servers in its
configuration, of which the longest that fits a name has it
(https://coredns.io/manual/configuration/): one block for the cluster, one for allowed domains, one
for the domain that nodes search, and the rest. A block of one's own for each is what makes counts
by zone: `REFUSED_QUERIES`.

Whoever is refused gets NXDOMAIN. Resolvers of the C library search: with ``ndots:5`` they ask for
``kms.example.ae.svc.cluster.local`` and the like before ``kms.example.ae``, and go on after
NXDOMAIN. After REFUSED glibc 2.36 asks again, leaves the rest of its list out, and calls what
isn't found a temporary failure (seen against CoreDNS 1.15.0); musl gives up, by its source
(``name_from_dns_search`` in src/network/lookup_name.c), so that one domain which nodes search and
nobody named would make every allowed name unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from falaj.components.catalogue.clusters import PRIVATE_RANGES
from falaj.components.specification.limits import OneOf, TextRule

ENFORCE: Final = "enforce"
AUDIT: Final = "audit"
OFF: Final = "off"
MODES: Final = OneOf((ENFORCE, AUDIT, OFF))
"""What happens to other names: refused; answered, logged and counted; or as the vendor has it."""

_LABEL = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
DOMAIN: Final = TextRule(
    rf"^(?=.{{1,253}}$)\.?(?:{_LABEL}\.)+[a-z](?:[a-z0-9-]{{0,61}}[a-z0-9])$",
    "a domain of two labels or more, or one with all below it (.example.ae)",
    "models.example.ae",
)
CLUSTER_DOMAIN: Final = "cluster.local"
#: Whose reverse look-ups are answered, by the cluster alone: the addresses of its pods and
#: services. Those of others would be asked of who holds their range.
_OWN_ADDRESSES: Final = (*PRIVATE_RANGES, "fd00::/8")
_METRICS: Final = 9153
#: Extended error "Prohibited": https://www.rfc-editor.org/rfc/rfc8914#section-4.19
_PROHIBITED: Final = 18
_REASON: Final = "not in an allowed domain"
_EACH: Final = ("errors", f"prometheus :{_METRICS}")
#: The node's resolvers: the network's own.
_FORWARD: Final = ("forward . /etc/resolv.conf",)
_CACHED: Final = ("cache 30", "loadbalance")
REFUSED_QUERIES: Final = 'sum(rate(coredns_template_matches_total{zone="."}[10m]))'
"""Questions per second that are refused as no block has them; nothing where none are. In an audit
they are ``coredns_dns_requests_total{zone="."}``, which without this policy counts all."""


def cloud_domains(distribution: str, region: str) -> tuple[str, ...]:
    """Domains of the cloud's own services that pods of a cluster call; none outside of clouds.

    Nobody but the cloud answers below them. On AWS they are the region's: of services and their
    endpoints, of EKS. On Azure services' names tell no region: vaults, stores, registries and the
    monitor, as they are before they lead to ``privatelink``; those of AKS are the region's.

    https://docs.aws.amazon.com/vpc/latest/privatelink/privatelink-access-aws-services.html
    https://learn.microsoft.com/azure/private-link/private-endpoint-dns
    """
    if distribution == "eks":
        return tuple(
            f".{region}.{domain}"
            for domain in ("amazonaws.com", "api.aws", "eks.amazonaws.com", "vpce.amazonaws.com")
        )
    if distribution == "aks":
        services = (
            "vault.azure.net", "vaultcore.azure.net", "blob.core.windows.net",
            "file.core.windows.net", "azurecr.io", "monitor.azure.com",
            "oms.opinsights.azure.com", "ods.opinsights.azure.com",
            "agentsvc.azure-automation.net", f"{region}.azmk8s.io",
        )  # fmt: skip
        return tuple(f".{service}" for service in services)
    return ()


def searched_domains(distribution: str) -> tuple[str, ...]:
    """Domains that nodes of a cloud search, and so pods: nothing that pods call is in them.

    https://docs.aws.amazon.com/vpc/latest/userguide/AmazonDNS-concepts.html
    https://learn.microsoft.com/azure/virtual-network/virtual-networks-name-resolution-for-vms-and-role-instances
    """
    return {
        "eks": ("compute.internal",),
        "aks": ("internal.cloudapp.net", "reddog.microsoft.com"),
    }.get(distribution, ())


def domain_of(host: str) -> str:
    """A host as other settings write it (``*.example.ae``, ``host:port/path``) as a domain.

    Empty for what has no name: addresses, and names of one label.
    """
    name = re.split(r"[:/]", host, maxsplit=1)[0].lower()
    domain = name.removeprefix("*")
    return domain if DOMAIN.allows(domain) else ""


@dataclass(frozen=True)
class Names:
    """Which names are answered."""

    domains: tuple[str, ...]
    """As `DOMAIN`: a host alone, or with a dot before it all below a domain."""
    searched: tuple[str, ...] = ()
    """Domains that nodes search."""
    cluster: str = CLUSTER_DOMAIN
    """The cluster's own domain."""

    @staticmethod
    def of(domains: Iterable[str], searched: Iterable[str], cluster: str) -> Names:
        """Each once, in order, a host left out that is below a domain which is there anyway."""
        given = sorted({domain.lower() for domain in domains})
        whole = [domain for domain in given if domain.startswith(".")]
        kept = [
            domain
            for domain in given
            if not any(
                domain != other and f".{domain.lstrip('.')}".endswith(other) for other in whole
            )
        ]
        zones = {domain.lstrip(".") for domain in kept} | {cluster}
        return Names(tuple(kept), tuple(sorted(set(searched) - zones)), cluster)


def corefile(names: Names, mode: str) -> str:
    """The whole configuration of CoreDNS, for clusters that leave it to their owner.

    It says what the vendors' own says (https://github.com/kubernetes/kubeadm, and EKS's default),
    with the blocks of this policy.
    """
    rest = [
        "errors",
        "health {\n    lameduck 5s\n}",
        "ready",
        *_rest(mode),
        f"prometheus :{_METRICS}",
        *([] if mode == ENFORCE else [*_FORWARD, *_CACHED]),
        "loop",
        "reload",
    ]
    return servers(names, mode) + _block(["."], rest)


def servers(names: Names, mode: str) -> str:
    """The blocks of what is answered, which stand beside a default block that has the rest.

    A host alone has a block, so that others below it can be named as well.
    """
    cluster = ["kubernetes {\n    pods insecure\n    ttl 30\n}", *_CACHED]
    found = _block([names.cluster, *_OWN_ADDRESSES], [*_EACH, *cluster])
    whole = [domain[1:] for domain in names.domains if domain.startswith(".")]
    if whole:
        found += _block(whole, [*_EACH, *_FORWARD, *_CACHED])
    for host in names.domains:
        if not host.startswith("."):
            below = _refusal(host, rf"\.{re.escape(host)}\.$") if mode == ENFORCE else "log"
            found += _block([host], [*_EACH, below, *_FORWARD, *_CACHED])
    if names.searched:
        found += _block(names.searched, [*_EACH, "template ANY ANY {\n    rcode NXDOMAIN\n}"])
    return found


def override(mode: str) -> str:
    """What is added to the default block of a vendor's configuration, beside `servers`."""
    return "\n".join(_rest(mode)) + "\n"


def _rest(mode: str) -> list[str]:
    return ["log", *([_refusal(".")] if mode == ENFORCE else [])]


def _refusal(zone: str, match: str = "") -> str:
    """Refuse all names of a zone; of those that don't match, further plugins decide."""
    only = f"    match {match}\n    fallthrough\n" if match else ""
    error = f'    ederror {_PROHIBITED} "{_REASON}"\n'
    return f"template ANY ANY {zone} {{\n{only}    rcode NXDOMAIN\n{error}}}"


def _block(zones: Sequence[str], directives: Sequence[str]) -> str:
    keys = " ".join(f"{zone}:53" for zone in zones)
    lines = [line for directive in directives for line in directive.splitlines()]
    return f"{keys} {{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
