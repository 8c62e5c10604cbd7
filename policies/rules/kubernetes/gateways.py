"""Ways in by HTTP: with TLS, not facing the internet, and for whose names they answer."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from falaj.components.catalogue.clusters import GATEWAY_SCHEMES
from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_path,
    format_value,
    get,
    is_false,
    is_true,
    is_unknown,
    items,
    leaves,
    rule,
    select,
    text,
)
from falaj.policies.reading.hosts import host_of
from falaj.policies.reading.kubernetes import Manifest, is_bundle, kinds, manifests
from falaj.policies.reading.services import may_reach
from falaj.wire.documents import mapping

_GATEWAYS: Final = kinds(
    "networking.k8s.io:Ingress",
    "extensions:Ingress",
    "gateway.networking.k8s.io:Gateway",
    "gateway.networking.k8s.io:ListenerSet",
    "networking.istio.io:Gateway",
    "elbv2.k8s.aws:IngressClassParams",
    "gateway.k8s.aws:LoadBalancerConfiguration",
)
_CERTIFICATES: Final = (
    "alb.ingress.kubernetes.io/certificate-arn",
    "appgw.ingress.kubernetes.io/appgw-ssl-certificate",
)
_PLAIN: Final = (
    "nginx.ingress.kubernetes.io/ssl-redirect",
    "nginx.ingress.kubernetes.io/force-ssl-redirect",
)
_ALLOW_HTTP: Final = "kubernetes.io/ingress.allow-http"


@rule(
    "kubernetes-gateway-tls",
    "Ingresses and gateways take encrypted connections only",
    Severity.HIGH,
    _GATEWAYS,
    (
        "cis-eks:5.4.5",
        "cis-aks:5.4.5",
        "iso27001:A.8.24",
        "iso27001:A.8.20",
        "uae-ia:T4.2.x",
        "gdpr:32",
    ),
    "Add spec.tls with a secret for every host of the ingress; make the gateway's listeners HTTPS "
    "or TLS, and let port 80 only redirect.",
)
def gateway_tls(resource: Resource, context: Context) -> Iterator[Finding]:
    """Every host has a certificate, and plain HTTP at most leads to it."""
    for manifest in manifests(resource):
        if _is_ingress(manifest):
            yield from _ingress(manifest)
        elif manifest.group == "gateway.networking.k8s.io":
            yield from _gateway(manifest)
        elif manifest.kind == "Gateway" and manifest.group == "networking.istio.io":
            yield from _istio(manifest)


def _is_ingress(manifest: Manifest) -> bool:
    return manifest.kind == "Ingress" and manifest.group in {"networking.k8s.io", "extensions"}


def _ingress(manifest: Manifest) -> Iterator[Finding]:
    for key in _PLAIN:
        path, value = f'metadata.annotations["{key}"]', manifest.annotations.get(key, ABSENT)
        if is_unknown(value):
            yield manifest.indeterminate(path, f"whether plain HTTP is served {value.reason}")
        elif is_false(value):
            yield manifest.violation(path, "plain HTTP is served as well: redirection is off")
    allowed = manifest.annotations.get(_ALLOW_HTTP, ABSENT)
    if is_unknown(allowed):
        path = f'metadata.annotations["{_ALLOW_HTTP}"]'
        yield manifest.indeterminate(path, f"whether plain HTTP is served {allowed.reason}")
    elif is_true(allowed):
        path = f'metadata.annotations["{_ALLOW_HTTP}"]'
        yield manifest.violation(path, "plain HTTP is served as well: it is allowed")
    if manifest.is_patch and manifest.get("spec.tls") is ABSENT:
        return
    tls = manifest.get("spec.tls")
    annotations = manifest.get("metadata.annotations")
    hidden = next((each for each in (tls, annotations) if is_unknown(each)), None)
    if any(manifest.annotations.get(key) is not None for key in _CERTIFICATES):
        return
    if not is_unknown(tls) and not items(tls):
        if hidden is not None:
            yield manifest.indeterminate(
                "spec.tls", f"whether it has a certificate {hidden.reason}"
            )
        else:
            yield manifest.violation(
                "spec.tls", "the ingress has no certificate: it is plain HTTP"
            )
        return
    if is_unknown(tls):
        yield manifest.indeterminate("spec.tls", f"whether it has a certificate {tls.reason}")
        return
    yield from _hosts(manifest, items(tls))


def _hosts(manifest: Manifest, tls: list[Any]) -> Iterator[Finding]:
    """Hosts of an ingress that no certificate is for."""
    named = [each for entry in tls for each in items(get(entry, "hosts"))]
    if any(is_unknown(each) for each in (*tls, *named)):
        return
    if any(not items(get(entry, "hosts")) for entry in tls):
        return  # A certificate for every host.
    covered = {text(each).lower() for each in named}
    for index, each in enumerate(items(manifest.get("spec.rules"))):
        given = get(each, "host")
        host = text(given).lower()
        if is_unknown(given):
            yield manifest.indeterminate(
                f"spec.rules[{index}].host",
                f"whether a certificate is for the host {given.reason}",
            )
        elif host and host not in covered and "*." + host.partition(".")[2] not in covered:
            yield manifest.violation(
                f"spec.rules[{index}].host",
                f"no certificate of spec.tls is for {format_value(host)}",
            )


def _gateway(manifest: Manifest) -> Iterator[Finding]:
    listeners = manifest.get("spec.listeners")
    if is_unknown(listeners):
        yield manifest.indeterminate("spec.listeners", f"its listeners {listeners.reason}")
        return
    protocols = [get(each, "protocol") for each in items(listeners)]
    encrypted = any(each in ("HTTPS", "TLS") for each in protocols)
    for index, (listener, protocol) in enumerate(zip(items(listeners), protocols, strict=True)):
        path = f"spec.listeners[{index}].protocol"
        if is_unknown(protocol):
            yield manifest.indeterminate(path, f"the protocol {protocol.reason}")
        elif protocol == "HTTP" and not (encrypted and get(listener, "port") in (80, "80", 80.0)):
            yield manifest.violation(path, "the listener is plain HTTP; HTTPS or TLS is needed")


def _istio(manifest: Manifest) -> Iterator[Finding]:
    for index, server in enumerate(items(manifest.get("spec.servers"))):
        path = f"spec.servers[{index}]"
        protocol = get(server, "port.protocol")
        if is_unknown(protocol):
            yield manifest.indeterminate(f"{path}.port.protocol", f"it {protocol.reason}")
        elif text(protocol).upper() in {"HTTP", "HTTP2", "GRPC", "TCP", "MONGO"}:
            redirects = is_true(get(server, "tls.httpsRedirect"))
            has_tls = text(get(server, "tls.mode")) in {
                "SIMPLE", "MUTUAL", "ISTIO_MUTUAL", "PASSTHROUGH", "AUTO_PASSTHROUGH",
                "OPTIONAL_MUTUAL",
            }  # fmt: skip
            if not (redirects or has_tls):
                yield manifest.violation(
                    f"{path}.port.protocol",
                    f"the server speaks {format_value(protocol)} without TLS",
                )


_PRIVATE_GATEWAY: Final = "appgw.ingress.kubernetes.io/use-private-ip"


@rule(
    "kubernetes-public-gateway",
    "Ingresses and gateways don't face the internet",
    Severity.CRITICAL,
    _GATEWAYS | {"kubernetes:helm.sh/*:*"},
    ("uae-ia:T4.5.3", "iso27001:A.8.20", "iso27001:A.8.22", "nist-800-207:2"),
    "Set the scheme to internal (AWS), or appgw.ingress.kubernetes.io/use-private-ip to true "
    "(Azure).",
)
def public_gateway(resource: Resource, context: Context) -> Iterator[Finding]:
    """No annotation or parameter asks for a public load balancer, nor does a chart's value."""
    if resource.package == "kubernetes" and is_bundle(resource):
        chart = Manifest(resource, "helm.sh", "chart", resource.properties)
        for path, value in leaves(resource.get("values"), ("values",)):
            if path[-1] in GATEWAY_SCHEMES:
                yield from _scheme(chart, format_path(path), value)
    for manifest in manifests(resource):
        if _is_ingress(manifest):
            yield from _schemes(manifest, "metadata.annotations", manifest.annotations)
            yield from _application_gateway(manifest)
        elif manifest.kind == "Gateway":
            path = "spec.infrastructure.annotations"
            given = manifest.get(path)
            yield from _schemes(manifest, path, mapping(given))
            yield from _schemes(manifest, "metadata.annotations", manifest.annotations)
        elif manifest.kind in {"IngressClassParams", "LoadBalancerConfiguration"}:
            yield from _scheme(manifest, "spec.scheme", manifest.get("spec.scheme"))


