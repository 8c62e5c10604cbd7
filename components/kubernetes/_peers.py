"""Peers that network policies of several components name: each address and port stands once."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from falaj.components.catalogue.clusters import NAMESPACE_NAME

#: Ports of API servers: the service's, and its own behind it (clouds have 443, kubeadm 6443).
#: Policies see either, by CNI.
_API_SERVER_PORTS: Final = (443, 6443)
#: Port of the ambient mesh's tunnels: https://istio.io/latest/docs/ambient/architecture/hbone/
HBONE: Final = 15008
#: Whence the ambient mesh lets the kubelet's probes come:
#: https://istio.io/latest/docs/ambient/usage/networkpolicy/
PROBES: Final = "169.254.7.127/32"
#: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html: the agent on each
#: node; the metadata service next to it stays out of reach.
POD_IDENTITY: Final = "169.254.170.23/32"
#: Resolvers on the node itself, which no selector of pods finds, as they are on its network: by
#: https://kubernetes.io/docs/tasks/administer-cluster/nodelocaldns/ and, of AKS' LocalDNS, its
#: listener for pods (localdns.sh of github.com/Azure/AgentBaker). Its listener for nodes,
#: 169.254.10.10, asks the network past the cluster's resolver and its policy. Nobody else is at
#: these addresses, which lead off no node.
_RESOLVERS_ON_NODES: Final = ("169.254.20.10/32", "169.254.10.11/32")


def in_namespace(namespace: str, pods: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The pods of a namespace; those with all the labels ``pods`` where it is given."""
    peer: dict[str, Any] = {"namespaceSelector": {"matchLabels": {NAMESPACE_NAME: namespace}}}
    if pods:
        peer["podSelector"] = {"matchLabels": dict(pods)}
    return peer


def api_server_egress(cidrs: Iterable[str]) -> dict[str, Any]:
    """A way out to an API server that is in these ranges."""
    to = [{"ipBlock": {"cidr": each}} for each in cidrs]
    return {"to": to, "ports": [{"port": port, "protocol": "TCP"} for port in _API_SERVER_PORTS]}


def resolver_egress() -> dict[str, Any]:
    """A way out to the cluster's resolver, and to the node's where there is one."""
    resolver = in_namespace("kube-system", {"k8s-app": "kube-dns"})
    on_nodes = [{"ipBlock": {"cidr": each}} for each in _RESOLVERS_ON_NODES]
    ports = [{"port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return {"to": [resolver, *on_nodes], "ports": ports}
