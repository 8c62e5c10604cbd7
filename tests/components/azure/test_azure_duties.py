"""Who may do what on Azure: roles by duty, and the identities of pods."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from falaj.components.azure._roles import ROLES, role_id
from falaj.components.catalogue.azure_roles import BUILT_IN_ROLES
from falaj.policies import rules
from falaj.sandbox.clouds.azure import kinds
from tests.components.azure.conftest import Deployed
from tests.components.azure.whole_foundation import MEMBERS, foundation


@pytest.fixture(scope="module", name="made")
def _made() -> Deployed:
    return foundation()


def rights(made: Deployed, duty: str) -> dict[str, str]:
    """Role definitions of a duty's member, by scope."""
    return {
        each.inputs["scope"]: each.inputs["roleDefinitionId"].rpartition("/")[2]
        for each in made.of_type("authorization:RoleAssignment")
        if each.inputs["principalId"] == MEMBERS[duty][0]
    }


def test_each_duty_is_given_where_it_is_needed(made: Deployed) -> None:
    ids = made.outputs["store.bucket_ids"]
    registry = made.outputs["images.registry_id"]
    subscription = "/subscriptions/00000000-0000-0000-0000-000000000000"
    vault = made.named("keys-vault").id
    own_role = {
        duty: id.rpartition("/")[2] for duty, id in made.outputs["people.role_ids"].items()
    }
    reader = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
    assert rights(made, "trainer") == {
        ids["datasets"]: reader,
        ids["checkpoints"]: own_role["trainer"],
        ids["models"]: own_role["trainer"],
        registry: own_role["trainer"],
    }
    assert rights(made, "deployer") == {
        ids["models"]: own_role["deployer"],
        registry: own_role["deployer"],
    }
    assert rights(made, "auditor") == {
        subscription: own_role["auditor"],
        made.named("store-audit-account").id: reader,
    }
    assert rights(made, "key-administrator") == {vault: own_role["key-administrator"]}
    assert set(rights(made, "provisioner")) == {
        subscription,
        ids["state"],
        f"{vault}/keys/state",
    }
    assert made.outputs["people.boundary_id"] is None


def permissions(made: Deployed, duty: str) -> dict[str, list[str]]:
    [found] = made.named(f"people-{duty}").inputs["permissions"]
    return found


def test_who_sees_no_data(made: Deployed) -> None:
    for duty in ("provisioner", "auditor"):
        assert permissions(made, duty)["dataActions"] == []
        assert not [each for each in permissions(made, duty)["actions"] if "listKeys" in each]


def test_the_provisioner_deletes_nothing_that_holds_data(made: Deployed) -> None:
    actions = permissions(made, "provisioner")["actions"]
    deleting = [each for each in actions if each.endswith("/delete")]
    assert deleting
    for holding in (
        "Microsoft.Storage",
        "Microsoft.KeyVault",
        "Microsoft.NetApp",
        "workspaces",
        "resourceGroups",
        "amlFilesystems",
    ):
        assert not [each for each in deleting if holding in each]
    assert not [each for each in actions if "/roleDefinitions/write" in each]
    assert not [each for each in actions if "/locks/" in each]


def test_the_provisioner_makes_what_components_are_made_of(made: Deployed) -> None:
    actions = set(permissions(made, "provisioner")["actions"])
    assert {
        "Microsoft.Network/privateDnsZones/A/write",
        "Microsoft.App/managedEnvironments/join/action",
        "Microsoft.Compute/proximityPlacementGroups/write",
        "Microsoft.ContainerService/managedClusters/listClusterUserCredential/action",
        "Microsoft.OperationalInsights/workspaces/sharedKeys/action",
    } <= actions
    assert not [each for each in actions if "*" in each or "listClusterAdmin" in each]


