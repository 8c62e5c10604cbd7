"""Residency: arguments that are refused, and what is made of those that aren't."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from falaj.components.catalogue.clusters import PLATFORM_NAMESPACES, SYSTEM_NAMESPACES
from falaj.components.catalogue.pod_rules import POD_RULES
from falaj.components.kubernetes.addons import ADDONS
from falaj.components.kubernetes.admission.policy import (
    AGENTS,
    CLUSTER,
    RULES_ANNOTATION,
    Check,
    Policy,
    Target,
    hosts_pattern,
    images_pattern,
    literal,
)
from falaj.components.kubernetes.residency import check, manifests, policies
from falaj.policies.model import Settings
from falaj.policies.reading.images import is_allowed, parse
from falaj.policies.rules import all_rules

ACCOUNT = "123456789012.dkr.ecr"
ARGS: dict[str, Any] = {
    "distribution": "existing", "region": "dubai-dc1", "registry": "registry.example.ae/falaj",
    "tenant": "platform", "owner": "platform@acme.example", "data_class": "restricted",
    "cost_center": "ai-1",
}  # fmt: skip
EKS = {
    **ARGS, "distribution": "eks", "region": "me-central-1", "acknowledge_degraded": "2026-04-30",
}  # fmt: skip
AKS = {**ARGS, "distribution": "aks", "region": "uaenorth"}
#: Checks that ask what rights somebody has, which the audit log's notes can't.
ASKED_FOR_RIGHTS = {
    "cluster-home-change",
    "cluster-home-clone",
    "cluster-home-use",
    "cluster-pipeline-template",
    "cluster-secret-use",
    "cluster-protected-object",
}
#: Every API server keeps policies compiled, and etcd takes 1.5 MiB an object.
MOST_LETTERS = 12_000


def _refused(**changes: Any) -> str:
    with pytest.raises(pulumi.InputPropertiesError) as error:
        check("residency", {**ARGS, **changes})
    return str(error.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"region": "eu-west-1"}, "allowed: sites in the country; that is aws/eu-west-1"),
        # A cluster of one's own in a region of a cloud.
        ({"region": "me-central-1"}, "acknowledge_degraded"),
        ({"region": "me-central-1", "acknowledge_degraded": "2026-01-01"}, "2026-04-30"),
        ({"region": "westeurope"}, "azure/westeurope"),
        ({"region": "eu"}, "the beginning of regions abroad (eu-…)"),
        ({"region": "europe-west4"}, "gcp/europe-west4"),
        ({"zones": ["dubai-dc1-a", "us-east-1a"]}, "zones[1]: given 'us-east-1a'"),
        ({**EKS, "zones": ["eu-west-1a"]}, "allowed: zones of me-central-1"),
        ({**EKS, "region": "eu-west-1"}, "not a place in the country"),
        ({"allowed_registries": ["x.ae/a team"]}, "a host in small letters"),
        ({"allowed_registries": ["docker.io"]}, "registries in the country"),
        ({"allowed_registries": ["mcr.microsoft.com"]}, "registries in the country"),
        ({"allowed_registries": ["registry"]}, "a host in small letters"),
        ({"allowed_registries": [f"{ACCOUNT}.eu-west-1.amazonaws.com"]}, "is in aws/eu-west-1"),
        ({"allowed_hosts": ["x.westeurope.cloudapp.azure.com"]}, "is in azure/westeurope"),
        ({"own_networks": ["0.0.0.0/0"]}, "a larger range isn't one's own"),
        ({"own_networks": ["8.8.8.8/8"]}, "host bits set"),
        ({"own_networks": ["ours"]}, "a range such as 203.0.113.0/24"),
        ({"system_namespaces": ["acme-training"]}, "tenants and operators don't"),
        ({"system_namespaces": ["default"]}, "tenants and operators don't"),
        ({"system_namespaces": ["kueue-system"]}, "tenants and operators don't"),
        ({"storage_classes": ["Not A Name"]}, "a name of a-z, 0-9"),
        ({"partner_regions": ["westeurope"]}, "that is azure/westeurope"),
        ({"partner_regions": ["uaenorth", "eu"]}, "partner_regions[1]: given 'eu'"),
        ({"partner_regions": ["Dubai 2"]}, "the site's name"),
        ({"partner_regions": "uaenorth"}, "a list of texts"),
        ({"enforce": "no"}, "true or false"),
        ({"allowed_registry": ["x.ae"]}, "did you mean 'allowed_registries'?"),
        ({"allowed_hosts": "x.ae"}, "a list of texts"),
    ],
)  # fmt: skip
def test_what_is_refused_is_said(changes: dict[str, Any], said: str) -> None:
    assert said in _refused(**changes)


def test_all_problems_are_said_at_once() -> None:
    said = _refused(region="eu-west-1", enforce=3, own_networks=["::/0"])
    assert "region:" in said
    assert "enforce:" in said
    assert "own_networks[0]:" in said


@pytest.mark.parametrize("args", [ARGS, EKS, AKS], ids=["existing", "eks", "aks"])
def test_every_policy_is_bound_and_denies(args: dict[str, Any]) -> None:
    made = manifests(check("residency", args))
    kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    whole, bindings = ([each for each in made if each["kind"] == kind] for kind in kinds)
    assert [each["metadata"]["name"] for each in whole] == [
        each["spec"]["policyName"] for each in bindings
    ]
    assert len({each["metadata"]["name"] for each in whole}) == len(whole)
    rules = {each.id for each in all_rules()}
    for each in whole:
        assert each["spec"]["failurePolicy"] == "Fail"
        assert len(json.dumps(each)) < MOST_LETTERS
        named = each["metadata"]["annotations"][RULES_ANNOTATION].split(",")
        noted = [one for one in named if one not in ASKED_FOR_RIGHTS]
        assert [one["key"] for one in each["spec"]["auditAnnotations"]] == noted
        assert all(one in rules or one.startswith("cluster-") for one in named)
        assert all(one["message"].endswith(")") for one in each["spec"]["validations"])
    for each in bindings:
        assert each["spec"]["validationActions"] == ["Deny", "Audit"]


def test_without_enforcing_it_is_warned_of() -> None:
    made = manifests(check("residency", {**ARGS, "enforce": False}))
    actions = [each["spec"].get("validationActions") for each in made]
    assert [each for each in actions if each] == [["Warn", "Audit"]] * (len(made) // 2)


def test_images_and_places_have_no_exemption() -> None:
    """Where pods are and what they run is judged in every namespace, the system's included."""
    for each in policies(check("residency", ARGS)):
        if each.name.startswith(("images", "placement", "services", "endpoint", "storage")):
            assert not each.exempt


