"""GPU pools of AKS: impossible combinations, every argument, every GPU that Azure sells here."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest
from pulumi_azure_native import compute

from falaj.components import catalogue
from falaj.components.azure import Cluster, GpuNodePool
from falaj.components.azure._agent_pool import POOL_NAME_LIMIT, disk, pool_name, used_zones
from falaj.components.azure.gpu_node_pool import infiniband_warning
from tests.components.azure.compute_foundation import ZONES, Foundation, foundation
from tests.components.azure.conftest import PLACED, Deployed
from tests.components.azure.conftest import deploy as deploy_now

BASE = "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/acme-base/providers"
CLUSTER = f"{BASE}/Microsoft.ContainerService/managedClusters/ai"
RESERVATION = f"{BASE}/Microsoft.Compute/capacityReservationGroups/h200"
PLACEMENT = f"{BASE}/Microsoft.Compute/proximityPlacementGroups/near"
PLAIN: dict[str, Any] = {
    **PLACED,
    "cluster_id": CLUSTER,
    "node_subnet_ids": dict.fromkeys(ZONES, "nodes"),
    "node_identity_id": "kubelet",
    "security_group_id": "rules",
    "disk_encryption_id": "disks",
    "gpu": "H200",
    "count": 8,
}
UAENORTH = catalogue.place("azure", "uaenorth")
ROWS = [(m, m.name) for m in UAENORTH.machines("gpu") if m.gpu and not m.caution]


def pools(wanted: dict[str, dict[str, Any]]) -> Deployed:
    """Make a cluster and pools in it, by name."""

    def program(opts: pulumi.ResourceOptions) -> Cluster:
        base: Foundation = foundation(opts)
        args: Any = base.cluster_args()
        cluster = Cluster("ai", args, opts)
        for name, changes in wanted.items():
            pool: Any = base.pool_args(cluster, **changes)
            GpuNodePool(name, pool, opts)
        return cluster

    return deploy_now(program)


@pytest.fixture(scope="module", name="several")
def _several() -> Deployed:
    return pools(
        {
            "training": {
                "gpu": "H200",
                "count": 8,
                "fabric": "infiniband",
                "placement_group": "cluster",
                "max_nodes": 4,
                "max_unavailable": 2,
            },
            "slices": {"gpu": "A10", "count": 1 / 6, "capacity": "spot", "max_nodes": 9},
            "mig": {
                "gpu": "H100",
                "count": 1,
                "sharing": "mig-2g.24gb",
                "zones": ["2"],
                "min_nodes": 1,
                "max_nodes": 1,
                "disk_gib": 512,
                "labels": {"team": "vision"},
                "taints": ["team=vision:NoExecute"],
                "kubernetes_version": "1.34",
                "data_class": "restricted",
            },
            "timeslices": {
                "gpu": "A10",
                "count": 1,
                "sharing": "time-slicing",
                "time_slices": 8,
                "min_nodes": 0,
                "max_nodes": 6,
                "nodes": 2,
            },
            "amd": {"gpu": "MI300X", "count": 8, "max_surge": 3},
        }
    )


def inputs(made: Deployed, name: str) -> Any:
    """What was asked of AKS for a pool."""
    (found,) = [each for each in made.of_type("containerservice:AgentPool") if each.name == name]
    return found.inputs


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"capacity": "capacity-block"}, "capacity: .*AWS only.*reservation"),
        ({"capacity": "prepaid"}, "capacity: .*on-demand, spot, reservation"),
        ({"capacity": "reservation", "zones": ["1"]}, "reservation_id: missing"),
        (
            {"capacity": "reservation", "zones": ["1"], "reservation_id": "cr-0123456789abcdef0"},
            "reservation_id: .*capacityReservationGroups/NAME",
        ),
        ({"reservation_id": RESERVATION}, "reservation_id: .*uses no reservation"),
        ({"fabric": "efa"}, "fabric: .*AWS only; use infiniband"),
        ({"fabric": "nvlink"}, "fabric: .*none, infiniband"),
        ({"gpu": "A10", "count": 1, "fabric": "infiniband"}, "gpu: "),
        ({"placement_group": "spread"}, "placement_group: .*none, cluster, existing"),
        ({"placement_group": "existing"}, "placement_group_name: given None"),
        ({"placement_group_name": PLACEMENT}, "placement_group_name: .*set it to 'existing'"),
        (
            {
                "placement_group": "cluster",
                "capacity": "reservation",
                "reservation_id": RESERVATION,
                "zones": ["1"],
            },
            "placement_group: .*none or existing",
        ),
        ({"fabric": "infiniband", "zones": ["1", "2"]}, "zones: .*exactly one.*infiniband"),
        ({"sharing": "mps"}, "sharing: .*time-slicing"),
        ({"sharing": "mig-1g.35gb"}, r"sharing: .*mig-1g.18gb \(max 7\)"),
        ({"sharing": "mig-1g.18gb+me"}, "sharing: .*mig-1g.18gb"),
        ({"gpu": "A10", "count": 1, "sharing": "mig-1g.18gb"}, "sharing: .*has no MIG"),
        ({"time_slices": 4}, "time_slices: .*set sharing to 'time-slicing'"),
        ({"sharing": "time-slicing", "time_slices": 1}, "time_slices: .*2 to 16"),
        ({"sharing": "time-slicing", "data_class": "restricted"}, "sharing: .*memory unprotected"),
        ({"capacity": "spot", "data_class": "restricted"}, "capacity: .*'restricted'"),
        ({"gpu": "L40S", "count": 1}, "gpu: .*L40S"),
        ({"gpu": "B200"}, "gpu: "),
        ({"gpu": "H200", "count": 3}, "gpu: "),
        ({"count": True}, "count: "),
        ({"machine": "p5en.48xlarge"}, "machine: "),
        ({"machine": "Standard_NC40ads_H100_v5"}, "machine: .*change what is asked"),
        ({"zones": ["mec1-az1"]}, "zones.*1, 2, 3"),
        ({"min_nodes": 3, "max_nodes": 2}, "min_nodes: .*at most max_nodes"),
        ({"nodes": 5, "max_nodes": 2}, "nodes: .*0 to 2"),
        ({"max_nodes": 10_000}, "max_nodes: .*1 to"),
        ({"disk_gib": 10}, "disk_gib: "),
        ({"labels": {"kubernetes.azure.com/x": "1"}}, "labels.*kubernetes.azure.com"),
        ({"taints": ["team"]}, "taints.*key=value:Effect"),
        ({"kubernetes_version": "1.2"}, "kubernetes_version: "),
        ({"cluster_id": None}, "cluster_id: missing"),
        ({"gpus": 8}, "gpus: is not an argument"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], words: str) -> None:
    args: Any = {key: value for key, value in {**PLAIN, **changes}.items() if value is not None}
    with pytest.raises(pulumi.InputPropertiesError, match=words):
        GpuNodePool("gpu", args)


def test_a100_is_sold_here_and_l40s_is_not() -> None:
    assert UAENORTH.resolve(gpu="A100", count=8).name == "Standard_ND96amsr_A100_v4"
    args: Any = {**PLAIN, "gpu": "L40S", "count": 1}
    with pytest.raises(pulumi.InputPropertiesError) as refused:
        GpuNodePool("gpu", args)
    assert "A10" in str(refused.value)
    assert "H100" in str(refused.value)


def test_an_id_that_is_no_cluster_is_refused_in_words() -> None:
    def program(opts: pulumi.ResourceOptions) -> GpuNodePool:
        args: Any = {**PLAIN, "cluster_id": "ai"}
        return GpuNodePool("gpu", args, opts)

    with pytest.raises(Exception, match=r"Microsoft\.ContainerService/managedClusters/<name>"):
        deploy_now(program)


def test_every_gpu_of_the_catalogue_becomes_a_pool() -> None:
    wanted: dict[str, dict[str, Any]] = {}
    for position, (machine, name) in enumerate(ROWS):
        gpu = machine.gpu
        assert gpu is not None
        wanted[f"row{position}"] = {
            "gpu": gpu.model,
            "count": float(machine.gpu_count),
            "machine": name,
            "fabric": "infiniband" if machine.infiniband else "none",
        }
    made = pools(wanted)
    for position, (machine, name) in enumerate(ROWS):
        found = inputs(made, f"row{position}")
        assert found["vmSize"] == name
        assert (found["gpuProfile"]["driver"] == "Install") == ("MI300X" not in name)
        assert found["nodeLabels"]["falaj.io/fabric"] == (
            "infiniband" if machine.infiniband else "none"
        )
    assert len(made.of_type("falaj-azure:index:GpuNodePool")) == len(ROWS)


def test_a_training_pool(several: Deployed) -> None:
    found = inputs(several, "training")
    assert found["vmSize"] == "Standard_ND96isr_H200_v5"
    assert found["agentPoolName"] == "training"
    assert found["resourceName"] == found["resourceGroupName"] == "acme-dev-ai"
    assert found["vnetSubnetID"].endswith("/subnets/nodes")
    assert (found["enableAutoScaling"], found["minCount"], found["maxCount"]) == (True, 0, 4)
    assert found["count"] == 0
    assert found["scaleDownMode"] == "Delete"
    assert found["kubeletConfig"]["cpuManagerPolicy"] == "static"
    assert found["nodeLabels"]["falaj.io/pool"] == "training"
    assert found["nodeTaints"] == ["nvidia.com/gpu=present:NoSchedule"]
    assert found["upgradeSettings"]["maxSurge"] == "0"
    assert found["upgradeSettings"]["maxUnavailable"] == "2"
    assert "scaleSetPriority" not in found
    assert "gpuInstanceProfile" not in found
    # Which zones sell it is unknown, so that the region chooses.
    assert "availabilityZones" not in found


def test_an_update_makes_new_nodes_first_where_a_surge_is_asked_for(several: Deployed) -> None:
    assert inputs(several, "amd")["upgradeSettings"] == {
        "maxSurge": "3",
        "drainTimeoutInMinutes": 60,
    }


def test_machines_near_each_other(several: Deployed) -> None:
    place = several.one("compute:ProximityPlacementGroup")
    assert place.inputs["intent"] == {"vmSizes": ["Standard_ND96isr_H200_v5"]}
    assert place.inputs["resourceGroupName"] == "acme-dev-ai"
    assert inputs(several, "training")["proximityPlacementGroupID"] == place.id
    right = several.named("training-placement-right").inputs
    assert right["scope"] == place.id
    acting = several.named("ai-control-plane").outputs["principalId"]
    assert right["principalId"] == acting


def test_every_pool_is_hardened(several: Deployed) -> None:
    made = several.of_type("containerservice:AgentPool")
    assert len(made) == 5
    for pool in made:
        assert pool.inputs["enableEncryptionAtHost"] is True
        assert pool.inputs["enableNodePublicIP"] is False
        assert pool.inputs["enableFIPS"] is False
        assert pool.inputs["securityProfile"]["sshAccess"] == "Disabled"
        assert pool.inputs["mode"] == "User"
        assert pool.inputs["osSKU"] == "Ubuntu"
        assert pool.inputs["tags"]["falaj-component"] == pool.name


def test_spot_slices_of_a_gpu(several: Deployed) -> None:
    found = inputs(several, "slices")
    assert found["vmSize"] == "Standard_NV6ads_A10_v5"
    assert found["scaleSetPriority"] == "Spot"
    assert found["scaleSetEvictionPolicy"] == "Delete"
    assert found["spotMaxPrice"] == -1
    assert "kubernetes.azure.com/scalesetpriority=spot:NoSchedule" in found["nodeTaints"]
    assert "upgradeSettings" not in found


def test_mig_and_a_pool_of_one_size(several: Deployed) -> None:
    found = inputs(several, "mig")
    assert found["gpuInstanceProfile"] == "MIG2g"
    assert found["vmSize"] == "Standard_NC40ads_H100_v5"
    assert (found["enableAutoScaling"], found["count"]) == (False, 1)
    assert "minCount" not in found
    assert found["availabilityZones"] == ["2"]
    assert found["osDiskSizeGB"] == 512
    assert found["osDiskType"] == "Managed"
    assert found["nodeLabels"]["team"] == "vision"
    assert "team=vision:NoExecute" in found["nodeTaints"]
    assert found["orchestratorVersion"] == "1.34"
    # AKS divides the GPU: the operator's MIG manager has nothing to do.
    assert "nvidia.com/mig.config" not in found["nodeLabels"]


def test_time_slices_and_a_size_that_the_program_names(several: Deployed) -> None:
    found = inputs(several, "timeslices")
    assert found["nodeLabels"]["nvidia.com/device-plugin.config"] == "time-slicing-8"
    assert found["count"] == 2
    assert found["maxCount"] == 6


def test_a_reservation_and_an_existing_place() -> None:
    def program(opts: pulumi.ResourceOptions) -> Cluster:
        base = foundation(opts)
        args: Any = base.cluster_args()
        cluster = Cluster("ai", args, opts)
        own = pulumi.ResourceOptions(provider=base.provider, depends_on=[cluster])
        place: dict[str, Any] = {"resource_group_name": "acme-base", "location": "uaenorth"}
        group = compute.CapacityReservationGroup(
            "h200", capacity_reservation_group_name="h200", zones=["1"], **place, opts=own
        )
        reserved = compute.CapacityReservation(
            "h200",
            capacity_reservation_group_name=group.name,
            capacity_reservation_name="h200",
            sku=compute.SkuArgs(name="Standard_ND96isr_H200_v5", capacity=1),
            zones=["1"],
            **place,
            opts=own,
        )
        near = compute.ProximityPlacementGroup(
            "near", proximity_placement_group_name="near", **place, opts=own
        )
        # The ids are plain values; in a program they are of things that exist already.
        there = pulumi.Output.all(cluster.cluster_id, reserved.id, near.id)
        pool: Any = base.pool_args(
            cluster,
            cluster_id=there.apply(lambda ids: ids[0]),
            gpu="H200",
            count=8,
            zones=["1"],
            capacity="reservation",
            reservation_id=RESERVATION,
            placement_group="existing",
            placement_group_name=PLACEMENT,
        )
        GpuNodePool("gpu", pool, opts)
        return cluster

    made = deploy_now(program)
    found = inputs(made, "gpu")
    assert found["capacityReservationGroupID"] == RESERVATION
    assert found["proximityPlacementGroupID"] == PLACEMENT
    assert found["availabilityZones"] == ["1"]
    rights = {
        name: made.named(f"gpu-{name}-right").inputs["scope"]
        for name in ("placement", "reservation")
    }
    assert rights == {"placement": PLACEMENT, "reservation": RESERVATION}


def test_outputs_say_the_cost() -> None:
    def program(opts: pulumi.ResourceOptions) -> GpuNodePool:
        base = foundation(opts)
        args: Any = base.cluster_args()
        pool: Any = base.pool_args(Cluster("ai", args, opts), gpu="H200", count=8, max_nodes=2)
        return GpuNodePool("gpu", pool, opts)

    deployed = deploy_now(program)
    made: GpuNodePool = deployed.made
    assert made.machine == "Standard_ND96isr_H200_v5"
    assert made.zones == []
    assert "242.5" in made.cost_at_maximum
    assert made.cost_at_minimum.startswith("USD 0.00 per hour")
    assert deployed.outputs["pool_id"].endswith("/managedClusters/acme-dev-ai/agentPools/gpu")
    assert deployed.outputs["pool_name"] == "gpu"


@pytest.mark.parametrize(
    ("name", "short"), [("gpu", "gpu"), ("gpu-h200", "gpuh200"), ("a" * 12, "a" * 12)]
)
def test_short_names_stay(name: str, short: str) -> None:
    assert pool_name(name) == short


def test_long_names_stay_apart() -> None:
    first, second = pool_name("inference-of-vision-a"), pool_name("inference-of-vision-b")
    assert first != second
    assert len(first) == len(second) == POOL_NAME_LIMIT


def test_zones_and_disks_follow_what_is_known() -> None:
    unknown = UAENORTH.machine("Standard_ND96isr_H200_v5")
    known = catalogue.place("aws", "me-central-1").machine("p5en.48xlarge")
    assert used_zones(unknown, ("1", "2"), named=False) == ()
    assert used_zones(unknown, ("1",), named=True) == ("1",)
    assert used_zones(known, ("mec1-az1",), named=False) == ("mec1-az1",)
    assert used_zones(unknown, ("regional",), named=False) == ()
    assert disk(unknown, 200)["os_disk_type"] == "Managed"
    assert disk(known, 200)["os_disk_type"] == "Ephemeral"
    assert disk(known, 4095 * 100)["os_disk_type"] == "Managed"


def test_what_infiniband_needs_is_said() -> None:
    for version in (None, "1.35", "1.36"):
        said = infiniband_warning(version)
        assert "AKSInfinibandSupport of Microsoft.ContainerService" in said
        assert "Ubuntu" not in said
    assert "nodes have Ubuntu 22.04" in infiniband_warning("1.34")
