"""Every machine type of the data, and what is refused."""

from __future__ import annotations

import json
from decimal import Decimal
from fractions import Fraction
from importlib import resources
from typing import Any

import pytest

from falaj.components import catalogue
from falaj.components.catalogue.sources import REGION_FILES


def _data(file: str) -> dict[str, Any]:
    return json.loads(
        (resources.files("falaj.components.catalogue.data") / f"{file}.json").read_text()
    )


DATA = {f"{data['cloud']}/{data['region']}": data for data in map(_data, REGION_FILES)}
GPU_ROWS = [
    pytest.param(place, name, row, id=f"{place}-{name}")
    for place, data in DATA.items()
    for name, row in data["gpu_machines"].items()
]
SOLD_ROWS = [
    pytest.param(place, name, row, id=f"{place}-{name}")
    for place, data in DATA.items()
    for name, row in data["gpu_machines"].items()
    if not row.get("refused")
]


@pytest.mark.parametrize(("place", "name", "row"), GPU_ROWS)
def test_every_gpu_row_is_found_by_its_own_demand(
    place: str, name: str, row: dict[str, Any]
) -> None:
    where = catalogue.parse(place)
    offers = where.offers(gpu=row["gpu"], count=Fraction(row["gpu_count"]))
    if row.get("refused"):
        assert name not in [m.name for m in offers]
        with pytest.raises(catalogue.NotSoldError, match=row["refused"]):
            where.machine(name)
        return
    assert name in [m.name for m in offers]
    resolved = where.resolve(gpu=row["gpu"], count=Fraction(row["gpu_count"]))
    assert resolved == offers[0]
    assert resolved.gpu is not None
    assert resolved.gpu.name == row["gpu"]
    assert resolved.gpu_count == Fraction(row["gpu_count"])
    machine = where.machine(name)
    assert machine.vcpu == row["vcpu"]
    assert machine.memory_gib == row["memory_gib"]
    assert machine.zone_ids == tuple(row.get("zone_ids", ()))
    assert machine.efa_interfaces == row.get("efa_interfaces", 0)
    price = row["usd_per_hour"]
    assert machine.usd_per_hour == (None if price is None else Decimal(str(price)))


@pytest.mark.parametrize(("place", "name", "row"), SOLD_ROWS)
def test_every_gpu_row_is_sold_in_its_zones_only(
    place: str, name: str, row: dict[str, Any]
) -> None:
    where = catalogue.parse(place)
    for zone in where.zones:
        found = where.offers(gpu=row["gpu"], zones=[zone.id])
        # Azure doesn't say which zone sells what: machines are taken, marked as unknown.
        expected = zone.id in row["zone_ids"] if "zone_ids" in row else True
        assert (name in [m.name for m in found]) == expected


@pytest.mark.parametrize("place", DATA)
def test_every_cpu_row_is_known(place: str) -> None:
    where = catalogue.parse(place)
    rows = DATA[place]["cpu_machines"]
    assert {m.name for m in where.machines("cpu")} == set(rows)
    for name, row in rows.items():
        machine = where.machine(name)
        assert machine.gpu is None
        assert machine.gpu_count == 0
        assert (machine.vcpu, machine.memory_gib) == (row["vcpu"], row["memory_gib"])
        assert machine.arch in ("x86_64", "arm64")


def test_h200_in_the_zones_that_sell_it() -> None:
    place = catalogue.place("aws", "me-central-1")
    machine = place.resolve(gpu="H200", count=8, fabric="efa")
    assert machine.name == "p5en.48xlarge"
    assert machine.zone_ids == ("mec1-az1", "mec1-az3")
    assert machine.efa_interfaces == machine.network_cards == 16
    assert "capacity-block" in machine.usage_classes
    with pytest.raises(catalogue.NotSoldError, match="sold in mec1-az1, mec1-az3 only"):
        place.resolve(gpu="H200", zones=["mec1-az2"])


def test_a100_on_aws_is_refused_with_what_is_sold_and_where() -> None:
    with pytest.raises(catalogue.NotSoldError) as refused:
        catalogue.place("aws", "me-central-1").resolve(gpu="A100", count=8)
    message = str(refused.value)
    assert "aws/me-central-1 does not sell 8 x A100" in message
    # Closest first: as many of the same generation (A10G is Ampere), then as many of another.
    assert message.index("8 x A10G") < message.index("8 x H200") < message.index("4 x A10G")
    assert "sold in azure/uaenorth and azure/uaecentral" in message