def test_exempt_are_the_privileged_namespaces_of_add_ons_alone() -> None:
    privileged = {
        one.name
        for each in ADDONS.values()
        for one in each.namespaces
        if one.level == "privileged"
    }
    restricted = {
        one.name
        for each in ADDONS.values()
        for one in each.namespaces
        if one.level == "restricted"
    }
    assert privileged == AGENTS
    assert restricted <= PLATFORM_NAMESPACES
    assert AGENTS | CLUSTER <= SYSTEM_NAMESPACES
    assert not PLATFORM_NAMESPACES - {"istio-system"} & SYSTEM_NAMESPACES


def test_a_check_of_a_rule_stands_once() -> None:
    one = Check("a", "[]", "what", "allowed", "change")
    with pytest.raises(ValueError, match="each rule once"):
        Policy("x", (Target("", "v1", ("pods",)),), (one, one))
    with pytest.raises(ValueError, match="1 to 20"):
        Policy("x", (Target("", "v1", ("pods",)),), ())


def test_what_is_there_already_needs_nothing_to_be_compared_with() -> None:
    """The API server asks for it before any condition: controllers end runs of pipelines, too."""
    [compared] = [each for each in policies(check("residency", ARGS)) if each.compared]
    assert {each.operations for each in compared.targets} == {("CREATE",)}


