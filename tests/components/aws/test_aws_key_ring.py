"""The key ring: who may do what with which key."""

from __future__ import annotations

from typing import Any

import pulumi
import pytest

from falaj.components.aws.key_ring import KeyRing

ADMIN = "arn:aws:iam::000000000000:role/key-administrators"
PURPOSES = ["cluster", "data", "disks", "logs", "registry", "state"]
CRYPTOGRAPHIC = {"kms:Decrypt", "kms:Encrypt", "kms:GenerateDataKey", "kms:ReEncryptFrom"}


def test_a_module_of_ones_own_is_refused(placed: dict[str, Any]) -> None:
    with pytest.raises(pulumi.InputPropertiesError, match="managed_hsm"):
        KeyRing("keys", {**placed, "managed_hsm": True})


def test_a_session_is_no_administrator(placed: dict[str, Any]) -> None:
    session = "arn:aws:sts::000000000000:assumed-role/platform/me"
    with pytest.raises(pulumi.InputPropertiesError, match=r"administrators\[0\]"):
        KeyRing("keys", {**placed, "administrators": [session]})


def test_each_purpose_has_a_key_that_stays_here(deploy: Any, placed: dict[str, Any]) -> None:
    made = deploy(lambda opts: KeyRing("keys", placed, opts))
    keys = made.of_type("aws:kms/key:Key")
    assert sorted(made.returned["key_ids"]) == PURPOSES
    assert len(keys) == len(PURPOSES)
    for key in keys:
        assert key.inputs["multiRegion"] is False
        assert key.inputs["enableKeyRotation"] is True
        assert key.inputs["rotationPeriodInDays"] == 365
        assert key.inputs["deletionWindowInDays"] == 7
        assert key.inputs["tags"]["falaj:data-class"] == "restricted"
        assert ":me-central-1:" in key.outputs["arn"]
    aliases = {each.inputs["name"] for each in made.of_type("aws:kms/alias:Alias")}
    assert "alias/acme-dev-keys-data" in aliases
    assert made.returned["key_identity_id"] is None
    assert made.returned["disk_encryption_id"] == made.returned["key_ids"]["disks"]


@pytest.mark.parametrize("purpose", PURPOSES)
def test_administrators_cannot_use_and_users_cannot_manage(
    deploy: Any, placed: dict[str, Any], purpose: str
) -> None:
    made = deploy(lambda opts: KeyRing("keys", {**placed, "administrators": [ADMIN]}, opts))
    key = next(each for each in made.of_type("aws:kms/key:Key") if each.name == f"keys-{purpose}")
    document = next(doc for each, _, doc in made.documents() if each is key)
    for statement in document["Statement"]:
        actions = set(statement["Action"])
        assert not any("*" in action for action in actions)
        if statement["Sid"] in ("Administer", "Recover"):
            assert not actions & CRYPTOGRAPHIC
            assert "kms:CreateGrant" not in actions
        else:
            assert "kms:PutKeyPolicy" not in actions
            assert "kms:ScheduleKeyDeletion" not in actions
            assert statement["Condition"]
    by_id = {each["Sid"]: each for each in document["Statement"]}
    assert by_id["Administer"]["Principal"] == {"AWS": [ADMIN]}


@pytest.mark.parametrize(
    ("purpose", "host"),
    [
        ("data", "s3.me-central-1.amazonaws.com"),
        ("disks", "ec2.me-central-1.amazonaws.com"),
        # Volumes that the driver of FSx makes by itself are under this key.
        ("disks", "fsx.me-central-1.amazonaws.com"),
        ("registry", "ecr.me-central-1.amazonaws.com"),
        ("logs", "logs.me-central-1.amazonaws.com"),
    ],
)
def test_a_key_is_used_through_its_services_only(
    deploy: Any, placed: dict[str, Any], purpose: str, host: str
) -> None:
    made = deploy(lambda opts: KeyRing("keys", {**placed, "purposes": [purpose]}, opts))
    document = next(doc for each, _, doc in made.documents())
    use = next(each for each in document["Statement"] if each["Sid"] == "Use")
    condition = use["Condition"]["StringEquals"]
    assert host in condition["kms:ViaService"]
    assert condition["kms:CallerAccount"] == "000000000000"


