"""Types of AWS without a region: all of the installed SDK's are classified."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from falaj.policies.model import Context, Resource, Stack
from falaj.policies.reading.place import REGIONLESS, REGIONLESS_MODULES
from falaj.policies.rules.residency import RULES
from falaj.policies.rules.residency.global_services import regionless_edge as edge
from falaj.policies.rules.residency.global_services import unclassified
from tests.each import for_each

_TOKEN = re.compile(rb"super\(\w+, __self__\)\.__init__\(\s*'(aws:[^']+)'")


@cache
def types_of_the_sdk() -> dict[str, bool]:
    """Every type of the installed SDK, and whether it takes a region."""
    spec = find_spec("pulumi_aws")
    assert spec is not None
    assert spec.origin is not None
    found: dict[str, bool] = {}
    for file in Path(spec.origin).parent.rglob("[a-z]*.py"):
        source = file.read_bytes()
        if token := _TOKEN.search(source):
            arguments = source.partition(b"\nclass _")[0]
            found[token[1].decode()] = b"                 region: pulumi.Input[" in arguments
    return found


def test_the_list_is_complete_and_has_nothing_else() -> None:
    without = {token for token, has_region in types_of_the_sdk().items() if not has_region}
    assert without == set(REGIONLESS)


def test_modules_that_are_said_to_have_no_regions_have_none() -> None:
    for token, has_region in types_of_the_sdk().items():
        if token[4:].partition("/")[0] in REGIONLESS_MODULES:
            assert not has_region, token


def test_each_has_a_class_and_a_reason() -> None:
    for_each(sorted(REGIONLESS), has_a_class_and_a_reason)


def has_a_class_and_a_reason(token: str) -> None:
    kind, reason = REGIONLESS[token]
    assert kind in {"control plane", "edge data plane", "harmless"}
    assert len(reason) > 20
    assert not reason.endswith(".")
    found = list(edge.check(Resource(token, "it", {}), Context()))
    assert bool(found) is (kind == "edge data plane")
    assert not list(unclassified.check(Resource(token, "it", {}), Context()))


def test_types_that_rules_name_exist_in_the_sdk() -> None:
    """A misspelt type would never be judged."""
    known = set(types_of_the_sdk())
    named = {each for rule in RULES for each in rule.types if each.startswith("aws:")}
    misspelt = {each for each in named if "*" not in each} - known
    # The SDK's provider is no resource of it, and older names remain for states.
    assert misspelt <= {"aws:s3/bucketV2:BucketV2"}


def test_a_new_type_of_a_service_without_regions_is_not_passed() -> None:
    new = Resource("aws:route53domains/auction:Auction", "it", {})
    rule = next(each for each in RULES if each.id == "residency-aws-unclassified")
    assert rule.concerns(new.kind)
    assert list(rule.check(new, Context(stack=Stack((new,)))))
