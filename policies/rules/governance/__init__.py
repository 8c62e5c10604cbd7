"""Rules of the pack `governance`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.governance import (
    backups,
    budgets,
    gpu_pools,
    log_retention,
    protection,
    restricted_data,
    tags,
)

RULES: tuple[Rule, ...] = (
    *tags.RULES,
    *protection.RULES,
    *backups.RULES,
    *log_retention.RULES,
    *budgets.RULES,
    *gpu_pools.RULES,
    *restricted_data.RULES,
)
