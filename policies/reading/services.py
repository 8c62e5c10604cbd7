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

from falaj.components.catalogue.clusters import (
    AWS_TYPE,
    INTERNAL_CLASSES,
    INTERNAL_TYPES,
    LOAD_BALANCER_ADDRESSES,
    LOAD_BALANCER_KINDS,
    LOAD_BALANCER_SCHEMES,
    LOAD_BALANCER_SWITCHES,
    OWN_RANGES,
    PLATFORM_NAMESPACES,
    SYSTEM_NAMESPACES,
)
from falaj.policies.model import (
    ABSENT,
    Context,
    Path,
    Resource,
    Settings,
    format_path,
    format_value,
    get,
    is_false,
    is_list,
    is_true,
    is_unknown,
    text,
)
from falaj.policies.reading.addresses import network
from falaj.policies.reading.hosts import host_of, is_listed, may_talk_to
from falaj.policies.reading.kubernetes import (
    Manifest,
    is_bundle,
    join,
    manifests,
    names_below,
)
from falaj.wire.documents import is_mapping, mapping

_OWN: Final = tuple(ipaddress.ip_network(each) for each in OWN_RANGES)
_KNOWN_NAMESPACES: Final = SYSTEM_NAMESPACES | PLATFORM_NAMESPACES
_OCTAL: Final = re.compile(r"(?=[\d.]+$)(?:\d+\.)*0\d")
_LABEL: Final = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")


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
            body = mapping(manifest.spec)
            annotations = manifest.get("metadata.annotations")
            yield Service(manifest, "spec", body, "metadata.annotations", annotations)
        elif manifest.kind == "EnvoyProxy":
            at = "spec.provider.kubernetes.envoyService"
            body = manifest.get(at)
            known = mapping(body)
            annotations = get(known, "annotations")
            # https://gateway.envoyproxy.io/docs/api/extension_types/#kubernetesservicespec
            yield Service(manifest, at, known, f"{at}.annotations", annotations, "LoadBalancer")
    if resource.package == "kubernetes" and is_bundle(resource):
        chart = Manifest(resource, "helm.sh", "chart", resource.properties)
        yield from _in_values(chart, get(resource.properties, "values"), ("values",))


def _in_values(chart: Manifest, value: Any, path: Path) -> Iterator[Service]:
    if is_mapping(value):
        for key, each in value.items():
            at = (*path, str(key))
            if str(key).lower().endswith("service") and is_mapping(each):
                where = format_path(at)
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
    given = mapping(service.annotations)
    for key in LOAD_BALANCER_SWITCHES:
        if is_false(given.get(key)):
            return annotation_path(service, key), "it is said not to be internal"
    for key in LOAD_BALANCER_SCHEMES:
        if key in given and given[key] is not None:
            if text(given[key]) == "internal":
                return None
            return annotation_path(service, key), "its scheme isn't internal"
    internal = any(is_true(given.get(key)) for key in LOAD_BALANCER_SWITCHES)
    internal = internal or text(given.get(LOAD_BALANCER_SWITCHES[0])) == "0.0.0.0/0"
    internal = internal or any(
        text(given.get(key)).lower() == kind for key, kind in LOAD_BALANCER_KINDS.items()
    )
    internal = internal or text(given.get(AWS_TYPE)) in INTERNAL_TYPES
    internal = internal or text(get(service.body, "loadBalancerClass")) in INTERNAL_CLASSES
    addresses = [text(get(service.body, "loadBalancerIP"))]
    addresses += [
        part for key in LOAD_BALANCER_ADDRESSES for part in text(given.get(key)).split(",")
    ]
    named = [each for each in addresses if each.strip()]
    if internal or (named and all(is_own_address(each) for each in named)):
        return None
    return service.path("type"), "it has no annotation that makes it internal"


def hidden_annotation(service: Service) -> tuple[str, Any] | None:
    """An annotation that decides it and can't be seen, with its path."""
    if is_unknown(service.annotations):
        return service.annotations_at, service.annotations
    given = mapping(service.annotations)
    for key in (*LOAD_BALANCER_SCHEMES, *LOAD_BALANCER_SWITCHES, *LOAD_BALANCER_KINDS, AWS_TYPE):
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
    if _OCTAL.match(host):
        # Firewalls drop a leading zero, programs read what follows it as octal: 010.8.8.8 is
        # private to the one and 8.8.8.8 to the other (inet_aton(3)).
        return is_listed(host, settings)
    if (address := network(host)) is not None:
        if address.prefixlen == address.max_prefixlen and address.network_address.is_unspecified:
            return True  # Where a program listens; called, it is the program's own host.
        return is_own_address(host) or is_listed(host, settings)
    return may_talk_to(host, settings)


def outside(value: object) -> str:
    """What is said of a host or an address that `may_reach` doesn't allow."""
    return (
        f"{format_value(value)} is neither private, nor in an allowed region, nor one of "
        "allowedHosts"
    )


def may_reach_from_pods(value: object, manifest: Manifest, context: Context) -> bool | None:
    """Whether programs in pods may send data to a URL, a host or an address.

    Resolvers in pods search among namespaces and services: ``db.team`` is the service ``db`` where
    ``team`` is a namespace, a pod where it is a service of the pod's namespace, and a company's
    host where it is neither. So it counts as the cluster's own where its last label is the
    object's own namespace or name (a JobSet's pods are below its name), a namespace of the
    platform or the system, or a namespace or service of the stack. Others are named in full,
    ``db.team.svc``.

    Args:
        value: what is reached.
        manifest: the object that says so.
        context: with the whole stack, in the second look.

    Returns:
        None where it depends on the rest of the stack, which isn't known yet.
    """
    if may_reach(value, context.settings):
        return True
    name, _, namespace = (host_of(value) or text(value).lower().rstrip(".")).partition(".")
    if not (_LABEL.fullmatch(name) and _LABEL.fullmatch(namespace)):
        return False
    if namespace in _KNOWN_NAMESPACES or namespace in (manifest.namespace, manifest.name):
        return True
    return None if context.stack is None else namespace in names_below(context.stack)
