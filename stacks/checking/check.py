"""A check of several stacks, with what judged, who asked, and when."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass

import falaj
from falaj.policies.model import Rule
from falaj.policies.reports.result import CheckResult, Provenance, RuleRecord, StackResult
from falaj.policies.rules import all_rules
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
