"""What the API server itself refuses; the packs find the same before it is deployed."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.components.kubernetes.residency import check, policies
from falaj.engine.controlplane import ControlPlane
from falaj.policies.rules import all_rules
from tests.cluster.residency_cases import RESIDENCY, Case, cases, found_by_packs
from tests.cluster.residency_cluster import refusal

FORBIDDEN = (*cases("forbidden/pods.yaml"), *cases("forbidden/objects.yaml"))
CLUSTER_ONLY = cases("forbidden/cluster_only.yaml")
PERMITTED = (*cases("permitted/tenants.yaml"), *cases("permitted/platform.yaml"))


@pytest.fixture
def plane(residency_plane: ControlPlane) -> ControlPlane:
    return residency_plane


@pytest.mark.cluster
@pytest.mark.parametrize("case", FORBIDDEN, ids=str)
def test_it_is_denied_by_the_api_server(plane: ControlPlane, case: Case) -> None:
    said = refusal(plane, case.manifest)
    assert case.by in said
    if case.by == "PodSecurity":
        assert "violates PodSecurity" in said
    else:
        assert f"ValidatingAdmissionPolicy '{case.by}'" in said
        assert f"({case.rule})" in said
        assert "; allowed: " in said


@pytest.mark.cluster
@pytest.mark.parametrize("case", CLUSTER_ONLY, ids=str)
def test_what_only_the_cluster_knows_is_denied(plane: ControlPlane, case: Case) -> None:
    said = refusal(plane, case.manifest)
    assert f"ValidatingAdmissionPolicy '{case.by}'" in said
    assert case.says in said


@pytest.mark.cluster
@pytest.mark.parametrize("case", PERMITTED, ids=str)
def test_what_is_legitimate_passes(plane: ControlPlane, case: Case) -> None:
    assert refusal(plane, case.manifest) == ""


@pytest.mark.parametrize("case", FORBIDDEN, ids=str)
def test_a_pack_finds_it_before_it_is_deployed(case: Case) -> None:
    assert case.rule in found_by_packs(case.manifest)


@pytest.mark.parametrize("case", cases("permitted/tenants.yaml"), ids=str)
def test_the_packs_residency_rules_take_what_is_legitimate(case: Case) -> None:
    enforced = {
        each.rule for policy in policies(check("residency", RESIDENCY)) for each in policy.checks
    }
    # Whether there is a role for an account's token, and the like, is seen in a whole stack only.
    of_the_stack = {"kubernetes-token-mount", "kubernetes-default-deny"}
    assert found_by_packs(case.manifest) & enforced - of_the_stack == set()


def test_every_check_is_of_a_rule_and_has_a_case() -> None:
    known = {each.id for each in all_rules()}
    shown = {(each.by, each.rule) for each in (*FORBIDDEN, *cases("forbidden/destinations.yaml"))}
    rules = {rule for _, rule in shown}
    for policy in policies(check("residency", RESIDENCY)):
        for each in policy.checks:
            if each.rule.startswith("cluster-"):
                assert each.rule not in known
            else:
                assert each.rule in known
                assert each.rule in rules or each.rule in NOT_SHOWN, each.rule


#: Rules whose cases need more than one object or another user: see the other tests of admission.
NOT_SHOWN: dict[str, Any] = {
    "kubernetes-proc-mount": "needs user namespaces, which the API server asks for first",
}
