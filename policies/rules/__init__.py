"""Every rule, by pack."""

from __future__ import annotations

import importlib
from functools import cache

from falaj.policies.model import PACKS, Rule
from falaj.policies.team_rules import installed_rules, require_distinct

__all__ = ["PACKS", "all_rules", "rules_of"]


@cache
def rules_of(pack: str) -> tuple[Rule, ...]:
    """The rules of a pack, in the order of its modules, then those that packages offer for it.

    Raises:
        KeyError: there is no such pack.
        PolicyError: a package offers what is no rule, or one whose id is taken.
    """
    if pack not in PACKS:
        raise KeyError(pack)
    # A pack's process needs its own rules only.
    rules: tuple[Rule, ...] = importlib.import_module(f"falaj.policies.rules.{pack}").RULES
    found = (*rules, *(each for each in installed_rules() if each.pack == pack))
    require_distinct(found)
    return found


def all_rules() -> tuple[Rule, ...]:
    """The rules of all packs."""
    return tuple(each for pack in PACKS for each in rules_of(pack))
