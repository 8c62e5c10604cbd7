"""The resolver of a cluster with real machines: CoreDNS in a pod, as clusters by kubeadm have it.

https://kubernetes.io/docs/tasks/administer-cluster/coredns/. It answers names of the cluster and
that of the registry beside it; what else there is, nobody knows here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from falaj.engine.controlplane.processes import CLUSTER_DOMAIN, RESOLVER

NAME: Final = "coredns"
_NAMESPACE: Final = "kube-system"
_LABELS: Final = {"k8s-app": "kube-dns"}


def _configuration(hosts: Mapping[str, str]) -> str:
    known = "\n".join(f"        {address} {name}" for name, address in hosts.items())
    return f"""\
.:53 {{
    errors
    health {{
        lameduck 1s
    }}
    ready
    hosts {{
{known}
        fallthrough
    }}
    kubernetes {CLUSTER_DOMAIN} in-addr.arpa ip6.arpa {{
        pods insecure
        ttl 5
    }}
    prometheus :9153
    loop
    reload 2s 1s
    loadbalance
}}
"""


def manifests(image: str, hosts: Mapping[str, str]) -> list[dict[str, Any]]:
    """The resolver's objects.

    Args:
        image: of CoreDNS, whose program is ``/coredns``.
        hosts: addresses of further names that it knows.
    """
    about = {"name": NAME, "namespace": _NAMESPACE}
    group = "rbac.authorization.k8s.io"
    ports = [
        {"name": "dns", "containerPort": 53, "protocol": "UDP"},
        {"name": "dns-tcp", "containerPort": 53, "protocol": "TCP"},
        {"name": "metrics", "containerPort": 9153, "protocol": "TCP"},
    ]
    container = {
        "name": NAME,
        "image": image,
        "args": ["-conf", "/etc/coredns/Corefile"],
        "ports": ports,
        "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns", "readOnly": True}],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "livenessProbe": {"httpGet": {"path": "/health", "port": 8080}, "failureThreshold": 5},
        "resources": {"requests": {"cpu": "50m", "memory": "70Mi"}, "limits": {"memory": "170Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
        },
    }
    pod = {
        "serviceAccountName": NAME,
        "priorityClassName": "system-cluster-critical",
        "dnsPolicy": "Default",
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "config", "configMap": {"name": NAME}}],
    }
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about},
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"system:{NAME}"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["endpoints", "services", "pods", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["list", "watch"],
                },
            ],
        },
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": f"system:{NAME}"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": f"system:{NAME}"},
            "subjects": [{"kind": "ServiceAccount", **about}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": about,
            "data": {"Corefile": _configuration(hosts)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {**about, "labels": _LABELS},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": _LABELS},
                "template": {"metadata": {"labels": _LABELS}, "spec": pod},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": _NAMESPACE, "labels": _LABELS},
            "spec": {
                "selector": _LABELS,
                "clusterIP": RESOLVER,
                "ports": [
                    {"name": each["name"], "port": each["containerPort"],
                     "protocol": each["protocol"]}
                    for each in ports
                ],
            },
        },
    ]  # fmt: skip
