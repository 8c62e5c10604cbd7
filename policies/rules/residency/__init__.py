"""Rules of the pack `residency`."""

from __future__ import annotations

from policies.model import Rule

RULES: tuple[Rule, ...] = ()
