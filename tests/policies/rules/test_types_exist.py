"""Rules name types that the SDKs have, or had: a misspelt one would never be looked at."""

from __future__ import annotations

import pytest

from falaj.engine.sandbox.schema.packages import Package
from falaj.policies.model import Rule, kind_of
from falaj.policies.reading.azure_types import azure
from falaj.policies.rules import all_rules

SDKS = {name: Package(name) for name in ("aws", "azure-native")}
TODAY = {kind_of(token) for sdk in SDKS.values() for token in sdk.classes}
AZURE = "azure-native:"
FORMER = {
    token for each in TODAY if each.startswith(AZURE) for token in azure(each.removeprefix(AZURE))
}
#: Modules of load balancers in older versions of pulumi_aws, which its aliases still name.
OLDER = ("aws:applicationloadbalancing/", "aws:elasticloadbalancing")


@pytest.mark.parametrize(
    "rule",
    [each for each in all_rules() if each.pack in {"zero_trust", "governance"}],
    ids=lambda rule: rule.id,
)
def test_types_of_rules_exist(rule: Rule) -> None:
    unknown = {
        each
        for each in rule.types - TODAY - FORMER
        if each.startswith(("aws:", AZURE)) and "*" not in each and not each.startswith(OLDER)
    }
    assert not unknown
