"""A record of all that a pack judged, for `falaj check`: one JSON document a line.

Written only where the environment names a folder. Each process writes a file of its own, so that
packs that run side by side don't meet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from falaj.policies.configuration import Configuration
from falaj.policies.model import Resource, Stack
from falaj.policies.model.judge import Judgement
from falaj.policies.outcome import Decided, class_of, decide
from falaj.policies.reading.encryption import AtRest, encryption_of
from falaj.policies.reading.place import place_of

#: What encrypts data at rest, as results call it.
_ENCRYPTION: Final[Mapping[AtRest, str]] = {
    "customer key": "customer-key",
    "service key": "provider-key",
    "none": "none",
    "unknown": "unknown",
    "not stored here": "not-applicable",
}
RECORD_FOLDER: Final = "FALAJ_POLICY_RECORD"


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
            _outcome(decided)
            for each in judged
            for decided in decide(each, settings, configuration.waivers)
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
