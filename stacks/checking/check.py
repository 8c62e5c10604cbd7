"""A check of several stacks, with what judged and when."""

from __future__ import annotations

import datetime
import importlib.metadata
import sys
from collections.abc import Sequence

from falaj.engine.versions import pins
from falaj.policies.reports.result import CheckResult, RuleRecord, StackResult
from falaj.policies.rules import all_rules
from falaj.stacks.checking.packs import digests
from falaj.stacks.checking.side_by_side import SideBySide
from falaj.stacks.checking.subject import Subject
from falaj.stacks.settings.policies import PACKS


def check_now(found: Sequence[Subject], strict: bool | None = None, jobs: int = 1) -> CheckResult:
    """Preview stacks in the sandbox and judge them.

    Args:
        found: the stacks.
        strict: whether what can't be known fails. Default: as each stack says.
        jobs: how many at a time.
    """
    started = datetime.datetime.now(datetime.UTC)
    return gathered(started, SideBySide(found, strict, jobs).run())


def gathered(started: datetime.datetime, found: Sequence[StackResult]) -> CheckResult:
    """The result of a check that began then and ends now."""
    return CheckResult(
        started,
        datetime.datetime.now(datetime.UTC),
        importlib.metadata.version("falaj"),
        tuple(digests(PACKS)),
        tuple(found),
        tuple(RuleRecord.of(each) for each in all_rules()),
        {"pulumi": str(pins().version), "python": sys.version.split()[0]},
    )
