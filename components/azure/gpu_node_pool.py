"""GPU nodes of an AKS cluster: a machine found by the catalogue, in a pool of its own."""

from collections.abc import Mapping, Sequence

import pulumi
import pulumi_azure_native as azure_native
from pulumi_azure_native import containerservice as aks

from falaj.components.azure import _agent_pool
from falaj.components.azure._agent_pool import ClusterId
from falaj.components.azure._component import component_options
from falaj.components.azure._roles import Grant, grant
from falaj.components.specification.gpu_node_pool import GpuNodePoolArgs, GpuNodePoolSpec, check
from falaj.components.specification.node_pools import NodePool
from falaj.components.specification.property_names import engine_inputs


def proximity_group(
    name: str,
    spec: GpuNodePoolSpec,
    cluster: ClusterId,
    zones: Sequence[str],
    opts: pulumi.ResourceOptions,
) -> pulumi.Output[str] | None:
    """Id of the proximity placement group: made here, given, or none."""
    if spec.args["placement_group"] == "existing":
        return pulumi.Output.from_input(spec.args["placement_group_name"])
    if spec.args["placement_group"] == "none":
        return None
    made = azure_native.compute.ProximityPlacementGroup(
        f"{name}-placement",
        resource_group_name=cluster.group,
        location=spec.placed.region,
        proximity_placement_group_type=(azure_native.compute.ProximityPlacementGroupType.STANDARD),
        # The group looks for a data hall that has the machine, before the first one starts.
        intent=azure_native.compute.ProximityPlacementGroupPropertiesIntentArgs(
            vm_sizes=[spec.machine.name]
        ),
        zones=list(zones) or None,
        tags=spec.placed.tags(name),
        opts=opts,
    )
    return made.id


def admit_cluster(
    name: str,
    cluster: ClusterId,
    places: Mapping[str, pulumi.Input[str] | None],
    parent: pulumi.Resource,
) -> list[pulumi.Resource]:
    """Let the cluster's control plane put machines into groups that aren't its own.

    There is no narrower built-in role that may join either kind of group.

    Args:
        name: of the pool.
        cluster: its cluster.
        places: ids of groups by what they are; those that are None aren't used.
        parent: the pool.
    """
    used = {what: place for what, place in places.items() if place is not None}
    if not used:
        return []
    managed = aks.get_managed_cluster_output(
        resource_group_name=cluster.group,
        resource_name=cluster.name,
        opts=pulumi.InvokeOutputOptions(parent=parent),
    )
    principal = managed.identity.apply(_principal)
    opts = pulumi.ResourceOptions(parent=parent)
    return [
        grant(f"{name}-{what}-right", Grant("Virtual Machine Contributor", place, principal), opts)
        for what, place in used.items()
    ]


def _principal(identity: aks.outputs.ManagedClusterIdentityResponse | None) -> str:
    acting = dict(identity.user_assigned_identities or {}) if identity else {}
    found = [each.principal_id for each in acting.values()]
    if len(found) != 1:
        raise ValueError(
            f"the cluster acts as {len(found)} user-assigned identities; allowed: one, which gets "
            "the right to use placement groups and reservations; make it with Cluster"
        )
    return found[0]


__all__ = ["GpuNodePool", "GpuNodePoolArgs"]

#: Vendor for whose GPUs AKS brings a driver; for AMD's it brings none:
#: https://learn.microsoft.com/azure/aks/use-amd-gpus
_DRIVER_VENDOR = "NVIDIA"
#: Versions of Kubernetes whose nodes have Ubuntu 22.04 where a pool says `Ubuntu`; later ones have
#: 24.04: https://github.com/Azure/AKS/pull/5538
_WITH_UBUNTU_22 = ("1.34",)


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
            "cluster_id": cluster.name_id, "node_subnet_ids": network.node_subnet_ids,
            "node_identity_id": cluster.node_identity_id,
            "security_group_id": network.security_group_ids["nodes"],
            "disk_encryption_id": keys.disk_encryption_id,
            "gpu": "H200", "count": 8, "fabric": "infiniband", "max_nodes": 4,
        })

    Makes: an agent pool, and with ``placement_group: cluster`` a proximity placement group; with a
    group or a reservation also the role assignment that lets the cluster use it. On Azure the
    identity of nodes, the subnet's security group and the disk encryption set are the cluster's:
    ``node_identity_id``, ``security_group_id`` and ``disk_encryption_id`` change nothing here.

    InfiniBand links the nodes of one pool; before the first such pool in a subscription, the
    feature ``AKSInfinibandSupport`` of ``Microsoft.ContainerService`` has to be registered. No
    source says which zones sell which size: unless ``zones`` names them, the region chooses. The
    name ``system`` is the cluster's own pool's, and refused. A change of machine, disk, sharing,
    capacity or zones makes a new pool after the old one is gone, because GPUs for both at once are
    rare.
    """

    def __init__(
        self, name: str, args: GpuNodePoolArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        spec = check("azure", name, args)
        super().__init__(
            "falaj-azure:index:GpuNodePool", name, engine_inputs(args), component_options(opts)
        )
        zones = _agent_pool.used_zones(spec.machine, spec.zones, named=spec.zones_named)
        self.announce(spec)
        if spec.args["fabric"] == "infiniband":
            pulumi.log.warn(infiniband_warning(spec.args["kubernetes_version"]), self)
        cluster = _agent_pool.cluster_of(args["cluster_id"])
        child = pulumi.ResourceOptions(parent=self)
        group = proximity_group(name, spec, cluster, zones, child)
        places = {"placement": group, "reservation": spec.args["reservation_id"]}
        grants = admit_cluster(name, cluster, places, self)
        pool = aks.AgentPool(
            name,
            resource_group_name=cluster.group,
            resource_name_=cluster.name,
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
            upgrade_settings=_agent_pool.upgrades(spec, surge=spec.args["max_surge"], minutes=60),
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


def infiniband_warning(version: str | None) -> str:
    """What InfiniBand needs of the subscription and the nodes, by
    https://azure.github.io/aks-rdma-infiniband. The driver stays AKS's own, with the RDMA of the
    nodes' kernel.

    Args:
        version: of the pool's Kubernetes; None for the cluster's.
    """
    warning = (
        "InfiniBand needs the feature AKSInfinibandSupport of Microsoft.ContainerService, "
        "registered before the pool is made; falaj preflight says whether it is"
    )
    if version not in _WITH_UBUNTU_22:
        return warning
    return (
        f"{warning}. With Kubernetes {version} nodes have Ubuntu 22.04, on which RDMA by the "
        "kernel alone wasn't reported to work: take a later version, which has 24.04"
    )


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
