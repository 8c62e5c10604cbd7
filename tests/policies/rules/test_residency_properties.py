"""The walkers reach every property of the SDK that may name a region or hold an ARN."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from falaj.policies.model import UNKNOWN, Context, FindingKind, Resource
from falaj.policies.rules.residency.everywhere import foreign_arn, foreign_region, kind_of_key

_NAME = re.compile(rb'@pulumi\.getter\(name="(\w+)"\)')
_ARN = re.compile(r"Arns?$|^arns?$")
_REGION = re.compile(r"(?i)regions?(names?|lists?)?$")
#: Properties that end so and are a switch, or part of somebody's address.
_OTHERWISE = frozenset(("multiRegion", "allRegions", "stateOrRegion"))


@cache
def names_of_the_sdk() -> frozenset[str]:
    """Names of properties, nested ones included, as the engine writes them."""
    spec = find_spec("pulumi_aws")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    files = [each for each in folder.rglob("*.py") if not each.name.startswith("get_")]
    found = {name for each in files for name in _NAME.findall(each.read_bytes())}
    return frozenset(each.decode() for each in found)


def test_an_arn_is_seen_under_every_name_that_the_sdk_has_for_one() -> None:
    names = sorted(each for each in names_of_the_sdk() if _ARN.search(each))
    assert len(names) > 300
    arn = "arn:aws:sqs:eu-west-1:123456789012:q"
    for name in names:
        for value in (arn, [arn], {"inner": [arn]}):
            resource = Resource("aws:x/y:Z", "it", {name: value})
            assert list(foreign_arn.check(resource, Context())), name


def test_a_region_is_seen_under_every_name_that_the_sdk_has_for_one() -> None:
    names = sorted({each for each in names_of_the_sdk() if _REGION.search(each)} - _OTHERWISE)
    assert len(names) > 40
    for name in names:
        assert kind_of_key(name) == "region", name
        for value in ("eu-west-1", ["me-central-1", "us-east-1"]):
            resource = Resource("aws:x/y:Z", "it", {"outer": [{name: value}]})
            assert list(foreign_region.check(resource, Context())), name
        hidden = Resource("aws:x/y:Z", "it", {"outer": {name: UNKNOWN}})
        kinds = {each.kind for each in foreign_region.check(hidden, Context())}
        assert kinds == {FindingKind.INDETERMINATE}, name


def test_a_zone_is_seen_under_every_name_that_the_sdk_has_for_one() -> None:
    names = [each for each in names_of_the_sdk() if re.search(r"vailabilityZones?$", each)]
    assert len(names) > 3
    for name in names:
        resource = Resource("aws:x/y:Z", "it", {name: "eu-west-1a"})
        assert list(foreign_region.check(resource, Context())), name
