"""Rules of the pack `zero_trust`."""

from __future__ import annotations

from policies.model import Rule
from policies.rules.zero_trust import aws, azure

RULES: tuple[Rule, ...] = (*aws.RULES, *azure.RULES)
