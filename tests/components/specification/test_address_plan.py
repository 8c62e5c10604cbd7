"""The address plan: nothing overlaps, all lies inside, zones that come later move nothing."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.specification.address_plan import SHARES, AddressPlan, overlapping

NETWORKS = st.builds(
    lambda address, prefix: ipaddress.IPv4Network((address, prefix), strict=False),
    st.integers(0x0A000000, 0x0AFFFFFF),
    st.integers(16, 22),
)
ZONES = st.integers(1, 6).map(lambda count: tuple(f"az{number}" for number in range(count)))


def test_a_plan_needs_zones() -> None:
    with pytest.raises(ValueError, match="at least one"):
        AddressPlan(ipaddress.IPv4Network("10.0.0.0/16"), ())


def test_a_zone_is_planned_once() -> None:
    with pytest.raises(ValueError, match="only once"):
        AddressPlan(ipaddress.IPv4Network("10.0.0.0/16"), ("a", "a"))


def test_a_network_needs_room() -> None:
    with pytest.raises(ValueError, match="no room"):
        AddressPlan(ipaddress.IPv4Network("10.0.0.0/27"), ("a", "b", "c"))


def test_unknown_zones_and_roles_are_refused() -> None:
    plan = AddressPlan(ipaddress.IPv4Network("10.0.0.0/16"), ("a",))
    with pytest.raises(KeyError, match="none of a"):
        plan.subnet("b", "nodes")
    with pytest.raises(KeyError, match="none of nodes"):
        plan.subnet("a", "gateway")


def test_overlap_is_seen() -> None:
    networks = [ipaddress.IPv4Network(each) for each in ("10.0.0.0/24", "10.0.0.128/25")]
    assert overlapping(networks)
    assert not overlapping(networks[:1])


@given(NETWORKS, ZONES)
def test_subnets_never_overlap_and_lie_inside(
    network: ipaddress.IPv4Network, zones: tuple[str, ...]
) -> None:
    subnets = AddressPlan(network, zones).subnets()
    assert len(subnets) == len(zones) * len(SHARES)
    assert not overlapping(list(subnets.values()))
    assert all(each.subnet_of(network) for each in subnets.values())
    assert all(subnet.subnet_of(AddressPlan(network, zones).block(zone))
               for (zone, _), subnet in subnets.items())  # fmt: skip


@given(NETWORKS, ZONES)
def test_nodes_get_the_most_room(network: ipaddress.IPv4Network, zones: tuple[str, ...]) -> None:
    plan = AddressPlan(network, zones)
    for zone in zones:
        nodes = plan.subnet(zone, "nodes").num_addresses
        others = sum(plan.subnet(zone, role).num_addresses for role in SHARES if role != "nodes")
        assert nodes == others


@given(NETWORKS, st.integers(1, 4))
def test_up_to_four_zones_leave_what_each_cloud_needs(
    network: ipaddress.IPv4Network, count: int
) -> None:
    zones = tuple(f"az{number}" for number in range(count))
    smallest = max(each.prefixlen for each in AddressPlan(network, zones).subnets().values())
    assert smallest <= 28
    undivided = AddressPlan(network, ("regional",))
    assert undivided.subnet("regional", "firewall").prefixlen <= 26


@given(NETWORKS)
def test_a_fourth_zone_moves_no_subnet(network: ipaddress.IPv4Network) -> None:
    three = AddressPlan(network, ("a", "b", "c")).subnets()
    four = AddressPlan(network, ("a", "b", "c", "d")).subnets()
    assert all(four[key] == subnet for key, subnet in three.items())
