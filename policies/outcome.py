"""What becomes of findings: blocked, waived, or only said; and a record of all that was judged."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final

from falaj.policies.configuration import Configuration
from falaj.policies.model import (
    Context,
    Finding,
    FindingKind,
    Resource,
    Settings,
    Stack,
    is_unknown,
)
from falaj.policies.model.judge import Judgement
from falaj.policies.model.rule import LESSER_CLASSES
from falaj.policies.reading.place import place_of
from falaj.policies.reading.tags import data_class
from falaj.policies.rules.encryption.at_rest import AtRest, encryption_of
from falaj.policies.variables import RECORD_FOLDER
from falaj.policies.waivers import Ruling

RESTRICTED: Final = "restricted"


class Status(Enum):
    """What a finding means for the deployment."""

    VIOLATION = "violation"
    INDETERMINATE = "indeterminate"
    """Can't be known where checks are strict, or the rule itself failed: it fails like a
    violation."""
    ADVISORY = "advisory"
    """Only said: it can't be known and checks aren't strict, or the rule is advice here."""
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


def decide(judgement: Judgement, configuration: Configuration) -> Iterator[Decided]:
    """What becomes of each finding of a judgement."""
    if not judgement.findings:
        return
    resource, settings = judgement.resource, configuration.settings
    ruling = configuration.waivers.ruling(judgement.rule, resource, class_of(resource, settings))
    for found in judgement.findings:
        if ruling.waiver:
            status = Status.WAIVED
        elif found.rule_failed:
            status = Status.INDETERMINATE
        elif judgement.rule.id in configuration.advised:
            status = Status.ADVISORY
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
    given = "" if is_unknown(found) else str(found).strip().lower()
    return given if given in LESSER_CLASSES else RESTRICTED


# A record of all that a pack judged, for `falaj check`: one JSON document a line.
#
# Written only where the environment names a folder. Each process writes a file of its own, so that
# packs that run side by side don't meet.

#: What encrypts data at rest, as results call it.
_ENCRYPTION: Final[Mapping[AtRest, str]] = {
    "customer key": "customer-key",
    "service key": "provider-key",
    "none": "none",
    "unknown": "unknown",
    "not stored here": "not-applicable",
}


class Record:
    """The record of one process; does nothing where nobody asked for one."""

    def __init__(self, pack: str) -> None:
        folder = os.environ.get(RECORD_FOLDER)
        self._path = Path(folder) / f"{pack}-{os.getpid()}.jsonl" if folder else None

    @property
    def is_wanted(self) -> bool:
        """Whether somebody reads it."""
        return self._path is not None

    def write(self, kind: str, **entry: Any) -> None:
        """Append an entry, at once."""
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": kind, **entry}) + "\n")


def resource_entry(
    resource: Resource, stack: Stack, judged: Sequence[Judgement], configuration: Configuration
) -> dict[str, Any]:
    """A resource with all that was said of it, as plain data."""
    settings = configuration.settings
    place = place_of(resource, stack)
    return {
        "urn": resource.urn,
        "type": resource.type,
        "name": resource.name,
        "place": "" if place == "none" else place,
        "encryption": _ENCRYPTION[encryption_of(resource, stack).at_rest],
        "dataClass": class_of(resource, settings) if resource.custom else "",
        "judged": [each.rule.id for each in judged],
        "outcomes": [
            _outcome(decided) for each in judged for decided in decide(each, configuration)
        ],
    }


def _outcome(decided: Decided) -> dict[str, Any]:
    waiver = decided.ruling.waiver
    return {
        "rule": decided.judgement.rule.id,
        "path": decided.finding.path,
        "reason": decided.finding.reason,
        "note": decided.ruling.note,
        "findingKind": decided.finding.kind.value,
        "status": decided.status.value,
        "severity": decided.judgement.rule.severity.value,
        "waiver": {
            "id": waiver.id,
            "approver": waiver.approver,
            "reason": waiver.reason,
            "expires": waiver.expires.isoformat(),
        }
        if waiver
        else None,
    }


def read_records(folder: Path) -> Iterable[dict[str, Any]]:
    """All entries that packs wrote into a folder."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)
