"""Every rule, by pack."""

from __future__ import annotations

import importlib
from functools import cache

from falaj.policies.model import PACKS, Rule

__all__ = ["PACKS", "all_rules", "rules_of"]


@cache
def rules_of(pack: str) -> tuple[Rule, ...]:
    """The rules of a pack, in the order of its modules. Raises KeyError for an unknown pack."""
    if pack not in PACKS:
        raise KeyError(pack)
    # A pack's process needs its own rules only.
    rules: tuple[Rule, ...] = importlib.import_module(f"falaj.policies.rules.{pack}").RULES
    return rules


def all_rules() -> tuple[Rule, ...]:
    """The rules of all packs."""
    return tuple(each for pack in PACKS for each in rules_of(pack))
