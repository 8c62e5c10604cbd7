"""Rules of the pack `residency`."""

from __future__ import annotations

from policies.model import Rule
from policies.rules.residency import (
    aws_regionless,
    azure_global,
    azure_locations,
    everywhere,
    whereabouts,
)

RULES: tuple[Rule, ...] = (
    *everywhere.RULES,
    *whereabouts.RULES,
    *aws_regionless.RULES,
    *azure_global.RULES,
    *azure_locations.RULES,
)
