"""Rules of the pack `kubernetes`."""

from __future__ import annotations

from policies.model import Rule

RULES: tuple[Rule, ...] = ()