def _schemes(manifest: Manifest, at: str, given: Mapping[str, Any]) -> Iterator[Finding]:
    for key in GATEWAY_SCHEMES:
        if key in given:
            yield from _scheme(manifest, f'{at}["{key}"]', given[key])


def _scheme(manifest: Manifest, path: str, value: Any) -> Iterator[Finding]:
    if is_unknown(value):
        yield manifest.indeterminate(path, f"the scheme {value.reason}; internal is allowed")
    elif text(value) == "internet-facing":
        yield manifest.violation(path, "the scheme is internet-facing; internal is allowed")


def _application_gateway(manifest: Manifest) -> Iterator[Finding]:
    classes = (
        text(manifest.get("spec.ingressClassName")),
        text(manifest.annotations.get("kubernetes.io/ingress.class")),
    )
    if not any(
        each in {"azure-application-gateway", "azure/application-gateway"} for each in classes
    ):
        return
    path = f'metadata.annotations["{_PRIVATE_GATEWAY}"]'
    private = manifest.annotations.get(_PRIVATE_GATEWAY)
    if is_unknown(private):
        yield manifest.indeterminate(path, f"whether its address is private {private.reason}")  # pyright: ignore[reportOptionalMemberAccess]
    elif not is_true(private) and not manifest.is_patch:
        yield manifest.violation(
            path, "the gateway's public address is used, which is the default"
        )


