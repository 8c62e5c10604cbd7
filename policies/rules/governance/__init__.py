"""Rules of the pack `governance`."""

from __future__ import annotations

from policies.model import Rule
from policies.rules.governance import (
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
