"""User data of EKS nodes: a `NodeConfig` that EKS merges with its own."""

from __future__ import annotations

import base64
from typing import Any

import yaml

from falaj.components import catalogue

_BOUNDARY = "falaj-node-config"
_MEDIA_TYPE = "application/node.eks.aws"


def node_config(machine: catalogue.MachineType) -> dict[str, Any] | None:
    """What a node of this machine needs beyond EKS's own; None where that is nothing.

    Labels and taints are the node group's, so that autoscalers can read them before there is a
    node. API: awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/
    """
    spec: dict[str, Any] = {}
    if machine.local_nvme_gb:
        # Kubelet, containerd and so every pod's emptyDir lie on the local disks: scratch space
        # that ends with the machine. Instance stores are encrypted by their hardware.
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    if machine.gpu is not None:
        # GPU, network card and CPUs of one socket where that is possible, and never a pod that
        # doesn't start because it isn't.
        spec["kubelet"] = {"config": {"topologyManagerPolicy": "best-effort"}}
    if not spec:
        return None
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}


def user_data(machine: catalogue.MachineType) -> str | None:
    """The launch template's user data in base64: MIME with one part, as EKS asks for.

    Source: docs.aws.amazon.com/eks/latest/userguide/launch-templates.html
    """
    config = node_config(machine)
    if config is None:
        return None
    lines = [
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{_BOUNDARY}"',
        "",
        f"--{_BOUNDARY}",
        f"Content-Type: {_MEDIA_TYPE}",
        "",
        yaml.safe_dump(config, sort_keys=False).rstrip("\n"),
        f"--{_BOUNDARY}--",
        "",
    ]
    return base64.b64encode("\n".join(lines).encode()).decode()
