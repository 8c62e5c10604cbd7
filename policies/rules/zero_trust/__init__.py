"""Rules of the pack `zero_trust`."""

from __future__ import annotations

from policies.model import Rule

RULES: tuple[Rule, ...] = ()
