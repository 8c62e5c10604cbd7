"""Places: only those of the country, their zones, state and services."""

from __future__ import annotations

import subprocess
import sys
from datetime import date

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from falaj.components import catalogue

ABROAD = [
    ("aws", "us-east-1"),
    ("aws", "me-south-1"),
    ("aws", "il-central-1"),
    ("azure", "westeurope"),
    ("azure", "qatarcentral"),
    ("aws", "uaenorth"),
    ("azure", "me-central-1"),
    ("oci", "me-abudhabi-1"),
    ("aws", ""),
    ("", ""),
]


@pytest.mark.parametrize(("cloud", "region"), ABROAD)
def test_abroad_is_refused_with_what_is_allowed(cloud: str, region: str) -> None:
    with pytest.raises(catalogue.PlaceError, match="not a place in the country") as refused:
        catalogue.place(cloud, region)
    assert all(name in str(refused.value) for name in catalogue.PLACES)


@given(st.text(), st.text())
@example("aws", "me-central-1 ")
@example("AWS", "me-central-1")
@example("azure", "uaenorth\n")
def test_any_other_place_is_refused(cloud: str, region: str) -> None:
    if f"{cloud}/{region}" not in catalogue.PLACES:
        with pytest.raises(catalogue.PlaceError):
            catalogue.place(cloud, region)


@given(st.text())
def test_any_other_written_place_is_refused(text: str) -> None:
    if text not in catalogue.PLACES:
        with pytest.raises(catalogue.PlaceError):
            catalogue.parse(text)


def test_places_of_the_country() -> None:
    assert catalogue.REGIONS == ("me-central-1", "uaenorth", "uaecentral")
    assert catalogue.PLACES == ("aws/me-central-1", "azure/uaenorth", "azure/uaecentral")
    assert [p.name for p in catalogue.all_places()] == list(catalogue.PLACES)
    assert all(catalogue.parse(name).name == name for name in catalogue.PLACES)


def test_zones_are_named_by_id() -> None:
    aws = catalogue.place("aws", "me-central-1")
    assert [zone.id for zone in aws.zones] == ["mec1-az1", "mec1-az2", "mec1-az3"]
    assert {zone.name for zone in aws.zones} == {None}
    azure = catalogue.place("azure", "uaenorth")
    assert [zone.name for zone in azure.zones] == ["1", "2", "3"]
    assert azure.zone_ids(["1", "uaenorth-az3"]) == ("uaenorth-az1", "uaenorth-az3")


@pytest.mark.parametrize(
    ("place", "zones", "reason"),
    [
        ("aws/me-central-1", ["me-central-1a"], "letters mean other zones in other accounts"),
        ("aws/me-central-1", ["mec1-az1", "mec1-az4"], "'mec1-az4'; allowed: mec1-az1"),
        ("azure/uaenorth", ["4"], r"allowed: uaenorth-az1 \(or 1\)"),
        ("azure/uaecentral", ["1"], "has no zones: leave them out"),
        ("aws/me-central-1", [], "an empty list"),
    ],
)
def test_unknown_zones_are_refused(place: str, zones: list[str], reason: str) -> None:
    with pytest.raises(catalogue.PlaceError, match=reason):
        catalogue.parse(place).resolve(vcpu=2, zones=zones)


@pytest.mark.parametrize("given_date", [None, "", "2026-03-01", "2026-04-30 ", "yes", "true"])
def test_a_degraded_region_is_refused(given_date: str | None) -> None:
    place = catalogue.place("aws", "me-central-1")
    with pytest.raises(catalogue.DegradedRegionError, match=r"\(2026-04-30\)") as refused:
        place.require_healthy(given_date)
    assert "degraded as of 2026-04-30" in str(refused.value)
    assert "another place in the country" in str(refused.value)


def test_a_degraded_region_is_accepted_by_the_date_of_its_report() -> None:
    place = catalogue.place("aws", "me-central-1")
    place.require_healthy("2026-04-30")
    place.require_healthy(date(2026, 4, 30))
    with pytest.raises(catalogue.DegradedRegionError, match="given '2026-05-01'"):
        place.require_healthy(date(2026, 5, 1))
    assert place.status.as_of == date(2026, 4, 30)
    assert place.status.impaired_zones == ("mec1-az2", "mec1-az3")


@pytest.mark.parametrize("region", ["uaenorth", "uaecentral"])
def test_no_report_is_not_called_health(region: str) -> None:
    status = catalogue.place("azure", region).status
    assert not status.degraded
    assert "no report" in str(status)
    assert "not a statement about capacity" in str(status)
    assert "healthy" not in str(status)
    catalogue.place("azure", region).require_healthy()


@pytest.mark.parametrize(
    ("place", "name", "available"),
    [
        ("aws/me-central-1", "eks", True),
        ("aws/me-central-1", "Macie", False),
        ("aws/me-central-1", "SageMaker HyperPod", None),
        ("azure/uaenorth", "AKS", True),
        ("azure/uaenorth", "ACR", None),
        ("azure/uaecentral", "AKS Automatic", False),
        ("azure/uaecentral", "AKS", None),
    ],
)
def test_services(place: str, name: str, available: bool | None) -> None:
    assert catalogue.parse(place).service(name).available is available


def test_a_service_that_nobody_read_about_is_unknown() -> None:
    found = catalogue.place("aws", "me-central-1").service("CloudTrial")
    assert found.available is None
    assert str(found) == (
        "unknown (not in the catalogue; nearest names: CloudTrail, CloudTrail Lake/data, CloudHSM)"
    )


def test_the_catalogue_needs_no_pulumi() -> None:
    program = (
        "import sys; import falaj.components.catalogue, falaj.components.catalogue.__main__; "
        "print(sorted(m for m in sys.modules if m.split('.')[0].startswith('pulumi')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
