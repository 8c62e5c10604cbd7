"""A pool of CPU machines in an EKS cluster."""

import pulumi

from falaj.components.aws._component import token
from falaj.components.aws._node_group import node_group
from falaj.components.specification.cpu_node_pool import CpuNodePoolArgs, check
from falaj.components.specification.node_pools import NodePool
from falaj.components.specification.property_names import engine_inputs

__all__ = ["CpuNodePool", "CpuNodePoolArgs"]


class CpuNodePool(NodePool):
    """A pool of CPU machines, x86_64 or Graviton: a managed node group.

    ::

        pool = CpuNodePool("system", {
            "region": "me-central-1", "tenant": "acme", "owner": "ml@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "cluster_id": cluster.cluster_id,
            "node_subnet_ids": network.node_subnet_ids,
            "node_identity_id": cluster.node_identity_id,
            "security_group_id": network.security_group_ids["nodes"],
            "disk_encryption_id": keys.disk_encryption_id,
            "vcpu": 4, "memory_gib": 16, "system": True,
        }, pulumi.ResourceOptions(providers=[provider]))

    The catalogue finds the cheapest machine and the zones that sell it; both and the cost are
    printed. Makes an `ec2.LaunchTemplate` (metadata by IMDSv2 one hop away, encrypted disk, no SSH
    key, no public address), an `eks.NodeGroup` of Amazon Linux 2023, and an `autoscaling.Tag` for
    each label and taint. A pool with ``system`` has the label ``falaj.io/system=true``.

    Without ``nodes`` the size is ``min_nodes`` at first and then the autoscaler's; with it, each
    change of ``nodes`` is brought about. EKS refuses a ``min_nodes`` above the present size: raise
    ``nodes`` with it. Nothing of a pool is protected: nodes hold no data that has to outlive them.
    """

    def __init__(
        self, name: str, args: CpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("CpuNodePool"), name, engine_inputs(args), opts)
        self.announce(spec)
        group = node_group(self, spec, args)
        self.register(spec, spec.zones, group.arn, group.node_group_name)
