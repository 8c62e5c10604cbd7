"""Who may reach the replicas, whom they may reach, and how requests come to a version.

Addresses first, identities above them; then the service of a version, the names of all of them,
and the shares of each.
"""

from collections.abc import Mapping
from typing import Any, Final

from falaj.components.catalogue.pipelines import WATCH_ENDING
from falaj.components.kubernetes._objects import GATEWAY_API, Manifest
from falaj.components.kubernetes._peers import HBONE, PROBES, in_namespace, resolver_egress
from falaj.components.kubernetes.inference_service.arguments import (
    PORT,
    VARIANT_HEADER,
    InferenceServiceSpec,
    Version,
)

JUDGE_ENDING: Final = "-judge"
"""Of the names of what stands beside a service for who judges its canary."""


def judge_name(spec: InferenceServiceSpec) -> str:
    """Of the judge's service account, and of most that stands beside it."""
    return f"{spec.name}{JUDGE_ENDING}"


def judge_labels(spec: InferenceServiceSpec) -> dict[str, str]:
    """Labels that select the judge's pod, and no replica."""
    return {"app.kubernetes.io/name": spec.name, "app.kubernetes.io/component": "judge"}


def watch_name(spec: InferenceServiceSpec) -> str:
    """Of the service account of who watches drift, and of most that stands beside it."""
    return f"{spec.name}{WATCH_ENDING}"


def watch_labels(spec: InferenceServiceSpec) -> dict[str, str]:
    """Labels that select the pod of who watches drift, and no replica."""
    return {"app.kubernetes.io/name": spec.name, "app.kubernetes.io/component": "watch"}


def beside(
    spec: InferenceServiceSpec,
    name: str,
    own: Mapping[str, str],
    more: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Metadata of what stands beside the replicas.

    Args:
        spec: of the service.
        name: the object's.
        own: labels that select who it is for: `judge_labels` or `watch_labels`.
        more: further labels. Default: none.
    """
    found = spec.metadata(name)
    return {**found, "labels": {**found["labels"], **own, **(more or {})}}


def addresses(about: Mapping[str, Any], selector: Mapping[str, str]) -> Manifest:
    """A service whose name has the addresses of all replicas, for who asks each of them."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": dict(about),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "selector": dict(selector),
            "ports": [{"name": "https", "port": PORT, "targetPort": "https", "protocol": "TCP"}],
        },
    }


def isolation(spec: InferenceServiceSpec) -> list[Manifest]:
    """The network policies; in the mesh also strict mutual TLS and who is authorised."""
    found = [_network_policy(spec)]
    if any(caller.namespace == spec.namespace for caller in spec.access.callers):
        found.append(_callers_policy(spec))
    if spec.access.mesh:
        found += [_mutual_tls(spec), _authorisation(spec)]
    return found


def _network_policy(spec: InferenceServiceSpec) -> Manifest:
    access = spec.access
    ports = server_ports(spec)
    spaces = _open_to(spec) | {caller.namespace for caller in access.callers}
    ingress: list[dict[str, Any]] = [
        {"from": [in_namespace(space) for space in sorted(spaces)], "ports": ports}
    ]
    if access.overflow_from:
        ingress.append({"from": [_pods(access.overflow_from)], "ports": ports})
    observers = [judge_labels(spec)] if spec.judge is not None else []
    observers += [watch_labels(spec)] if spec.watch is not None else []
    ingress += [
        {"from": [{"podSelector": {"matchLabels": each}}], "ports": ports} for each in observers
    ]
    if access.mesh:
        ingress.append({"from": [{"ipBlock": {"cidr": PROBES}}], "ports": [_port(PORT)]})
    egress: list[dict[str, Any]] = []
    if spec.overflow is not None:
        egress = [
            resolver_egress(),
            {"to": [_pods(spec.overflow.to)], "ports": ports},
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


def _callers_policy(spec: InferenceServiceSpec) -> Manifest:
    """Lets callers of the service's own namespace out to it: nothing there may get out else.

    Policies know no service accounts, so it is all pods there; whom it answers the server decides.
    """
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": spec.metadata(f"{spec.name}-callers"),
        "spec": {
            "podSelector": {},
            "policyTypes": ["Egress"],
            "egress": [{"to": [_pods(spec.name)], "ports": server_ports(spec)}],
        },
    }


