"""NVIDIA's network operator: InfiniBand and RoCE devices as resources of pods.

Values: https://github.com/Mellanox/network-operator/blob/v26.4.1/deployment/network-operator/values.yaml
"""

from __future__ import annotations

import json
from typing import Annotated, Final, NotRequired, TypedDict

from falaj.components.catalogue.clusters import GPU_TAINT
from falaj.components.kubernetes._objects import Manifest
from falaj.components.kubernetes.addons.addon import (
    Addon,
    Namespace,
    PlatformSpec,
    Release,
    Traffic,
    Values,
    resources,
)
from falaj.components.specification.arguments import Default
from falaj.components.specification.described import described
from falaj.components.specification.limits import Between
from falaj.components.specification.node_pools import FABRIC

_NAMESPACE: Final = "network-operator"
#: PCI vendor of Mellanox: https://pci-ids.ucw.cz/read/PC/15b3
_VENDOR: Final = "15b3"


@described
class NetworkOperatorOptions(TypedDict):
    """Options of ``network-operator``."""

    shares: NotRequired[Annotated[int, Between(1, 1000), Default(63)]]
    """Pods that may use a node's RDMA devices at a time."""


def _values(spec: PlatformSpec) -> dict[str, Values]:
    registry, _, name = spec.repository("network-operator").rpartition("/")
    return {
        "network-operator": {
            # The GPU operator brings node feature discovery.
            "nfd": {"enabled": False, "deployNodeFeatureRules": True},
            # A hook, which isn't run: definitions come with the chart.
            "upgradeCRDs": False,
            "sriovNetworkOperator": {"enabled": False},
            "nicConfigurationOperator": {"enabled": False},
            "maintenanceOperator": {"enabled": False},
            "operator": {
                "repository": registry,
                "image": name,
                "tag": spec.tag("network-operator"),
                "nodeSelector": spec.node_selector,
                "resources": resources("50m", "256Mi"),
                "admissionController": {"enabled": False},
                # For drivers from containers; nodes' images have theirs.
                "ofedDriver": {"initContainer": {"enable": False}},
            },
        }
    }


def _policy(spec: PlatformSpec) -> list[Manifest]:
    """RDMA devices of nodes with InfiniBand, shared by the pods of a node.

    They are called ``rdma/ib``, as SR-IOV plugins call theirs, so that a job asks for the same on
    every cluster: https://github.com/Azure/aks-rdma-infiniband
    """
    registry, _, name = spec.repository("rdma-device-plugin").rpartition("/")
    shares = spec.options("network-operator")["shares"]
    pool = {"resourceName": "ib", "rdmaHcaMax": shares, "selectors": {"vendors": [_VENDOR]}}
    on_fabric = {"key": FABRIC, "operator": "In", "values": ["infiniband"]}
    return [
        {
            "apiVersion": "mellanox.com/v1alpha1",
            "kind": "NicClusterPolicy",
            "metadata": spec.metadata("nic-cluster-policy"),
            "spec": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [on_fabric]}]
                    }
                },
                "tolerations": [{"key": GPU_TAINT, "operator": "Exists"}],
                "rdmaSharedDevicePlugin": {
                    "repository": registry,
                    "image": name,
                    "version": spec.tag("rdma-device-plugin"),
                    "config": json.dumps({"configList": [pool]}, sort_keys=True),
                },
            },
        }
    ]


NETWORK_OPERATOR: Final = Addon(
    name="network-operator",
    summary="InfiniBand and RoCE devices as resources of pods",
    namespaces=(Namespace(_NAMESPACE, "privileged", "devices and sockets of the kubelet"),),
    releases=(Release("network-operator", "network-operator", _NAMESPACE),),
    options=NetworkOperatorOptions,
    images=lambda spec: ("network-operator", "rdma-device-plugin"),
    values=_values,
    traffic=lambda spec: {_NAMESPACE: Traffic(scrapes=(8080,))},
    after=_policy,
    needs=("gpu-operator",),
    distributions=("aks", "existing"),
    default=False,
)
