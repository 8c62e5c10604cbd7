"""The catalogue of controls: read, complete, and honest about what no rule serves."""

from __future__ import annotations

import re

import pytest

from falaj.policies.controls import (
    Confidence,
    control,
    controls,
    frameworks,
    not_covered,
    rules_by_control,
)
from falaj.policies.controls.catalogue import read_catalogue
from falaj.policies.model import PolicyError, Rule, Severity
from falaj.policies.rules import all_rules
from tests.each import for_each

RULES = all_rules()


def made_up(*references: str) -> Rule:
    return Rule(
        "residency-made-up", "residency", "Nothing", Severity.LOW, frozenset({"a:b/c:D"}),
        references, "Nothing.", lambda resource, view: iter(()),
    )  # fmt: skip


def test_a_reference_leads_to_its_control() -> None:
    found = control("iso27001:A.8.24")
    assert (found.framework.version, found.title) == ("2022", "Use of cryptography")
    assert found.confidence is Confidence.CONFIRMED
    assert found.reference == "iso27001:A.8.24"


@pytest.mark.parametrize("reference", ["iso27001:A.99", "nobody:1", "A.8.24", ""])
def test_unknown_references_are_refused(reference: str) -> None:
    with pytest.raises(PolicyError):
        control(reference)
    with pytest.raises(PolicyError):
        rules_by_control([made_up(reference)])


def test_rules_refer_to_controls_that_exist() -> None:
    def refers(rule: Rule) -> None:
        assert rule.controls
        for reference in rule.controls:
            control(reference)

    for_each(RULES, refers)


def test_what_no_rule_serves_says_why() -> None:
    silent = [each.reference for each in not_covered(RULES) if not each.without_rule]
    assert not silent


@pytest.mark.parametrize("framework", frameworks(), ids=lambda each: each.key)
def test_frameworks_name_what_was_read(framework: object) -> None:
    found = next(each for each in frameworks() if each == framework)
    assert found.version
    assert found.sources
    assert found.read.year >= 2026
    assert controls(found.key) or "not read" in found.note


def test_the_transfer_regime_is_not_called_localisation() -> None:
    assert "not a localisation law" in control("pdpl:22").framework.note
    for rule in RULES:
        if {"pdpl:22", "pdpl:23"} & set(rule.controls):
            assert rule.pack in {"residency", "kubernetes"}, rule.id


def test_a_control_is_served_by_the_rules_of_those_that_it_names() -> None:
    one = made_up("pdpl:20")
    served = rules_by_control([one])
    assert served["pdpl:20"] == served["difc:9"] == served["iso27001:A.5.34"] == (one,)
    # One that names both is there once.
    both = made_up("pdpl:20", "pdpl:22")
    assert rules_by_control([both])["iso27001:A.5.34"] == (both,)
    assert not served["pdpl:22"]


def test_a_control_is_not_both_served_and_out_of_reach() -> None:
    assert not [each.reference for each in controls() if each.also and each.without_rule]


def test_reasons_without_a_rule_begin_with_their_kind() -> None:
    kinds = {"process", "people", "physical", "legal", "application", "provider", "conflict"}
    for each in controls():
        if each.without_rule:
            assert re.match(r"\w+: ", each.without_rule)
            assert each.without_rule.partition(":")[0] in kinds


def test_a_catalogue_with_an_id_twice_is_refused() -> None:
    one = {"id": "1", "title": "One", "confidence": "document", "meaning": "It.", "beyond": "All."}
    framework = {
        "key": "x", "name": "Name", "version": "1", "read": "2026-11-21",
        "sources": ["somewhere"], "note": "", "controls": [one, one],
    }  # fmt: skip
    with pytest.raises(PolicyError, match="repeats"):
        read_catalogue({"frameworks": [framework]})
    once = {**framework, "controls": [one]}
    lost = {**framework, "controls": [{**one, "also": ["x:2"]}]}
    with pytest.raises(PolicyError, match="x:2"):
        read_catalogue({"frameworks": [lost]})
    with pytest.raises(PolicyError, match="twice"):
        read_catalogue({"frameworks": [once, once]})
