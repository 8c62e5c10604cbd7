"""Services as load balancers see them: objects, what operators make, and values of charts.

https://kubernetes-sigs.github.io/aws-load-balancer-controller/latest/guide/service/annotations/
https://cloud-provider-azure.sigs.k8s.io/topics/loadbalancer/
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from policies.model import (
    ABSENT,
    Path,
    Resource,
    Settings,
    get,
    is_false,
    is_list,
    is_true,
    is_unknown,
    spell,
    text,
)
from policies.reading.cidr import network
from policies.reading.hosts import host_of, is_listed, may_talk_to
from policies.reading.kubernetes import Manifest, is_bundle, join, manifests

_SCHEMES: Final = ("service.beta.kubernetes.io/aws-load-balancer-scheme",)
_SWITCHES: Final = (
    "service.beta.kubernetes.io/aws-load-balancer-internal",
    "service.beta.kubernetes.io/azure-load-balancer-internal",
    "service.beta.kubernetes.io/openstack-internal-load-balancer",
    "service.beta.kubernetes.io/oci-load-balancer-internal",
)
_KINDS: Final = {
    "networking.gke.io/load-balancer-type": "internal",
    "cloud.google.com/load-balancer-type": "internal",
    "service.kubernetes.io/ibm-load-balancer-cloud-provider-ip-type": "private",
    "service.beta.kubernetes.io/alibaba-cloud-loadbalancer-address-type": "intranet",
}
#: What hands a service to AWS' own controllers, whose balancers are internal unless said otherwise
#: (https://kubernetes-sigs.github.io/aws-load-balancer-controller/latest/guide/service/nlb/,
#: https://docs.aws.amazon.com/eks/latest/userguide/auto-configure-nlb.html).
_AWS_TYPE: Final = "service.beta.kubernetes.io/aws-load-balancer-type"
_INTERNAL_TYPES: Final = frozenset({"external", "nlb-ip"})
_INTERNAL_CLASSES: Final = frozenset({"service.k8s.aws/nlb", "eks.amazonaws.com/nlb"})
#: Where balancers of one's own machines read their address.
_ADDRESSES: Final = (
    "metallb.universe.tf/loadBalancerIPs", "metallb.io/loadBalancerIPs",
    "kube-vip.io/loadbalancerIPs", "lbipam.cilium.io/ips", "io.cilium/lb-ipam-ips",
)  # fmt: skip
_OWN: Final = tuple(
    ipaddress.ip_network(each)
    for each in (
        "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "127.0.0.0/8",
        "169.254.0.0/16", "fc00::/7", "fe80::/10", "::1/128",
    )
)  # fmt: skip
_LABEL: Final = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
#: Domains of three letters and more that services are commonly found in
#: (https://data.iana.org/TLD/tlds-alpha-by-domain.txt has all).
_DOMAINS: Final = frozenset({
    "academy", "agency", "app", "art", "arpa", "biz", "blog", "bot", "box", "build", "capital",
    "cat", "chat", "cloud", "club", "codes", "com", "community", "company", "computer",
    "design", "dev", "digital", "dubai", "edu", "email", "energy", "engineer", "engineering",
    "example", "exchange", "expert", "finance", "fun", "fund", "games", "global", "gov", "group",
    "host", "hosting", "info", "ink", "int", "link", "live", "ltd", "mil", "mobi", "mov", "name",
    "net", "network", "new", "news", "ninja", "one", "online", "onl", "org", "page", "plus",
    "pro", "pub", "run", "science", "services", "shop", "site", "social", "software", "solutions",
    "space", "store", "studio", "support", "systems", "tech", "technology", "today",
    "top", "trade", "travel", "vip", "website", "work", "works", "world", "wtf",
    "xxx", "xyz", "zip", "zone",
})  # fmt: skip


@dataclass(frozen=True)
class Service:
    """One service, or what will become one."""

    manifest: Manifest
    at: str
    """Path of its spec (or values) in the object."""
    body: Mapping[str, Any]
    annotations_at: str
    annotations: Any
    default_type: str = "ClusterIP"

    @property
    def type(self) -> Any:
        """``LoadBalancer`` and the like; or an Unknown."""
        found = get(self.body, "type")
        return self.default_type if found is ABSENT else found

    def path(self, inner: str) -> str:
        """A path of its spec in the object."""
        return join(self.at, inner)


def services(resource: Resource) -> Iterator[Service]:
    """Every service that a resource declares."""
    for manifest in manifests(resource):
        if manifest.kind == "Service" and not manifest.group:
            body = manifest.spec if isinstance(manifest.spec, Mapping) else {}
            annotations = manifest.get("metadata.annotations")
            yield Service(manifest, "spec", body, "metadata.annotations", annotations)
        elif manifest.kind == "EnvoyProxy":
            at = "spec.provider.kubernetes.envoyService"
            body = manifest.get(at)
            known = body if isinstance(body, Mapping) else {}
            annotations = get(known, "annotations")
            # https://gateway.envoyproxy.io/docs/api/extension_types/#kubernetesservicespec
            yield Service(manifest, at, known, f"{at}.annotations", annotations, "LoadBalancer")
    if resource.package == "kubernetes" and is_bundle(resource):
        chart = Manifest(resource, "helm.sh", "chart", resource.properties)
        yield from _in_values(chart, get(resource.properties, "values"), ("values",))


def _in_values(chart: Manifest, value: Any, path: Path) -> Iterator[Service]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            at = (*path, str(key))
            if str(key).lower().endswith("service") and isinstance(each, Mapping):
                where = spell(at)
                yield Service(chart, where, each, f"{where}.annotations", get(each, "annotations"))
            yield from _in_values(chart, each, at)
    elif is_list(value):
        for index, each in enumerate(value):
            yield from _in_values(chart, each, (*path, index))


def annotation_path(service: Service, key: str) -> str:
    """Path of an annotation in the object."""
    return f'{service.annotations_at}["{key}"]'


def public_because(service: Service) -> tuple[str, str] | None:
    """Why a load balancer is public, with the path that says so; None where it is internal."""
    given = service.annotations if isinstance(service.annotations, Mapping) else {}
    for key in _SWITCHES:
        if is_false(given.get(key)):
            return annotation_path(service, key), "it is said not to be internal"
    for key in _SCHEMES:
        if key in given and given[key] is not None:
            if text(given[key]) == "internal":
                return None
            return annotation_path(service, key), "its scheme isn't internal"
    internal = any(is_true(given.get(key)) for key in _SWITCHES)
    internal = internal or text(given.get(_SWITCHES[0])) == "0.0.0.0/0"
    internal = internal or any(
        text(given.get(key)).lower() == word for key, word in _KINDS.items()
    )
    internal = internal or text(given.get(_AWS_TYPE)) in _INTERNAL_TYPES
    internal = internal or text(get(service.body, "loadBalancerClass")) in _INTERNAL_CLASSES
    addresses = [text(get(service.body, "loadBalancerIP"))]
    addresses += [part for key in _ADDRESSES for part in text(given.get(key)).split(",")]
    named = [each for each in addresses if each.strip()]
    if internal or (named and all(is_own_address(each) for each in named)):
        return None
    return service.path("type"), "it has no annotation that makes it internal"


def hidden_annotation(service: Service) -> tuple[str, Any] | None:
    """An annotation that decides it and can't be seen, with its path."""
    if is_unknown(service.annotations):
        return service.annotations_at, service.annotations
    given = service.annotations if isinstance(service.annotations, Mapping) else {}
    for key in (*_SCHEMES, *_SWITCHES, *_KINDS, _AWS_TYPE):
        if is_unknown(given.get(key)):
            return annotation_path(service, key), given[key]
    for key in ("loadBalancerClass", "loadBalancerIP"):
        if is_unknown(value := get(service.body, key)):
            return service.path(key), value
    return None


def is_own_address(value: object) -> bool:
    """Whether an address is of one's own networks; ranges for documentation count as public."""
    found = network(value)
    return found is not None and any(
        found.version == each.version
        and each.prefixlen <= found.prefixlen
        and found.network_address in each
        for each in _OWN
    )


def may_reach(value: object, settings: Settings) -> bool:
    """Whether data may go to a URL, a host or an address."""
    host = host_of(value) or text(value).lower().rstrip(".")
    if (address := network(host)) is not None:
        if address.prefixlen == address.max_prefixlen and address.network_address.is_unspecified:
            return True  # Where a program listens; called, it is the program's own host.
        return is_own_address(host) or is_listed(host, settings)
    return may_talk_to(host, settings) or is_cluster_name(host)


def is_cluster_name(host: str) -> bool:
    """Whether a host is a service with its namespace, ``db.team``, as resolvers in pods find it.

    Two labels, of which the last isn't a domain that companies register names in.
    """
    name, _, last = host.partition(".")
    return bool(name) and bool(_LABEL.fullmatch(last)) and len(last) > 2 and last not in _DOMAINS
