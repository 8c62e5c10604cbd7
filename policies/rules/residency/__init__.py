"""Rules of the pack `residency`."""

from __future__ import annotations

from falaj.policies.model import Rule
from falaj.policies.rules.residency import (
    ai,
    azure_locations,
    copies,
    databases,
    endpoints,
    everywhere,
    global_services,
    guard_rails,
    images,
    networks,
    programs,
    sharing,
    streams,
    whereabouts,
)

RULES: tuple[Rule, ...] = (
    *ai.RULES,
    *azure_locations.RULES,
    *copies.RULES,
    *databases.RULES,
    *endpoints.RULES,
    *everywhere.RULES,
    *global_services.RULES,
    *guard_rails.RULES,
    *images.RULES,
    *networks.RULES,
    *programs.RULES,
    *sharing.RULES,
    *streams.RULES,
    *whereabouts.RULES,
)
