"""What rules find of the platform's charts is waived, one by one, and nothing is waived besides.

Of those charts that can be had as Go modules, rendered with the values of the shipped stacks; the
file of waivers is read, and findings are decided, as by the packs themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache

import pytest

from falaj.policies.configuration import Configuration, read_configuration
from falaj.policies.model import Resource, Stack
from falaj.policies.model.judge import Judge
from falaj.policies.outcome import Decided, decide
from falaj.policies.rules import all_rules
from falaj.sandbox.charts import groups
from falaj.sandbox.charts.groups import Capabilities
from tests.policies.shipped import stack_with
from tests.stacks.in_mocks import ROOT, shipped

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("charts")]

STACKS = ("onprem-cluster", "aws-platform", "azure-platform")
_PLATFORM = "falaj-kubernetes:index:Platform"


def children(stack: Stack) -> Iterator[Resource]:
    """The objects of a stack's charts, as the engine gets to know them."""
    for each in stack.resources:
        if each.type == groups.CHART:
            inputs = {**each.properties, "skipCrds": True}
            for one in groups.build(each.type, each.name, inputs, Capabilities()).objects:
                urn = f"urn:pulumi:dev::falaj::{_PLATFORM}${groups.CHART}${one.token}::{one.name}"
                yield Resource(one.token, one.name, dict(one.manifest), urn=urn)


def configuration(stack: str) -> Configuration:
    """As a pack has it."""
    config = shipped(stack)
    given = {key: each for key, each in config["falaj:policies"].items() if key != "packs"}
    own = {"falaj:policies": json.dumps(given)}
    for key in ("falaj:dataClass", "falaj:environment"):
        own[key] = config[key]
    return read_configuration({}, own, ROOT)


@cache
def decided(name: str) -> tuple[Decided, ...]:
    """What becomes of every finding in a stack, its charts' objects among the others."""
    stack = stack_with(shipped(name), name)
    made = tuple(children(stack))
    assert len(made) > 100
    found = configuration(name)
    whole = Stack((*stack.resources, *made), stack.name, stack.project)
    return tuple(
        one
        for each in Judge(all_rules(), found.settings).evaluate_stack(whole)
        for one in decide(each, found)
    )


@pytest.mark.parametrize("stack", STACKS)
def test_every_finding_is_waived(stack: str) -> None:
    """A chart that asks for more is a finding until somebody looked at it."""
    failing = [
        f"{each.judgement.rule.id}: {each.judgement.resource.urn}: {each.message}"
        for each in decided(stack)
        if each.status.fails
    ]
    assert not failing, "\n".join(failing)


@pytest.mark.parametrize("stack", STACKS)
def test_every_waiver_is_needed(stack: str) -> None:
    used = {each.ruling.waiver.id for each in decided(stack) if each.ruling.waiver}
    assert {each.id for each in configuration(stack).waivers.waivers} == used


@pytest.mark.parametrize("stack", STACKS)
def test_a_waiver_covers_one_object(stack: str) -> None:
    """Names end with what is waived, so that none covers what comes later by chance."""
    covered: dict[str, set[str]] = {}
    for each in decided(stack):
        if each.ruling.waiver:
            urns = covered.setdefault(each.ruling.waiver.id, set())
            urns.add(each.judgement.resource.urn)
    assert {key: len(urns) for key, urns in covered.items()} == dict.fromkeys(covered, 1)
