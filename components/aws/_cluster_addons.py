"""Add-ons that EKS installs and patches; their images come from the region's own registry."""

from __future__ import annotations

import json
from typing import Any

import pulumi
import pulumi_aws as aws

from falaj.components.aws._cluster_roles import ClusterRoles
from falaj.components.aws._component import child
from falaj.components.specification.cluster import ClusterSpec

#: What has to wait for the first nodes: until there are some, EKS calls these degraded.
_NEEDS_NODES = ("coredns", "aws-ebs-csi-driver")
_PLAIN = ("kube-proxy", "eks-pod-identity-agent", "eks-node-monitoring-agent", "coredns")
_PATIENCE = pulumi.CustomTimeouts(create="60m", update="60m")


def network_plugin_settings(*, strict: bool) -> dict[str, Any]:
    """Settings of the network plugin: enforces network policies; a prefix of addresses at once.

    ``strict`` denies everything from a pod's first packet on, the cluster's own pods included:
    docs.aws.amazon.com/eks/latest/userguide/cni-network-policy-configure.html
    """
    return {
        "enableNetworkPolicy": "true",
        "env": {
            "ENABLE_PREFIX_DELEGATION": "true",
            "NETWORK_POLICY_ENFORCING_MODE": "strict" if strict else "standard",
            "WARM_PREFIX_TARGET": "1",
        },
    }


def install(
    parent: pulumi.Resource,
    spec: ClusterSpec,
    cluster: aws.eks.Cluster,
    roles: ClusterRoles,
    disk_key_id: pulumi.Input[str],
) -> None:
    """Install the add-ons.

    They are on nobody's way: node pools of the same program are made meanwhile, and the add-ons
    that need nodes come up with them.
    """

    def addon(name: str, **settings: Any) -> None:
        aws.eks.Addon(
            f"{spec.name}-{name}",
            cluster_name=cluster.name,
            addon_name=name,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            tags=spec.placed.tags(spec.name),
            opts=child(parent, custom_timeouts=_PATIENCE if name in _NEEDS_NODES else None),
            **settings,
        )

    for name in _PLAIN:
        addon(name)
    addon(
        "vpc-cni",
        configuration_values=json.dumps(
            network_plugin_settings(strict=spec.strict_network_policy)
        ),
        pod_identity_associations=[
            aws.eks.AddonPodIdentityAssociationArgs(
                role_arn=roles.network_plugin(), service_account="aws-node"
            )
        ],
    )
    addon(
        "aws-ebs-csi-driver",
        pod_identity_associations=[
            aws.eks.AddonPodIdentityAssociationArgs(
                role_arn=roles.disk_driver(disk_key_id), service_account="ebs-csi-controller-sa"
            )
        ],
    )
