"""The tables of Azure's types against the SDK: nothing is misspelt, nothing is left out."""

from __future__ import annotations

import re
from functools import cache

import pytest

from falaj.policies.model import Context, Resource, Rule
from falaj.policies.reading.types import azure
from falaj.policies.rules.residency import RULES
from falaj.policies.rules.residency.azure_locations import location
from falaj.policies.rules.residency.azure_places import LOCATED
from falaj.policies.rules.residency.global_services import CLASSIFIED, EDGE, Reach, may_be_global
from falaj.sandbox.schema import Package

#: Modules of version 2, whose types have other names in version 3.
FORMER = ("cache", "devices", "documentdb", "insights", "network")
#: Partners whose module came or went with a version of the SDK.
ELSEWHERE = ("logz", "newrelic")


@cache
def sdk() -> frozenset[str]:
    return frozenset(Package("azure-native").classes)


def unknown(kinds: frozenset[str]) -> list[str]:
    return sorted(
        each
        for each in kinds - sdk()
        if "*" not in each
        and each.split(":")[1] not in (*FORMER, *ELSEWHERE)
        and not each.endswith(":LogProfile")  # of version 2 only
    )


AZURE = [each for each in RULES if each.id.startswith("residency-azure-")]


@pytest.mark.parametrize("rule", AZURE, ids=lambda rule: rule.id)
def test_the_sdk_knows_every_type_of_a_rule(rule: Rule) -> None:
    assert not unknown(rule.types - {"pulumi:providers:azure-native"})


def test_the_sdk_knows_every_type_that_is_classified() -> None:
    assert not unknown(frozenset(CLASSIFIED))
    modules = {each.split(":")[1] for each in sdk()}
    assert {each.split(":")[1] for each in CLASSIFIED if "*" in each} <= modules


def test_every_classification_has_a_reason() -> None:
    for reach, reason in CLASSIFIED.values():
        assert isinstance(reach, Reach)
        assert reason
        assert not reason.endswith(".")


def test_no_type_is_of_two_classes() -> None:
    whole = {each.removesuffix("*") for each in CLASSIFIED if "*" in each}
    assert not [each for each in EDGE if any(each.startswith(module) for module in whole)]


def takes_a_location(token: str) -> bool:
    """Whether the arguments of a type's class have a location, read from the SDK's source."""
    package = Package("azure-native")
    module, name = package.classes[token]
    folder = package.folder / module.split(".", 1)[1]
    file = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    source = (folder / f"{file}.py").read_text(encoding="utf-8")
    arguments = source[source.index("    def __init__(__self__") :]
    return re.search(r"^ {17}location:", arguments[: arguments.index('"""')], re.M) is not None


@pytest.mark.parametrize(
    "part", [0, *(pytest.param(each, marks=pytest.mark.thorough) for each in range(1, 8))]
)
def test_the_types_with_a_location_are_those_of_the_sdk(part: int) -> None:
    wrong: list[str] = []
    for token in sorted(sdk())[part::8]:
        try:
            takes = takes_a_location(token)
        except (OSError, ValueError):
            continue
        if takes is not (token in LOCATED):
            wrong.append(token)
    assert not wrong


def test_the_sources_of_most_types_are_read() -> None:
    """Otherwise the test above would prove nothing."""
    some = sorted(sdk())[::40]
    read = 0
    for token in some:
        try:
            takes_a_location(token)
        except (OSError, ValueError):
            continue
        read += 1
    assert read > 0.9 * len(some)


@pytest.mark.parametrize("written", ["global", "Global", " GLOBAL "])
def test_global_is_judged_by_type(written: str) -> None:
    def findings(kind: str) -> int:
        return len(list(location.check(Resource(kind, "it", {"location": written}), Context())))

    classified = {each for each in CLASSIFIED if "*" not in each}
    assert not [each for each in classified if findings(each)]
    regional = [each for each in sorted(LOCATED) if not may_be_global(each)]
    assert len(regional) > 800
    assert all(findings(each) == 1 for each in regional)


def test_private_names_are_control_plane_and_front_doors_are_not() -> None:
    for kind in azure("privatedns:PrivateZone", "monitor:MetricAlert", "dns:Zone"):
        assert may_be_global(kind)
        assert kind not in EDGE
    assert azure("cdn:Profile", "frontdoor:FrontDoor", "trafficmanager:Profile") <= EDGE
    assert not may_be_global("azure-native:storage:StorageAccount")
