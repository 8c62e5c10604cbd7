"""GPU nodes of an AKS cluster: a machine found by the catalogue, in a pool of its own."""

import pulumi
from pulumi_azure_native import containerservice as aks

from falaj.components.azure import _agent_pool
from falaj.components.azure._aliases import of_component
from falaj.components.azure._placement import admit_cluster, proximity_group
from falaj.components.specification.gpu_node_pool import GpuNodePoolArgs, GpuNodePoolSpec, check
from falaj.components.specification.node_pools import NodePool
from falaj.components.specification.property_names import engine_inputs

__all__ = ["GpuNodePool", "GpuNodePoolArgs"]

#: Vendor for whose GPUs AKS brings a driver; for AMD's it brings none:
#: https://learn.microsoft.com/azure/aks/use-amd-gpus
_DRIVER_VENDOR = "NVIDIA"


class GpuNodePool(NodePool):
    """GPU nodes of an AKS cluster.

    The catalogue finds the cheapest size that has the GPUs; how it is bought (``capacity``),
    linked (``fabric``), placed (``placement_group``) and shared (``sharing``) are choices of their
    own. The autoscaler starts nodes for waiting pods, from ``min_nodes`` (0 by default), and ends
    those that are idle. AKS installs NVIDIA's driver and divides GPUs with MIG; the GPU operator
    has to leave both alone (``driver.enabled: false``, ``migManager.enabled: false``).

    Example::

        pool = GpuNodePool("h200", {
            "region": "uaenorth", "tenant": "acme", "owner": "platform@acme.ae",
            "data_class": "confidential", "cost_center": "4711",
            "cluster_id": cluster.cluster_id, "node_subnet_ids": network.node_subnet_ids,
            "node_identity_id": cluster.node_identity_id,
            "security_group_id": network.security_group_ids["nodes"],
            "disk_encryption_id": keys.disk_encryption_id,
            "gpu": "H200", "count": 8, "fabric": "infiniband", "max_nodes": 4,
        })

    Makes: an agent pool, and with ``placement_group: cluster`` a proximity placement group; with a
    group or a reservation also the role assignment that lets the cluster use it. On Azure the
    identity of nodes, the subnet's security group and the disk encryption set are the cluster's:
    ``node_identity_id``, ``security_group_id`` and ``disk_encryption_id`` change nothing here.

    InfiniBand links the nodes of one pool. No source says which zones sell which size: unless
    ``zones`` names them, the region chooses. The name ``system`` is the cluster's own pool's, and
    refused. A change of machine, disk, sharing, capacity or zones makes a new pool after the old
    one is gone, because GPUs for both at once are rare.
    """

    def __init__(
        self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:GpuNodePool", name, engine_inputs(args), of_component(opts)
        )
        zones = _agent_pool.used_zones(spec.machine, spec.zones, named=spec.zones_named)
        self.announce(spec)
        home = _agent_pool.home_of(args["cluster_id"])
        child = pulumi.ResourceOptions(parent=self)
        group = proximity_group(name, spec, home, zones, child)
        places = {"placement": group, "reservation": spec.args["reservation_id"]}
        grants = admit_cluster(name, home, places, self)
        pool = aks.AgentPool(
            name,
            resource_group_name=home.group,
            resource_name_=home.cluster,
            agent_pool_name=_agent_pool.pool_name(name),
            mode=aks.AgentPoolMode.USER,
            vm_size=spec.machine.name,
            vnet_subnet_id=_agent_pool.pool_subnet(
                args, spec.zones, f"GpuNodePool {name!r}", named=spec.zones_named
            ),
            availability_zones=list(zones) or None,
            orchestrator_version=spec.args["kubernetes_version"],
            node_labels=node_labels(spec),
            node_taints=_agent_pool.taint_texts(spec.taints, spec.capacity),
            gpu_profile=aks.GPUProfileArgs(driver=driver(spec)),
            gpu_instance_profile=mig_size(spec),
            capacity_reservation_group_id=spec.args["reservation_id"],
            proximity_placement_group_id=group,
            kubelet_config=_affinity(spec),
            security_profile=aks.AgentPoolSecurityProfileArgs(
                ssh_access=aks.AgentPoolSSHAccess.DISABLED
            ),
            upgrade_settings=_agent_pool.upgrades(spec, surging=False),
            tags=spec.placed.tags(name),
            **_agent_pool.hardened(),
            **_agent_pool.scaling(spec.size),
            **_agent_pool.priority(spec.capacity),
            **_agent_pool.disk(spec.machine, spec.args["disk_gib"]),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=grants,
                delete_before_replace=True,
                ignore_changes=_agent_pool.unmanaged(spec),
            ),
        )
        self.register(spec, zones, pool.id, pool.name)


def mig_size(spec: GpuNodePoolSpec) -> str | None:
    """What AKS divides each GPU into: it knows profiles by their compute slices alone."""
    profile = spec.sharing.mig_profile
    return f"MIG{profile.partition('.')[0]}" if profile else None


def node_labels(spec: GpuNodePoolSpec) -> dict[str, str]:
    """Labels of the nodes; for time slices also the one that the device plugin looks at. MIG is
    AKS's own work and asks nothing of the operator."""
    if spec.sharing.kind == "time-slicing":
        return {**spec.labels, **spec.sharing.operator_labels}
    return spec.labels


def driver(spec: GpuNodePoolSpec) -> aks.GPUDriver:
    """Whether AKS installs the driver. It does for NVIDIA, so that AKS's own checks of GPUs run,
    which don't on nodes whose driver comes from the operator:
    https://learn.microsoft.com/azure/aks/gpu-health-monitoring"""
    vendor = spec.machine.gpu.vendor if spec.machine.gpu else ""
    return aks.GPUDriver.INSTALL if vendor == _DRIVER_VENDOR else aks.GPUDriver.NONE


def _affinity(spec: GpuNodePoolSpec) -> aks.KubeletConfigArgs | None:
    """Whole CPUs near the GPUs and network cards of a pod, where nodes train together."""
    if spec.args["fabric"] != "infiniband":
        return None
    return aks.KubeletConfigArgs(
        cpu_manager_policy="static", topology_manager_policy="best-effort"
    )
