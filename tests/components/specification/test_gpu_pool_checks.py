"""GPU pools: refusals of every argument and combination, and every row of the catalogue."""

from __future__ import annotations

import asyncio
from typing import Any

import pulumi
import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components import catalogue
from falaj.components.specification.gpu_node_pool import GpuNodePoolSpec, check, mig_profiles
from tests.components.specification.given import PLACES, SHARED

GIVEN: dict[str, Any] = {
    "cluster_id": "cluster",
    "node_subnet_ids": {zone: f"subnet-{zone}" for zone in ("mec1-az1", "mec1-az2", "mec1-az3")},
    "node_identity_id": "identity",
    "security_group_id": "group",
    "disk_encryption_id": "key",
    "gpu": "H200",
    "count": 8,
}
RESERVATION = "cr-0123456789abcdef0"
GROUP = (
    "/subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/acme/providers/"
    "Microsoft.Compute/capacityReservationGroups/h200"
)


def arguments(cloud: str = "aws", **changes: Any) -> dict[str, Any]:
    """Arguments of a pool of H200 machines; a change to None leaves one out."""
    args = {**SHARED, **PLACES[cloud], **GIVEN}
    if cloud == "azure":
        args["node_subnet_ids"] = dict.fromkeys(("1", "2", "3"), "subnet")
    args |= changes
    return {key: value for key, value in args.items() if value is not None}


def made(cloud: str = "aws", name: str = "h200", **changes: Any) -> GpuNodePoolSpec:
    """The checked arguments."""
    args: Any = arguments(cloud, **changes)
    return check(cloud, name, args)


