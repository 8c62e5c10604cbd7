"""Attacks on the rules, by class: programs that ought to be refused, and rightful ones that pass.

They stand in ``attacks/<class>.attacks.yaml``, in the form of `tests.policies.cases`, with three
keys of their own: ``by`` (how the ids of the rules begin that ought to object, or to be silent),
``at`` (the property below which something is found; all rules are asked), and ``judged`` (the
name of the resource that is judged, where it is one of the ``others``). A rightful case has no
finding by the rules of residency, or by those that ``by`` names, at ``clear`` or anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from falaj.policies.model import Context, FindingKind, Resource, Settings, Stack, read_settings
from falaj.policies.model.judge import Judge
from falaj.policies.rules import all_rules
from tests.each import for_each
from tests.policies.cases import resource_of

FOLDER = Path(__file__).parent / "attacks"
RULES = tuple(all_rules())
#: Rules that say where data goes, and from where programs come.
RESIDENCY = (
    "residency-", "kubernetes-foreign", "kubernetes-egress-host", "kubernetes-egress-address",
)  # fmt: skip


@dataclass(frozen=True)
class Attack:
    """A resource among others, and what is expected of the rules."""

    title: str
    resource: Resource
    stack: Stack
    settings: Settings
    by: tuple[str, ...]
    at: str

    def __str__(self) -> str:
        return self.title


def _read(given: Mapping[str, Any], otherwise: tuple[str, ...]) -> Attack:
    stack = Stack((resource_of(given), *map(resource_of, given.get("others") or ())), name="case")
    wanted = given.get("judged", stack.resources[0].name)
    resource = next(each for each in stack.resources if each.name == wanted)
    settings = read_settings(given.get("settings") or {}, "an attack")
    by = (str(given["by"]),) if "by" in given else otherwise
    at = str(given.get("at", given.get("clear", "")))
    return Attack(str(given["case"]), resource, stack, settings, by, at)


def attacks(name: str) -> Iterator[Attack]:
    """The attacks of a class."""
    return (_read(each, ("",)) for each in _document(name)["attacks"])


def rightful(name: str) -> Iterator[Attack]:
    """The rightful cases of a class."""
    return (_read(each, RESIDENCY) for each in _document(name)["rightful"])


def _document(name: str) -> Mapping[str, Any]:
    return yaml.safe_load((FOLDER / f"{name}.attacks.yaml").read_text(encoding="utf-8"))


CLASSES = sorted(each.name.partition(".")[0] for each in FOLDER.glob("*.attacks.yaml"))


def violations(attack: Attack) -> list[tuple[str, str, str]]:
    """What the rules of the case object to for certain."""
    return [each[1:] for each in findings(attack) if each[0] is FindingKind.VIOLATION]


def findings(attack: Attack) -> list[tuple[FindingKind, str, str, str]]:
    """What the rules of the case find: kind, rule, path and reason."""
    judge, context = Judge(RULES, attack.settings), Context(attack.settings, attack.stack)
    found: list[tuple[FindingKind, str, str, str]] = []
    for each in judge.concerning(attack.resource.kind):
        if each.id.startswith(attack.by):
            found += [
                (one.kind, each.id, one.path, one.reason)
                for one in each.check(attack.resource, context)
                if one.path.startswith(attack.at)
            ]
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_attacks_are_refused(name: str) -> None:
    for_each(attacks(name), is_refused)


def is_refused(attack: Attack) -> None:
    assert violations(attack)


@pytest.mark.parametrize("name", CLASSES)
def test_what_is_rightful_passes(name: str) -> None:
    for_each(rightful(name), passes)


def passes(attack: Attack) -> None:
    # What can't be known fails as well, where checks are strict.
    assert not findings(attack)
