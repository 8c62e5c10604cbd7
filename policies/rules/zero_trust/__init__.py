"""Rules of the pack `zero_trust`."""

from __future__ import annotations

from policies.model import Rule
from policies.rules.zero_trust import aws_security_groups, azure

RULES: tuple[Rule, ...] = (*aws_security_groups.RULES, *azure.RULES)
