"""Refusals whose own words don't say what to do are told with it."""

from __future__ import annotations

from falaj.stacks.command.hints import hints

REFUSED = (
    "error: creating EKS Cluster (acme-dev-cluster): operation error EKS: CreateCluster, https "
    "response error StatusCode: 400, InvalidParameterException: Access denied to KMS key "
    "arn:aws:kms:me-central-1:000000000000:key/1 due to revoked grant"
)


def test_a_key_that_eks_may_not_use_yet_is_told_with_what_to_do() -> None:
    (hint,) = hints(f"updating\n  {REFUSED}\n")
    assert "run this again in a minute" in hint
    assert "kms:CreateGrant and kms:DescribeKey" in hint
    assert hints("error: VpcLimitExceeded") == []