def server_ports(spec: InferenceServiceSpec) -> list[dict[str, Any]]:
    """Ports of the replicas, as policies name them; in the mesh that of its tunnels, too."""
    return [_port(PORT)] + ([_port(HBONE)] if spec.access.mesh else [])


def _open_to(spec: InferenceServiceSpec) -> set[str]:
    """Namespaces that all pods of may connect: of Prometheus and, where there is a route, the
    gateway's proxies."""
    access = spec.access
    routed = set[str]() if access.overflow_from else {access.gateway_namespace}
    return {access.monitoring_namespace} | routed


def _port(number: int, protocol: str = "TCP") -> dict[str, Any]:
    return {"port": number, "protocol": protocol}


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
    if access.overflow_from:
        named.append((spec.namespace, access.service_account))
    if spec.judge is not None:
        named.append((spec.namespace, judge_name(spec)))
    if spec.watch is not None:
        named.append((spec.namespace, watch_name(spec)))
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


def routing(spec: InferenceServiceSpec) -> list[Manifest]:
    """Services, the route through the gateway, and what the gateway checks of the servers.

    A tier that takes overflow has no route: it would be one more for the same path.
    """
    services = [
        _service(spec, spec.name, spec.leading),
        *(_service(spec, spec.of(version), version) for version in spec.versions),
    ]
    return services if spec.access.overflow_from else [*services, _route(spec), _backend_tls(spec)]


def _service(spec: InferenceServiceSpec, name: str, version: Version) -> Manifest:
    """A service inside of the cluster; the one with the service's name is the leading version's.

    Callers in the cluster that want the shares go through the gateway.
    """
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": spec.metadata(name, version),
        "spec": {
            "type": "ClusterIP",
            "selector": spec.selector(version),
            "ports": [
                {
                    "name": "https", "port": PORT, "targetPort": "https", "protocol": "TCP",
                    "appProtocol": "https",
                }
            ],
            # Nearest first, where that doesn't overload a zone: less latency, less to pay.
            "trafficDistribution": "PreferClose",
        },
    }  # fmt: skip


def _route(spec: InferenceServiceSpec) -> Manifest:
    """Requests by header first, the rest by weight; what isn't of the protocol has no route.

    Metrics are for Prometheus alone, which asks the pods.
    """
    access = spec.access
    rules: list[dict[str, Any]] = [
        _rule(
            spec, [(version, 1)],
            [{"type": "Exact", "name": VARIANT_HEADER, "value": version.header}],
        )
        for version in spec.versions
        if version.header
    ]  # fmt: skip
    rules.append(_rule(spec, [(version, version.weight) for version in spec.versions], []))
    return {
        "apiVersion": GATEWAY_API,
        "kind": "HTTPRoute",
        "metadata": spec.metadata(spec.name),
        "spec": {
            "parentRefs": [{"name": access.gateway_name, "namespace": access.gateway_namespace}],
            **({"hostnames": list(access.host_names)} if access.host_names else {}),
            "rules": rules,
        },
    }


def _rule(
    spec: InferenceServiceSpec, shares: list[tuple[Version, int]], headers: list[dict[str, str]]
) -> dict[str, Any]:
    paths = [f"/v2/models/{spec.model}", *(["/v1"] if spec.is_language else [])]
    return {
        "matches": [
            {
                "path": {"type": "PathPrefix", "value": path},
                **({"headers": headers} if headers else {}),
            }
            for path in paths
        ],
        "backendRefs": [
            {"name": spec.of(version), "port": PORT, "weight": weight}
            for version, weight in shares
        ],
    }


def _backend_tls(spec: InferenceServiceSpec) -> Manifest:
    """The gateway speaks TLS with the servers, and knows whose certificates to believe.

    cert-manager writes the authority's certificate beside each one that it issues.
    """
    return {
        "apiVersion": GATEWAY_API,
        "kind": "BackendTLSPolicy",
        "metadata": spec.metadata(spec.name),
        "spec": {
            "targetRefs": [
                {"group": "", "kind": "Service", "name": spec.of(version)}
                for version in spec.versions
            ],
            "validation": {
                # Envoy Gateway takes secrets here, too, which the standard leaves to each.
                "caCertificateRefs": [{"group": "", "kind": "Secret", "name": f"{spec.name}-tls"}],
                "hostname": spec.host,
            },
        },
    }