@pytest.mark.parametrize("name", ["nodes", "host-access-pods", "pipeline-runs"])
def test_policies_read_as_reviewed(name: str) -> None:
    """Two that are written by hand, and one of the catalogue's rules of pods."""
    made = [
        each
        for each in manifests(check("residency", ARGS))
        if each["metadata"]["name"] == f"falaj-{name}"
    ]
    plain = json.loads(json.dumps(made))
    golden = Path(__file__).with_name("golden") / f"residency_{name.replace('-', '_')}.yaml"
    assert plain == list(yaml.safe_load_all(golden.read_text(encoding="utf-8")))


def test_every_rule_of_pods_is_refused_by_the_policy_that_it_names() -> None:
    """An `admission` that no policy goes by would be refused by nobody."""
    refusing = {
        (one.rule, each.name.removesuffix("-pods"))
        for each in policies(check("residency", ARGS))
        for one in each.checks
    }
    assert {(each.id, each.admission) for each in POD_RULES if each.admission} <= refusing


_NAMES = st.from_regex(r"[a-z0-9]{1,4}(?:[./:-][a-z0-9]{1,4}){0,4}", fullmatch=True)
_HOSTS = st.sampled_from([
    "registry.example.ae", "registry.example.ae:443", "Registry.Example.ae:5000",
    "registry.example.ae.evil.com", "evilregistry.example.ae", "docker.io", "zot.dubai.example.ae",
    f"{ACCOUNT}.me-central-1.amazonaws.com", "example.ae",
    f"{ACCOUNT}.eu-west-1.amazonaws.com", f"x{ACCOUNT}.me-central-1.amazonaws.com",
])  # fmt: skip


@given(host=_HOSTS, name=_NAMES, team=st.sampled_from(["", "team/", "team2/", "Team/"]))
def test_the_pattern_of_registries_allows_what_the_packs_allow(
    host: str, name: str, team: str
) -> None:
    """As a regular expression of RE2, whose part that is used here is Python's as well."""
    allowed = ("registry.example.ae/team", "registry.example.ae:5000", "*.dubai.example.ae")
    settings = Settings(allowed_places=("aws/me-central-1",), allowed_registries=allowed)
    reference = f"{host}/{team}{name}"
    pattern = re.compile(images_pattern(allowed, ["me-central-1"]))
    assert bool(pattern.search(reference.lower())) == is_allowed(parse(reference), settings)


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("db", True), ("db.team.svc.cluster.local", True), ("x.internal", True),
        ("data.s3.me-central-1.amazonaws.com", True), ("lb.me-central-1.elb.amazonaws.com", True),
        ("x.uaenorth.cloudapp.azure.com", True), ("login.example.ae", True),
        ("a.models.example.ae", True), ("login.example.ae.", True),
        ("models.example.ae", False), ("xlogin.example.ae", False), ("example.com", False),
        ("data.s3.eu-west-1.amazonaws.com", False), ("x.me-central-1.example.com", False),
        ("me-central-1.eu-west-1.amazonaws.com", False), ("x.westeurope.azure.com", False),
        ("internal.example.com", False), ("x.internal.evil.com", False),
    ],
)  # fmt: skip
def test_the_pattern_of_hosts(host: str, own: bool) -> None:
    regions = [("aws", "me-central-1"), ("azure", "uaenorth")]
    pattern = hosts_pattern(regions, ["login.example.ae", "*.models.example.ae"])
    assert bool(re.search(pattern, host)) == own


@given(st.text())
def test_a_literal_is_one(value: str) -> None:
    """No text of an argument ends its literal early."""
    written = literal(value)
    assert written[0] == written[-1] == '"'
    assert json.loads(written) == value