AWS_REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    # What isn't sold, with what is.
    ({"gpu": "A100"}, "gpu", r"does not sell 8 x A100.*8 x H200 \(p5en.48xlarge\)"),
    ({"gpu": "H100"}, "gpu", r"does not sell 8 x H100.*sold there, closest first"),
    ({"gpu": "Z9000"}, "gpu", "no GPU is called 'Z9000'"),
    ({"gpu": "L4", "count": 3}, "gpu", r"does not sell 3 x L4.*4 x L4 \(g6.12xlarge\)"),
    ({"gpu": "H200", "count": 0}, "count", "given 0; allowed: a number above 0 up to 16"),
    ({"count": "8"}, "count", "a number above 0 up to 16"),
    ({"count": True}, "count", "a number above 0 up to 16"),
    ({"gpu": " "}, "gpu", "text that is not empty"),
    ({"machine": "p4d.24xlarge"}, "machine", "p4d.24xlarge is not sold in aws/me-central-1"),
    ({"machine": "g6.xlarge"}, "machine", "its GPU is L4-24GB; asked for: 8 x H200"),
    # Zones.
    ({"zones": ["mec1-az2"]}, "gpu", "it is sold in mec1-az1, mec1-az3 only"),
    ({"zones": ["mec1-az1", "mec1-az2"]}, "zones", "not sold in mec1-az2; it is sold in mec1-az1"),
    ({"zones": ["me-central-1a"]}, "zones[0]", "mec1-az1, mec1-az2, mec1-az3"),
    ({"zones": []}, "zones", "at least one"),
    (
        {"zones": ["mec1-az3"], "node_subnet_ids": {"mec1-az1": "s"}},
        "zones",
        "mec1-az3 has no subnet in node_subnet_ids, which has mec1-az1",
    ),
    # Capacity and reservations.
    ({"capacity": "cheap"}, "capacity", "on-demand, spot, reservation, capacity-block"),
    ({"capacity": "reservation"}, "reservation_id", "missing; capacity 'reservation' needs"),
    ({"capacity": "capacity-block"}, "reservation_id", "missing; capacity 'capacity-block' needs"),
    ({"reservation_id": RESERVATION}, "reservation_id", "which uses no reservation"),
    (
        {"capacity": "spot", "reservation_id": RESERVATION},
        "reservation_id",
        "capacity is 'spot', which uses no reservation",
    ),
    ({"capacity": "reservation", "reservation_id": "r-1"}, "reservation_id", "cr-0123456789"),
    (
        {
            "gpu": "L4",
            "count": 1,
            "capacity": "capacity-block",
            "reservation_id": RESERVATION,
        },
        "capacity",
        "not sold as 'capacity-block'; it is sold as: on-demand, spot",
    ),
    (
        {
            "capacity": "reservation",
            "reservation_id": RESERVATION,
            "zones": ["mec1-az1", "mec1-az3"],
        },
        "zones",
        "exactly one, because of capacity 'reservation'; name the zone that the reservation lies",
    ),
    ({"capacity": "spot", "data_class": "restricted"}, "capacity", "'restricted'"),
    # Fabric.
    ({"fabric": "infiniband"}, "fabric", "infiniband exists on Azure only; use efa"),
    ({"fabric": "tokenring"}, "fabric", "none, efa"),
    ({"gpu": "L4", "count": 1, "machine": "g6.xlarge", "fabric": "efa"}, "machine", "no EFA"),
    (
        {"fabric": "efa", "zones": ["mec1-az1", "mec1-az3"]},
        "zones",
        "exactly one, because of fabric 'efa'",
    ),
    # Placement.
    ({"placement_group": "spread"}, "placement_group", "none, cluster, existing"),
    ({"placement_group": "existing"}, "placement_group_name", "needs the group's name"),
    ({"placement_group_name": "mine"}, "placement_group_name", "set it to 'existing'"),
    (
        {"placement_group": "cluster", "placement_group_name": "mine"},
        "placement_group_name",
        "placement_group is 'cluster'",
    ),
    (
        {"placement_group": "cluster", "zones": ["mec1-az1", "mec1-az3"]},
        "zones",
        "because of placement_group 'cluster'",
    ),
    (
        {
            "placement_group": "cluster",
            "capacity": "reservation",
            "reservation_id": RESERVATION,
        },
        "placement_group",
        "can't be moved into a new group",
    ),
    (
        {
            "placement_group": "cluster",
            "capacity": "capacity-block",
            "reservation_id": RESERVATION,
        },
        "placement_group",
        "close to each other already",
    ),
    # Sharing.
    ({"sharing": "halves"}, "sharing", "none, time-slicing, or a MIG profile"),
    ({"sharing": "mig-1g.10gb"}, "sharing", r"mig-1g.18gb \(max 7\)"),
    ({"sharing": "mig-1g.18gb+me"}, "sharing", r"mig-1g.18gb \(max 7\)"),
    ({"gpu": "L40S", "sharing": "mig-1g.18gb"}, "sharing", "8 x L40S has no MIG"),
    ({"time_slices": 4}, "time_slices", "set sharing to 'time-slicing'"),
    ({"sharing": "mig-1g.18gb", "time_slices": 4}, "time_slices", "sharing is 'mig-1g.18gb'"),
    ({"sharing": "time-slicing", "time_slices": 1}, "time_slices", "2 to 16"),
    ({"sharing": "time-slicing", "time_slices": 17}, "time_slices", "2 to 16"),
    ({"sharing": "time-slicing", "data_class": "restricted"}, "sharing", "memory unprotected"),
    # Sizes.
    ({"min_nodes": 3, "max_nodes": 2}, "min_nodes", "at most max_nodes, which is 2"),
    ({"nodes": 2}, "nodes", r"0 to 1 \(min_nodes to max_nodes\)"),
    ({"min_nodes": 2, "max_nodes": 4, "nodes": 1}, "nodes", "2 to 4"),
    ({"min_nodes": -1}, "min_nodes", "0 to 450"),
    ({"max_nodes": 0}, "max_nodes", "1 to 450"),
    ({"max_nodes": 1.5}, "max_nodes", "a whole number"),
    ({"nodes": "2"}, "nodes", "a whole number"),
    ({"disk_gib": 10}, "disk_gib", "50 to 4095"),
    # Labels, taints, version.
    ({"labels": {"kubernetes.io/role": "x"}}, "labels['kubernetes.io/role']", "belong to kube"),
    ({"labels": {"falaj.io/pool": "x"}}, "labels['falaj.io/pool']", "falaj.io"),
    ({"labels": {"nvidia.com/gpu": "x"}}, "labels['nvidia.com/gpu']", "nvidia.com"),
    ({"labels": {"a b": "x"}}, "labels['a b']", "a key such as team"),
    ({"labels": {"team": "a b"}}, "labels['team']", "at most 63"),
    ({"labels": ["team"]}, "labels", "texts by name"),
    ({"labels": {f"k{n}": "v" for n in range(26)}}, "labels", "at most 25"),
    ({"taints": ["team=a"]}, "taints[0]", "key=value:Effect"),
    ({"taints": ["team=a:Never"]}, "taints[0]", "NoSchedule, PreferNoSchedule, NoExecute"),
    ({"taints": ["eks.amazonaws.com/x=a:NoExecute"]}, "taints[0]", "eks.amazonaws.com"),
    ({"taints": ["team=a b:NoExecute"]}, "taints[0]", "at most 63"),
    ({"taints": "team=a:NoExecute"}, "taints", "a list of texts"),
    ({"max_unavailable": 0}, "max_unavailable", "1 to 100"),
    ({"max_surge": -1}, "max_surge", "0 to 100"),
    ({"max_surge": 101}, "max_surge", "0 to 100"),
    ({"max_surge": "33%"}, "max_surge", "a whole number"),
    ({"max_surge": 2, "max_unavailable": 2}, "max_unavailable", "max_surge 2 says both"),
    ({"max_surge": 1}, "max_surge", r"0, or at least 2 with the zones mec1-az1"),
    (
        {"max_surge": 3, "zones": ["mec1-az1", "mec1-az3"]},
        "max_surge",
        r"0, or at least 4 with the zones mec1-az1, mec1-az3; EKS starts up to 2 in each zone",
    ),
    ({"kubernetes_version": "1.20"}, "kubernetes_version", "1.34, 1.35, 1.36"),
    ({"kubernetes_version": 1.35}, "kubernetes_version", "write it as text"),
    # Shape.
    ({"capcity": "spot"}, "capcity", "did you mean 'capacity'"),
    ({"cluster_id": None}, "cluster_id", "missing"),
    ({"gpu": None}, "gpu", "missing"),
    ({"count": None}, "count", "missing"),
    ({"acknowledge_degraded": None}, "acknowledge_degraded", "degraded"),
    ({"region": "us-east-1"}, "region", "not a place in the country"),
]


