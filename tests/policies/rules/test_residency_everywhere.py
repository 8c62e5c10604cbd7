"""A place abroad is found however deep it stands; what only looks like one is not."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.components.catalogue.region_names import AWS_REGIONS, AZURE_LOCATIONS
from falaj.policies.model import UNKNOWN, Context, FindingKind, Resource, Rule, format_path
from falaj.policies.rules.residency.everywhere import foreign_arn, foreign_host, foreign_region
from tests.examples import examples

HOME = frozenset({"me-central-1", "uaenorth", "uaecentral"})
ABROAD = sorted((AWS_REGIONS | AZURE_LOCATIONS) - HOME)
REGION_KEYS = (
    "region", "regions", "regionName", "awsRegion", "destinationRegion", "s3Region", "peerRegion",
    "zones", "availabilityZones", "AWS_REGION", "regionLists", "location", "linkedLocations",
)  # fmt: skip
#: Keys that programs use around what matters; none marks, describes or forbids.
AROUND = ("rules", "destination", "properties", "config", "Spec", "x-y", "a.b", "items", "äöü")
PLAIN = st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.just("me-central-1")

Step = str | int


def wrap(value: Any, steps: list[Step], beside: list[Any]) -> tuple[Any, tuple[Step, ...]]:
    """The value below steps, inmost first, each a key or a place in a list; and its path."""
    path: tuple[Step, ...] = ()
    for step in steps:
        if isinstance(step, str):
            value, path = {"first": beside, step: value}, (step, *path)
        else:
            place = step % (len(beside) + 1)
            value, path = [*beside[:place], value, *beside[place:]], (place, *path)
    return value, path


steps = st.lists(st.sampled_from(AROUND) | st.integers(0, 3), max_size=6)
kinds = st.sampled_from(
    ["aws:ec2/instance:Instance", "kubernetes:core/v1:Pod", "gcp:x/y:Z", "pulumi:providers:aws"]
)


def found_at(check: Rule, kind: str, properties: Any) -> set[str]:
    found = check.check(Resource(kind, "it", properties), Context())
    return {each.path for each in found if each.kind is FindingKind.VIOLATION}


surroundings = st.tuples(steps, steps, st.lists(PLAIN, max_size=2))


@settings(max_examples=examples(150))
@given(st.sampled_from(ABROAD), st.sampled_from(REGION_KEYS), surroundings, kinds)
def test_a_place_under_a_region_key_is_found(
    place: str, key: str, around: tuple[list[Step], list[Step], list[Any]], kind: str
) -> None:
    inner, outer, beside = around
    # Only lists may stand between a key and its value: other keys would give it their meaning.
    below = [each for each in inner if isinstance(each, int)]
    value, path = wrap(place, [*below, key, *outer, "top"], beside)
    assert format_path(path) in found_at(foreign_region, kind, value)


@settings(max_examples=examples(100))
@given(
    st.sampled_from(sorted(AWS_REGIONS - HOME)), steps, kinds,
    st.sampled_from(["{0}", "{0}a", "{0},me-central-1", "  {0} "]),
)  # fmt: skip
def test_a_region_of_aws_is_found_under_any_key(
    place: str, outer: list[Step], kind: str, spelling: str
) -> None:
    value, path = wrap(spelling.format(place), [*outer, "top"], [])
    assert format_path(path) in found_at(foreign_region, kind, value)


@settings(max_examples=examples(100))
@given(st.sampled_from(sorted(AWS_REGIONS - HOME)), steps, kinds, st.text("abc:/ ", max_size=5))
def test_an_arn_and_a_host_are_found_in_any_text(
    place: str, outer: list[Step], kind: str, before: str
) -> None:
    arn, path = wrap(f"{before} arn:aws:sqs:{place}:123456789012:q", [*outer, "top"], [])
    assert format_path(path) in found_at(foreign_arn, kind, arn)
    host, path = wrap(f"{before} https://q.{place}.amazonaws.com/x", [*outer, "top"], [])
    assert format_path(path) in found_at(foreign_host, kind, host)


@settings(max_examples=examples(100))
@given(
    st.sampled_from(sorted(AWS_REGIONS - HOME)), steps, kinds,
    st.sampled_from(
        ["tags", "tagsAll", "labels", "eventPattern", "dimensions", "excludedRegions"]
    ),
)  # fmt: skip
def test_marks_and_filters_are_no_places(
    place: str, outer: list[Step], kind: str, mark: str
) -> None:
    for inmost in (place, {"region": place}, [{"region": f"arn:aws:sqs:{place}:1:q"}]):
        value, _ = wrap(inmost, [mark, *outer, "top"], [])
        for check in (foreign_region, foreign_arn, foreign_host):
            assert not list(check.check(Resource(kind, "it", value), Context()))


@settings(max_examples=examples(100))
@given(steps, kinds, st.sampled_from(["north", "all", "emea", "", "me-central-1", "1", "x-west"]))
def test_a_label_under_a_region_key_is_no_place(outer: list[Step], kind: str, label: str) -> None:
    value, _ = wrap(label, ["region", *outer, "top"], [])
    assert not list(foreign_region.check(Resource(kind, "it", value), Context()))


@settings(max_examples=examples(100))
@given(steps, kinds, st.sampled_from(["name", "bucket", "tags", "zone", "multiRegion", "data"]))
def test_an_unknown_counts_only_where_it_names_a_region(
    outer: list[Step], kind: str, key: str
) -> None:
    hidden, path = wrap(UNKNOWN, ["destinationRegion", *outer, "top"], [])
    found = list(foreign_region.check(Resource(kind, "it", hidden), Context()))
    assert [(each.path, each.kind) for each in found] == [
        (format_path(path), FindingKind.INDETERMINATE)
    ]
    other, _ = wrap(UNKNOWN, [key, *outer, "top"], [])
    assert not list(foreign_region.check(Resource(kind, "it", other), Context()))
