"""Demands: what makes no sense is refused; what satisfies one is what was asked."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.catalogue import (
    GPUS,
    Demand,
    DemandError,
    MachineType,
    Place,
    all_places,
    place,
)

UAE = place("azure", "uaenorth")
AWS = place("aws", "me-central-1")

NO_DEMANDS: list[tuple[dict[str, Any], str]] = [
    ({"gpu": "H200", "count": 0}, "count is 0; allowed: above 0"),
    ({"gpu": "H200", "count": -8}, "count is -8"),
    ({"gpu": "H200", "count": float("nan")}, "count is nan"),
    ({"gpu": "H200", "count": float("inf")}, "count is inf"),
    ({"gpu": "H200", "count": "8"}, "count is '8'; allowed: a number"),
    ({"gpu": "H200", "count": True}, "count is True"),
    ({"gpu": 200}, "gpu is 200; allowed: text"),
    ({"gpu": "H300"}, "did you mean H200"),
    ({"gpu": "H200", "fabric": "ethernet"}, "fabric is 'ethernet'; allowed: none, efa, infin"),
    ({"vcpu": 0}, "vcpu is 0"),
    ({"memory_gib": -1}, "memory_gib is -1"),
    ({"arch": "x86"}, "arch is 'x86'; allowed: x86_64"),
    ({"int8": "avx2"}, "int8 is 'avx2'; allowed: amx, vnni"),
    ({"zones": "mec1-az1"}, "zones is the text|zones is 'mec1-az1'; allowed: a list"),
    ({"zones": [1]}, "zones is 1; allowed: text"),
]


@pytest.mark.parametrize(("asked", "reason"), NO_DEMANDS)
def test_demands_that_make_no_sense(asked: dict[str, Any], reason: str) -> None:
    with pytest.raises(DemandError, match=reason):
        Demand(**asked)
    with pytest.raises(DemandError, match=reason):
        AWS.offers(**asked)


def test_an_unknown_kind_of_machine_is_refused() -> None:
    with pytest.raises(DemandError, match="allowed: gpu, cpu"):
        AWS.machines("tpu")  # type: ignore[arg-type]


_MODELS = sorted({gpu.model for gpu in GPUS.values()} | set(GPUS))
_DEMANDS = st.builds(
    dict,
    gpu=st.none() | st.sampled_from(_MODELS),
    count=st.none() | st.sampled_from([1, 2, 4, 8, Fraction(1, 6), 0.33, 0.5]),
    fabric=st.sampled_from([None, "none", "efa", "infiniband"]),
    vcpu=st.none() | st.integers(1, 256),
    memory_gib=st.none() | st.floats(1, 4096),
    arch=st.sampled_from([None, "x86_64", "amd64", "arm64", "aarch64"]),
    int8=st.sampled_from([None, "any", "amx", "vnni", "i8mm", "dotprod"]),
    confidential=st.booleans(),
)
_PLACES = st.sampled_from(all_places())


def _ceiling(machine: MachineType) -> Decimal:
    limit = machine.usd_per_hour_at_most
    return Decimal("Infinity") if limit is None else limit


@given(_PLACES, _DEMANDS)
def test_offers_are_cheapest_first_and_unknown_last(where: Place, asked: dict[str, Any]) -> None:
    offers = where.offers(**asked)
    assert [_ceiling(m) for m in offers] == sorted(_ceiling(m) for m in offers)
    prices = [m.usd_per_hour for m in offers if m.usd_per_hour is not None]
    assert prices == sorted(prices)
    for machine in offers:
        if machine.usd_per_hour is not None:
            assert machine.usd_per_hour_at_most == machine.usd_per_hour


@given(_PLACES, _DEMANDS)
def test_offers_have_what_was_asked(where: Place, asked: dict[str, Any]) -> None:
    for m in where.offers(**asked):
        wants_gpu = asked["gpu"] is not None or asked["count"] is not None
        assert (m.gpu is not None) == wants_gpu
        if asked["gpu"] is not None:
            assert m.gpu is not None
            assert m.gpu.name.startswith(asked["gpu"])
        if asked["count"] is not None:
            assert float(m.gpu_count) == pytest.approx(float(asked["count"]), abs=0.01)
        if asked["fabric"] == "efa":
            assert m.efa_interfaces > 0
        if asked["fabric"] == "infiniband":
            assert m.infiniband
        if asked["vcpu"] is not None:
            assert m.vcpu is not None
            assert m.vcpu >= asked["vcpu"]
        if asked["memory_gib"] is not None:
            assert m.memory_gib is not None
            assert m.memory_gib >= asked["memory_gib"]
        if asked["arch"] is not None:
            assert m.arch == ("arm64" if asked["arch"] in ("arm64", "aarch64") else "x86_64")
        if asked["int8"] == "amx":
            assert m.instruction_sets.features["amx_int8"] is True
        if asked["int8"] == "vnni":
            assert m.instruction_sets.features["avx512_vnni"] is True
        assert (m.confidential is not None) == asked["confidential"]


_ZONES = st.lists(st.sampled_from([z.id for z in AWS.zones]), min_size=1, unique=True)


@given(_DEMANDS, _ZONES)
def test_nothing_outside_of_the_zones_is_offered(asked: dict[str, Any], zones: list[str]) -> None:
    everywhere = AWS.offers(**asked)
    inside = AWS.offers(**asked, zones=zones)
    assert all(set(m.zone_ids) & set(zones) for m in inside)
    assert set(everywhere) - set(inside) == {
        m for m in everywhere if not set(m.zone_ids) & set(zones)
    }


@given(_PLACES, _DEMANDS)
def test_shortfalls_say_why_the_others_are_not_offered(
    where: Place, asked: dict[str, Any]
) -> None:
    demand = Demand(**asked)
    offered = set(where.satisfying(demand))
    for machine in where.machines():
        assert bool(demand.shortfalls(machine)) == (machine not in offered)


@pytest.mark.parametrize(
    ("count", "name"),
    [
        (Fraction(1, 6), "Standard_NV6ads_A10_v5"),
        (0.17, "Standard_NV6ads_A10_v5"),
        (1 / 6, "Standard_NV6ads_A10_v5"),
        (0.33, "Standard_NV12ads_A10_v5"),
        (0.3333, "Standard_NV12ads_A10_v5"),
        (0.5, "Standard_NV18ads_A10_v5"),
        (1, "Standard_NV36ads_A10_v5"),
        (2.0, "Standard_NV72ads_A10_v5"),
    ],
)
def test_fractions_of_a_gpu(count: float | Fraction, name: str) -> None:
    assert UAE.resolve(gpu="A10", count=count).name == name


@pytest.mark.parametrize("count", [0.25, 0.4, 0.3, 1.5, 3])
def test_fractions_that_are_not_sold(count: float) -> None:
    with pytest.raises(Exception, match=r"A10; .*sold there, closest first: [^;]*x A10 "):
        UAE.resolve(gpu="A10", count=count)


def test_ordinary_demands_leave_confidential_machines_out() -> None:
    ordinary = UAE.resolve(vcpu=16, memory_gib=64, arch="x86_64")
    assert ordinary.confidential is None
    confidential = UAE.resolve(vcpu=16, memory_gib=64, int8="vnni", confidential=True)
    assert confidential.name == "Standard_DC16as_v6"
    assert confidential.confidential == "SEV-SNP"


def test_machines_to_be_avoided_are_taken_by_name_only() -> None:
    assert UAE.resolve(count=1).gpu_text == "1 x A10"
    assert UAE.resolve(gpu="M60").caution is not None
    assert not any(m.caution for m in UAE.offers(confidential=True))
    child = UAE.machine("Standard_DC16as_cc_v5")
    assert "to be avoided (host of confidential child" in Demand().shortfalls(child)[0]
    assert not Demand(discouraged=True).shortfalls(child)


def test_a_named_machine_is_told_what_it_lacks() -> None:
    machine = AWS.machine("g6.xlarge")
    lacks = Demand(gpu="L4", count=4, fabric="efa", vcpu=8, zones=["mec1-az3"]).shortfalls(machine)
    assert lacks == (
        "it has 1 x L4",
        "it has no EFA interface",
        "it has 4 vCPU",
        "it is sold in mec1-az1, mec1-az2 only",
    )


def test_a_demand_in_words() -> None:
    demand = Demand(
        gpu="H200",
        count=8,
        fabric="efa",
        vcpu=96,
        memory_gib=512,
        arch="amd64",
        zones=["mec1-az1"],
    )
    assert str(demand) == (
        "8 x H200, fabric efa, at least 96 vCPU, at least 512 GiB of memory, x86_64, in mec1-az1"
    )
    assert str(Demand(int8="vnni")) == "a machine without GPUs, int8 by vnni"
    assert str(Demand(gpu="A10", count=0.33)) == "1/3 x A10"
