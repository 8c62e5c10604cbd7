"""What answered when stacks were judged, for the band at the top of the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from falaj.policies.reports.result import AnsweredBy, CheckResult, StackResult


@dataclass(frozen=True)
class Answer:
    """One source, and the stacks for which it answered."""

    answered_by: AnsweredBy
    stacks: Sequence[StackResult]

    @property
    def is_record(self) -> bool:
        """Whether a state was judged, which is as old as it says."""
        return self.answered_by in ("sandbox-state", "exported-state", "backend")


@dataclass(frozen=True)
class Answers:
    """All sources of a result."""

    each: Sequence[Answer]
    """In the order of the stacks; nobody where nothing was checked."""

    @property
    def only(self) -> AnsweredBy | None:
        """The one that answered for all that was checked; None where several did."""
        # What could not be checked makes of one source no mixture.
        found: list[AnsweredBy] = [
            each.answered_by for each in self.each if each.answered_by != "nobody"
        ]
        if not found:
            return "nobody"
        return found[0] if len(found) == 1 else None


def answers(result: CheckResult) -> Answers:
    """What answered for the stacks of a result."""
    found = [
        Answer(source, [each for each in result.stacks if each.answered_by == source])
        for source in result.answered_by
    ]
    return Answers(found or [Answer("nobody", ())])
