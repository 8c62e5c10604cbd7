"""Rules of the pack `kubernetes`."""

from __future__ import annotations

from policies.model import Rule
from policies.rules.kubernetes import (
    host_isolation,
    images,
    kernel_isolation,
    placement,
    unprivileged_users,
)

RULES: tuple[Rule, ...] = (
    *host_isolation.RULES,
    *kernel_isolation.RULES,
    *unprivileged_users.RULES,
    *images.RULES,
    *placement.RULES,
)
