"""The service mesh: mutual TLS everywhere, nothing let in or out that isn't named.

https://istio.io/latest/docs/reference/config/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from falaj.policies.model import (
    Context,
    Finding,
    Resource,
    Rule,
    Severity,
    format_value,
    get,
    is_true,
    is_unknown,
    items,
    rule,
    select,
    text,
)
from falaj.policies.reading.kubernetes import Manifest, kinds, manifests
from falaj.wire.documents import is_mapping

_CONTROLS: Final = ("nist-800-207:2", "iso27001:A.8.24", "iso27001:A.8.20", "uae-ia:T4.2.x")


@rule(
    "kubernetes-mesh-mtls",
    "The mesh takes and makes connections with mutual TLS only",
    Severity.HIGH,
    kinds("security.istio.io:PeerAuthentication", "networking.istio.io:DestinationRule"),
    (*_CONTROLS, "gdpr:32"),
    "Set mtls.mode to STRICT in PeerAuthentication, and remove DISABLE and insecureSkipVerify "
    "from DestinationRule.",
)
def mesh_mtls(resource: Resource, context: Context) -> Iterator[Finding]:
    """No mode is PERMISSIVE or DISABLE, for a workload, a port or a destination."""
    for manifest in manifests(resource):
        if manifest.kind == "PeerAuthentication":
            yield from _modes(manifest, "spec.mtls.mode", {"PERMISSIVE", "DISABLE"})
            ports = manifest.get("spec.portLevelMtls")
            for port in ports if is_mapping(ports) else ():
                path = f'spec.portLevelMtls["{port}"].mode'
                yield from _mode(manifest, path, get(ports[port], "mode"))
        elif manifest.kind == "DestinationRule":
            for at in ("spec.trafficPolicy", "spec.subsets.trafficPolicy"):
                for inner in (f"{at}.tls", f"{at}.portLevelSettings.tls"):
                    yield from _modes(manifest, f"{inner}.mode", {"DISABLE"})
                    for path, value in select(manifest.body, f"{inner}.insecureSkipVerify"):
                        if is_true(value):
                            yield manifest.violation(path, "certificates aren't verified")


def _modes(manifest: Manifest, path: str, forbidden: set[str]) -> Iterator[Finding]:
    for where, value in select(manifest.body, path):
        yield from _mode(manifest, where, value, forbidden)


def _mode(
    manifest: Manifest,
    path: str,
    value: object,
    forbidden: frozenset[str] | set[str] = frozenset({"PERMISSIVE", "DISABLE"}),
) -> Iterator[Finding]:
    if is_unknown(value):
        yield manifest.indeterminate(path, "the mode of TLS can't be known")
    elif text(value).upper() in forbidden:
        yield manifest.violation(
            path, f"the mode of TLS is {format_value(value)}; plain text may pass"
        )


@rule(
    "kubernetes-mesh-open",
    "The mesh lets nothing in or out that isn't named",
    Severity.HIGH,
    kinds(
        "security.istio.io:AuthorizationPolicy",
        "networking.istio.io:Sidecar",
        "install.istio.io:IstioOperator",
    )
    | {"kubernetes:helm.sh/*:*"},
    ("nist-800-207:6", "iso27001:A.8.22", "iso27001:A.5.15", "uae-ia:T4.5.3"),
    "Name who may do what in the rules of AuthorizationPolicy; set outboundTrafficPolicy.mode to "
    "REGISTRY_ONLY.",
)
def mesh_open(resource: Resource, context: Context) -> Iterator[Finding]:
    """No policy allows everyone, and only registered hosts can be reached."""
    for manifest in manifests(resource):
        if manifest.kind == "AuthorizationPolicy" and text(manifest.get("spec.action")) in {
            "", "ALLOW",
        }:  # fmt: skip
            for index, each in enumerate(items(manifest.get("spec.rules"))):
                if is_unknown(each):
                    yield manifest.indeterminate(f"spec.rules[{index}]", "the rule can't be known")
                elif each == {}:
                    yield manifest.violation(
                        f"spec.rules[{index}]", "an empty rule allows everyone everything"
                    )
    chart = Manifest(resource, "helm.sh", "chart", resource.properties)
    for manifest in manifests(resource) or (chart,):
        for path in _OUTBOUND:
            for where, value in select(manifest.body, path):
                if is_unknown(value):
                    yield manifest.indeterminate(where, "the mode of what goes out can't be known")
                elif text(value) == "ALLOW_ANY":
                    yield manifest.violation(
                        where, "any host may be reached (ALLOW_ANY); REGISTRY_ONLY is needed"
                    )


_OUTBOUND: Final = (
    "spec.outboundTrafficPolicy.mode",
    "spec.meshConfig.outboundTrafficPolicy.mode",
    "values.meshConfig.outboundTrafficPolicy.mode",
)

RULES: tuple[Rule, ...] = (mesh_mtls, mesh_open)
