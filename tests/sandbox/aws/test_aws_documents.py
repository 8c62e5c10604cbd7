"""The grammar of policy documents."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from falaj.sandbox.clouds.aws.documents import (
    ENDPOINT,
    IDENTITY,
    RESOURCE,
    TRUST,
    complaints,
    statements,
)

ALLOW: dict[str, Any] = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}


def said(kind: str, document: Any, longest: int = 0) -> str:
    text = document if isinstance(document, str) else json.dumps(document)
    return "; ".join(complaints(text, kind, longest))


def one(**statement: Any) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{**ALLOW, **statement}]}


def without(key: str, **more: Any) -> dict[str, Any]:
    statement = {**ALLOW, **more}
    del statement[key]
    return {"Version": "2012-10-17", "Statement": [statement]}


@pytest.mark.parametrize(
    ("kind", "document", "text"),
    [
        (IDENTITY, "", "isn't JSON"),
        (IDENTITY, "[]", "is a JSON object"),
        (IDENTITY, "[" * 100_000, "isn't JSON"),
        (IDENTITY, {"Version": "2012-10-17"}, "Statement is missing"),
        (IDENTITY, {"Version": "2020-01-01", "Statement": [ALLOW]}, "2012-10-17, 2008-10-17"),
        (IDENTITY, {"version": "2012-10-17", "Statement": [ALLOW]}, "version isn't an element"),
        (IDENTITY, {"Statement": ["Allow"]}, r"Statement[0] is no JSON object"),
        (IDENTITY, one(Effect="allow"), "allowed: Allow, Deny"),
        (IDENTITY, one(Actions="s3:*"), "Actions isn't an element"),
        (IDENTITY, one(NotAction="s3:*"), "both Action and NotAction"),
        (IDENTITY, without("Action"), "neither Action nor NotAction"),
        (IDENTITY, without("Resource"), "neither Resource nor NotResource"),
        (IDENTITY, one(Action="GetObject"), "no action"),
        (IDENTITY, one(Action=[]), "give a text or a list"),
        (IDENTITY, one(Resource="bucket/*"), "neither an ARN nor '*'"),
        (IDENTITY, one(Principal="*"), "isn't allowed in a policy of an identity"),
        (IDENTITY, one(Sid="my sid"), "letters A-Z"),
        (IDENTITY, one(Condition={"StringEqual": {"a": "b"}}), "no condition operator"),
        (IDENTITY, one(Condition={"StringEquals": {}}), "names no condition key"),
        (IDENTITY, one(Condition=[]), "Condition is no JSON object"),
        (
            IDENTITY,
            {"Statement": [{**ALLOW, "Sid": "A"}, {**ALLOW, "Sid": "A"}]},
            "is used twice",
        ),
        (RESOURCE, one(), "neither Principal nor NotPrincipal"),
        (RESOURCE, one(Principal="me"), "give '*' or an object"),
        (RESOURCE, one(Principal={"Aws": "*"}), "allowed: AWS, CanonicalUser"),
        (ENDPOINT, one(), "neither Principal nor NotPrincipal"),
        (TRUST, one(Principal="*", Action="sts:AssumeRole"), "Resource isn't allowed"),
        (TRUST, without("Resource", Principal="*"), "allowed: sts:"),
        (TRUST, without("Resource", Action="sts:AssumeRole"), "neither Principal"),
    ],
)
def test_what_the_grammar_forbids(kind: str, document: Any, text: str) -> None:
    assert text in said(kind, document)


def test_white_space_does_not_count_against_the_limit() -> None:
    text = json.dumps(one(), indent=8)
    size = len(json.dumps(one(), separators=(",", ":")))
    assert said(IDENTITY, text, size) == ""
    assert f"allowed: {size - 1}" in said(IDENTITY, text, size - 1)


@pytest.mark.parametrize(
    ("kind", "document"),
    [
        (IDENTITY, one()),
        (IDENTITY, {"Version": "2012-10-17", "Statement": ALLOW}),
        (IDENTITY, one(Action=["s3:Get*", "s3:List?ucket", "*"], Resource=["arn:aws:s3:::b/*"])),
        (IDENTITY, one(Resource="arn:aws:ec2:*:*:instance/*")),
        (IDENTITY, one(Condition={"ForAllValues:StringLikeIfExists": {"aws:TagKeys": ["a"]}})),
        (IDENTITY, one(Condition={"Null": {"kms:GrantIsForAWSResource": "true"}})),
        (IDENTITY, one(Condition={"ArnNotLikeIfExists": {"aws:PrincipalArn": "arn:aws:iam::*"}})),
        (RESOURCE, one(Principal={"AWS": ["000000000000"], "Service": "s3.amazonaws.com"})),
        (RESOURCE, one(Principal="*", Sid="deny insecure transport")),
        (RESOURCE, without("Resource", Principal="*")),
        (ENDPOINT, one(Principal="*")),
        (
            TRUST,
            without(
                "Resource",
                Principal={"Federated": "arn:aws:iam::000000000000:oidc-provider/x"},
                Action="sts:AssumeRoleWithWebIdentity",
            ),
        ),
    ],
)
def test_what_aws_takes_is_taken(kind: str, document: Any) -> None:
    assert said(kind, document) == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["Version", "Statement", "Effect", "Action", "Principal", "Condition", "Sid", "x"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, st.sampled_from([IDENTITY, RESOURCE, TRUST, ENDPOINT]))
def test_no_document_makes_the_check_fail(document: Any, kind: str) -> None:
    assert isinstance(said(kind, json.dumps(document)), str)
    assert isinstance(statements(json.dumps(document)), list)


@given(st.text())
def test_no_text_makes_the_check_fail(text: str) -> None:
    assert isinstance(said(RESOURCE, text, 10), str)
