"""A rule that a module defines and nobody lists would pass whatever it should refuse."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

import falaj.policies.rules
from falaj.policies.model import Rule
from falaj.policies.rules import all_rules


def defined(module: ModuleType) -> set[str]:
    """Ids of the rules that a module has by name, its own and imported ones."""
    return {each.id for each in vars(module).values() if isinstance(each, Rule)}


def test_every_rule_is_in_its_pack() -> None:
    packages = falaj.policies.rules
    names = [
        each.name for each in pkgutil.walk_packages(packages.__path__, f"{packages.__name__}.")
    ]
    assert len(names) > 50
    known = {each.id for each in all_rules()}
    forgotten = {name: defined(importlib.import_module(name)) - known for name in names}
    assert {name: ids for name, ids in forgotten.items() if ids} == {}
