"""Istio without sidecars, for namespaces that serve: identities, mutual TLS, who may call whom.

Training stays out of it: rendezvous and collectives hang behind its proxies (nccl issue 1638,
kubeflow/trainer issue 1636).

Values: https://github.com/istio/istio/tree/1.30.3/manifests/charts
"""

from __future__ import annotations

from typing import Final, TypedDict

from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.addons.addon import (
    PRIORITY_CLASS,
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Scrape,
    Traffic,
    Values,
    resources,
)
from falaj.components.specification.called_ports import ISTIOD

_NAMESPACE: Final = "istio-system"
_NODES: Final = "istio-nodes"


class IstioOptions(TypedDict):
    """``istio`` has no options: namespaces join the mesh by their label."""


def _values(spec: PlatformSpec) -> dict[str, Values]:
    common: Values = {
        "istioNamespace": _NAMESPACE,
        # A whole reference in `image` goes before hub and tag, which name no registry abroad.
        "hub": spec.placed.registry,
        "tag": "",
        "imagePullPolicy": "IfNotPresent",
    }
    node_pods: Values = {"tolerations": [{"operator": "Exists"}]}
    return {
        "istio-base": {"profile": "ambient", "global": {"istioNamespace": _NAMESPACE}},
        "istiod": {
            "profile": "ambient",
            "global": {
                **common,
                "priorityClassName": PRIORITY_CLASS,
                "proxy": {"image": spec.images["istio-proxy"]},
                "proxy_init": {"image": spec.images["istio-proxy"]},
            },
            "image": spec.images["istio-pilot"],
            "autoscaleMin": 2,
            "nodeSelector": spec.node_selector,
            "resources": resources("500m", "2Gi"),
            "seccompProfile": {"type": "RuntimeDefault"},
            "trustedZtunnelNamespace": _NODES,
            "meshConfig": {
                # Nothing leaves the mesh for a host that no ServiceEntry names.
                "outboundTrafficPolicy": {"mode": "REGISTRY_ONLY"},
                "accessLogFile": "/dev/stdout",
            },
        },
        "istio-cni": {
            "profile": "ambient",
            "global": common,
            "image": spec.images["istio-cni"],
            "ambient": {"enabled": True},
            "nodeSelector": spec.node_selector,
            "resources": resources("50m", "128Mi"),
            **node_pods,
        },
        "ztunnel": {
            "profile": "ambient",
            "global": common,
            "image": spec.images["istio-ztunnel"],
            "istioNamespace": _NAMESPACE,
            "nodeSelector": spec.node_selector,
            "resources": resources("200m", "512Mi"),
            **node_pods,
        },
    }


def _strict(spec: PlatformSpec) -> list[Manifest]:
    """Mutual TLS in the whole mesh: in the root namespace this holds for every other."""
    return [
        {
            "apiVersion": "security.istio.io/v1",
            "kind": "PeerAuthentication",
            "metadata": spec.metadata("strict", _NAMESPACE),
            "spec": {"mtls": {"mode": "STRICT"}},
        }
    ]


ISTIO: Final = Addon(
    name="istio",
    summary="mutual TLS between what serves, without sidecars",
    namespaces=(
        Namespace(_NAMESPACE),
        Namespace(_NODES, "privileged", "network namespaces of pods, from the host"),
    ),
    releases=(
        Release("istio-base", "istio-base", _NAMESPACE),
        Release("istiod", "istiod", _NAMESPACE),
        Release("istio-cni", "istio-cni", _NODES),
        Release("ztunnel", "ztunnel", _NODES),
    ),
    options=IstioOptions,
    images=lambda spec: ("istio-pilot", "istio-proxy", "istio-cni", "istio-ztunnel"),
    values=_values,
    traffic=lambda spec: {
        _NAMESPACE: Traffic(
            webhooks=(ISTIOD,), scrapes=(15014,), callers={_NODES: (15012,), "*": (15012,)}
        ),
        # Tunnels start and end in the pods' own network namespaces.
        _NODES: Traffic(scrapes=(15020, 15014), calls={_NAMESPACE: (15012,)}),
    },
    scrapes=(
        Scrape(_NAMESPACE, {"app": "istiod"}, 15014),
        Scrape(_NODES, {"app": "ztunnel"}, 15020),
    ),
    after=_strict,
    follows=("cert-manager",),
)
