"""Rules of the pack `encryption`."""

from __future__ import annotations

from policies.model import Rule
from policies.rules.encryption import azure_customer_keys

RULES: tuple[Rule, ...] = (*azure_customer_keys.RULES,)