_SNIPPETS: Final = re.compile(r"nginx\.(?:ingress\.kubernetes\.io|org)/[\w-]+-snippets?")
_ALLOW_SNIPPETS: Final = "allow-snippet-annotations"


@rule(
    "kubernetes-ingress-snippet",
    "Ingresses bring no configuration of their own into the gateway",
    Severity.HIGH,
    kinds("networking.k8s.io:Ingress", "extensions:Ingress", "core:ConfigMap"),
    ("iso27001:A.8.9", "iso27001:A.8.2", "uae-ia:T5.2.2", "nist-800-207:2"),
    "Use the annotations that NGINX offers for the purpose, and leave allow-snippet-annotations "
    "false: whoever writes a snippet reads every secret that the gateway may (CVE-2021-25742).",
)
def ingress_snippet(resource: Resource, context: Context) -> Iterator[Finding]:
    """No annotation is a part of NGINX' own configuration, and none is allowed to be."""
    for manifest in manifests(resource):
        for key in manifest.annotations if _is_ingress(manifest) else ():
            if _SNIPPETS.fullmatch(str(key)):
                yield manifest.violation(
                    f'metadata.annotations["{key}"]', "it is configuration of the gateway itself"
                )
        allowed = get(manifest.get("data"), _ALLOW_SNIPPETS)
        if manifest.kind == "ConfigMap" and not is_unknown(manifest.get("data")):
            path = f"data.{_ALLOW_SNIPPETS}"
            if is_unknown(allowed):
                yield manifest.indeterminate(path, f"whether snippets work {allowed.reason}")
            elif is_true(allowed):
                yield manifest.violation(path, "snippets of every ingress are taken")


_GATEWAY_API: Final = "gateway.networking.k8s.io"
_ROUTES: Final = frozenset({"HTTPRoute", "GRPCRoute", "TLSRoute"})
_WITH_LISTENERS: Final = frozenset({"Gateway", "ListenerSet"})
_WHO: Final = {
    "Ingress": "rule", "Gateway": "listener", "ListenerSet": "listener",
    **dict.fromkeys(sorted(_ROUTES), "route"),
}  # fmt: skip
#: Protocols of listeners that tell hosts apart; others have none.
_WITH_HOSTS: Final = frozenset({"HTTP", "HTTPS", "TLS"})


@rule(
    "kubernetes-ingress-host",
    "Ingresses, gateways and routes name the hosts that they serve",
    Severity.LOW,
    kinds(
        "networking.k8s.io:Ingress",
        "extensions:Ingress",
        f"{_GATEWAY_API}:Gateway",
        f"{_GATEWAY_API}:ListenerSet",
        *(f"{_GATEWAY_API}:{each}" for each in sorted(_ROUTES)),
    ),
    ("iso27001:A.8.20", "iso27001:A.8.9", "uae-ia:T4.5.3"),
    "Set the host of every rule of an ingress, and of every listener of a gateway, to a full "
    "name. Hostnames of a route are full names as well, or absent: it then has its gateway's.",
)
def ingress_host(resource: Resource, context: Context) -> Iterator[Finding]:
    """Nothing takes any host, or all below a domain: it would serve names of others."""
    for manifest in manifests(resource):
        for path, host in _hosts_served(manifest):
            if is_unknown(host):
                if not context.referred(resource, path):
                    yield manifest.indeterminate(path, "the host can't be known")
            elif not text(host) or "*" in text(host):
                given = format_value(host) if text(host) else "no host, which is any"
                yield manifest.violation(path, f"the {_WHO[manifest.kind]} is for {given}")


