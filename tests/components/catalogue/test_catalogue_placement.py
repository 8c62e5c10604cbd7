"""Placement: in order, at home, healthy or acknowledged, and with reasons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.catalogue import (
    PLACES,
    ClusterPlace,
    Demand,
    DemandError,
    Place,
    PlaceError,
    PlacementError,
    choose,
)

H200 = Demand(gpu="H200", count=8)
ACKNOWLEDGED = {"aws/me-central-1": "2026-04-30"}


@pytest.mark.parametrize(
    "places",
    [
        ["aws/us-east-1"],
        ["azure/uaenorth", "aws/eu-west-1"],
        ["azure/uaenorth", "gcp/me-central1"],
        ["uaenorth"],
        ["azure/uaenorth "],
        ["kubernetes/"],
        ["kubernetes/a b"],
        [""],
        [],
        "azure/uaenorth",
    ],
)
def test_places_abroad_or_malformed_are_refused_wherever_they_stand(places: list[str]) -> None:
    with pytest.raises(PlaceError):
        choose(places, [])


def test_none_fits() -> None:
    with pytest.raises(PlacementError) as refused:
        choose(list(PLACES), [Demand(gpu="B200", count=8)], ACKNOWLEDGED)
    message = str(refused.value)
    assert all(f"{name} passed over: {name} does not sell 8 x B200" in message for name in PLACES)


def test_a_degraded_region_is_passed_over_with_the_reason() -> None:
    made = choose(["aws/me-central-1", "azure/uaenorth"], [H200])
    assert isinstance(made.place, Place)
    assert made.place.name == "azure/uaenorth"
    assert [m.name for m in made.machines] == ["Standard_ND96isr_H200_v5"]
    assert made.reasons[0].startswith("aws/me-central-1 passed over: region me-central-1 is")
    assert made.reasons[1] == (
        "azure/uaenorth taken: no report of degradation as of 2026-11-20; "
        "it sells Standard_ND96isr_H200_v5"
    )


@pytest.mark.parametrize(
    "acknowledged", [ACKNOWLEDGED, {"me-central-1": "2026-04-30"}], ids=["place", "region"]
)
def test_an_acknowledged_region_is_taken(acknowledged: dict[str, str]) -> None:
    made = choose(["aws/me-central-1", "azure/uaenorth"], [H200, Demand(vcpu=4)], acknowledged)
    assert made.place.name == "aws/me-central-1"
    assert [m.name for m in made.machines] == ["p5en.48xlarge", "c7i.xlarge"]
    assert "degraded status of 2026-04-30 was acknowledged" in str(made)


def test_an_acknowledgement_of_another_day_does_not_count() -> None:
    made = choose(["aws/me-central-1", "azure/uaenorth"], [], {"aws/me-central-1": "2026-03-01"})
    assert made.place.name == "azure/uaenorth"


def test_an_acknowledgement_of_no_place_is_refused() -> None:
    with pytest.raises(PlaceError, match="acknowledged names 'aws/me-central1'"):
        choose(["azure/uaenorth"], [], {"aws/me-central1": "2026-04-30"})


def test_everything_asked_has_to_be_sold_in_one_place() -> None:
    made = choose(
        ["aws/me-central-1", "azure/uaenorth"], [H200, Demand(gpu="A100", count=8)], ACKNOWLEDGED
    )
    assert made.place.name == "azure/uaenorth"
    assert "does not sell 8 x A100" in made.reasons[0]


def test_a_misspelt_demand_is_refused_at_once() -> None:
    with pytest.raises(DemandError, match="did you mean H200"):
        choose(["aws/me-central-1", "azure/uaenorth"], [Demand(gpu="H20")])


def test_a_cluster_is_not_taken_on_trust() -> None:
    with pytest.raises(PlacementError, match="nobody confirmed it"):
        choose(["kubernetes/on-premises"], [H200])
    made = choose(["kubernetes/on-premises", "azure/uaenorth"], [H200])
    assert made.place.name == "azure/uaenorth"


def test_a_confirmed_cluster_is_taken() -> None:
    made = choose(
        ["aws/me-central-1", "kubernetes/arn:aws:eks/x"],
        [H200],
        confirmed_clusters=["kubernetes/arn:aws:eks/x"],
    )
    assert made.place == ClusterPlace("arn:aws:eks/x")
    assert made.machines == ()
    assert made.reasons[1].endswith("confirmed by the caller, not by the catalogue")


def test_confirming_a_cluster_that_is_not_named_is_refused() -> None:
    with pytest.raises(PlaceError, match="not among the places"):
        choose(["azure/uaenorth"], [], confirmed_clusters=["kubernetes/other"])


_DEMANDS = st.lists(
    st.builds(
        Demand,
        gpu=st.sampled_from([None, "H200", "H100", "A100", "A10", "L4", "GB200", "B200"]),
        vcpu=st.none() | st.integers(1, 256),
    ),
    max_size=3,
)


@given(
    st.lists(st.sampled_from(PLACES), min_size=1, unique=True),
    _DEMANDS,
    st.sampled_from([{}, ACKNOWLEDGED]),
)
def test_the_first_that_fits_is_taken(
    places: list[str], demands: list[Demand], acknowledged: dict[str, str]
) -> None:
    try:
        made = choose(places, demands, acknowledged)
    except PlacementError as error:
        assert all(f"{name} passed over" in str(error) for name in places)
        return
    assert isinstance(made.place, Place)
    position = places.index(made.place.name)
    assert len(made.reasons) == position + 1
    assert len(made.machines) == len(demands)
    assert all(m.region == made.place.region for m in made.machines)
    assert all(
        not demand.shortfalls(machine)
        for demand, machine in zip(demands, made.machines, strict=True)
    )
    if made.place.status.degraded:
        assert acknowledged
