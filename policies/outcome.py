"""What becomes of findings: blocked, waived, or only said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from falaj.policies.model import Context, Finding, FindingKind, Resource, Settings, is_unknown
from falaj.policies.model.judge import Judgement
from falaj.policies.reading.tags import data_class
from falaj.policies.waivers import Ruling, Waivers

RESTRICTED: Final = "restricted"
_LESSER: Final = ("public", "internal", "confidential")


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
        unsure = "INDETERMINATE: " if found.kind is FindingKind.INDETERMINATE else ""
        return f"{unsure}{where}{found.reason}{note}. {rule.remediation}"


def decide(judgement: Judgement, settings: Settings, waivers: Waivers) -> Iterator[Decided]:
    """What becomes of each finding of a judgement."""
    if not judgement.findings:
        return
    resource = judgement.resource
    ruling = waivers.ruling(judgement.rule, resource, class_of(resource, settings))
    for found in judgement.findings:
        if ruling.waiver:
            status = Status.WAIVED
        elif found.kind is FindingKind.VIOLATION:
            status = Status.VIOLATION
        else:
            status = Status.INDETERMINATE if settings.strict else Status.ADVISORY
        yield Decided(judgement, found, status, ruling)


def class_of(resource: Resource, settings: Settings) -> str:
    """The class of a resource's data: its own tag's, its provider's, else the stack's.

    The strictest where that can't be told: a tag that is unknown, or that names no class there is,
    may stand for restricted data.
    """
    context = Context(settings)
    tagged: Any = data_class(resource, context)
    # Labels of Kubernetes are read by the context alone.
    found = context.data_class(resource) if tagged == settings.data_class else tagged
    said = "" if is_unknown(found) else str(found).strip().lower()
    return said if said in _LESSER else RESTRICTED
