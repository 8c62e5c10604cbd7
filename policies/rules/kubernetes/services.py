"""Services: inside the network only, and standing for no host abroad."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.components.catalogue.destinations import EXTERNAL_HOST
from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    is_unknown,
    items,
    rule,
    select,
)
from falaj.policies.reading.destinations import judged, of_rule
from falaj.policies.reading.kubernetes import Manifest, kinds, manifests
from falaj.policies.reading.services import (
    Service,
    hidden_annotation,
    may_reach,
    outside,
    public_because,
    services,
)
from falaj.policies.rules.zero_trust.networks import CONTROLS

_SERVICES: Final = kinds("core:Service", "gateway.envoyproxy.io:EnvoyProxy") | {
    "kubernetes:helm.sh/*:*",
}


@rule(
    "kubernetes-public-load-balancer",
    "Load balancers of services are internal",
    Severity.CRITICAL,
    _SERVICES,
    CONTROLS,
    "Annotate the service: service.beta.kubernetes.io/aws-load-balancer-scheme=internal on AWS, "
    'service.beta.kubernetes.io/azure-load-balancer-internal="true" on Azure. Publish it through '
    "a gateway that is guarded, where it must be public.",
)
def public_load_balancer(resource: Resource, context: Context) -> Iterator[Finding]:
    """A service of type LoadBalancer says that it is internal; without a word it is public."""
    for service in services(resource):
        kind = service.type
        if is_unknown(kind):
            yield service.manifest.indeterminate(service.path("type"), f"its type {kind.reason}")
        elif kind == "LoadBalancer":
            yield from _judge(service)


def _judge(service: Service) -> Iterator[Finding]:
    found = public_because(service)
    if found is None:
        return
    path, reason = found
    hidden = hidden_annotation(service)
    if hidden is not None:
        yield service.manifest.indeterminate(
            hidden[0], f"whether it is internal {hidden[1].reason}"
        )
    elif service.manifest.is_patch and not service.annotations:
        yield service.manifest.indeterminate(
            path, "whether the service that is patched has an internal load balancer isn't said"
        )
    else:
        yield service.manifest.violation(path, f"the load balancer is public: {reason}")


@rule(
    "kubernetes-node-port",
    "Services open no port on nodes",
    Severity.MEDIUM,
    _SERVICES,
    CONTROLS,
    "Make the service a ClusterIP, and reach it through an internal gateway.",
)
def node_port(resource: Resource, context: Context) -> Iterator[Finding]:
    """No service is a NodePort: network policies and load balancers are passed by."""
    for service in services(resource):
        if is_unknown(service.type):
            yield service.manifest.indeterminate(
                service.path("type"), f"its type {service.type.reason}"
            )
        elif service.type == "NodePort":
            yield service.manifest.violation(
                service.path("type"), "the service opens a port on every node"
            )


@rule(
    "kubernetes-external-ips",
    "Services claim no addresses of others",
    Severity.HIGH,
    kinds("core:Service"),
    CONTROLS,
    "Remove externalIPs. They let whoever may write services take traffic for any address "
    "(CVE-2020-8554).",
)
def external_ips(resource: Resource, context: Context) -> Iterator[Finding]:
    """``externalIPs`` is empty."""
    path = "spec.externalIPs"
    for manifest in _of_kind(resource, "Service"):
        for index, each in enumerate(items(manifest.get(path))):
            if is_unknown(each):
                yield manifest.indeterminate(path, f"externalIPs {each.reason}; none is allowed")
            else:
                yield manifest.violation(
                    f"{path}[{index}]", f"the service claims {format_value(each)}"
                )


def _of_kind(resource: Resource, kind: str, group: str = "") -> Iterator[Manifest]:
    for manifest in manifests(resource):
        if manifest.kind == kind and (manifest.group == group or (group and not manifest.group)):
            yield manifest


@rule(
    EXTERNAL_HOST,
    "Services stand for no host outside of the allowed regions",
    Severity.CRITICAL,
    kinds(
        "core:Service",
        "core:Endpoints",
        "discovery.k8s.io:EndpointSlice",
        *of_rule(EXTERNAL_HOST),
    ),
    (
        "pdpl:22",
        "pdpl:23",
        "health-data:13",
        "cbuae-outsourcing:6.1",
        "iso27001:A.5.14",
        "iso27001:A.8.12",
    ),
    "Point it at a host of an allowed region or an address of your own networks, or name the host "
    "in allowedHosts.",
)
def external_host(resource: Resource, context: Context) -> Iterator[Finding]:
    """Names and addresses behind services are private, of an allowed region, or listed."""
    for manifest in manifests(resource):
        yield from judged(manifest, EXTERNAL_HOST, context)
        for path, value in _outside(manifest):
            if is_unknown(value):
                yield manifest.indeterminate(path, f"the host {value.reason}")
            elif not may_reach(value, context.settings):
                yield manifest.violation(path, outside(value))


#: Where Kubernetes' own kinds name hosts and addresses that they make reachable.
_HOSTS: Final = {
    "Service": ("spec.externalName",),
    "Endpoints": ("subsets.addresses.ip",),
    "EndpointSlice": ("endpoints.addresses",),
}


def _outside(manifest: Manifest) -> Iterator[tuple[str, Any]]:
    """Hosts and addresses that an object makes reachable, with their paths."""
    type_ = manifest.get("spec.type")
    if manifest.kind == "Service" and not (type_ == "ExternalName" or is_unknown(type_)):
        return
    for path in _HOSTS.get(manifest.kind, ()):
        yield from select(manifest.body, path)


RULES: tuple[Rule, ...] = (public_load_balancer, node_port, external_ips, external_host)
