"""Rules of the pack `governance`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.governance import (
    costs,
    protection,
    restricted_data,
    tags,
)

RULES: tuple[Rule, ...] = (
    *costs.RULES,
    *protection.RULES,
    *restricted_data.RULES,
    *tags.RULES,
)