def _hosts_served(manifest: Manifest) -> Iterator[tuple[str, Any]]:
    """The hosts that it serves, each with its path."""
    if manifest.group == _GATEWAY_API and manifest.kind in _WITH_LISTENERS:
        for index, each in enumerate(items(manifest.get("spec.listeners"))):
            host, protocol = _in(each, "hostname"), _in(each, "protocol")
            has_hosts = is_unknown(protocol) or text(protocol) in _WITH_HOSTS
            # A patch leaves out what it doesn't change.
            if has_hosts and not (manifest.is_patch and host is ABSENT):
                yield f"spec.listeners[{index}].hostname", host
    elif manifest.group == _GATEWAY_API and manifest.kind in _ROUTES:
        for index, each in enumerate(items(manifest.get("spec.hostnames"))):
            yield f"spec.hostnames[{index}]", each
    elif manifest.group != _GATEWAY_API and manifest.kind == "Ingress":
        for index, each in enumerate(items(manifest.get("spec.rules"))):
            yield f"spec.rules[{index}].host", _in(each, "host")


def _in(holder: Any, key: str) -> Any:
    return holder if is_unknown(holder) else get(holder, key)


_FILTERS: Final = ("spec.rules.filters", "spec.rules.backendRefs.filters")
_HTTP_ROUTES: Final = kinds(f"{_GATEWAY_API}:HTTPRoute")


def _led_elsewhere(manifest: Manifest, host: str, context: Context) -> bool:
    served = {text(each).lower() for each in items(manifest.get("spec.hostnames"))}
    return host.lower() not in served and not may_reach(host, context.settings)


@rule(
    "kubernetes-route-host",
    "Routes send callers to hosts of one's own",
    Severity.HIGH,
    _HTTP_ROUTES,
    ("pdpl:22", "health-data:13", "cbuae-outsourcing:6.1", "iso27001:A.5.14", "iso27001:A.8.12"),
    "Remove the hostname of the redirect or rewrite, or name a host of the route, of your own "
    "networks or of allowedHosts.",
)
def route_host(resource: Resource, context: Context) -> Iterator[Finding]:
    """Whoever is redirected asks the other host the same again, with what he sends."""
    for manifest in manifests(resource):
        if manifest.group != _GATEWAY_API or manifest.kind != "HTTPRoute":
            continue
        for filters in _FILTERS:
            for kind in ("requestRedirect", "urlRewrite"):
                for path, host in select(manifest.body, f"{filters}.{kind}.hostname"):
                    if is_unknown(host):
                        yield manifest.indeterminate(path, f"where callers are sent {host.reason}")
                    elif text(host) and _led_elsewhere(manifest, text(host), context):
                        yield manifest.violation(
                            path, f"{format_value(host)} is neither a host of the route, nor "
                            "private, nor in an allowed region, nor one of allowedHosts"
                        )  # fmt: skip


_ORIGINS: Final = {
    "HTTPRoute": tuple(f"{each}.cors.allowOrigins" for each in _FILTERS),
    "SecurityPolicy": ("spec.cors.allowOrigins",),
}


@rule(
    "kubernetes-route-origins",
    "Answers are for pages of one's own",
    Severity.MEDIUM,
    _HTTP_ROUTES | kinds("gateway.envoyproxy.io:SecurityPolicy"),
    ("iso27001:A.8.12", "iso27001:A.8.20", "uae-ia:T4.5.3", "nist-800-207:2"),
    "Name the origins in allowOrigins in full, as https://app.example.ae, of your own networks "
    "or of allowedHosts.",
)
def route_origins(resource: Resource, context: Context) -> Iterator[Finding]:
    """No page of somebody else's reads answers with the rights of who looks at it."""
    for manifest in manifests(resource):
        if manifest.group not in {_GATEWAY_API, "gateway.envoyproxy.io"}:
            continue
        for at in _ORIGINS.get(manifest.kind, ()):
            for path, origin in select(manifest.body, at):
                host = host_of(origin)
                if is_unknown(origin):
                    yield manifest.indeterminate(path, f"whose pages may read {origin.reason}")
                elif (
                    "*" in text(origin)
                    or "://" not in text(origin)
                    or _led_elsewhere(manifest, host, context)
                ):
                    yield manifest.violation(
                        path, f"{format_value(origin)} isn't an origin of one's own, in full"
                    )


RULES: tuple[Rule, ...] = (
    gateway_tls,
    public_gateway,
    ingress_snippet,
    ingress_host,
    route_host,
    route_origins,
)
