"""CPU nodes of an AKS cluster, by what their processors can do."""

import pulumi
from pulumi_azure_native import containerservice as aks

from falaj.components.azure import _agent_pool
from falaj.components.azure._component import component_options
from falaj.components.specification.cpu_node_pool import CpuNodePoolArgs, CpuNodePoolSpec, check
from falaj.components.specification.node_pools import AKS_SURGE_PERCENT, NodePool
from falaj.components.specification.property_names import engine_inputs

__all__ = ["CpuNodePool", "CpuNodePoolArgs"]


class CpuNodePool(NodePool):
    """CPU nodes of an AKS cluster.

    The catalogue finds the cheapest size with the processors asked for: Intel with AMX, anything
    with VNNI, or Arm (Cobalt) with i8mm.

    Example::

        pool = CpuNodePool("general", {
            "region": "uaenorth", "tenant": "acme", "owner": "platform@acme.ae",
            "data_class": "confidential", "cost_center": "4711",
            "cluster_id": cluster.name_id, "node_subnet_ids": network.node_subnet_ids,
            "node_identity_id": cluster.node_identity_id,
            "security_group_id": network.security_group_ids["nodes"],
            "disk_encryption_id": keys.disk_encryption_id,
            "vcpu": 8, "int8": "amx", "max_nodes": 10,
        })

    Makes: an agent pool. With ``system`` it carries the cluster's own add-ons beside the cluster's
    system nodes. On Azure the identity of nodes, the subnet's security group and the disk
    encryption set are the cluster's: ``node_identity_id``, ``security_group_id`` and
    ``disk_encryption_id`` change nothing here. No source says which zones sell which size: unless
    ``zones`` names them, the region chooses. The name ``system`` is the cluster's own pool's, and
    refused. A change of machine, disk, capacity or zones replaces the pool, the old one first.
    """

    def __init__(
        self, name: str, args: CpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:CpuNodePool", name, engine_inputs(args), component_options(opts)
        )
        zones = _agent_pool.used_zones(spec.machine, spec.zones, named=spec.zones_named)
        self.announce(spec)
        cluster = _agent_pool.cluster_of(args["cluster_id"])
        pool = aks.AgentPool(
            name,
            resource_group_name=cluster.group,
            resource_name_=cluster.name,
            agent_pool_name=_agent_pool.pool_name(name),
            mode=aks.AgentPoolMode.SYSTEM if spec.args["system"] else aks.AgentPoolMode.USER,
            vm_size=spec.machine.name,
            vnet_subnet_id=_agent_pool.pool_subnet(
                args, spec.zones, f"CpuNodePool {name!r}", named=spec.zones_named
            ),
            availability_zones=list(zones) or None,
            orchestrator_version=spec.args["kubernetes_version"],
            node_labels=spec.labels,
            node_taints=_agent_pool.taint_texts(spec.taints, spec.capacity),
            security_profile=_security(spec),
            upgrade_settings=_agent_pool.upgrades(
                spec, surge=spec.args["max_unavailable"] or f"{AKS_SURGE_PERCENT}%", minutes=30
            ),
            tags=spec.placed.tags(name),
            **_agent_pool.hardened(),
            **_agent_pool.scaling(spec.size),
            **_agent_pool.priority(spec.capacity),
            **_agent_pool.disk(spec.machine, spec.args["disk_gib"]),
            opts=pulumi.ResourceOptions(
                parent=self,
                delete_before_replace=True,
                ignore_changes=_agent_pool.unmanaged(spec),
            ),
        )
        self.register(spec, zones, pool.id, pool.name)


def _security(spec: CpuNodePoolSpec) -> aks.AgentPoolSecurityProfileArgs:
    # Trusted Launch, which Arm nodes of AKS don't have:
    # https://learn.microsoft.com/azure/aks/use-trusted-launch
    trusted = spec.machine.arch == "x86_64"
    return aks.AgentPoolSecurityProfileArgs(
        ssh_access=aks.AgentPoolSSHAccess.DISABLED,
        enable_secure_boot=trusted,
        enable_vtpm=trusted,
    )