def test_chosen_values_are_taken(deploy: Any, placed: dict[str, Any]) -> None:
    args = {
        **placed,
        "environment": "production",
        "purposes": ["data"],
        "rotation_days": 90.0,
        "deletion_window_days": 14,
    }
    made = deploy(lambda opts: KeyRing("keys", args, opts))
    (key,) = made.of_type("aws:kms/key:Key")
    assert key.inputs["rotationPeriodInDays"] == 90
    assert key.inputs["deletionWindowInDays"] == 14
    assert made.returned["disk_encryption_id"] == ""


@pytest.mark.parametrize("purpose", PURPOSES)
def test_a_key_is_handed_to_services_only_but_to_clusters_by_whoever_makes_them(
    deploy: Any, placed: dict[str, Any], purpose: str
) -> None:
    made = deploy(lambda opts: KeyRing("keys", {**placed, "administrators": [ADMIN]}, opts))
    statements = made.statements(f"keys-{purpose}", "aws:kms/key:Key")
    if purpose == "state":
        assert "GrantToServices" not in statements
        return
    granted = statements["GrantToServices"]
    assert granted["Action"] == ["kms:CreateGrant", "kms:ListGrants"]
    assert granted["Condition"]["StringEquals"]["kms:CallerAccount"] == "000000000000"
    # A condition on what a request doesn't have never holds, and EKS's doesn't have it.
    assert ("Bool" in granted["Condition"]) == (purpose != "cluster")
    if purpose == "cluster":
        assert "kms:DescribeKey" in statements["Use"]["Action"]
        assert statements["Use"]["Condition"] == granted["Condition"]


def test_disks_are_encrypted_for_whoever_starts_machines(
    deploy: Any, placed: dict[str, Any]
) -> None:
    made = deploy(lambda opts: KeyRing("keys", placed, opts))
    path = "arn:aws:iam::000000000000:role/aws-service-role"
    starters = {
        f"{path}/autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling",
        f"{path}/spot.amazonaws.com/AWSServiceRoleForEC2Spot",
    }
    statements = made.statements("keys-disks", "aws:kms/key:Key")
    for each in ("UseByScalingGroups", "GrantByScalingGroups"):
        condition = statements[each]["Condition"]
        assert set(condition["ArnEquals"]["aws:PrincipalArn"]) == starters
        assert condition["StringEquals"] == {"kms:CallerAccount": "000000000000"}
    assert statements["GrantByScalingGroups"]["Condition"]["Bool"] == {
        "kms:GrantIsForAWSResource": "true"
    }


def test_the_registrys_grants_end_with_its_repositories(
    deploy: Any, placed: dict[str, Any]
) -> None:
    made = deploy(lambda opts: KeyRing("keys", placed, opts))
    for purpose in PURPOSES:
        statements = made.statements(f"keys-{purpose}", "aws:kms/key:Key")
        ends = [each for each in statements.values() if "kms:RetireGrant" in each["Action"]]
        assert bool(ends) == (purpose == "registry")
        for each in ends:
            assert each["Condition"]["StringEquals"]["kms:ViaService"] == [
                "ecr.me-central-1.amazonaws.com"
            ]


def test_alerts_are_encrypted_for_own_topics_alone(deploy: Any, placed: dict[str, Any]) -> None:
    made = deploy(lambda opts: KeyRing("keys", placed, opts))
    alerts = made.statements("keys-logs", "aws:kms/key:Key")["Alerts"]
    assert alerts["Principal"] == {"Service": ["events.amazonaws.com"]}
    # Conditions on the source are never met: EventBridge doesn't tell KMS of its rule.
    assert alerts["Condition"] == {
        "ArnLike": {
            "kms:EncryptionContext:aws:sns:topicArn": "arn:aws:sns:me-central-1:000000000000:*"
        }
    }
