"""Policy documents: what statements refuse, and that none grants everything on everything."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pulumi
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from falaj.components.aws._endpoints import GATEWAYS, INTERFACES, Owner, endpoint_policy
from falaj.components.aws._iam import Statement, document, trust
from falaj.components.aws._role_permissions import Limits, Realm, boundary_policy, duty_policy
from falaj.components.aws.key_ring import KeyHolder, key_policy
from falaj.components.aws.object_store import BucketOwner, bucket_policy
from falaj.components.specification.identity import DUTIES
from falaj.components.specification.key_ring import PURPOSES
from falaj.components.specification.network import CLUSTER
from falaj.components.specification.object_store import BUCKETS
from tests.examples import examples

ACCOUNT = "000000000000"
REGION = "me-central-1"
ANYBODY = {"AWS": ["*"]}


@pytest.fixture(autouse=True, scope="module")
def loop() -> Iterator[None]:
    """One for all: an output belongs to the loop in which it was made."""
    made = asyncio.new_event_loop()
    asyncio.set_event_loop(made)
    yield
    made.close()
    asyncio.set_event_loop(asyncio.new_event_loop())


def resolved(output: pulumi.Output[str]) -> Mapping[str, Any]:
    found = asyncio.get_event_loop().run_until_complete(output.future())
    return json.loads(str(found))


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"sid": "Not a word", "actions": ["s3:GetObject"]}, "letters and digits"),
        ({"sid": "Nothing", "actions": []}, "names no action"),
        ({"sid": "All", "actions": ["*"], "resources": ["*"]}, "allows every action"),
        ({"sid": "All", "actions": ["*"], "resources": ["arn:aws:s3:::a"]}, "every action"),
        ({"sid": "All", "actions": ["*:*"], "resources": ["*"]}, "allows every action"),
        ({"sid": "But", "actions": [], "not_actions": ["iam:*"]}, "all but something"),
        (
            {"sid": "But", "actions": ["s3:GetObject"], "not_resources": ["arn:aws:s3:::a"]},
            "all but something",
        ),
        ({"sid": "Open", "actions": ["s3:GetObject"], "principals": ANYBODY}, "allows anybody"),
    ],
)
def test_what_grants_too_much_is_refused(wrong: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Statement(**wrong)


def test_a_document_has_statements_of_different_ids() -> None:
    one = Statement("One", ["s3:GetObject"], ["arn:aws:s3:::a/*"])
    with pytest.raises(ValueError, match="at least one"):
        document()
    with pytest.raises(ValueError, match="only once"):
        document(one, one)


def test_a_denial_may_say_everything() -> None:
    found = resolved(
        document(Statement("Stop", [], ["*"], effect="Deny", not_actions=["iam:*", "sts:*"]))
    )
    assert found == {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": "Stop",
                "Effect": "Deny",
                "NotAction": ["iam:*", "sts:*"],
                "Resource": ["*"],
            }
        ],
    }


def test_a_service_acts_for_its_own_account_only() -> None:
    (statement,) = resolved(trust("cloudtrail.amazonaws.com", ACCOUNT))["Statement"]
    assert statement["Principal"] == {"Service": ["cloudtrail.amazonaws.com"]}
    assert statement["Condition"] == {"StringEquals": {"aws:SourceAccount": ACCOUNT}}


def harmless(text: Mapping[str, Any]) -> None:
    """No statement grants everything, lets anybody in unconditionally, or names another region."""
    for statement in text["Statement"]:
        if statement["Effect"] == "Allow":
            assert "*" not in statement["Action"]
            assert "NotAction" not in statement
            assert "NotResource" not in statement
            if "*" in statement.get("Principal", {}).get("AWS", []):
                assert statement["Condition"]
        for resource in statement.get("Resource", []):
            parts = resource.split(":")
            assert resource == "*" or parts[3] in ("", REGION, "*"), resource


ACCOUNTS = st.from_regex(r"\A[0-9]{12}\Z")
SOME_BUCKETS = st.sets(st.sampled_from(BUCKETS)).map(
    lambda names: {each: f"arn:aws:s3:::acme-{each}" for each in sorted(names)}
)
SOME_KEYS = st.sets(st.sampled_from(PURPOSES)).map(
    lambda names: {
        each: f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{number}"
        for number, each in enumerate(sorted(names))
    }
)
SOME_REPOSITORIES = st.sets(st.sampled_from(("training", "inference", "platform", "x"))).map(
    lambda names: {
        each: f"arn:aws:ecr:{REGION}:{ACCOUNT}:repository/acme/{each}" for each in sorted(names)
    }
)


@settings(max_examples=examples(30))
@given(
    st.sampled_from(PURPOSES),
    ACCOUNTS,
    st.lists(
        st.sampled_from(("a", "b", "c")).map(lambda it: f"arn:aws:iam::{ACCOUNT}:role/{it}"),
        unique=True,
    ),
)
def test_no_key_policy_grants_everything(
    purpose: str, account: str, administrators: list[str]
) -> None:
    holder = KeyHolder(account, REGION, tuple(administrators))
    text = resolved(key_policy(purpose, holder))
    harmless(text)
    for statement in text["Statement"]:
        assert not any("*" in action for action in statement["Action"])


@settings(max_examples=examples(30))
@given(
    st.sampled_from((*GATEWAYS[CLUSTER], *INTERFACES)),
    ACCOUNTS,
    st.none() | st.just("o-a1b2c3d4e5"),
)
def test_endpoints_reach_own_resources_for_own_principals(
    service: str, account: str, organization: str | None
) -> None:
    text = resolved(
        endpoint_policy(service, Owner(account, REGION, "vpc-1", organization), CLUSTER)
    )
    harmless(text)
    own = next(each for each in text["Statement"] if each["Sid"] == "OwnResources")
    tests = own["Condition"]
    keys = {key: value for test in tests.values() for key, value in test.items()}
    value = organization or account
    kind = "OrgID" if organization else "Account"
    assert keys == {f"aws:Principal{kind}": value, f"aws:Resource{kind}": value}
    assert f"aws:Principal{kind}" in tests["StringEquals"]


@settings(max_examples=examples(20))
@given(ACCOUNTS, st.booleans())
def test_buckets_refuse_strangers_and_old_tls(account: str, audit: bool) -> None:
    key = f"arn:aws:kms:{REGION}:{account}:key/1"
    text = resolved(bucket_policy(BucketOwner("acme", account, REGION, key), audit=audit))
    harmless(text)
    by_id = {each["Sid"]: each for each in text["Statement"]}
    assert by_id["OnlyTls"]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert by_id["OnlyTls13"]["Condition"]["NumericLessThan"] == {"s3:TlsVersion": "1.3"}
    assert by_id["OnlyThisAccount"]["Effect"] == "Deny"
    # CloudTrail writes its digests with S3's own keys; nobody else may.
    assert by_id["OnlyKms"]["Condition"]["Bool"] == {"aws:PrincipalIsAWSService": "false"}
    assert by_id["OnlyOwnKey"]["Condition"]["StringNotEquals"] == {
        "s3:x-amz-server-side-encryption-aws-kms-key-id": key
    }
    # A header that isn't there means the bucket's own key, which must not be refused.
    assert by_id["OnlyOwnKey"]["Condition"]["Null"] == {
        "s3:x-amz-server-side-encryption-aws-kms-key-id": "false"
    }
    allowed = [each for each in text["Statement"] if each["Effect"] == "Allow"]
    assert bool(allowed) == audit
    for statement in allowed:
        assert statement["Principal"] == {"Service": ["cloudtrail.amazonaws.com"]}
        assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == account


@settings(max_examples=examples(40))
@given(st.sampled_from(DUTIES), SOME_BUCKETS, SOME_KEYS, SOME_REPOSITORIES)
def test_no_duty_is_granted_everything(
    duty: str,
    buckets: dict[str, str],
    keys: dict[str, str],
    repositories: dict[str, str],
) -> None:
    realm = Realm(ACCOUNT, REGION, "acme", "/falaj/acme", buckets, repositories, keys)
    text = resolved(duty_policy(duty, realm))
    harmless(text)
    # Every statement is about something; about nothing would mean about all.
    assert all(each["Resource"] for each in text["Statement"])
    # All inline policies of a role together: https://docs.aws.amazon.com/IAM/latest/UserGuide/
    # reference_iam-quotas.html
    assert len(json.dumps(text, separators=(",", ":"))) <= 10240


@settings(max_examples=examples(20))
@given(
    st.from_regex(r"\A[a-z][a-z0-9-]{0,17}[a-z0-9]\Z"),
    st.none() | st.just("arn:aws:s3:::" + "a" * 63),
)
def test_the_boundary_fits_and_refuses(tenant: str, audit: str | None) -> None:
    limits = Limits(
        account=ACCOUNT,
        regions=(REGION,),
        boundary="b" * 128,
        duties=["d" * 64] * 5,
        log_prefix=f"/falaj/{tenant}",
        audit_bucket=audit,
    )
    text = resolved(boundary_policy(limits))
    harmless(text)
    assert len(json.dumps(text, separators=(",", ":"))) <= 6144
    by_id = {each["Sid"]: each for each in text["Statement"]}
    elsewhere = by_id["OnlyInCountry"]
    assert elsewhere["Condition"] == {"StringNotEquals": {"aws:RequestedRegion": [REGION]}}
    assert "s3:*" not in elsewhere["NotAction"]
    assert "kms:ReplicateKey" in by_id["NoCopiesOut"]["Action"]
    assert "cloudtrail:StopLogging" in by_id["KeepWatching"]["Action"]
    # None of what gives a role rights without asking whether it has the boundary.
    assert set(by_id["NewRolesHaveIt"]["Action"]) == {
        "iam:AttachRolePolicy",
        "iam:CreateRole",
        "iam:PutRolePermissionsBoundary",
        "iam:PutRolePolicy",
    }
    assert {"s3:PutBucketPolicy", "ecr:SetRepositoryPolicy"} <= set(by_id["NoCopiesOut"]["Action"])
    assert "guardduty:*Filter" in by_id["KeepWatching"]["Action"]
    assert "iam:CreateAccessKey" in by_id["NoLastingCredentials"]["Action"]
    assert ("KeepAudit" in by_id) == (audit is not None)


def test_key_administrators_never_use_keys() -> None:
    keys = {"data": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"}
    realm = Realm(ACCOUNT, REGION, "acme", "/falaj/acme", {}, {}, keys)
    text = resolved(duty_policy("key-administrator", realm))
    denied = next(each for each in text["Statement"] if each["Effect"] == "Deny")
    assert {"kms:Decrypt", "kms:Encrypt", "kms:CreateGrant"} <= set(denied["Action"])
    assert denied["Resource"] == ["*"]


def test_key_rings_are_filled_by_deployers_and_read_by_no_duty() -> None:
    keys = {"data": f"arn:aws:kms:{REGION}:{ACCOUNT}:key/1"}
    realm = Realm(ACCOUNT, REGION, "acme", "/falaj/acme", {}, {}, keys)
    own = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:acme-*"
    may: dict[str, set[str]] = {}
    for duty in DUTIES:
        for statement in resolved(duty_policy(duty, realm))["Statement"]:
            if statement["Effect"] == "Allow":
                secret = {
                    each.partition(":")[2]
                    for each in statement["Action"]
                    if each.startswith("secretsmanager:")
                }
                if secret:
                    assert all(each.startswith(own) for each in statement["Resource"])
                    may.setdefault(duty, set()).update(secret)
    assert set(may) == {"deployer", "provisioner"}
    assert may["deployer"] == {"DescribeSecret", "PutSecretValue"}
    assert not may["provisioner"] & {"GetSecretValue", "PutSecretValue", "UpdateSecret"}


def test_only_the_trainer_reads_datasets() -> None:
    buckets = {each: f"arn:aws:s3:::acme-{each}" for each in BUCKETS}
    keys = {each: f"arn:aws:kms:{REGION}:{ACCOUNT}:key/{each}" for each in PURPOSES}
    readers: set[str] = set()
    for duty in DUTIES:
        realm = Realm(ACCOUNT, REGION, "acme", "/falaj/acme", buckets, {}, keys)
        for statement in resolved(duty_policy(duty, realm))["Statement"]:
            if (
                statement["Effect"] == "Allow"
                and "s3:GetObject" in statement["Action"]
                and "arn:aws:s3:::acme-datasets/*" in statement["Resource"]
            ):
                readers.add(duty)
    assert readers == {"trainer"}
