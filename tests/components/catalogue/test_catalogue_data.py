"""The shipped data hold together: sources, zones, GPUs, dates."""

from __future__ import annotations

import json
import re
from importlib import resources
from typing import Any

import pytest

from falaj.components.catalogue import GPUS, SOURCES, CatalogueError, all_places
from falaj.components.catalogue.sources import REGION_FILES, source, sources_of

FOLDER = resources.files("falaj.components.catalogue.data")
FILES = {
    entry.name: json.loads(entry.read_text())
    for entry in FOLDER.iterdir()
    if entry.name.endswith(".json")
}
REGIONS = [FILES[f"{name}.json"] for name in REGION_FILES]


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _strings(item)]
    if isinstance(value, list):
        return [text for item in value for text in _strings(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_source_that_is_used_exists(name: str) -> None:
    used = {text for text in _strings(FILES[name]) if re.fullmatch(r"S_[A-Z0-9_]+", text)}
    assert used <= set(SOURCES)


@pytest.mark.parametrize("name", sorted(FILES))
def test_every_file_is_dated(name: str) -> None:
    assert re.match(r"20\d\d-\d\d", FILES[name]["as_of"])


def test_every_source_has_a_reference_and_a_date() -> None:
    assert len(SOURCES) >= 38
    assert all(found.reference and found.date for found in SOURCES.values())


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(CatalogueError, match="S_NOWHERE"):
        source("S_NOWHERE")
    assert sources_of(["S_MOTO", "S_MOTO"]) == (source("S_MOTO"),)


@pytest.mark.parametrize("data", REGIONS, ids=lambda data: data["region"])
def test_zones_and_gpus_exist(data: dict[str, Any]) -> None:
    zones = {zone["id"] for zone in data["zones"]}
    for row in (*data["gpu_machines"].values(), *data["cpu_machines"].values()):
        assert set(row.get("zone_ids", ())) <= zones
        assert row.get("gpu") in (None, *GPUS)
    assert set(data["status"]["impaired_zones"]) <= zones


@pytest.mark.parametrize("data", REGIONS, ids=lambda data: data["region"])
def test_nothing_is_both_sold_and_refused(data: dict[str, Any]) -> None:
    place = next(p for p in all_places() if p.region == data["region"])
    families = {
        m.name.split(".")[0] if data["cloud"] == "aws" else m.name for m in place.machines()
    }
    unsold = [*data["refused"], *data.get("uncertain", ())]
    assert not families & {row["pattern"] for row in unsold}
    assert all(row["reason"] and row["sources"] for row in unsold)


@pytest.mark.parametrize("data", REGIONS[1:], ids=lambda data: data["region"])
def test_azure_sizes_have_the_vcpus_of_their_names(data: dict[str, Any]) -> None:
    # [Family][vCPUs](-[constrained vCPUs])[features]…, as the vendor's naming page has it.
    for name, row in data["cpu_machines"].items():
        matched = re.match(r"Standard_[A-Z]+(\d+)(?:-(\d+))?[a-z]", name)
        assert matched, name
        assert row["vcpu"] == int(matched.group(2) or matched.group(1))
        assert row["family"] in data["cpu_families"]


def test_both_azure_regions_agree_on_sizes() -> None:
    north, central = (data["cpu_machines"] for data in REGIONS[1:])
    for name in north.keys() & central.keys():
        same = ("vcpu", "memory_gib", "arch", "family")
        assert {k: north[name][k] for k in same} == {k: central[name][k] for k in same}


@pytest.mark.parametrize("data", REGIONS, ids=lambda data: data["region"])
def test_prices_are_positive_or_unknown(data: dict[str, Any]) -> None:
    for row in (*data["gpu_machines"].values(), *data["cpu_machines"].values()):
        price = row.get("usd_per_hour")
        assert price is None or price > 0


def test_no_data_name_a_machine_of_ours() -> None:
    everything = "\n".join(text for data in FILES.values() for text in _strings(data))
    assert not re.search(r"/work/|/tmp/|index id|look-up", everything)
