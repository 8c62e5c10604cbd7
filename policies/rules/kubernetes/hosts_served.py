"""Whose names an ingress, a gateway or a route answers for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from falaj.policies.model import (
    ABSENT,
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    is_unknown,
    items,
    rule,
    text,
)
from falaj.policies.reading.kubernetes import Manifest, kinds, manifests

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
        for path, host in _hosts(manifest):
            if is_unknown(host):
                if not context.referred(resource, path):
                    yield manifest.indeterminate(path, "the host can't be known")
            elif not text(host) or "*" in text(host):
                given = format_value(host) if text(host) else "no host, which is any"
                yield manifest.violation(path, f"the {_WHO[manifest.kind]} is for {given}")


def _hosts(manifest: Manifest) -> Iterator[tuple[str, Any]]:
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


RULES: tuple[Rule, ...] = (ingress_host,)
