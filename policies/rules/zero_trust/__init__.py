"""Rules of the pack `zero_trust`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.zero_trust import aws, azure

RULES: tuple[Rule, ...] = (*aws.RULES, *azure.RULES)
