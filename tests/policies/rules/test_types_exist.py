"""Rules name types that the SDKs have, or had: a misspelt one would never be looked at."""

from __future__ import annotations

from functools import cache

import pytest

from falaj.policies.model import Rule, kind_of
from falaj.policies.reading.types import azure
from falaj.policies.rules import all_rules
from falaj.sandbox.schema import Package

AZURE = "azure-native:"
#: Modules of load balancers in older versions of pulumi_aws, which its aliases still name.
OLDER = ("aws:applicationloadbalancing/", "aws:elasticloadbalancing")


@cache
def known() -> frozenset[str]:
    """Types of today's SDKs, and what Azure's were called before."""
    today = {kind_of(token) for name in ("aws", "azure-native") for token in Package(name).classes}
    return frozenset(today).union(
        token
        for each in today
        if each.startswith(AZURE)
        for token in azure(each.removeprefix(AZURE))
    )


@pytest.mark.parametrize(
    "rule",
    [each for each in all_rules() if each.pack in {"zero_trust", "governance"}],
    ids=lambda rule: rule.id,
)
def test_types_of_rules_exist(rule: Rule) -> None:
    unknown = {
        each
        for each in rule.types - known()
        if each.startswith(("aws:", AZURE)) and "*" not in each and not each.startswith(OLDER)
    }
    assert not unknown