def test_a100_on_azure() -> None:
    machine = catalogue.place("azure", "uaenorth").resolve(
        gpu="A100", count=8, fabric="infiniband"
    )
    assert machine.name == "Standard_ND96amsr_A100_v4"
    assert machine.infiniband == "8x200 Gb/s HDR"
    assert not machine.infiniband_verified
    assert machine.offer_status.startswith("unproven")


@pytest.mark.parametrize(
    ("place", "name", "reason"),
    [
        ("aws/me-central-1", "t3.micro", "may not be sold .*sources conflict"),
        ("aws/me-central-1", "t4g.large", "may not be sold .*sources conflict"),
        ("aws/me-central-1", "c7i-flex.large", "may not be sold .*sources conflict"),
        ("aws/me-central-1", "r8i-flex.large", "may not be sold .*sources conflict"),
        ("aws/me-central-1", "p5.48xlarge", "not offered in the region"),
        ("aws/me-central-1", "hpc7a.96xlarge", "not offered in the region"),
        ("aws/me-central-1", "g5.49xlarge", r"closest names sold there: .*g5\.48xlarge"),
        ("aws/me-central-1", "Standard_D2s_v5", "sold in azure/uaenorth and azure/uaecentral"),
        ("azure/uaenorth", "Standard_NC4as_T4_v3", "without a price meter here"),
        ("azure/uaenorth", "Standard_ND96is_H100_v5", "no ARM SKU of this name was seen"),
        ("azure/uaecentral", "Standard_ND96isr_H200_v5", "sold in azure/uaenorth"),
        ("azure/uaenorth", "", "is not sold"),
    ],
)
def test_machines_that_are_not_sold(place: str, name: str, reason: str) -> None:
    with pytest.raises(catalogue.NotSoldError, match=reason):
        catalogue.parse(place).machine(name)


def test_a_size_of_unknown_price_comes_before_the_bigger_one_that_bounds_it() -> None:
    place = catalogue.place("aws", "me-central-1")
    names = [m.name for m in place.offers(gpu="A10G", count=1)]
    assert names == ["g5.xlarge", "g5.2xlarge", "g5.4xlarge", "g5.8xlarge", "g5.16xlarge"]
    smallest = place.machine("g5.xlarge")
    assert smallest.usd_per_hour is None
    assert smallest.usd_per_hour_at_most == place.machine("g5.16xlarge").usd_per_hour


def test_old_graphics_machines_carry_a_caution() -> None:
    place = catalogue.place("azure", "uaenorth")
    old = {m.name for m in place.machines("gpu") if m.caution}
    assert all("do not use" in (place.machine(name).caution or "") for name in old)
    assert old == {"Standard_NV12s_v3", "Standard_NV24s_v3", "Standard_NV48s_v3"}
    assert {m.name for m in place.offers(gpu="M60")} == old


def test_infiniband_of_unknown_speed() -> None:
    machine = catalogue.place("azure", "uaecentral").resolve(gpu="GB200", fabric="infiniband")
    assert machine.infiniband == "InfiniBand, speed unknown"
    assert not machine.infiniband_verified
    assert machine.arch == "arm64"


@pytest.mark.parametrize(
    ("place", "name", "int8", "known"),
    [
        ("aws/me-central-1", "c7i.xlarge", "amx", True),
        ("aws/me-central-1", "m6i.large", "vnni", True),
        ("aws/me-central-1", "c5.large", None, False),
        ("aws/me-central-1", "i3.large", None, True),
        ("aws/me-central-1", "m8g.large", "i8mm", True),
        ("aws/me-central-1", "m6g.large", "dotprod", True),
        ("azure/uaenorth", "Standard_D4s_v5", "vnni", False),
        ("azure/uaenorth", "Standard_D4s_v6", "amx", True),
        ("azure/uaenorth", "Standard_F4s_v2", None, False),
        ("azure/uaenorth", "Standard_D4ns_v6", None, False),
    ],
)
def test_instruction_sets(place: str, name: str, int8: str | None, known: bool) -> None:
    sets = catalogue.parse(place).machine(name).instruction_sets
    assert (sets.int8, sets.known) == (int8, known)


def test_memory_that_no_page_states_is_unknown() -> None:
    place = catalogue.place("azure", "uaenorth")
    assert place.machine("Standard_E104is_v5").memory_gib == 672
    assert place.machine("Standard_E16-4ds_v5").memory_gib == 128
    assert place.machine("Standard_E16-4ds_v5").vcpu == 4
    assert place.machine("Standard_EC16as_v5").memory_gib is None
