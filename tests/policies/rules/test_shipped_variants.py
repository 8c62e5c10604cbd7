"""Stacks of other choices than the shipped ones meet all rules as well."""

from __future__ import annotations

from typing import Any

import pytest

from falaj.policies.model import Settings
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules
from tests.policies.shipped import stack_with
from tests.stacks.in_mocks import shipped

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "aws with a way out": (
        "aws-foundation",
        {"network": {"egressDomains": ["models.example.ae"]}},
    ),
    "azure with a way out": (
        "azure-foundation",
        {"network": {"egressDomains": ["login.microsoftonline.com"]}},
    ),
    "azure with logs of its own": ("azure-foundation", {"audit": {"dedicatedLogs": True}}),
    "azure, restricted": ("azure-smb", {"dataClass": "restricted"}),
    "aws, restricted": ("aws-smb", {"dataClass": "restricted"}),
    "aws with shells": ("aws-smb", {"inference": {"sessionManager": True}}),
    "aws with an authority": ("aws-smb", {"inference": {"privateAuthority": True}}),
    "aws, development": ("aws-smb", {"environment": "development"}),
    "azure, development": ("azure-smb", {"environment": "development"}),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_meets_every_rule(variant: str) -> None:
    name, changes = VARIANTS[variant]
    config = shipped(name)
    for key, value in changes.items():
        own = config.get(f"falaj:{key}")
        config[f"falaj:{key}"] = {**own, **value} if isinstance(own, dict) else value
    settings = Settings(
        data_class=config["falaj:dataClass"],
        environment=config.get("falaj:environment", "production"),
    )
    found = [
        f"{each.rule.id}: {each.resource}: {one.path}: {one.reason}"
        for each in Judge(all_rules(), settings).evaluate_stack(stack_with(config))
        for one in each.findings
    ]
    assert not found, "\n".join(found)
