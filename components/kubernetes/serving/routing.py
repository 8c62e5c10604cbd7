"""How requests reach a version: its service, the names of all of them, and the shares of each."""

from typing import Any

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.serving.specification import (
    PORT,
    VARIANT_HEADER,
    InferenceServiceSpec,
    Version,
)

_GATEWAY_API = "gateway.networking.k8s.io/v1"


def routing(spec: InferenceServiceSpec) -> list[Manifest]:
    """Services, the route through the gateway, and what the gateway checks of the servers.

    A tier that is spilled to has no route: it would be one more for the same path.
    """
    services = [
        _service(spec, spec.name, spec.leading),
        *(_service(spec, spec.of(version), version) for version in spec.versions),
    ]
    return services if spec.access.spilled_from else [*services, _route(spec), _backend_tls(spec)]


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
        "apiVersion": _GATEWAY_API,
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
    path = {"type": "PathPrefix", "value": f"/v2/models/{spec.model}"}
    return {
        "matches": [{"path": path, **({"headers": headers} if headers else {})}],
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
        "apiVersion": _GATEWAY_API,
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
