"""What pools cost; unknown stays unknown."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components import catalogue

H200 = catalogue.place("aws", "me-central-1").machine("p5en.48xlarge")
UNPRICED = catalogue.place("aws", "me-central-1").machine("g6.xlarge")


@pytest.mark.parametrize(
    ("nodes", "capacity", "reason"),
    [(-1, "on-demand", "nodes is -1"), (1, "preemptible", "capacity is 'preemptible'; allowed")],
)
def test_impossible_pools(nodes: int, capacity: str, reason: str) -> None:
    with pytest.raises(catalogue.DemandError, match=reason):
        catalogue.cost.pool(H200, nodes, capacity)


def test_a_range_has_its_ends_in_order() -> None:
    with pytest.raises(catalogue.DemandError, match="min_nodes is 3 and max_nodes is 2"):
        catalogue.cost.span(H200, 3, 2)


def test_unknown_stays_unknown() -> None:
    found = catalogue.cost.pool(UNPRICED, 3)
    assert (found.hourly, found.monthly, found.source) == (None, None, None)
    assert str(found) == "cost unknown"
    assert str(catalogue.cost.span(UNPRICED, 0, 3)).endswith("to cost unknown")


@pytest.mark.parametrize("capacity", ["spot", "reservation", "capacity-block"])
def test_only_on_demand_prices_are_known(capacity: str) -> None:
    assert catalogue.cost.pool(H200, 2, capacity).hourly is None


def test_no_node_costs_nothing() -> None:
    assert catalogue.cost.pool(UNPRICED, 0, "spot").monthly == 0


def test_a_pool() -> None:
    found = catalogue.cost.pool(H200, 2)
    assert found.hourly == Decimal("151.9104")
    assert found.monthly == Decimal("151.9104") * 730
    assert found.source == "S_SKYPILOT_AWS"
    assert str(found) == ("USD 151.91 per hour, 110,895 per month (list price, 2025-12..2026-04)")
    assert str(catalogue.cost.span(H200, 0, 2)) == (
        "USD 0.00 to 151.91 per hour, 0 to 110,895 per month (list price, 2025-12..2026-04)"
    )


@given(st.sampled_from(catalogue.place("azure", "uaenorth").machines()), st.integers(0, 1000))
def test_cost_grows_with_nodes(machine: catalogue.MachineType, nodes: int) -> None:
    one = catalogue.cost.pool(machine, 1).hourly
    many = catalogue.cost.pool(machine, nodes)
    assert one is not None
    assert many.hourly == one * nodes
    assert many.monthly == one * nodes * 730
