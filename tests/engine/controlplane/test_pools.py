"""What `--nodes` takes, and what the nodes are that it makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components import catalogue
from falaj.components.specification import gpu_node_pool, node_pools
from falaj.engine.controlplane.machines import (
    DEAD,
    GPU_TAINT,
    MOST_NODES,
    PREFIX,
    Pool,
    Site,
    machines,
    node,
    node_name,
    parse_pools,
)
from falaj.engine.errors import EngineError


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("h200", "not MACHINE[:SHARING]=NUMBER"),
        ("=4", "not MACHINE[:SHARING]=NUMBER"),
        ("h200=", "not MACHINE[:SHARING]=NUMBER"),
        ("h 200=4", "not MACHINE[:SHARING]=NUMBER"),
        ("h300=4", "no machine 'h300' is known; known are h200, h100"),
        ("h200=-1", "'-1' is no number of nodes from 0 to 5000"),
        ("h200=1.5", "'1.5' is no number of nodes"),
        ("h200=٤", "is no number of nodes"),
        ("h200=99999999999999999999", "is no number of nodes"),
        ("h200=4000,l4=1001", "5001 nodes in all; at most 5000"),
        ("h200=1,h200=2", "the pool h200 is named twice"),
        ("cpu:mig-1g.18gb=1", "cpu has no GPU to share"),
        ("l4:mig-1g.18gb=1", "l4 can't be shared as 'mig-1g.18gb'; allowed: time-slicing-2"),
        ("h200:mig-1g.10gb=1", "allowed: mig-1g.18gb"),
        ("l4:time-slicing-17=1", "from 2 to 16 slices"),
        ("l4:time-slicing-=1", "from 2 to 16 slices"),
        ("l4:mps-4=1", "can't be shared as 'mps-4'"),
    ],
)
def test_what_cannot_be_read_is_refused(text: str, said: str) -> None:
    with pytest.raises(EngineError) as raised:
        parse_pools(text)
    assert said in str(raised.value)
    assert "MACHINE[:SHARING]=NUMBER" in str(raised.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(EngineError) as raised:
        parse_pools("x=1,h200=y,l4=2")
    assert "'x=1'" in str(raised.value)
    assert "'h200=y'" in str(raised.value)
    assert "l4=2'" not in str(raised.value)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_clearly(text: str) -> None:
    try:
        pools = parse_pools(text)
    except EngineError:
        return
    assert sum(pool.number for pool in pools) <= MOST_NODES


@given(
    st.dictionaries(
        st.sampled_from([
            "h200", "h200:mig-1g.18gb", "h200:mig-7g.141gb", "l4", "l4:time-slicing-4", "cpu",
        ]),
        st.integers(0, 600),
    )
)  # fmt: skip
def test_pools_are_read_as_they_are_written(wanted: dict[str, int]) -> None:
    pools = parse_pools(", ".join(f"{name}={number}" for name, number in wanted.items()))
    assert {pool.name: pool.number for pool in pools} == {
        name.replace(":", "-"): number for name, number in wanted.items()
    }


def test_nothing_is_no_nodes() -> None:
    assert parse_pools("") == ()
    assert parse_pools(" , ") == ()


def _pool(text: str) -> Pool:
    return parse_pools(f"{text}=1")[0]


@pytest.mark.parametrize(
    ("text", "resources"),
    [
        ("h200", {"nvidia.com/gpu": "8"}),
        ("h200:mig-1g.18gb", {"nvidia.com/mig-1g.18gb": "56"}),
        ("h200:mig-3g.71gb", {"nvidia.com/mig-3g.71gb": "16"}),
        ("l4:time-slicing-4", {"nvidia.com/gpu.shared": "4"}),
        ("cpu", {}),
    ],
)
def test_gpus_are_offered_as_the_device_plugin_does(text: str, resources: dict[str, str]) -> None:
    offered = node(_pool(text), 0, Site())["status"]["allocatable"]
    assert {name: value for name, value in offered.items() if "nvidia" in name} == resources
    assert offered["pods"] == "110"


def test_only_gpu_nodes_are_tainted_and_labelled_so() -> None:
    gpu, cpu = (node(_pool(name), 0, Site()) for name in ("l4", "cpu"))
    assert gpu["spec"]["taints"] == [GPU_TAINT]
    assert cpu["spec"]["taints"] == []
    assert gpu["metadata"]["labels"]["nvidia.com/gpu.product"] == "NVIDIA-L4"
    assert not any("nvidia" in label for label in cpu["metadata"]["labels"])


def test_names_are_those_of_the_components() -> None:
    labels = node(_pool("h200:mig-1g.18gb"), 0, Site())["metadata"]["labels"]
    assert labels[node_pools.POOL] == labels[node_pools.FLAVOR] == "h200-mig-1g.18gb"
    assert labels[node_pools.GPU] == "h200"
    assert labels[node_pools.CAPACITY] == "on-demand"
    assert labels[node_pools.FABRIC] == "efa"
    assert vars(node_pools.GPU_TAINT) == GPU_TAINT
    assert PREFIX == node_pools.PREFIX
    assert not DEAD.startswith(PREFIX)  # nothing that a real pool would set
    sharing = gpu_node_pool.Sharing("mig", "1g.18gb", 7)
    assert labels["nvidia.com/mig.config"] == sharing.operator_labels["nvidia.com/mig.config"]


@pytest.mark.parametrize(
    ("name", "gpu"),
    [("h200", "H200-SXM-141GB"), ("h100", "H100-SXM5-80GB"), ("b200", "B200-SXM-180GB"),
     ("a100", "A100-SXM4-80GB")],
)  # fmt: skip
def test_mig_profiles_are_those_of_the_catalogue(name: str, gpu: str) -> None:
    known = catalogue.GPUS[gpu].mig_profiles
    assert machines()[name].mig == {
        profile: most for profile, most in known.items() if "+" not in profile
    }


def test_racks_and_zones_follow_from_the_number_of_the_machine() -> None:
    site = Site(
        region="dxb", zones=("dxb-a", "dxb-b"), distribution="existing",
        nodes_in_rack=2, racks_in_block=2,
    )  # fmt: skip
    found = [node(_pool("h200"), index, site)["metadata"]["labels"] for index in range(6)]
    assert [each["falaj.io/rack"] for each in found] == [
        "h200-0-0", "h200-0-0", "h200-0-1", "h200-0-1", "h200-1-2", "h200-1-2",
    ]  # fmt: skip
    assert [each["topology.kubernetes.io/zone"] for each in found] == ["dxb-a"] * 4 + ["dxb-b"] * 2
    assert {each["topology.kubernetes.io/region"] for each in found} == {"dxb"}


@pytest.mark.parametrize(
    ("distribution", "resource"),
    [("eks", "vpc.amazonaws.com/efa"), ("aks", "rdma/ib"), ("existing", "rdma/ib")],
)
def test_the_fabric_is_the_distributions(distribution: str, resource: str) -> None:
    found = node(_pool("h200"), 0, Site(distribution=distribution))  # type: ignore[arg-type]
    assert resource in found["status"]["allocatable"]
    levels = [each for each in found["metadata"]["labels"] if "network-node-layer" in each]
    assert len(levels) == (3 if distribution == "eks" else 0)


def test_nodes_may_lack_zones_and_racks() -> None:
    site = Site(region="dxb", zones=(), distribution="existing", racks_labelled=False)
    found = node(_pool("h200"), 0, site)["metadata"]["labels"]
    topology = {name for name in found if "topology" in name or "rack" in name or "block" in name}
    assert topology == {"topology.kubernetes.io/region"}
    assert found["kubernetes.io/hostname"] == "h200-0000"


def test_a_site_without_a_region_is_refused() -> None:
    for wrong in ({"region": ""}, {"zones": ("",)}):
        with pytest.raises(EngineError, match="a site needs a region and zones with names"):
            Site(**wrong)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="nodes_in_rack is 0"):
        Site(nodes_in_rack=0)


def test_a_replacement_has_another_name() -> None:
    assert node_name(_pool("l4"), 3) == "l4-0003"
    assert node_name(_pool("l4"), 3, 2) == "l4-0003-2"
