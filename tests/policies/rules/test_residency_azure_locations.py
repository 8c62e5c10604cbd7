"""A location abroad is found wherever in a resource of Azure it stands; a label never is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.catalogue.region_names import AZURE_LOCATIONS
from falaj.policies.model import UNKNOWN, Context, FindingKind, Resource, Stack
from falaj.policies.rules.residency.azure_locations import location

HOME = ("uaenorth", "uaecentral")
FOREIGN = sorted(AZURE_LOCATIONS - set(HOME))
TYPES = (
    "azure-native:storage:StorageAccount",
    "azure-native:cosmosdb:DatabaseAccount",
    "azure-native:servicebus/v20230101preview:Namespace",
    "azure-native:network:VirtualNetwork",
    "azure-native:resources:Deployment",
    "azure-native:invented:Thing",
)
PLACE_KEYS = (
    "location", "locations", "locationName", "region", "regions", "targetRegions",
    "replicationRegion", "primaryLocation", "failoverLocation", "dataLocation", "regionNames",
)  # fmt: skip
PLAIN_KEYS = ("properties", "settings", "items", "config", "sku", "rules", "identity")
LABEL_KEYS = ("tags", "labels", "displayName", "description", "metadata")


def spellings(name: str) -> st.SearchStrategy[str]:
    """The ways that people write a location."""
    return st.sampled_from((name, name.upper(), f" {name} ", name[:4] + " " + name[4:]))


def nested(inner: Any, keys: list[str], in_lists: list[bool]) -> dict[str, Any]:
    """The value below the keys, the last one outermost; within lists where asked."""
    for key, in_list in zip(keys, in_lists, strict=True):
        inner = {key: [{"name": "first"}, inner] if in_list else inner}
    return dict(inner)


def found(
    properties: dict[str, Any], kind: str, context: Context | None = None
) -> list[FindingKind]:
    resource = Resource(kind, "it", properties, urn="urn:it")
    judged = context or Context(stack=Stack((resource,)))
    return [each.kind for each in location.check(resource, judged)]


PLACES = st.sampled_from(FOREIGN).flatmap(spellings)
AROUND = st.lists(st.tuples(st.sampled_from(PLAIN_KEYS), st.booleans()), max_size=5)


@given(PLACES, st.sampled_from(PLACE_KEYS), st.booleans(), AROUND, st.sampled_from(TYPES))
def test_a_location_abroad_is_found_at_any_depth(
    place: str, key: str, in_list: bool, around: list[tuple[str, bool]], kind: str
) -> None:
    inner = nested(place, [key], [in_list])
    properties = nested(inner, [each for each, _ in around], [each for _, each in around])
    assert FindingKind.VIOLATION in found(properties, kind)


@given(PLACES, st.sampled_from(PLACE_KEYS), AROUND, st.sampled_from(TYPES))
def test_it_is_found_as_the_name_of_an_item(
    place: str, key: str, around: list[tuple[str, bool]], kind: str
) -> None:
    inner = {key: [{"name": "uaenorth"}, {"name": place, "zoneRedundant": True}]}
    properties = nested(inner, [each for each, _ in around], [each for _, each in around])
    assert FindingKind.VIOLATION in found(properties, kind)


@given(PLACES, st.sampled_from(PLACE_KEYS), AROUND)
def test_it_is_found_in_a_text_of_json(
    place: str, key: str, around: list[tuple[str, bool]]
) -> None:
    inner = nested({key: place}, [each for each, _ in around], [each for _, each in around])
    assert FindingKind.VIOLATION in found({"body": json.dumps(inner)}, TYPES[0])


@given(st.sampled_from(HOME).flatmap(spellings), st.sampled_from(PLACE_KEYS), AROUND)
def test_a_location_at_home_never_is(place: str, key: str, around: list[tuple[str, bool]]) -> None:
    properties = nested({key: place}, [each for each, _ in around], [each for _, each in around])
    assert not found(properties, TYPES[0])


@given(PLACES, st.sampled_from(LABEL_KEYS), st.sampled_from(PLACE_KEYS), st.sampled_from(TYPES))
def test_labels_and_names_never_are(place: str, label: str, key: str, kind: str) -> None:
    holder = {key: place} if label in {"tags", "labels", "metadata"} else place
    assert not found({label: holder, "name": place, "allocation": place}, kind)


@given(st.sampled_from(PLACE_KEYS), AROUND, st.sampled_from(TYPES))
def test_an_unknown_location_is_told(key: str, around: list[tuple[str, bool]], kind: str) -> None:
    properties = nested({key: UNKNOWN}, [each for each, _ in around], [each for _, each in around])
    assert found(properties, kind) == [FindingKind.INDETERMINATE]
    assert found(properties, kind, Context()) == [FindingKind.INDETERMINATE]


@given(st.sampled_from((*PLAIN_KEYS, "allocation", "name", "id", "value")), st.sampled_from(TYPES))
def test_other_unknowns_are_not(key: str, kind: str) -> None:
    assert not found({key: UNKNOWN, "nested": [{key: UNKNOWN}]}, kind)


@pytest.mark.parametrize("place", ["uaenorth", "westeurope"])
def test_an_unknown_location_is_followed_to_the_group(place: str) -> None:
    group = Resource("azure-native:resources:ResourceGroup", "g", {"location": place}, urn="urn:g")
    it = Resource(
        TYPES[0], "it", {"location": UNKNOWN}, urn="urn:it", dependencies={"location": ("urn:g",)}
    )
    judged = list(location.check(it, Context(stack=Stack((group, it)))))
    assert [each.kind for each in judged] == ([] if place in HOME else [FindingKind.VIOLATION])
