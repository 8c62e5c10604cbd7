"""A pool of GPU machines in an EKS cluster."""

import pulumi
import pulumi_aws as aws

from falaj.components.aws._component import child, named, token
from falaj.components.aws._node_group import node_group
from falaj.components.specification.gpu_node_pool import GpuNodePoolArgs, GpuNodePoolSpec, check
from falaj.components.specification.node_pools import NodePool
from falaj.components.specification.property_names import engine_inputs

__all__ = ["GpuNodePool", "GpuNodePoolArgs"]


class GpuNodePool(NodePool):
    """A pool of GPU machines: a managed node group that scales from zero.

    ::

        pool = GpuNodePool("h200", {
            "region": "me-central-1", "tenant": "acme", "owner": "ml@acme.example",
            "data_class": "restricted", "cost_center": "ai-42",
            "acknowledge_degraded": "2026-04-30",
            "cluster_id": cluster.cluster_id,
            "node_subnet_ids": network.node_subnet_ids,
            "node_identity_id": cluster.node_identity_id,
            "security_group_id": network.security_group_ids["nodes"],
            "disk_encryption_id": keys.disk_encryption_id,
            "gpu": "H200", "count": 8, "fabric": "efa", "max_nodes": 4,
        }, pulumi.ResourceOptions(providers=[provider]))

    The catalogue finds the machine and the zones that sell it; both and the cost are printed. How
    machines are bought (``capacity``), linked (``fabric``), placed (``placement_group``) and
    divided (``sharing``) are choices of their own: EFA makes no placement group.

    Makes an `ec2.LaunchTemplate` (metadata by IMDSv2 one hop away, encrypted disk, EFA interface
    on each network card, local NVMe as scratch, no SSH key, no public address), an `eks.NodeGroup`
    of Amazon Linux 2023 with NVIDIA's driver, an `autoscaling.Tag` for each label, taint and
    resource, so that the cluster autoscaler can scale up from zero, and for ``placement_group``
    ``cluster`` an `ec2.PlacementGroup`. Pods can't reach the metadata service; they get their
    credentials from Pod Identity.

    Without ``nodes`` the size is ``min_nodes`` at first and then the autoscaler's; with it, each
    change of ``nodes`` is brought about. EKS refuses a ``min_nodes`` above the present size: raise
    ``nodes`` with it. Nothing of a pool is protected: nodes hold no data that has to outlive them.
    """

    def __init__(
        self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("aws", name, args)
        super().__init__(token("GpuNodePool"), name, engine_inputs(args), opts)
        self.announce(spec)
        group = node_group(self, spec, args, self._placement_group(name, spec))
        self.register(spec, spec.zones, group.arn, group.node_group_name)

    def _placement_group(self, name: str, spec: GpuNodePoolSpec) -> pulumi.Input[str] | None:
        if spec.args["placement_group"] == "existing":
            return spec.args["placement_group_name"]
        if spec.args["placement_group"] == "none":
            return None
        group = aws.ec2.PlacementGroup(
            name,
            name=named(spec.placed, name, limit=255),
            strategy="cluster",
            tags=spec.placed.tags(name),
            opts=child(self),
        )
        return group.name
