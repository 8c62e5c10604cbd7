"""What other scanners are told to leave out, in their own formats."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from falaj.policies.conflicts import (
    benchmarks,
    configuration,
    print_configuration,
    scanner,
    scanners,
)
from falaj.policies.controls import control
from falaj.policies.model import PolicyError

KEYS = [each.key for each in scanners()]


def read(key: str, **more: Any) -> Any:
    return yaml.safe_load(configuration(key, **more)[0].text)


def named(key: str, document: Any) -> list[str]:
    """The ids that a configuration switches off, as its scanner would read them."""
    if key == "checkov":
        return document["skip-check"]
    if key == "kics":
        return document["exclude-queries"]
    if key == "trivy":
        return [each["id"] for each in document["misconfigurations"]]
    if key == "prowler":
        return list(document["Mutelist"]["Accounts"]["*"]["Checks"])
    if key == "pulumi":
        assert all(each == {"enforcementLevel": "disabled"} for each in document.values())
        return list(document)
    return document["Metadata"]["guard"]["SuppressedRules"]


def test_the_scanners_are_known() -> None:
    assert KEYS == ["checkov", "trivy", "kics", "prowler", "cfn-guard", "pulumi"]
    with pytest.raises(PolicyError, match="checkov, trivy, kics"):
        scanner("tfsec")


@pytest.mark.parametrize("key", KEYS)
def test_every_rule_that_clashes_is_switched_off(key: str) -> None:
    rules = scanner(key).clashing()
    wanted = {name for each in rules for name in (each.id, *each.aliases)}
    assert set(named(key, read(key))) == wanted


@pytest.mark.parametrize("key", KEYS)
def test_where_the_pair_is_allowed_its_rules_stay_on(key: str) -> None:
    kept = set(named(key, read(key, geo_redundancy="paired")))
    assert kept == {each.id for each in scanner(key).rules if each.clash == "always"}


def test_clashes_with_the_pair_are_azures() -> None:
    for each in (rule for found in scanners() for rule in found.rules):
        assert ("azu" in each.source.lower()) == (each.clash == "pair"), each.id
        assert each.reason.endswith(".")
        assert each.demands.endswith(".")


# Pulumi's is JSON, which has no place for one.
@pytest.mark.parametrize("key", [each for each in KEYS if each != "pulumi"])
def test_the_reason_stands_beside_each(key: str) -> None:
    text = " ".join(re.sub(r"[\s#]+", " ", print_configuration(key)).split())
    for each in scanner(key).clashing():
        assert each.reason in text
        assert each.demands in text


def test_ids_have_their_scanners_form() -> None:
    forms = {
        "checkov": r"CKV2?_(AWS|AZURE|K8S)_\d+",
        "trivy": r"[A-Z]{3,4}-\d{4}",
        "kics": r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}",
        "prowler": r"[a-z0-9_]+",
        "cfn-guard": r"[A-Z0-9_]+",
        "pulumi": r"aws-[a-z0-9-]+",
    }
    for key, form in forms.items():
        ids = [each.id for each in scanner(key).rules]
        assert len(set(ids)) == len(ids)
        assert all(re.fullmatch(form, each) for each in ids)


def test_prowler_mutes_a_check_everywhere_and_looks_at_the_country() -> None:
    found = read("prowler")["Mutelist"]["Accounts"]["*"]["Checks"]["vpc_different_regions"]
    assert found["Regions"] == ["*"]
    assert found["Resources"] == ["*"]
    environment = configuration("prowler")[1]
    assert environment.name == "prowler.env"
    (line,) = (each for each in environment.text.splitlines() if not each.startswith("#"))
    name, _, value = line.partition("=")
    assert name == "PROWLER_AWS_DISALLOWED_REGIONS"
    # An empty one would count as none, and Prowler's own list would hold.
    assert value
    assert "me-central-1" not in value


def test_one_file_is_printed_as_it_is_and_two_under_their_names() -> None:
    assert print_configuration("checkov") == configuration("checkov")[0].text
    printed = print_configuration("prowler")
    assert printed.startswith("# file: prowler-mutelist.yaml\n")
    assert "\n# file: prowler.env\n" in printed


def test_benchmarks_are_named_as_the_controls_are() -> None:
    (found,) = (each for each in benchmarks() if each.id.startswith("cis-"))
    assert "conflicts.yaml" in control(found.id).without_rule
