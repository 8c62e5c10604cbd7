"""What to do about refusals whose own words don't say it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_HINTS: Final[Mapping[str, str]] = {
    # github.com/hashicorp/terraform-provider-aws/issues/49247: also where its role may use the
    # key, but EKS doesn't know of it yet, which no try of the provider's own bridges.
    r"InvalidParameterException: Access denied to KMS key": (
        "EKS may not use the key of the cluster's secrets. Just after its role or the key were "
        "made: run this again in a minute. If it stays: the caller needs kms:CreateGrant and "
        "kms:DescribeKey on that key, from the key's policy and from its own, without the "
        "condition kms:GrantIsForAWSResource"
    ),
}


def hints(printed: str) -> list[str]:
    """What to do about each refusal that stands in what the engine printed."""
    return [hint for said, hint in _HINTS.items() if re.search(said, printed)]