def test_the_provisioner_grants_what_components_grant(made: Deployed) -> None:
    [given] = [
        each
        for each in made.of_type("authorization:RoleAssignment")
        if each.inputs["principalId"] == MEMBERS["provisioner"][0] and each.inputs.get("condition")
    ]
    condition = given.inputs["condition"]
    assert given.inputs["conditionVersion"] == "2.0"
    assert condition.count("(") == condition.count(")")
    assert condition.count("GuidEquals") == condition.count("AND @") == 4
    user, viewer, pull = (
        ROLES["Azure Kubernetes Service Cluster User Role"],
        ROLES["Azure Kubernetes Service RBAC Reader"],
        ROLES["AcrPull"],
    )
    assert condition.count("{'Group'} AND @Request") == 1
    for half in condition.split(") AND (")[:2]:
        services, people = half.split("{'Group'}")
        assert pull in services
        assert pull not in people
        assert user in people
        assert viewer in people
        assert user not in services
    powerful = (
        "8e3af657-a8ff-443c-a75c-2fe8c4bcb635",  # Owner
        "b24988ac-6180-42a0-ab88-20f7382dd24c",  # Contributor
        "18d7d88d-d35e-4fb5-a5c3-7773c20a72d9",  # User Access Administrator
        "b1ff04bb-8a4e-4dc4-8eb5-8693973ce19b",  # RBAC Cluster Admin of AKS
        "00482a5a-887f-4fb3-b363-3b7fe8e74483",  # Key Vault Administrator
    )
    assert not [each for each in powerful if each in condition]


def test_pods_get_what_their_duty_needs(made: Deployed) -> None:
    ids = made.outputs["store.bucket_ids"]
    reader = "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1"
    writer = "ba92f5b4-2d11-453d-a403-e96b0029c9fe"
    expected = {
        "trainer": {ids["datasets"]: reader, ids["checkpoints"]: writer, ids["models"]: writer},
        "deployer": {ids["models"]: reader},
    }
    for duty, wanted in expected.items():
        identity = made.named(f"{duty}-identity")
        found = {
            each.inputs["scope"]: each.inputs["roleDefinitionId"].rpartition("/")[2]
            for each in made.of_type("authorization:RoleAssignment")
            if each.inputs["principalId"] == identity.outputs["principalId"]
        }
        assert found == wanted
        assert made.outputs[f"{duty}.identity_id"] == identity.outputs["clientId"]
        credential = made.named(f"{duty}-credential").inputs
        assert credential["subject"] == "system:serviceaccount:training:jobs"
        assert credential["audiences"] == ["api://AzureADTokenExchange"]
        assert credential["issuer"].startswith("https://uaenorth.oic.prod-aks.azure.com/")


def test_built_in_roles_are_azures() -> None:
    """Each id is that of the role that it is called after, in Microsoft's list."""
    known = kinds.load_table("built_in_roles")["roles"]
    assert {known.get(role): role for role in BUILT_IN_ROLES.values()} == BUILT_IN_ROLES


def test_cases_of_rules_assign_roles_that_azure_has() -> None:
    """Else rule and case agree on a role that nobody can be given."""
    known = kinds.load_table("built_in_roles")["roles"]
    cases = (Path(rules.__file__).parent / "zero_trust/identities.cases.yaml").read_text("utf-8")
    named = set(re.findall(r"roleDefinitionId: \S*?/([0-9a-f]{8}-[0-9a-f-]{27})", cases))
    assert len(named) > 4
    assert {each for each in named if each not in known} == set()


def test_roles_of_two_subscriptions_of_a_tenant_differ() -> None:
    one, other = (f"/subscriptions/{digit * 8}-0000-0000-0000-000000000000" for digit in "12")
    assert role_id("acme-dev-keys", one) != role_id("acme-dev-keys", other)
    assert role_id("acme-dev-keys", one) == role_id("acme-dev-keys", f"{one}/resourceGroups/g")
    assert role_id("acme-dev-keys", one) != role_id("acme-test-keys", one)


def test_a_roles_name_has_digits_of_its_id(made: Deployed) -> None:
    roles = made.of_type("authorization:RoleDefinition")
    assert len(roles) > 4
    for role in roles:
        own = role.inputs["roleDefinitionId"]
        assert role.inputs["roleName"] == f"acme-dev-{role.name}-{own[:8]}"
