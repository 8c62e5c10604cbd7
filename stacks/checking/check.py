"""A check of several stacks, with what judged, who asked, and when."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import falaj
from falaj.engine.errors import EngineError
from falaj.policies.model import Rule, kind_of
from falaj.policies.reading.types import azure
from falaj.policies.reports.result import CheckResult, Provenance, RuleRecord, StackResult
from falaj.policies.rules import all_rules
from falaj.sandbox.schema.tables import SDKS, Package
from falaj.stacks.checking.packs import digests
from falaj.stacks.checking.provenance import provenance_of
from falaj.stacks.checking.recorded import team_rules
from falaj.stacks.checking.side_by_side import SideBySide
from falaj.stacks.checking.subject import Subject
from falaj.stacks.settings.policies import PACKS


@dataclass(frozen=True)
class Beginning:
    """When a check began, and what was there then: its own runs may write into the project."""

    started: datetime.datetime
    provenance: Provenance
    rules: tuple[Rule, ...]
    """All that may judge: the packs', and the stacks' own."""


def begin(found: Sequence[Subject] = ()) -> Beginning:
    """Begin a check of stacks; of none where a state is judged without a project's settings."""
    own = {each.id: each for subject in found for each in team_rules(subject)}
    rules = (*all_rules(), *own.values())
    return Beginning(datetime.datetime.now(datetime.UTC), provenance_of(found), rules)


def check_now(found: Sequence[Subject], strict: bool | None = None, jobs: int = 1) -> CheckResult:
    """Preview stacks in the sandbox and judge them.

    Args:
        found: the stacks.
        strict: whether what can't be known fails. Default: as each stack says.
        jobs: how many at a time.
    """
    beginning = begin(found)
    return gathered(beginning, SideBySide(found, strict, jobs).run())


def gathered(beginning: Beginning, found: Sequence[StackResult]) -> CheckResult:
    """The result of a check that began then and ends now."""
    return CheckResult(
        beginning.started,
        datetime.datetime.now(datetime.UTC),
        falaj.__version__,
        beginning.provenance,
        tuple(digests(PACKS)),
        tuple(found),
        tuple(RuleRecord.of(each) for each in beginning.rules),
    )


def unknown_types(rules: Iterable[Rule], judged: Collection[str]) -> Iterator[str]:
    """What to say of types that rules name and that nothing has: misspelt, they judge nothing.

    A type is passed over where its SDK isn't installed, for then nobody can tell.

    Args:
        rules: a team's own; those of the packs are held by tests.
        judged: types of the resources that were judged, which may be of any provider.
    """
    kinds = set(map(kind_of, judged))
    for rule in rules:
        for each in sorted(rule.types):
            only = replace(rule, types=frozenset({each}))
            if only.is_walker or any(map(only.concerns, kinds)):
                continue
            package = each.partition(":")[0]
            known = _types_of(package) if package in SDKS else frozenset[str]()
            if known is not None and not any(map(only.concerns, known)):
                yield (
                    f"the rule {rule.id} names the type {each}, which no SDK has that Falaj "
                    "knows and no resource that was judged, so nothing was judged by it there"
                )


@cache
def _types_of(package: str) -> frozenset[str] | None:
    """The types of an SDK, with what Azure's were called before; None where it isn't installed."""
    try:
        today = {kind_of(token) for token in Package(package).classes}
    except EngineError:
        return None
    prefix = "azure-native:"
    former = (azure(each.removeprefix(prefix)) for each in today if each.startswith(prefix))
    return frozenset(today).union(*former)
