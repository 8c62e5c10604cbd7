"""Who may reach the replicas and whom they may reach: addresses first, identities above them."""

from typing import Any, Final

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.serving.specification import PORT, InferenceServiceSpec

HBONE: Final = 15008
"""Port of the ambient mesh's tunnels: https://istio.io/latest/docs/ambient/architecture/hbone/"""
#: Whence the ambient mesh lets the kubelet's probes come:
#: https://istio.io/latest/docs/ambient/usage/networkpolicy/
_PROBES: Final = "169.254.7.127/32"
_NAMESPACE: Final = "kubernetes.io/metadata.name"


def isolation(spec: InferenceServiceSpec) -> list[Manifest]:
    """The network policy; in the mesh also strict mutual TLS and who is authorised."""
    found = [_network_policy(spec)]
    if spec.access.mesh:
        found += [_mutual_tls(spec), _authorisation(spec)]
    return found


def _network_policy(spec: InferenceServiceSpec) -> Manifest:
    access = spec.access
    ports = [_port(PORT)] + ([_port(HBONE)] if access.mesh else [])
    spaces = _open_to(spec) | {caller.namespace for caller in access.callers}
    ingress: list[dict[str, Any]] = [
        {"from": [_namespace(space) for space in sorted(spaces)], "ports": ports}
    ]
    if access.spilled_from:
        ingress.append({"from": [_pods(access.spilled_from)], "ports": ports})
    if access.mesh:
        ingress.append({"from": [{"ipBlock": {"cidr": _PROBES}}], "ports": [_port(PORT)]})
    dns = {"namespaceSelector": {"matchLabels": {_NAMESPACE: "kube-system"}}}
    egress: list[dict[str, Any]] = []
    if spec.spill is not None:
        egress = [
            {"to": [dns], "ports": [_port(53, "UDP"), _port(53)]},
            {"to": [_pods(spec.spill.to)], "ports": ports},
        ]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": spec.metadata(spec.name),
        "spec": {
            "podSelector": {"matchLabels": spec.selector()},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            # Without rules nothing gets out. An empty list would be a change with every update:
            # the API server keeps none.
            **({"egress": egress} if egress else {}),
        },
    }


def _open_to(spec: InferenceServiceSpec) -> set[str]:
    """Namespaces that all pods of may connect: of Prometheus and, where there is a route, the
    gateway's proxies."""
    access = spec.access
    routed = set[str]() if access.spilled_from else {access.gateway_namespace}
    return {access.monitoring_namespace} | routed


def _port(number: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"port": number, "protocol": protocol}


def _namespace(name: str) -> dict[str, Any]:
    return {"namespaceSelector": {"matchLabels": {_NAMESPACE: name}}}


def _pods(service: str) -> dict[str, Any]:
    """Replicas of another inference service of the namespace."""
    labels = {"app.kubernetes.io/name": service, "app.kubernetes.io/component": "inference"}
    return {"podSelector": {"matchLabels": labels}}


def _mutual_tls(spec: InferenceServiceSpec) -> Manifest:
    return {
        "apiVersion": "security.istio.io/v1",
        "kind": "PeerAuthentication",
        "metadata": spec.metadata(spec.name),
        "spec": {
            "selector": {"matchLabels": spec.selector()},
            "mtls": {"mode": "STRICT"},
        },
    }


def _authorisation(spec: InferenceServiceSpec) -> Manifest:
    """Identities by name; whole namespaces only for the gateway and Prometheus.

    Their service accounts get their names from their controllers. What they may ask the server
    itself decides: the gateway passes tokens on, Prometheus shows its certificate.
    """
    access = spec.access
    named = [(caller.namespace, caller.service_account) for caller in access.callers]
    if access.spilled_from:
        named.append((spec.namespace, access.service_account))
    principals = [f"{access.trust_domain}/ns/{space}/sa/{account}" for space, account in named]
    sources: list[dict[str, Any]] = [{"source": {"namespaces": sorted(_open_to(spec))}}]
    if principals:
        sources.append({"source": {"principals": sorted(set(principals))}})
    return {
        "apiVersion": "security.istio.io/v1",
        "kind": "AuthorizationPolicy",
        "metadata": spec.metadata(spec.name),
        "spec": {
            "selector": {"matchLabels": spec.selector()},
            "action": "ALLOW",
            "rules": [{"from": sources, "to": [{"operation": {"ports": [str(PORT)]}}]}],
        },
    }
