"""The proxies of a gateway: internal, private, unprivileged, and logging into the cluster.

https://gateway.envoyproxy.io/docs/api/extension_types/
"""

from __future__ import annotations

from typing import Any, Final

from falaj.components.kubernetes._load_balancer import private_load_balancer
from falaj.components.kubernetes._metadata import metadata
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes._placed import REGION_LABEL, ZONE_LABEL
from falaj.components.kubernetes.addons.addon import MESH_ANNOTATIONS, MESH_LABELS, PRIORITY_CLASS
from falaj.components.kubernetes.entrance.specification import GatewaySpec

ENVOY: Final = "gateway.envoyproxy.io/v1alpha1"
GATEWAY: Final = "gateway.networking.k8s.io/v1"
#: User of Envoy's distroless image.
_USER: Final = 65532
#: What is known of a request afterwards; neither its body, its token nor its query, which may
#: hold what was asked about whom.
_LOGGED: Final = {
    "time": "%START_TIME%",
    "method": "%REQ(:METHOD)%",
    "host": "%REQ(:AUTHORITY)%",
    "path": "%REQ_WITHOUT_QUERY(:PATH)%",
    "status": "%RESPONSE_CODE%",
    "flags": "%RESPONSE_FLAGS%",
    "client": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "tls": "%DOWNSTREAM_TLS_VERSION%",
    "received": "%BYTES_RECEIVED%",
    "sent": "%BYTES_SENT%",
    "milliseconds": "%DURATION%",
    "upstream": "%UPSTREAM_CLUSTER%",
    "request_id": "%REQ(X-REQUEST-ID)%",
    "trace": "%TRACE_ID%",
}


def gateway_class(spec: GatewaySpec) -> list[Manifest]:
    """The class, and how proxies of it are made."""
    return [
        {
            "apiVersion": GATEWAY,
            "kind": "GatewayClass",
            "metadata": metadata(spec.placed, spec.name, spec.name),
            "spec": {
                "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
                "parametersRef": {
                    "group": "gateway.envoyproxy.io",
                    "kind": "EnvoyProxy",
                    "name": spec.name,
                    "namespace": spec.namespace,
                },
            },
        },
        {
            "apiVersion": ENVOY,
            "kind": "EnvoyProxy",
            "metadata": metadata(spec.placed, spec.name, spec.name, spec.namespace),
            "spec": {
                "provider": {"type": "Kubernetes", "kubernetes": _kubernetes(spec)},
                "telemetry": {
                    "accessLog": {
                        "settings": [
                            {
                                "format": {"type": "JSON", "json": dict(_LOGGED)},
                                "sinks": [{"type": "File", "file": {"path": "/dev/stdout"}}],
                            }
                        ]
                    },
                    "metrics": {"prometheus": {}},
                },
                "shutdown": {"drainTimeout": "60s"},
            },
        },
    ]


def _kubernetes(spec: GatewaySpec) -> dict[str, Any]:
    fewest, most = spec.replicas
    return {
        "envoyDeployment": {
            "pod": {
                # An identity towards serving pods; clients outside of the mesh are still let in.
                "labels": {**spec.placed.labels(spec.name), **MESH_LABELS},
                "annotations": dict(MESH_ANNOTATIONS),
                "priorityClassName": PRIORITY_CLASS,
                "nodeSelector": spec.placed.node_selector,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": _USER,
                    "runAsGroup": _USER,
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "topologySpreadConstraints": [
                    {
                        "maxSkew": 1,
                        "topologyKey": ZONE_LABEL,
                        "whenUnsatisfiable": "ScheduleAnyway",
                        "labelSelector": {"matchLabels": spec.placed.labels(spec.name)},
                    }
                ],
                **_zones(spec),
            },
            "container": {
                "image": spec.image,
                "resources": {
                    "requests": {"cpu": "500m", "memory": "512Mi"},
                    "limits": {"memory": "1Gi"},
                },
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "runAsNonRoot": True,
                    "capabilities": {"drop": ["ALL"]},
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
            },
        },
        "envoyService": _service(spec),
        "envoyHpa": {
            "minReplicas": fewest,
            "maxReplicas": most,
            "metrics": [
                {
                    "type": "Resource",
                    "resource": {
                        "name": "cpu",
                        "target": {"type": "Utilization", "averageUtilization": 60},
                    },
                }
            ],
        },
        "envoyPDB": {"minAvailable": fewest - 1},
    }


def _zones(spec: GatewaySpec) -> dict[str, Any]:
    """Only nodes of the zones that are allowed, where they are named."""
    if not spec.placed.zones:
        return {}
    terms = [
        {"key": REGION_LABEL, "operator": "In", "values": [spec.placed.region]},
        {"key": ZONE_LABEL, "operator": "In", "values": list(spec.placed.zones)},
    ]
    chosen = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": chosen}}
    }


def _service(spec: GatewaySpec) -> dict[str, Any]:
    balancer = private_load_balancer(
        spec.placed.distribution, spec.allowed_cidrs, address=spec.address, subnet=spec.subnet
    )
    if not balancer.annotations:
        return balancer.fields
    return {**balancer.fields, "annotations": balancer.annotations}
