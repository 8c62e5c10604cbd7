"""Rules of the pack `governance`."""

from __future__ import annotations

from policies.model import Rule

RULES: tuple[Rule, ...] = ()