@pytest.mark.parametrize(("changes", "argument", "reason"), AWS_REFUSALS)
def test_refused_on_aws(changes: dict[str, Any], argument: str, reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=reason) as caught:
        made(**changes)
    assert argument in [error["property_path"] for error in caught.value.errors or []]


AZURE_REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"fabric": "efa"}, "fabric", "efa exists on AWS only; use infiniband"),
    ({"capacity": "capacity-block"}, "capacity", "capacity blocks exist on AWS only"),
    (
        {"capacity": "reservation", "reservation_id": RESERVATION},
        "reservation_id",
        "/subscriptions",
    ),
    ({"gpu": "L40S"}, "gpu", "azure/uaenorth does not sell 8 x L40S"),
    ({"gpu": "A10", "count": 1, "fabric": "infiniband"}, "gpu", "it has no InfiniBand"),
    ({"sharing": "mig-1g.35gb"}, "sharing", r"mig-1g.18gb \(max 7\)"),
    ({"zones": ["mec1-az1"]}, "zones[0]", "1, 2, 3"),
    ({"fabric": "infiniband", "zones": ["1", "2"]}, "zones", "because of fabric 'infiniband'"),
    ({"gpu": "MI300X", "sharing": "mig-1g.18gb"}, "sharing", "has no MIG"),
]


@pytest.mark.parametrize(("changes", "argument", "reason"), AZURE_REFUSALS)
def test_refused_on_azure(changes: dict[str, Any], argument: str, reason: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=reason) as caught:
        made("azure", **changes)
    assert argument in [error["property_path"] for error in caught.value.errors or []]


@pytest.mark.parametrize("name", ["system", "sys-tem", "s-y-s-t-e-m"])
def test_the_own_pool_of_an_aks_cluster_is_not_made_twice(name: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match=r"name: .*Cluster makes itself"):
        made("azure", name)
    assert made("aws", name).machine.name == "p5en.48xlarge"
    assert made("azure", f"{name}s").machine.gpu_count == 8


@pytest.mark.parametrize("name", ["", "H200", "1a", "a-", "x" * 41])
def test_refused_names(name: str) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="2 to 40 lower-case letters"):
        made(name=name)


