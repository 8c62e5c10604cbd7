"""What becomes of findings: blocked, waived, or only said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from policies.model import Finding, Kind, Settings, View
from policies.model.judge import Judgement
from policies.waivers import Ruling, Waivers


class Status(Enum):
    """What a finding means for the deployment."""

    VIOLATION = "violation"
    INDETERMINATE = "indeterminate"
    """Can't be known, and checks are strict: it fails like a violation."""
    ADVISORY = "advisory"
    """Can't be known, and checks aren't strict."""
    WAIVED = "waived"

    @property
    def fails(self) -> bool:
        """Whether it blocks."""
        return self in (Status.VIOLATION, Status.INDETERMINATE)


@dataclass(frozen=True)
class Decided:
    """A finding, and what becomes of it."""

    judgement: Judgement
    finding: Finding
    status: Status
    ruling: Ruling

    @property
    def message(self) -> str:
        """What a person reads: property, reason, and what to change."""
        rule, found = self.judgement.rule, self.finding
        where = f"{found.path}: " if found.path else ""
        if self.status is Status.WAIVED and self.ruling.waiver:
            waiver = self.ruling.waiver
            return (
                f"{where}{found.reason}. Waived until {waiver.expires} by {waiver.approver} "
                f"({waiver.id}): {waiver.reason}"
            )
        note = f" ({self.ruling.note})" if self.ruling.note else ""
        unsure = "INDETERMINATE: " if found.kind is Kind.INDETERMINATE else ""
        return f"{unsure}{where}{found.reason}{note}. {rule.remediation}"


def decide(judgement: Judgement, settings: Settings, waivers: Waivers) -> Iterator[Decided]:
    """What becomes of each finding of a judgement."""
    if not judgement.findings:
        return
    view = View(settings)
    ruling = waivers.ruling(
        judgement.rule, judgement.resource, view.data_class(judgement.resource)
    )
    for found in judgement.findings:
        if ruling.waiver:
            status = Status.WAIVED
        elif found.kind is Kind.VIOLATION:
            status = Status.VIOLATION
        else:
            status = Status.INDETERMINATE if settings.strict else Status.ADVISORY
        yield Decided(judgement, found, status, ruling)
