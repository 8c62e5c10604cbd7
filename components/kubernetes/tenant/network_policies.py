"""Who may talk to whom: nobody, but for what is named here.

Namespaces deny both ways at first. Tenants can't change these policies: no role may write them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from falaj.components.kubernetes._objects import Manifest, metadata
from falaj.components.kubernetes._placed import InCluster

_NAME: Final = "kubernetes.io/metadata.name"
#: Set by JobSet on the pods of each job, and by Falaj on pods that find each other otherwise.
JOB_LABELS: Final = ("jobset.sigs.k8s.io/jobset-name",)
#: https://istio.io/latest/docs/ambient/usage/networkpolicy/: tunnels of the mesh, and the address
#: that probes of the kubelet come from, as pods in the mesh see them.
HBONE: Final = 15008
_PROBES: Final = "169.254.7.127/32"
#: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-how-it-works.html: the agent on each
#: node; the metadata service next to it stays out of reach.
_POD_IDENTITY: Final = "169.254.170.23/32"
#: gRPC and HTTP of OTLP: https://opentelemetry.io/docs/specs/otlp/
_OTLP: Final = (4317, 4318)
_TCP: Final = "TCP"


@dataclass(frozen=True)
class Egress:
    """A way out that was named."""

    name: str
    cidrs: tuple[str, ...]
    ports: tuple[int, ...]
    protocol: str
    purposes: tuple[str, ...]
    reason: str
    """Why public addresses are in the country; empty for private ones."""


def network_policies(
    placed: InCluster,
    component: str,
    namespace: str,
    of: str,
    *,
    egress: Sequence[Egress],
    serving_ports: Sequence[int],
    monitoring: str,
    gateway: str,
) -> list[Manifest]:
    """Network policies of a namespace for ``training`` or ``serving``.

    Args:
        placed: the tenant.
        component: name of the component.
        namespace: where they are.
        of: what the namespace is for.
        egress: ways out that were named.
        serving_ports: ports of pods that the gateway may reach.
        monitoring: namespace of Prometheus and the collector of traces.
        gateway: namespace of the gateway's proxies.
    """

    def policy(
        name: str,
        *,
        pods: Mapping[str, Any] | None = None,
        ingress: Sequence[Mapping[str, Any]] | None = None,
        egress: Sequence[Mapping[str, Any]] | None = None,
        note: str = "",
    ) -> Manifest:
        spec: dict[str, Any] = {"podSelector": dict(pods or {}), "policyTypes": []}
        for key, rules in (("ingress", ingress), ("egress", egress)):
            if rules is not None:
                spec["policyTypes"].append(key.capitalize())
                if rules:
                    spec[key] = list(rules)
        notes = {"falaj.io/reason": note} if note else {}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": metadata(placed, component, name, namespace, annotations=notes),
            "spec": spec,
        }

    names = {
        "to": [_peer("kube-system", {"k8s-app": "kube-dns"})],
        "ports": _ports(53, "UDP", _TCP),
    }
    scrape = {
        "from": [_peer(monitoring, {"app.kubernetes.io/name": "prometheus"})],
        "ports": [{"port": "metrics", "protocol": _TCP}],
    }
    found = [
        policy("default-deny", ingress=(), egress=()),
        policy("allow-names", egress=[names]),
        policy("allow-scrapes", ingress=[scrape]),
        policy(
            "allow-telemetry",
            egress=[{"to": [_peer(monitoring)], "ports": [*_ports(_OTLP[0]), *_ports(_OTLP[1])]}],
        ),
    ]
    if placed.distribution == "eks":
        agent = {"to": [{"ipBlock": {"cidr": _POD_IDENTITY}}], "ports": _ports(80)}
        found.append(policy("allow-pod-identity", egress=[agent]))
    if of == "training":
        members = {"matchExpressions": [{"key": JOB_LABELS[0], "operator": "Exists"}]}
        found.append(
            policy(
                "allow-jobs",
                pods=members,
                ingress=[{"from": [{"podSelector": members}]}],
                egress=[{"to": [{"podSelector": members}]}],
            )
        )
    else:
        ports = [each for port in (*serving_ports, HBONE) for each in _ports(port)]
        tunnel = {"from": [{"podSelector": {}}, _peer(monitoring)], "ports": _ports(HBONE)}
        probes = {"from": [{"ipBlock": {"cidr": _PROBES}}]}
        found += [
            policy("allow-gateway", ingress=[{"from": [_peer(gateway)], "ports": ports}]),
            policy(
                "allow-mesh",
                ingress=[tunnel, probes],
                egress=[{"to": [{"podSelector": {}}], "ports": _ports(HBONE)}],
            ),
        ]
    for each in egress:
        if of in each.purposes:
            to = [{"ipBlock": {"cidr": cidr}} for cidr in each.cidrs]
            ports = [one for port in each.ports for one in _ports(port, each.protocol)]
            found.append(
                policy(f"allow-{each.name}", egress=[{"to": to, "ports": ports}], note=each.reason)
            )
    return found


def _peer(namespace: str, pods: Mapping[str, str] | None = None) -> dict[str, Any]:
    peer: dict[str, Any] = {"namespaceSelector": {"matchLabels": {_NAME: namespace}}}
    if pods:
        peer["podSelector"] = {"matchLabels": dict(pods)}
    return peer


def _ports(port: int, *protocols: str) -> list[dict[str, Any]]:
    return [{"port": port, "protocol": each} for each in protocols or (_TCP,)]
