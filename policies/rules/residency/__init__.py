"""Rules of the pack `residency`."""

from __future__ import annotations

from policies.model import Rule
from policies.rules.residency import azure_global, azure_locations

RULES: tuple[Rule, ...] = (
    *azure_global.RULES,
    *azure_locations.RULES,
)