@pytest.mark.parametrize("strict", ["0", "1"])
def test_outputs_are_refused_where_plain_values_decide(
    strict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Outputs need a loop; tests of deployments leave a closed one behind.
    asyncio.set_event_loop(asyncio.new_event_loop())
    # Whether an output that is taken for a text is an error of the SDK's own.
    monkeypatch.setenv("PULUMI_ERROR_OUTPUT_STRING", strict)
    with pytest.raises(pulumi.InputPropertiesError, match="known before anything runs") as caught:
        made(capacity=pulumi.Output.from_input("spot"))
    assert [each["property_path"] for each in caught.value.errors or []] == ["capacity"]


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(pulumi.InputPropertiesError) as caught:
        made(fabric="infiniband", disk_gib=1, time_slices=3)
    paths = {error["property_path"] for error in caught.value.errors or []}
    assert paths == {"fabric", "disk_gib", "time_slices"}


def test_defaults() -> None:
    spec = made()
    assert spec.machine.name == "p5en.48xlarge"
    assert spec.zones == ("mec1-az1",)  # sold in two, of which one is reported as impaired
    assert (spec.size.least, spec.size.most, spec.size.initial) == (0, 1, 0)
    assert (spec.capacity, spec.args["fabric"], spec.args["placement_group"]) == (
        "on-demand",
        "none",
        "none",
    )
    assert spec.args["disk_gib"] == 200
    assert spec.args["kubernetes_version"] == "1.35"
    assert spec.resources == {"nvidia.com/gpu": 8}
    assert [str(taint) for taint in spec.taints] == ["nvidia.com/gpu=present:NoSchedule"]
    assert spec.labels["falaj.io/flavor"] == "h200"
    assert spec.notes == ()


def test_the_cost_is_told() -> None:
    spec = made(max_nodes=2)
    assert "USD 0.00 per hour" in str(spec.cost_at_minimum)
    assert "USD 151.91 per hour, 110,895 per month" in str(spec.cost_at_maximum)
    assert "p5en.48xlarge (8 x H200) in mec1-az1; 0 to 2 nodes" in spec.summary


def test_an_unknown_cost_is_told_as_unknown() -> None:
    assert str(made(gpu="L40S", count=4).cost_at_maximum) == "cost unknown"
    assert str(made(capacity="spot").cost_at_maximum) == "cost unknown"


def test_floats_of_other_languages_are_whole_numbers() -> None:
    spec = made(count=8.0, min_nodes=1.0, max_nodes=3.0, nodes=2.0, disk_gib=300.0)
    assert (spec.size.least, spec.size.most, spec.size.initial, spec.args["disk_gib"]) == (
        1,
        3,
        2,
        300,
    )
    assert isinstance(spec.size.initial, int)


def test_a_minimum_above_the_default_maximum_raises_it() -> None:
    assert made(min_nodes=4).size.most == 4


def test_an_impaired_zone_that_is_named_is_taken_with_a_warning() -> None:
    spec = made(zones=["mec1-az3"])
    assert spec.zones == ("mec1-az3",)
    assert "mec1-az3 is reported as impaired" in spec.notes[0]


def test_capacity_blocks_are_allowed_with_a_warning() -> None:
    spec = made(capacity="capacity-block", reservation_id=RESERVATION, fabric="efa")
    assert "unknown" in spec.notes[0]
    assert "describe-capacity-block-offerings" in spec.notes[0]
    assert spec.labels["falaj.io/flavor"] == "h200-capacity-block"


def test_capacity_fabric_and_placement_are_independent() -> None:
    spec = made(fabric="efa", capacity="reservation", reservation_id=RESERVATION)
    assert spec.args["placement_group"] == "none"
    alone = made(placement_group="cluster")
    assert (alone.args["fabric"], alone.zones) == ("none", ("mec1-az1",))
    named = made(
        placement_group="existing",
        placement_group_name="mine",
        capacity="reservation",
        reservation_id=RESERVATION,
    )
    assert named.args["placement_group_name"] == "mine"


def test_spot_pools_of_aks_have_no_settings_of_updates() -> None:
    assert made(max_unavailable=3.0).args["max_unavailable"] == 3
    assert made(max_unavailable=3, capacity="spot", data_class="internal", gpu="L4", count=1)
    with pytest.raises(pulumi.InputPropertiesError, match="max_unavailable: given 3, but capac"):
        made("azure", gpu="A100", capacity="spot", data_class="internal", max_unavailable=3)


def test_spot_pools_of_aks_have_no_surge() -> None:
    spot: dict[str, Any] = {"capacity": "spot", "data_class": "internal"}
    assert made("azure", gpu="A100", max_surge=0, **spot).args["max_surge"] == 0
    with pytest.raises(pulumi.InputPropertiesError, match="max_surge: given 3, but capacity is"):
        made("azure", gpu="A100", max_surge=3, **spot)


def test_a_surge_is_none_until_it_is_asked_for() -> None:
    assert made().args["max_surge"] == 0
    assert made(max_surge=2).args["max_surge"] == 2
    assert made(max_surge=0, max_unavailable=2).args["max_unavailable"] == 2
    # AKS makes as many as are asked for, in however many zones.
    assert made("azure", gpu="A100", max_surge=1).args["max_surge"] == 1


def test_mig_is_allowed_for_restricted_data() -> None:
    spec = made(sharing="mig-1g.18gb", data_class="restricted")
    assert spec.resources == {"nvidia.com/mig-1g.18gb": 56}
    assert spec.sharing.operator_labels == {"nvidia.com/mig.config": "all-1g.18gb"}
    assert spec.labels["falaj.io/flavor"] == "h200-mig-1g.18gb"


def test_time_slices() -> None:
    spec = made(gpu="L4", count=1, sharing="time-slicing")
    assert spec.resources == {"nvidia.com/gpu.shared": 4}
    assert spec.sharing.operator_labels == {"nvidia.com/device-plugin.config": "time-slicing-4"}


def test_azure_sells_fractions_and_a100() -> None:
    assert made("azure", gpu="A100").machine.name == "Standard_ND96amsr_A100_v4"
    spec = made("azure", gpu="A10", count=1 / 6)
    assert spec.machine.name == "Standard_NV6ads_A10_v5"
    assert "no source says which zones" in spec.notes[0]
    reserved = made("azure", capacity="reservation", reservation_id=GROUP)
    assert reserved.args["reservation_id"] == GROUP


ROWS = [
    (place.cloud, place.region, machine)
    for place in catalogue.all_places()
    for machine in place.machines("gpu")
]


@pytest.mark.parametrize(
    ("cloud", "region", "machine"), ROWS, ids=[f"{c}-{r}-{m}" for c, r, m in ROWS]
)
def test_every_gpu_row_of_the_catalogue(
    cloud: str, region: str, machine: catalogue.MachineType
) -> None:
    assert machine.gpu is not None
    place = catalogue.place(cloud, region)
    known: dict[str, Any] = {} if place.zones else {"node_subnet_ids": {"regional": "subnet"}}
    spec = made(
        cloud,
        region=region,
        acknowledge_degraded=place.status.as_of.isoformat(),
        gpu=machine.gpu.name,
        count=float(machine.gpu_count),
        machine=machine.name,
        **known,
    )
    assert spec.machine == machine
    assert spec.zones
    assert set(spec.zones) <= set(machine.zone_ids or spec.zones)
    assert all(count >= 1 for count in spec.resources.values())
    for profile, most in mig_profiles(cloud, machine).items():
        assert most >= 1
        assert "+" not in profile


@given(st.sampled_from(ROWS), st.sampled_from(["none", "efa", "infiniband"]), st.integers(0, 450))
def test_whatever_is_accepted_is_in_the_country_and_within_limits(
    row: tuple[str, str, catalogue.MachineType], fabric: str, nodes: int
) -> None:
    cloud, region, machine = row
    assert machine.gpu is not None
    place = catalogue.place(cloud, region)
    try:
        spec = made(
            cloud,
            region=region,
            acknowledge_degraded=place.status.as_of.isoformat(),
            gpu=machine.gpu.model,
            count=float(machine.gpu_count),
            fabric=fabric,
            max_nodes=nodes,
        )
    except pulumi.InputPropertiesError as error:
        assert error.errors
        return
    assert spec.placed.region in catalogue.REGIONS
    assert 0 <= spec.size.least <= spec.size.initial <= spec.size.most <= 450
    assert spec.size.most >= 1
    if spec.args["fabric"] == "efa":
        assert spec.machine.efa_interfaces >= 1
        assert len(spec.zones) == 1
    if spec.args["fabric"] == "infiniband":
        assert spec.machine.infiniband
