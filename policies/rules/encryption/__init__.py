"""Rules of the pack `encryption`."""

from __future__ import annotations

from policies.model import Rule

RULES: tuple[Rule, ...] = ()
